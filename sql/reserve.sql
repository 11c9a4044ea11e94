-- rl_reserve: promises an amount of a window and writes one reservation per counter.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
\x on
SELECT ordinal, allowed, reason, retryable, retry_after_ms, scope_type, scope_key, metric, limit_value, amount, used, reserved,
	remaining, window_start, reset_at, reservation_id IS NOT NULL AS reservation, lease_id, lease_expires_at
FROM rl_reserve('key', 'a', 'tpm', 1000, 400, 60, 120, 'task 1', 'attempt 1');
SELECT scope_type, scope_key, metric, window_seconds, window_start, due_at AS reset_at, amount, limit_value, status, task_id, attempt_id,
	actual_amount, reason, finalized_at, created_at FROM ratelimit.reservations;
SELECT scope_type, scope_key, metric, window_seconds, window_start, used, reserved, limit_value FROM ratelimit.counters;
\x off
-- used + reserved + amount <= limit.
SELECT allowed, used FROM rl_consume('key', 'a', 'tpm', 1000, 100);
SELECT allowed, reason, used, reserved, remaining, reservation_id FROM rl_reserve('key', 'a', 'tpm', 1000, 501);
SELECT allowed, used, reserved, remaining FROM rl_reserve('key', 'a', 'tpm', 1000, 500);
SELECT allowed, used, reserved, remaining FROM rl_consume('key', 'a', 'tpm', 1000);
SELECT status, amount, task_id, attempt_id FROM ratelimit.reservations ORDER BY amount;
-- The defaults: amount 1, 60 seconds, no task, no attempt.
SELECT allowed, amount, reset_at - window_start AS length FROM rl_reserve('key', 'b', 'rpm', 2);
SELECT task_id, attempt_id, window_seconds FROM ratelimit.reservations WHERE scope_key = 'b';
-- In a list task_id is the call's, attempt_id that of each limit; the opaque keys are read by nobody.
SELECT ordinal, allowed, metric, amount, remaining, reservation_id IS NOT NULL AS reservation FROM rl_reserve('[
	{"scope_type": "key", "scope_key": "c", "metric": "rpm", "limit": 2, "attempt_id": "attempt 2"},
	{"scope_type": "key", "scope_key": "c", "metric": "tpm", "limit": 100, "amount": 60, "window_seconds": 3600,
		"lease_ttl_seconds": 7, "scope_name": ["any"], "metadata": {"limit": -1}, "policy": 5}]', 'task 2');
SELECT metric, amount, window_seconds, limit_value, task_id, attempt_id FROM ratelimit.reservations WHERE scope_key = 'c' ORDER BY metric;
-- Every reservation has its own id.
SELECT count(*) AS rows, count(DISTINCT reservation_id) AS ids FROM ratelimit.reservations;
-- lease_ttl_seconds concerns leases only, and must be right all the same.
SELECT test.error($$SELECT rl_reserve('key', 'd', 'rpm', 2, lease_ttl_seconds => 0)$$) LIKE '22023:%' AS refused;
SELECT * FROM test.problems();
