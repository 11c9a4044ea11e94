-- rl_consume: adds straight to used and writes no reservation.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
\x on
SELECT * FROM rl_consume('key', 'a', 'rpm', 3);
\x off
-- used and reserved are as found before the call, remaining is what is left after it.
SELECT allowed, reason, retryable, retry_after_ms, used, reserved, remaining FROM rl_consume('key', 'a', 'rpm', 3);
SELECT allowed, reason, retryable, retry_after_ms, used, reserved, remaining FROM rl_consume('key', 'a', 'rpm', 3);
-- Full: not an error but a row that says why and when to ask again.
SELECT allowed, reason, retryable, retry_after_ms, used, reserved, remaining FROM rl_consume('key', 'a', 'rpm', 3);
SELECT scope_type, scope_key, metric, window_seconds, window_start, used, reserved, limit_value FROM ratelimit.counters;
SELECT count(*) AS reservations FROM ratelimit.reservations;
-- Sleeping exactly that long succeeds.
SET ratelimit.clock = '2030-01-01 00:01:00+00';
SELECT allowed, used, remaining, window_start, reset_at FROM rl_consume('key', 'a', 'rpm', 3);
-- The limit travels with each call. Lowered below what was used: denied, with an honest retry and nothing remaining.
SELECT allowed, used, remaining FROM rl_consume('key', 'a', 'rpm', 10, 5);
SELECT allowed, reason, retry_after_ms, used, remaining, limit_value FROM rl_consume('key', 'a', 'rpm', 4);
-- The counter keeps the limit of its last grant, not that of a denial.
SELECT used, limit_value FROM ratelimit.counters;
SELECT allowed, used, remaining FROM rl_consume('key', 'a', 'rpm', 7);
SELECT used, limit_value FROM ratelimit.counters;
-- Several amounts at once: what fits exactly is granted, what does not changes nothing.
SELECT allowed, used, remaining FROM rl_consume('key', 'b', 'tpm', 1000, 999);
SELECT allowed, reason, used, remaining FROM rl_consume('key', 'b', 'tpm', 1000, 2);
SELECT allowed, used, remaining FROM rl_consume('key', 'b', 'tpm', 1000, 1);
-- A list.
SELECT ordinal, allowed, reason, retry_after_ms, used, remaining FROM rl_consume('[
	{"scope_type": "key", "scope_key": "c", "metric": "rpm", "limit": 2},
	{"scope_type": "key", "scope_key": "c", "metric": "tpm", "limit": 100, "amount": 60}]');
SELECT ordinal, allowed, reason, retry_after_ms, used, remaining FROM rl_consume('[
	{"scope_type": "key", "scope_key": "c", "metric": "rpm", "limit": 2},
	{"scope_type": "key", "scope_key": "c", "metric": "tpm", "limit": 100, "amount": 60}]');
SELECT metric, used, reserved FROM ratelimit.counters WHERE scope_key = 'c' ORDER BY metric;
-- Concurrency cannot be consumed, not even without a limit or with nothing to take.
\pset format unaligned
\t on
SELECT test.error($$SELECT rl_consume('key', 'a', 'concurrent', 3)$$);
SELECT test.error($$SELECT rl_consume('key', 'a', 'concurrent', NULL)$$);
SELECT test.error($$SELECT rl_consume('key', 'a', 'concurrent', 3, 0)$$);
SELECT test.error($$SELECT rl_consume('[{"scope_type": "key", "scope_key": "d", "metric": "rpm", "limit": 2},
	{"scope_type": "key", "scope_key": "d", "metric": "concurrent", "limit": 2}]')$$);
\t off
\pset format aligned
SELECT count(*) AS counters FROM ratelimit.counters WHERE scope_key = 'd';
SELECT * FROM test.problems();
