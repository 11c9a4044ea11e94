-- rl_release: gives reservations and leases back, once.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT reservation_id AS a FROM rl_reserve('key', 'a', 'tpm', 1000, 500) \gset
SELECT lease_id AS b FROM rl_reserve('key', 'a', 'concurrent', 2) \gset
SET ratelimit.clock = '2030-01-01 00:00:20+00';
SELECT * FROM rl_release(ARRAY[:'a']::uuid[], ARRAY[:'b']::uuid[]);
SELECT used, reserved FROM ratelimit.counters;
SELECT amount, status, actual_amount, reason, finalized_at FROM ratelimit.reservations;
SELECT leased, lease_count FROM ratelimit.scopes;
SELECT count(*) AS leases FROM ratelimit.leases;
-- Idempotent: what was released or committed once stays so.
SELECT * FROM rl_release(ARRAY[:'a']::uuid[], ARRAY[:'b']::uuid[], 'again');
SELECT rl_commit(ARRAY[:'a']::uuid[]);
SELECT used, reserved FROM ratelimit.counters;
SELECT amount, status, actual_amount, reason, finalized_at FROM ratelimit.reservations;
SELECT reservation_id AS c FROM rl_reserve('key', 'c', 'tpm', 1000, 500) \gset
SELECT rl_commit(ARRAY[:'c']::uuid[], '{"tpm": 5}');
SELECT * FROM rl_release(ARRAY[:'c']::uuid[]);
SELECT amount, status, actual_amount, reason FROM ratelimit.reservations WHERE scope_key = 'c';
SELECT used, reserved FROM ratelimit.counters WHERE scope_key = 'c';
-- A slot that somebody else has by now is not given back: neither by releasing twice ...
SELECT lease_id AS d FROM rl_reserve('key', 'd', 'concurrent', 1) \gset
SELECT leases FROM rl_release(lease_ids => ARRAY[:'d']::uuid[]);
SELECT lease_id AS e FROM rl_reserve('key', 'd', 'concurrent', 1) \gset
SELECT leases FROM rl_release(lease_ids => ARRAY[:'d']::uuid[]);
SELECT used, allowed FROM rl_check('key', 'd', 'concurrent', 1);
-- ... nor by releasing after the expiry and the grant to the next one.
SET ratelimit.clock = '2030-01-01 00:02:20+00';
SELECT leases FROM rl_release(lease_ids => ARRAY[:'e']::uuid[]);
SELECT lease_id IS NOT NULL AS lease FROM rl_reserve('key', 'd', 'concurrent', 1);
SELECT leases FROM rl_release(lease_ids => ARRAY[:'e']::uuid[]);
SELECT used, allowed FROM rl_check('key', 'd', 'concurrent', 1);
-- A lease that is over is not counted, also while its row is still there.
SELECT lease_id AS f FROM rl_reserve('key', 'f', 'concurrent', 1, lease_ttl_seconds => 1) \gset
SET ratelimit.clock = '2030-01-01 00:02:21+00';
SELECT leases FROM rl_release(lease_ids => ARRAY[:'f']::uuid[]);
SELECT * FROM test.problems();
-- Unknown ids, NULL elements and repeated ids count for nothing; ids of the other kind are unknown.
SELECT reservation_id AS g, (rl_reserve('key', 'g', 'concurrent', 5)).lease_id AS h FROM rl_reserve('key', 'g', 'tpm', 1000, 500) \gset
SELECT * FROM rl_release(ARRAY[:'h', '00000000-0000-0000-0000-000000000000', NULL]::uuid[], ARRAY[:'g', NULL]::uuid[]);
SELECT * FROM rl_release(ARRAY[:'g', NULL, :'g']::uuid[], ARRAY[:'h', :'h']::uuid[]);
-- No arguments, empty arrays and NULL arrays: nothing to do.
SELECT * FROM rl_release();
SELECT * FROM rl_release('{}', '{}');
SELECT * FROM rl_release(NULL, NULL, NULL);
-- The reason: 'released' unless one is given; empty or NULL is stored as NULL; anything else as it is.
SELECT quote_nullable(left(v.reason, 10)) AS given, rl_release(ARRAY[d.reservation_id], reason => v.reason)
FROM (VALUES (1, 'timeout'), (2, ''), (3, NULL), (4, ' '), (5, E'two\nlines'), (6, repeat('x', 600))) v (i, reason),
	rl_reserve('key', 'r' || i, 'tpm', 10) d ORDER BY i;
SELECT scope_key, quote_nullable(left(reason, 10)) AS reason, length(reason) FROM ratelimit.reservations WHERE scope_key LIKE 'r%' ORDER BY scope_key;
-- A release of an older window never touches the current one.
SELECT reservation_id AS i FROM rl_reserve('key', 'i', 'tpm', 1000, 500) \gset
SET ratelimit.clock = '2030-01-01 00:03:00+00';
SELECT reserved, remaining FROM rl_reserve('key', 'i', 'tpm', 1000, 300);
SELECT * FROM rl_release(ARRAY[:'i']::uuid[]);
SELECT window_start, used, reserved FROM ratelimit.counters WHERE scope_key = 'i';
-- What was given back can be taken again at once.
SELECT allowed FROM rl_reserve('key', 'i', 'tpm', 1000, 701);
SELECT * FROM rl_release((SELECT array_agg(reservation_id) FROM ratelimit.reservations WHERE scope_key = 'i'));
SELECT allowed, used, reserved FROM rl_reserve('key', 'i', 'tpm', 1000, 1000);
-- retention = 0 deletes a reservation in the moment in which it is released.
SET ratelimit.retention = 0;
SELECT * FROM rl_release((SELECT array_agg(reservation_id) FROM ratelimit.reservations WHERE scope_key = 'i' AND status = 'reserved'));
SELECT status, count(*) FROM ratelimit.reservations WHERE scope_key = 'i' GROUP BY status;
SELECT used, reserved FROM ratelimit.counters WHERE scope_key = 'i';
RESET ratelimit.retention;
-- At most 1,000 ids of each kind.
SELECT * FROM rl_release((SELECT array_agg(gen_random_uuid()) FROM generate_series(1, 1000)), (SELECT array_agg(gen_random_uuid()) FROM generate_series(1, 1000)));
\pset format unaligned
\t on
SELECT test.error('SELECT rl_release((SELECT array_agg(gen_random_uuid()) FROM generate_series(1, 1001)))');
SELECT test.error('SELECT rl_release(''{}'', (SELECT array_agg(gen_random_uuid()) FROM generate_series(1, 1001)))');
\t off
\pset format aligned
SELECT * FROM test.problems();
