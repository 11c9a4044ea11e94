-- Leases: metric concurrent in rl_reserve.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
-- Every column; used, reserved 0 and reset_at are as found, window_start is NULL.
\x on
SELECT ordinal, allowed, reason, retryable, retry_after_ms, scope_type, scope_key, metric, limit_value, amount, used, reserved,
	remaining, window_start, reset_at, reservation_id, lease_id IS NOT NULL AS lease, lease_expires_at
FROM rl_reserve('key', 'a', 'concurrent', 3, 2, 60, 30, 'task 1', 'attempt 1');
SELECT scope_type, scope_key, amount, limit_value, ttl_seconds, created_at, expires_at, task_id, attempt_id FROM ratelimit.leases;
SELECT scope_type, scope_key, leased, lease_count, expires_from FROM ratelimit.scopes;
\x off
SELECT count(*) AS counters FROM ratelimit.counters;
SELECT count(*) AS reservations FROM ratelimit.reservations;
-- The sum of the live leases plus the amount must not exceed the limit; without an amount and a TTL: 1 and 120 s.
SET ratelimit.clock = '2030-01-01 00:00:20+00';
SELECT allowed, used, remaining, reset_at, lease_expires_at FROM rl_reserve('key', 'a', 'concurrent', 3);
SELECT allowed, reason, retryable, retry_after_ms, used, reserved, remaining, window_start, reset_at, lease_id
FROM rl_reserve('key', 'a', 'concurrent', 3);
-- Denied: the wait until the earliest expiry, at least 1 s and at most 5 s, rounded up.
SELECT c AS clock, retry_after_ms, reset_at FROM (VALUES ('2030-01-01 00:00:34.9999+00'), ('2030-01-01 00:00:35+00'),
	('2030-01-01 00:00:35.0001+00'), ('2030-01-01 00:00:35.001+00'), ('2030-01-01 00:00:38.999+00'), ('2030-01-01 00:00:39+00'),
	('2030-01-01 00:00:39.999999+00')) v (c), LATERAL (SELECT set_config('ratelimit.clock', c, false)) s,
	LATERAL (SELECT * FROM rl_reserve('key', 'a', left('concurrent' || set_config, 10), 3)) d;
-- At the very instant of its expiry a lease is over, reaped or not: rl_check adds up, the grant removes it.
SET ratelimit.clock = '2030-01-01 00:00:39.999999+00';
SELECT allowed, used FROM rl_check('key', 'a', 'concurrent', 3);
SET ratelimit.clock = '2030-01-01 00:00:40+00';
SELECT allowed, used, remaining, reset_at FROM rl_check('key', 'a', 'concurrent', 3);
SELECT count(*) AS rows FROM ratelimit.leases;
-- A denial only adds up, too.
SELECT allowed, reason, used, remaining, reset_at FROM rl_reserve('key', 'a', 'concurrent', 3, 3);
SELECT count(*) AS rows FROM ratelimit.leases;
SELECT allowed, used, remaining FROM rl_reserve('key', 'a', 'concurrent', 3, 2);
SELECT amount, created_at FROM ratelimit.leases ORDER BY created_at;
SELECT leased, lease_count FROM ratelimit.scopes;
SELECT * FROM test.problems();
-- Scopes are apart from one another, and from the counters of any metric; the window does not matter.
SELECT allowed, used FROM rl_reserve('key', 'b', 'concurrent', 1);
SELECT allowed, used FROM rl_reserve('org', 'a', 'concurrent', 1);
SELECT allowed, used FROM rl_reserve('key', 'a', 'Concurrent', 1);
SELECT allowed, reason, used FROM rl_reserve('key', 'b', 'concurrent', 1, 1, 3600);
-- The limit travels with the call: raised, lowered below the live sum, raised again.
SELECT allowed, used, remaining FROM rl_reserve('key', 'b', 'concurrent', 3);
SELECT allowed, reason, used, remaining, retry_after_ms FROM rl_reserve('key', 'b', 'concurrent', 1);
SELECT allowed, used, remaining FROM rl_reserve('key', 'b', 'concurrent', 3);
-- A release gives the slot back at once.
SELECT allowed FROM rl_check('key', 'b', 'concurrent', 3);
SELECT leases FROM rl_release(lease_ids => (SELECT array_agg(lease_id) FROM (SELECT lease_id FROM ratelimit.leases WHERE scope_key = 'b' LIMIT 1) l));
SELECT allowed, used FROM rl_reserve('key', 'b', 'concurrent', 3);
-- Several leases in one call: the amounts of a repeated scope add up, each with its own TTL and its own lease.
SELECT ordinal, allowed, used, remaining, lease_id IS NOT NULL AS lease, lease_expires_at FROM rl_reserve(test.list(
	test.limit('c', 'concurrent', 5, 2, '{"lease_ttl_seconds": 10, "attempt_id": "x"}'), test.limit('d', 'concurrent', 5), test.limit('c', 'concurrent', 4, 1)), 'task 2');
