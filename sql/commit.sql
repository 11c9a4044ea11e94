-- rl_commit: what was promised becomes what was spent.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
CREATE VIEW test.state AS
	SELECT scope_key, metric, window_start, used, reserved FROM ratelimit.counters ORDER BY scope_key, metric;
CREATE VIEW test.settled AS
	SELECT scope_key, metric, amount, status, actual_amount, reason, finalized_at FROM ratelimit.reservations
	ORDER BY scope_key, metric, amount;
-- reserved falls by the reserved amount, used grows by the actual one.
SELECT reservation_id AS a FROM rl_reserve('key', 'a', 'tpm', 1000, 500) \gset
SET ratelimit.clock = '2030-01-01 00:00:20+00';
SELECT rl_commit(ARRAY[:'a']::uuid[], '{"tpm": 312}');
SELECT * FROM test.state;
SELECT * FROM test.settled;
-- Again: settles nothing, returns 0, whatever the actual amount; a release after it changes nothing either.
SELECT rl_commit(ARRAY[:'a']::uuid[], '{"tpm": 999}'), rl_commit(ARRAY[:'a']::uuid[]);
SELECT * FROM rl_release(ARRAY[:'a']::uuid[]);
SELECT * FROM test.state;
SELECT * FROM test.settled;
-- actual missing, or <= 0, or JSON null, means the reserved amount; other metrics are ignored.
TRUNCATE ratelimit.counters, ratelimit.reservations;
SELECT actual, rl_commit(ARRAY[d.reservation_id], actual::jsonb), d.scope_key
FROM (VALUES (1, NULL), (2, '{}'), (3, '{"rpm": 7}'), (4, '{"tpm": 0}'), (5, '{"tpm": -3}'), (6, '{"tpm": null}'), (7, 'null'),
	(8, '{"tpm": 0.5}'), (9, '{"TPM": 3, "tpm ": 3, "": 3, "rpm": 4}'), (10, '{"tpm": 2e2}')) v (i, actual),
	rl_reserve('key', 'b' || i, 'tpm', 100, 10) d ORDER BY i;
SELECT scope_key, used, reserved FROM ratelimit.counters ORDER BY length(scope_key), scope_key;
-- The actual amount may exceed the limit: recorded in full, later calls are denied.
SELECT allowed, reason, used, remaining FROM rl_consume('key', 'b10', 'tpm', 100);
-- Each reservation of the metric gets the actual amount in full; several metrics, scopes and windows in one call.
TRUNCATE ratelimit.counters, ratelimit.reservations;
SELECT array_agg(reservation_id) AS ids FROM rl_reserve('[
	{"scope_type": "key", "scope_key": "c", "metric": "tpm", "limit": 1000, "amount": 100},
	{"scope_type": "org", "scope_key": "c", "metric": "tpm", "limit": 1000, "amount": 100},
	{"scope_type": "key", "scope_key": "c", "metric": "tpm", "limit": 1000, "amount": 100, "window_seconds": 3600},
	{"scope_type": "key", "scope_key": "c", "metric": "tpm", "limit": 1000, "amount": 100},
	{"scope_type": "key", "scope_key": "c", "metric": "rpm", "limit": 1000}]') \gset
