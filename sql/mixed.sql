-- Counters and leases in one call: all or nothing across both.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT ordinal, allowed, reason, metric, used, reserved, remaining, reset_at, reservation_id IS NOT NULL AS reservation,
	lease_id IS NOT NULL AS lease, lease_expires_at
FROM rl_reserve(test.list(test.limit('a', 'concurrent', 2), test.limit('a', 'rpm', 5), test.limit('a', 'tpm', 1000, 400),
	test.limit('b', 'concurrent', NULL), test.limit('a', 'queue_size', 5)), 'task');
SELECT scope_key, metric, used, reserved FROM ratelimit.counters ORDER BY metric;
SELECT scope_key, leased, lease_count FROM ratelimit.scopes;
SELECT metric, amount, task_id FROM ratelimit.reservations ORDER BY metric;
SELECT scope_key, amount, task_id FROM ratelimit.leases;
-- The lease denies: the counters stay as they were, and no scope or counter is made.
SELECT allowed FROM rl_reserve('key', 'a', 'concurrent', 2);
SELECT test.contents() AS before \gset
SELECT ordinal, allowed, reason, retryable, retry_after_ms, used, remaining
FROM rl_reserve(test.list(test.limit('a', 'rpm', 5), test.limit('a', 'concurrent', 2), test.limit('new', 'rpm', 5), test.limit('new', 'concurrent', 5)));
-- The counter denies: the leases stay as they were.
SELECT ordinal, allowed, reason, retryable, retry_after_ms, used, remaining
FROM rl_reserve(test.list(test.limit('new', 'concurrent', 5), test.limit('a', 'rpm', 1)));
-- Both deny: the caller waits for the larger of the two.
SELECT ordinal, allowed, reason, retryable, retry_after_ms FROM rl_reserve(test.list(test.limit('a', 'rpm', 1), test.limit('a', 'concurrent', 2)));
-- One of them can never be granted: not before that is changed.
SELECT ordinal, allowed, reason, retryable, retry_after_ms FROM rl_reserve(test.list(test.limit('a', 'concurrent', 0), test.limit('a', 'rpm', 1)));
SELECT test.contents() = :'before' AS nothing_written;
-- The same with expired leases around: a denied call does not remove them.
SET ratelimit.clock = '2030-01-01 00:05:00+00';
SELECT ordinal, allowed, reason, used FROM rl_reserve(test.list(test.limit('a', 'concurrent', 2), test.limit('a', 'rpm', 0)));
SELECT test.contents() = :'before' AS nothing_written;
SELECT ordinal, allowed, used, remaining FROM rl_reserve(test.list(test.limit('a', 'concurrent', 2), test.limit('a', 'rpm', 5)));
SELECT scope_key, leased, lease_count FROM ratelimit.scopes;
-- rl_check decides on both as well.
SELECT ordinal, allowed, reason, used, remaining FROM rl_check(test.list(test.limit('a', 'concurrent', 2), test.limit('a', 'rpm', 5)));
SELECT ordinal, allowed, reason, used, remaining FROM rl_check(test.list(test.limit('a', 'concurrent', 1), test.limit('a', 'rpm', 5)));
-- Twice in one statement: the second call finds the lease gone and leaves the counter alone.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT n, (rl_reserve(test.list(test.limit('c', 'concurrent', 1), test.limit('c', 'rpm', 5)))).allowed FROM generate_series(1, 2) n;
SELECT metric, used, reserved FROM ratelimit.counters;
-- Release of both kinds in one call.
SELECT * FROM rl_release((SELECT array_agg(reservation_id) FROM ratelimit.reservations), (SELECT array_agg(lease_id) FROM ratelimit.leases));
SELECT ordinal, allowed, used, reserved FROM rl_check(test.list(test.limit('c', 'concurrent', 1), test.limit('c', 'rpm', 5)));
SELECT * FROM test.problems();
