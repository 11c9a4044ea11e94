-- rl_check: tells what would happen and writes nothing.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
-- Every column of a decision, in the contract's order; the window is aligned to the epoch.
\x on
SELECT * FROM rl_check('key', 'a', 'rpm', 5);
\x off
SELECT reservation_id IS NULL AND lease_id IS NULL AND lease_expires_at IS NULL AS no_ids FROM rl_check('key', 'a', 'rpm', 5);
SELECT * FROM ratelimit.counters;
-- The defaults: amount 1 and 60 seconds.
SELECT amount, reset_at - window_start AS length FROM rl_check('key', 'a', 'rpm', 5);
-- remaining is as found, not as it would be after a grant.
SELECT allowed, used FROM rl_consume('key', 'a', 'rpm', 5, 2);
SELECT reservation_id IS NOT NULL AS reserved FROM rl_reserve('key', 'a', 'rpm', 5, 1);
SELECT allowed, reason, retryable, retry_after_ms, used, reserved, remaining FROM rl_check('key', 'a', 'rpm', 5, 2);
SELECT allowed, reason, retryable, retry_after_ms, used, reserved, remaining FROM rl_check('key', 'a', 'rpm', 5, 3);
-- A counter is identified by scope_type, scope_key, metric and window_seconds: each of them makes another one.
SELECT used + reserved AS held FROM rl_check('key', 'a', 'rpm', 5);
SELECT used + reserved AS held FROM rl_check('user', 'a', 'rpm', 5);
SELECT used + reserved AS held FROM rl_check('key', 'b', 'rpm', 5);
SELECT used + reserved AS held FROM rl_check('key', 'a', 'tpm', 5);
SELECT used + reserved AS held FROM rl_check('key', 'a', 'rpm', 5, 1, 61);
-- A list: one row per limit with its ordinal, allowed of the whole call, nothing written.
SELECT test.contents() AS before \gset
SELECT ordinal, allowed, reason, retry_after_ms, metric, used, reserved, remaining FROM rl_check('[
	{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 5, "amount": 3},
	{"scope_type": "key", "scope_key": "a", "metric": "tpm", "limit": 100, "amount": 30}]');
SELECT ordinal, allowed, reason, retry_after_ms, metric, used, reserved, remaining FROM rl_check('[
	{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 5, "amount": 2},
	{"scope_type": "key", "scope_key": "a", "metric": "tpm", "limit": 100, "amount": 30}]');
-- Whether a lease would be granted; the scope types of the extension itself may be looked at.
SELECT allowed, used, reserved, remaining, window_start, reset_at, lease_id FROM rl_check('key', 'a', 'concurrent', 2);
SELECT allowed, used FROM rl_check('ratelimit.bucket', 'a', 'concurrent', 2);
SELECT allowed, used FROM rl_check('[{"scope_type": "ratelimit.bucket", "scope_key": "a", "metric": "rpm", "limit": 2}]');
SELECT test.contents() = :'before' AS nothing_written;
SELECT * FROM test.problems();
