-- rl_acquire_bucket with max_concurrency: each permit is a lease of 5 minutes in a scope of the bucket's own.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:00+00';
\set rules '[{"rule_id": "r", "requests_per_window": 100, "window_ms": 1000, "max_concurrency": 3}]'
SELECT granted, wait_ms, cardinality(lease_ids) AS leases, cardinality(scheduled_at_ms) AS scheduled, lease_ids[1] AS first
FROM rl_acquire_bucket('a', :'rules', 2) \gset
SELECT :granted AS granted, :wait_ms AS wait_ms, :leases AS leases, :scheduled AS scheduled;
-- One slot is left; then none, and the caller asks again in 10 ms.
SELECT granted, wait_ms FROM rl_acquire_bucket('a', :'rules', 2);
SELECT granted, wait_ms, lease_ids FROM rl_acquire_bucket('a', :'rules', 2);
SELECT scope_type, scope_key, leased, lease_count, expires_from FROM ratelimit.scopes;
SELECT amount, limit_value, ttl_seconds, expires_at FROM ratelimit.leases;
SELECT tokens FROM ratelimit.bucket_state;
-- Released and renewed like every other lease.
SELECT * FROM rl_release(lease_ids => ARRAY[:'first']::uuid[]);
SELECT granted FROM rl_acquire_bucket('a', :'rules', 2);
-- The cap of every rule is compared with all live permits of the bucket; the smallest counts.
SELECT granted, wait_ms FROM rl_acquire_bucket('a',
	'[{"rule_id": "r", "requests_per_window": 100, "window_ms": 1000, "max_concurrency": 3},
	  {"rule_id": "s", "requests_per_window": 100, "window_ms": 1000, "max_concurrency": 5}]');
SELECT granted, wait_ms FROM rl_acquire_bucket('a',
	'[{"rule_id": "s", "requests_per_window": 100, "window_ms": 1000, "max_concurrency": 5}]', 9);
-- A rule without a cap looks at no lease.
SELECT granted, lease_ids FROM rl_acquire_bucket('a', '[{"rule_id": "free", "requests_per_window": 100, "window_ms": 1000}]');
-- At the very instant of their expiry the leases are over.
SET ratelimit.clock = '2030-01-01 00:04:59.999+00';
SELECT granted, wait_ms FROM rl_acquire_bucket('a', :'rules', 2);
SET ratelimit.clock = '2030-01-01 00:05:00+00';
SELECT granted, wait_ms FROM rl_acquire_bucket('a', :'rules', 2);
SELECT leased, lease_count FROM ratelimit.scopes;
-- The leases roll back with the caller, the permits do not.
SELECT tokens FROM ratelimit.bucket_state WHERE rule_id = 'r';
BEGIN;
SELECT granted FROM rl_acquire_bucket('a', :'rules', 1);
ROLLBACK;
SELECT leased, lease_count FROM ratelimit.scopes;
SELECT tokens FROM ratelimit.bucket_state WHERE rule_id = 'r';
-- No slot at all, and a denial by tokens: neither leaves a scope behind.
SELECT granted, wait_ms FROM rl_acquire_bucket('b', '[{"rule_id": "r", "requests_per_window": 1, "window_ms": 1000, "max_concurrency": 0}]');
SELECT rl_penalize('b', 1000);
SELECT granted, wait_ms FROM rl_acquire_bucket('b', '[{"rule_id": "r", "requests_per_window": 1, "window_ms": 1000, "max_concurrency": 9}]');
SELECT scope_key FROM ratelimit.scopes;
-- The scope type is ours.
\set VERBOSITY terse
SELECT rl_reserve('ratelimit.bucket', 'a', 'concurrent', 3);
\set VERBOSITY default
SELECT * FROM test.problems();
