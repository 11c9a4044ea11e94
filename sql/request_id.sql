-- request_id: a reserve that can be repeated.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
CREATE VIEW test.state AS SELECT scope_key, metric, used, reserved FROM ratelimit.counters ORDER BY scope_key, metric;
-- The same id again: allowed, the same reservation, nothing charged; the other columns as found now.
SELECT allowed, used, reserved, remaining, reservation_id AS a FROM rl_reserve('key', 'a', 'tpm', 10, 4, request_id => 'a') \gset first_
SELECT :'first_allowed' AS allowed, :first_reserved AS reserved, :first_remaining AS remaining;
SELECT test.contents() AS before \gset
SELECT allowed, reason, retryable, retry_after_ms, used, reserved, remaining, reservation_id = :'first_a' AS same
FROM rl_reserve('key', 'a', 'tpm', 10, 4, request_id => 'a');
SELECT test.contents() = :'before' AS nothing_written;
-- Full by now, and no obstacle to a repetition.
SELECT allowed, remaining FROM rl_consume('key', 'a', 'tpm', 10, 6);
SELECT allowed, reason, retryable, retry_after_ms, used, reserved, remaining, reservation_id = :'first_a' AS same
FROM rl_reserve('key', 'a', 'tpm', 10, 4, request_id => 'a');
-- Not even a limit of 0, or one that the amount exceeds: the limit is not compared.
SELECT allowed, reason, limit_value, reservation_id = :'first_a' AS same FROM rl_reserve('key', 'a', 'tpm', 0, 4, request_id => 'a');
SELECT allowed, reason, limit_value, reservation_id = :'first_a' AS same FROM rl_reserve('key', 'a', 'tpm', 3, 4, request_id => 'a');
SELECT allowed, reason, limit_value, reservation_id = :'first_a' AS same FROM rl_reserve('key', 'a', 'tpm', NULL, 4, request_id => 'a');
-- Nor are task_id, attempt_id and lease_ttl_seconds.
SELECT allowed, reservation_id = :'first_a' AS same FROM rl_reserve('key', 'a', 'tpm', 10, 4, 60, 7, 'task', 'attempt', 'a');
SELECT task_id, attempt_id FROM ratelimit.reservations;
-- After settlement, and in a later window.
SELECT rl_commit(ARRAY[:'first_a']::uuid[], '{"tpm": 1}');
SELECT allowed, used, reserved, reservation_id = :'first_a' AS same FROM rl_reserve('key', 'a', 'tpm', 10, 4, request_id => 'a');
SET ratelimit.clock = '2030-01-01 00:05:00+00';
SELECT allowed, used, reserved, remaining, window_start, reservation_id = :'first_a' AS same FROM rl_reserve('key', 'a', 'tpm', 10, 4, request_id => 'a');
SELECT status, actual_amount FROM ratelimit.reservations;
SELECT * FROM test.state;
SET ratelimit.clock = '2030-01-01 00:00:10+00';
-- After a release.
SELECT reservation_id AS b FROM rl_reserve('key', 'b', 'tpm', 10, 4, request_id => 'b') \gset
SELECT * FROM rl_release(ARRAY[:'b']::uuid[]);
SELECT allowed, used, reserved, remaining, reservation_id = :'b' AS same FROM rl_reserve('key', 'b', 'tpm', 10, 4, request_id => 'b');
SELECT status FROM ratelimit.reservations WHERE scope_key = 'b';
-- A lease: the same one while it lives, after renewal, after release, after expiry, and never a second one.
SELECT lease_id AS c FROM rl_reserve('key', 'c', 'concurrent', 1, lease_ttl_seconds => 30, request_id => 'c') \gset
SELECT allowed, reason, used, remaining, lease_id = :'c' AS same, lease_expires_at FROM rl_reserve('key', 'c', 'concurrent', 1, lease_ttl_seconds => 30, request_id => 'c');
SET ratelimit.clock = '2030-01-01 00:00:20+00';
SELECT renewed FROM rl_renew(ARRAY[:'c']::uuid[]);
SELECT used, lease_id = :'c' AS same, lease_expires_at FROM rl_reserve('key', 'c', 'concurrent', 1, lease_ttl_seconds => 30, request_id => 'c');
SET ratelimit.clock = '2030-01-01 00:00:50+00';
SELECT allowed, used, lease_id = :'c' AS same, lease_expires_at FROM rl_reserve('key', 'c', 'concurrent', 1, lease_ttl_seconds => 30, request_id => 'c');
SELECT allowed, lease_id <> :'c' AS another FROM rl_reserve('key', 'c', 'concurrent', 1, request_id => 'c2');
SELECT allowed, used, lease_id = :'c' AS same, lease_expires_at FROM rl_reserve('key', 'c', 'concurrent', 1, lease_ttl_seconds => 30, request_id => 'c');
SELECT leases FROM rl_release(lease_ids => (SELECT array_agg(lease_id) FROM ratelimit.leases));
SELECT allowed, used, lease_id <> :'c' AS another, lease_expires_at FROM rl_reserve('key', 'c', 'concurrent', 1, request_id => 'c2');
SELECT count(*) AS leases FROM ratelimit.leases;
SELECT * FROM test.problems();
-- A list: compared in order are scope_type, scope_key, metric, window_seconds and amount of every element.
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT test.list(test.limit('d', 'tpm', 10, 4), test.limit('d', 'rpm', NULL), test.limit('d', 'concurrent', 3, 2)) AS d \gset
SELECT array_agg(reservation_id ORDER BY ordinal) AS reservations, array_agg(lease_id ORDER BY ordinal) AS leases
FROM rl_reserve(:'d', NULL, 'd') \gset
SELECT ordinal, allowed, used, reserved, remaining, reservation_id IS NOT DISTINCT FROM (:'reservations'::uuid[])[ordinal] AS same_reservation,
	lease_id IS NOT DISTINCT FROM (:'leases'::uuid[])[ordinal] AS same_lease, lease_expires_at
