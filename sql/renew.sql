-- rl_renew: extends live leases.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:00+00';
SELECT (rl_reserve('key', 'a', 'concurrent', 10, 1, 60, 30)).lease_id AS a, (rl_reserve('key', 'a', 'concurrent', 10, 2, 60, 60)).lease_id AS b,
	(rl_reserve('key', 'b', 'concurrent', 10, 3, 60, 90)).lease_id AS c \gset
-- Each keeps its own TTL: expires_at = now + ttl; one row per element, in the order asked.
SET ratelimit.clock = '2030-01-01 00:00:20+00';
SELECT ordinal, CASE lease_id WHEN :'a' THEN 'a' WHEN :'b' THEN 'b' WHEN :'c' THEN 'c' END AS lease, renewed, expires_at
FROM rl_renew(ARRAY[:'c', :'a', :'b']::uuid[]);
SELECT amount, ttl_seconds, expires_at FROM ratelimit.leases ORDER BY amount;
-- A given TTL becomes the lease's own.
SELECT ordinal, renewed, expires_at FROM rl_renew(ARRAY[:'a']::uuid[], 100);
SET ratelimit.clock = '2030-01-01 00:00:21+00';
SELECT ordinal, renewed, expires_at FROM rl_renew(ARRAY[:'a']::uuid[]);
-- Never shortened: max(expires_at, now + ttl), also with a shorter TTL, which is kept, and when the clock goes backwards.
SELECT ordinal, renewed, expires_at FROM rl_renew(ARRAY[:'a']::uuid[], 5);
SELECT ttl_seconds FROM ratelimit.leases WHERE lease_id = :'a';
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT ordinal, renewed, expires_at FROM rl_renew(ARRAY[:'a', :'b']::uuid[]);
-- Unknown, NULL and released ones come back with renewed false; a repeated id has a row for each place.
SELECT leases FROM rl_release(lease_ids => ARRAY[:'c']::uuid[]);
SELECT ordinal, CASE lease_id WHEN :'a' THEN 'a' WHEN :'b' THEN 'b' WHEN :'c' THEN 'c' ELSE lease_id::text END AS lease, renewed, expires_at
FROM rl_renew(ARRAY[:'b', '00000000-0000-0000-0000-000000000000', NULL, :'c', :'a', :'b']::uuid[]);
-- A reservation is no lease.
SELECT reservation_id AS r FROM rl_reserve('key', 'a', 'rpm', 10) \gset
SELECT ordinal, renewed, expires_at FROM rl_renew(ARRAY[:'r']::uuid[]);
-- At the very instant of its expiry a lease is lost, and cannot be brought back.
SELECT lease_id AS d FROM rl_reserve('key', 'd', 'concurrent', 1, lease_ttl_seconds => 10) \gset
SET ratelimit.clock = '2030-01-01 00:00:19.999999+00';
SELECT renewed, expires_at FROM rl_renew(ARRAY[:'d']::uuid[]);
SET ratelimit.clock = '2030-01-01 00:00:29.999999+00';
SELECT renewed, expires_at FROM rl_renew(ARRAY[:'d']::uuid[]);
SELECT allowed FROM rl_reserve('key', 'd', 'concurrent', 1);
SELECT renewed FROM rl_renew(ARRAY[:'d']::uuid[]);
-- A renewed lease holds its slot; the sums do not change.
SET ratelimit.clock = '2030-01-01 00:01:50+00';
SELECT allowed, used, reset_at FROM rl_check('key', 'a', 'concurrent', 3, 2);
SELECT scope_key, leased, lease_count FROM ratelimit.scopes ORDER BY scope_key;
SELECT allowed, used FROM rl_reserve('key', 'a', 'concurrent', 3, 2);
SELECT * FROM test.problems();
-- Nothing to renew.
SELECT * FROM rl_renew('{}');
SELECT * FROM rl_renew('{}', 5);
-- 1,000 ids in one call, and not one more; the bounds of the TTL.
SELECT count(*), bool_or(renewed) AS renewed, max(ordinal) FROM rl_renew((SELECT array_agg(gen_random_uuid()) FROM generate_series(1, 1000)));
\pset format unaligned
\t on
SELECT test.error('SELECT rl_renew((SELECT array_agg(gen_random_uuid()) FROM generate_series(1, 1001)))');
SELECT test.error('SELECT rl_renew(NULL)');
SELECT t, test.error(format('SELECT rl_renew(''{}'', %s)', t)) FROM unnest('{-1,0,1,31622400,31622401}'::int[]) t;
\t off
\pset format aligned
SELECT * FROM test.problems();