SELECT rl_commit(:'ids', '{"tpm": 60}');
SELECT scope_type, metric, window_seconds, used, reserved FROM ratelimit.counters ORDER BY scope_type, metric, window_seconds;
-- Unknown ids, NULL elements and repeated ids count for nothing; an empty array settles nothing.
TRUNCATE ratelimit.counters, ratelimit.reservations;
SELECT reservation_id AS d FROM rl_reserve('key', 'd', 'tpm', 1000, 10) \gset
SELECT rl_commit(ARRAY['00000000-0000-0000-0000-000000000000', NULL, :'d', :'d']::uuid[]), rl_commit('{}'), rl_commit(ARRAY[NULL]::uuid[]);
SELECT * FROM test.state;
-- Arrays of any shape are lists of ids.
SELECT reservation_id AS e, (rl_reserve('key', 'e', 'tpm', 1000, 20)).reservation_id AS f FROM rl_reserve('key', 'e', 'tpm', 1000, 10) \gset
SELECT rl_commit(ARRAY[[:'e'], [:'f']]::uuid[]);
SELECT used, reserved FROM test.state WHERE scope_key = 'e';
-- A lease id is no reservation id.
SELECT lease_id AS lease FROM rl_reserve('key', 'e', 'concurrent', 1) \gset
SELECT rl_commit(ARRAY[:'lease']::uuid[]);
SELECT used FROM rl_check('key', 'e', 'concurrent', 1);
-- A late settlement of an older window never touches the current one.
TRUNCATE ratelimit.counters, ratelimit.reservations;
SELECT reservation_id AS g, (rl_reserve('key', 'g', 'tpm', 1000, 200)).reservation_id AS h FROM rl_reserve('key', 'g', 'tpm', 1000, 100) \gset
SET ratelimit.clock = '2030-01-01 00:01:30+00';
-- The window is over, but nobody has begun a new one: the row still holds the old window and takes the settlement.
SELECT rl_commit(ARRAY[:'g']::uuid[], '{"tpm": 150}');
SELECT * FROM test.state;
SELECT used, reserved, remaining, window_start FROM rl_check('key', 'g', 'tpm', 1000);
-- A new one has begun.
SELECT used, reserved FROM rl_reserve('key', 'g', 'tpm', 1000, 7);
SELECT rl_commit(ARRAY[:'h']::uuid[], '{"tpm": 999}');
SELECT * FROM test.state;
SELECT * FROM test.settled;
SELECT * FROM test.problems();
-- retention = 0 deletes a reservation in the moment in which it is settled; the counter changes all the same.
SET ratelimit.retention = 0;
SELECT reservation_id AS j FROM rl_reserve('key', 'j', 'tpm', 1000, 100) \gset
SELECT rl_commit(ARRAY[:'j']::uuid[], '{"tpm": 60}');
SELECT count(*) AS reservations FROM ratelimit.reservations WHERE scope_key = 'j';
SELECT rl_commit(ARRAY[:'j']::uuid[]);
SELECT used, reserved FROM test.state WHERE scope_key = 'j';
RESET ratelimit.retention;
-- 1,000 ids in one call, and not one more.
SELECT array_agg((rl_reserve('key', 'k', 'tpm', 10000, 2)).reservation_id) AS ids FROM generate_series(1, 1000) \gset
SELECT test.error(format('SELECT rl_commit(%L::uuid[] || gen_random_uuid())', :'ids'));
SELECT used, reserved FROM test.state WHERE scope_key = 'k';
SELECT rl_commit(:'ids', '{"tpm": 3}');
SELECT used, reserved FROM test.state WHERE scope_key = 'k';
-- A counter that is gone does not keep its reservations from being settled.
SELECT reservation_id AS l FROM rl_reserve('key', 'l', 'tpm', 1000, 100) \gset
DELETE FROM ratelimit.counters WHERE scope_key = 'l';
SELECT rl_commit(ARRAY[:'l']::uuid[]);
SELECT status, actual_amount FROM test.settled WHERE scope_key = 'l';
SELECT count(*) AS counters FROM ratelimit.counters WHERE scope_key = 'l';
-- Bad input.
\pset format unaligned
\t on
SELECT test.error(format('SELECT rl_commit(''{}'', %L)', actual)) FROM unnest(ARRAY['[]', '5', '"tpm"', 'true', '{"tpm": "5"}',
	'{"tpm": true}', '{"tpm": []}', '{"tpm": {}}', '{"tpm": 1e400}']) actual;
SELECT test.error('SELECT rl_commit(NULL)');
\t off
\pset format aligned
SELECT * FROM test.problems();
DROP VIEW test.state, test.settled;