SELECT scope_key, amount, limit_value, ttl_seconds, task_id, attempt_id FROM ratelimit.leases WHERE task_id = 'task 2' ORDER BY scope_key, amount;
SELECT scope_key, leased, lease_count, expires_from FROM ratelimit.scopes WHERE scope_key IN ('c', 'd') ORDER BY scope_key;
SELECT ordinal, allowed, reason, used FROM rl_reserve(test.list(test.limit('c', 'concurrent', 5), test.limit('c', 'concurrent', 5), test.limit('d', 'concurrent', 5)));
SELECT ordinal, allowed, reason, used FROM rl_reserve(test.list(test.limit('c', 'concurrent', 5, 3), test.limit('c', 'concurrent', 5, 3)));
-- Another window_seconds makes no other lease key.
SELECT ordinal, allowed, reason FROM rl_reserve(test.list(test.limit('c', 'concurrent', 5, 1), test.limit('c', 'concurrent', 5, 2, '{"window_seconds": 5}')));
-- A repeated scope is saturated by the sum: 1 and 1 are too much for the one slot that is left, each alone would fit.
SELECT ordinal, allowed, reason, retryable, retry_after_ms, used, remaining, lease_id
FROM rl_reserve(test.list(test.limit('c', 'concurrent', 6), test.limit('c', 'concurrent', 6)));
SELECT ordinal, allowed, reason, used, remaining FROM rl_check(test.list(test.limit('c', 'concurrent', 6), test.limit('c', 'concurrent', 7)));
-- The bounds of the TTL.
SELECT t AS ttl, left(test.error(format('SELECT rl_reserve(''key'', ''e'', ''concurrent'', 9, 1, 60, %s)', t)), 6) AS result FROM unnest('{-1,0,1,31622400,31622401}'::int[]) t;
SELECT expires_at FROM ratelimit.leases WHERE scope_key = 'e' ORDER BY expires_at;
-- A clock that goes backwards shortens no lease and opens no slot.
SELECT allowed, lease_expires_at FROM rl_reserve('key', 'f', 'concurrent', 1, lease_ttl_seconds => 10);
SET ratelimit.clock = '2030-01-01 00:00:00+00';
SELECT allowed, reason, retry_after_ms, reset_at FROM rl_reserve('key', 'f', 'concurrent', 1);
SELECT expires_at FROM ratelimit.leases WHERE scope_key = 'f';
-- A grant removes what has expired, oldest first: what it needs and a few more, each lease once.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:00+00';
SELECT count((rl_reserve('key', 'g', 'concurrent', 100, 1, 60, 10 + n)).lease_id) AS leases FROM generate_series(1, 100) n;
SELECT allowed, reason, reset_at FROM rl_reserve('key', 'g', 'concurrent', 100);
SET ratelimit.clock = '2030-01-01 00:01:00+00';
SELECT used, remaining, reset_at FROM rl_check('key', 'g', 'concurrent', 100);
SELECT allowed, used, remaining FROM rl_reserve('key', 'g', 'concurrent', 100);
SELECT count(*) FILTER (WHERE expires_at <= '2030-01-01 00:01:00+00') < 50 AS some_removed,
	count(*) FILTER (WHERE expires_at > '2030-01-01 00:01:00+00') AS live FROM ratelimit.leases;
SELECT min(expires_at) > '2030-01-01 00:00:11+00' AS oldest_first FROM ratelimit.leases;
SELECT * FROM test.problems();
-- All that have expired count as free, however many one call needs.
SELECT allowed, used, remaining FROM rl_reserve('key', 'g', 'concurrent', 100, 49);
SELECT allowed, reason, used FROM rl_reserve('key', 'g', 'concurrent', 100);
SELECT count(*) AS rows, leased, lease_count FROM ratelimit.leases, ratelimit.scopes GROUP BY leased, lease_count;
-- A small lease beside a huge one is not swallowed by rounding.
BEGIN;
SELECT lease_id AS huge FROM rl_reserve('user', 'huge', 'concurrent', 1e18, 1e17) \gset
SELECT allowed FROM rl_reserve('user', 'huge', 'concurrent', 1e18, 1);
SELECT leases FROM rl_release(lease_ids => ARRAY[:'huge']::uuid[]);
SELECT allowed, used FROM rl_check('user', 'huge', 'concurrent', 1);
SELECT leased, lease_count FROM ratelimit.scopes WHERE scope_key = 'huge';
ROLLBACK;
SELECT * FROM test.problems();
