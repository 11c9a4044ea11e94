-- rl_attach: names the attempt that reservations and leases belong to.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT (rl_reserve('key', 'a', 'tpm', 1000, 1, attempt_id => 'first')).reservation_id AS a,
	(rl_reserve('key', 'a', 'tpm', 1000, 2)).reservation_id AS b,
	(rl_reserve('key', 'a', 'tpm', 1000, 3)).reservation_id AS c,
	(rl_reserve('key', 'a', 'concurrent', 10, 1, lease_ttl_seconds => 10)).lease_id AS d,
	(rl_reserve('key', 'a', 'concurrent', 10, 2, lease_ttl_seconds => 11)).lease_id AS e \gset
SELECT rl_commit(ARRAY[:'b']::uuid[]), rl_release(ARRAY[:'c']::uuid[]);
-- Reservations whatever their status, and live leases; unknown, NULL and repeated ids count for nothing.
SELECT * FROM rl_attach('second', ARRAY[:'a', :'b', :'c', :'a', NULL, '00000000-0000-0000-0000-000000000000']::uuid[], ARRAY[:'d', :'d', NULL]::uuid[]);
SELECT amount, status, attempt_id, task_id FROM ratelimit.reservations ORDER BY amount;
SELECT amount, attempt_id, task_id FROM ratelimit.leases ORDER BY amount;
-- At the instant of its expiry a lease is over.
SET ratelimit.clock = '2030-01-01 00:00:20+00';
SELECT * FROM rl_attach('third', lease_ids => ARRAY[:'d', :'e']::uuid[]);
SELECT amount, attempt_id FROM ratelimit.leases ORDER BY amount;
-- Ids of the other kind are unknown.
SELECT * FROM rl_attach('fourth', ARRAY[:'e']::uuid[], ARRAY[:'a']::uuid[]);
-- Nothing named: nothing to do, but the name must be right all the same.
SELECT * FROM rl_attach('fifth');
SELECT * FROM rl_attach('fifth', '{}', '{}');
SELECT * FROM rl_attach('fifth', NULL, NULL);
SELECT attempt_id, count(*) FROM ratelimit.reservations GROUP BY attempt_id;
-- Nothing else changes.
SELECT used, reserved FROM ratelimit.counters;
SELECT leased, lease_count FROM ratelimit.scopes;
\pset format unaligned
\t on
SELECT test.error('SELECT rl_attach(NULL)');
SELECT test.error('SELECT rl_attach('' '')');
SELECT test.error('SELECT rl_attach(''a'', (SELECT array_agg(gen_random_uuid()) FROM generate_series(1, 1001)))');
SELECT test.error('SELECT rl_attach(''a'', ''{}'', (SELECT array_agg(gen_random_uuid()) FROM generate_series(1, 1001)))');
\t off
\pset format aligned
SELECT * FROM test.problems();