FROM rl_reserve(:'d', NULL, 'd');
SELECT what, left(test.error(format('SELECT rl_reserve(%L, NULL, ''d'')', jsonb)), 8) AS result FROM (VALUES
	(1, 'the same', test.list(test.limit('d', 'tpm', 10, 4), test.limit('d', 'rpm', NULL), test.limit('d', 'concurrent', 3, 2))),
	(2, 'other limits', test.list(test.limit('d', 'tpm', 1, 4), test.limit('d', 'rpm', 5), test.limit('d', 'concurrent', NULL, 2))),
	(3, 'other ttl', test.list(test.limit('d', 'tpm', 10, 4), test.limit('d', 'rpm', NULL), test.limit('d', 'concurrent', 3, 2, '{"lease_ttl_seconds": 5}'))),
	(4, 'other attempt', test.list(test.limit('d', 'tpm', 10, 4, '{"attempt_id": "x"}'), test.limit('d', 'rpm', NULL), test.limit('d', 'concurrent', 3, 2))),
	(5, 'scope_type', test.list(test.limit('d', 'tpm', 10, 4, '{"scope_type": "org"}'), test.limit('d', 'rpm', NULL), test.limit('d', 'concurrent', 3, 2))),
	(6, 'scope_key', test.list(test.limit('d', 'tpm', 10, 4), test.limit('e', 'rpm', NULL), test.limit('d', 'concurrent', 3, 2))),
	(7, 'metric', test.list(test.limit('d', 'tpm', 10, 4), test.limit('d', 'RPM', NULL), test.limit('d', 'concurrent', 3, 2))),
	(8, 'window', test.list(test.limit('d', 'tpm', 10, 4, '{"window_seconds": 61}'), test.limit('d', 'rpm', NULL), test.limit('d', 'concurrent', 3, 2))),
	(9, 'amount', test.list(test.limit('d', 'tpm', 10, 4), test.limit('d', 'rpm', NULL), test.limit('d', 'concurrent', 3, 1))),
	(10, 'order', test.list(test.limit('d', 'rpm', NULL), test.limit('d', 'tpm', 10, 4), test.limit('d', 'concurrent', 3, 2))),
	(11, 'fewer', test.list(test.limit('d', 'tpm', 10, 4), test.limit('d', 'rpm', NULL))),
	(12, 'more', test.list(test.limit('d', 'tpm', 10, 4), test.limit('d', 'rpm', NULL), test.limit('d', 'concurrent', 3, 2), test.limit('d', 'rpm', NULL))),
	(13, 'none', '[]')) v (i, what, jsonb) ORDER BY i;
-- One id for the whole database: also from the other shape of the function.
SELECT allowed, reservation_id = :'first_a' AS same FROM rl_reserve(test.list(test.limit('a', 'tpm', 10, 4)), NULL, 'a');
\pset format unaligned
\t on
SELECT test.error($$SELECT rl_reserve('key', 'a', 'tpm', 10, 5, request_id => 'a')$$);
SELECT test.error($$SELECT rl_reserve(test.list(test.limit('d', 'tpm', 10, 4), test.limit('d', 'rpm', NULL)), NULL, 'd')$$);
\t off
\pset format aligned
-- Other arguments are an error also where the call would be denied.
SELECT left(test.error($$SELECT rl_reserve('key', 'other', 'tpm', 0, 4, request_id => 'a')$$), 5) AS sqlstate;
SELECT * FROM test.state;
-- A granted call is remembered even if it made no ids.
SELECT allowed, reservation_id FROM rl_reserve('key', 'f', 'tpm', NULL, 4, request_id => 'f');
SELECT allowed, reservation_id FROM rl_reserve('key', 'f', 'tpm', 10, 4, request_id => 'f');
SELECT count(*) AS counters FROM ratelimit.counters WHERE scope_key = 'f';
SELECT left(test.error($$SELECT rl_reserve('key', 'f', 'tpm', 10, 5, request_id => 'f')$$), 5) AS sqlstate;
-- A denial is not remembered, and writes nothing.
SELECT allowed FROM rl_consume('key', 'g', 'tpm', 10, 10);
SELECT test.contents() AS before \gset
SELECT allowed, reason, retry_after_ms, reservation_id FROM rl_reserve('key', 'g', 'tpm', 10, 4, request_id => 'g');
SELECT allowed, reason FROM rl_reserve('key', 'g', 'tpm', 0, 5, request_id => 'g');
SELECT test.contents() = :'before' AS nothing_written;
SET ratelimit.clock = '2030-01-01 00:01:00+00';
SELECT allowed, used, reserved, reservation_id IS NOT NULL AS reservation FROM rl_reserve('key', 'g', 'tpm', 10, 4, request_id => 'g');
SELECT allowed, used, reserved, reservation_id IS NOT NULL AS reservation FROM rl_reserve('key', 'g', 'tpm', 10, 4, request_id => 'g');
-- If the first call rolls back, the second charges; if it is kept, the second does not.
BEGIN;
SELECT allowed, reserved FROM rl_reserve('key', 'h', 'tpm', 10, 4, request_id => 'h');
ROLLBACK;
SELECT count(*) AS counters FROM ratelimit.counters WHERE scope_key = 'h';
BEGIN;
SELECT allowed, reserved, reservation_id AS h FROM rl_reserve('key', 'h', 'tpm', 10, 4, request_id => 'h') \gset
SAVEPOINT s;
SELECT allowed, reserved, reservation_id = :'h' AS same FROM rl_reserve('key', 'h', 'tpm', 10, 4, request_id => 'h');
SELECT allowed, reserved FROM rl_reserve('key', 'h', 'tpm', 10, 5, request_id => 'h2');
ROLLBACK TO s;
SELECT allowed, reserved, reservation_id = :'h' AS same FROM rl_reserve('key', 'h', 'tpm', 10, 4, request_id => 'h');
SELECT allowed, reserved FROM rl_reserve('key', 'h', 'tpm', 10, 6, request_id => 'h2');
COMMIT;
SELECT used, reserved FROM test.state WHERE scope_key = 'h';
-- In one statement: charged once.
SELECT count(DISTINCT reservation_id) AS ids, bool_and(allowed) AS allowed
FROM (SELECT (rl_reserve('key', 'i', 'tpm', 1, 1, 60, 120, NULL, NULL, left('i' || n, 1))).* FROM generate_series(1, 10) n) s;
SELECT used, reserved FROM test.state WHERE scope_key = 'i';
-- Repeated keys keep their ids apart.
SELECT array_agg(reservation_id ORDER BY ordinal) AS j FROM rl_reserve(test.list(test.limit('j', 'tpm', 10, 1), test.limit('j', 'tpm', 10, 1)), NULL, 'j') \gset
SELECT array_agg(reservation_id ORDER BY ordinal) = :'j' AS same, count(DISTINCT reservation_id)
FROM rl_reserve(test.list(test.limit('j', 'tpm', 10, 1), test.limit('j', 'tpm', 10, 1)), NULL, 'j');
-- Ids are compared as given.
SELECT id, allowed, reserved FROM unnest('{k,K,"k ","ké"}'::text[]) WITH ORDINALITY u (id, n), rl_reserve('key', 'k', 'tpm', 10, n, request_id => id) ORDER BY n;
-- A reservation that was deleted when it was settled (retention 0) is remembered as well.
SET ratelimit.retention = 0;
SELECT reservation_id AS l FROM rl_reserve('key', 'l', 'tpm', 10, 4, request_id => 'l') \gset
SELECT rl_commit(ARRAY[:'l']::uuid[]);
RESET ratelimit.retention;
SELECT allowed, used, reservation_id = :'l' AS same FROM rl_reserve('key', 'l', 'tpm', 10, 4, request_id => 'l');
SELECT * FROM test.problems();
DROP VIEW test.state;
