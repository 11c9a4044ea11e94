-- The no-ops beside our functions: the same arguments, defaults and result types. Needs the variable `module`.
CREATE FUNCTION noop_check(scope_type text, scope_key text, metric text, limit_value float8, amount float8 = 1,
	window_seconds int = 60) RETURNS ratelimit.decision LANGUAGE c AS :'module', 'noop_decision';
CREATE FUNCTION noop_consume(scope_type text, scope_key text, metric text, limit_value float8, amount float8 = 1,
	window_seconds int = 60) RETURNS ratelimit.decision LANGUAGE c AS :'module', 'noop_decision';
CREATE FUNCTION noop_reserve(scope_type text, scope_key text, metric text, limit_value float8, amount float8 = 1,
	window_seconds int = 60, lease_ttl_seconds int = 120, task_id text = NULL, attempt_id text = NULL,
	request_id text = NULL) RETURNS ratelimit.decision LANGUAGE c AS :'module', 'noop_decision';
CREATE FUNCTION noop_commit(reservation_ids uuid[], actual jsonb = NULL) RETURNS int
	LANGUAGE c AS :'module', 'noop_count';
CREATE FUNCTION noop_acquire_bucket(bucket_id text, rules jsonb, requested int = 1, observed_successes int = 0)
	RETURNS ratelimit.bucket_grant LANGUAGE c AS :'module', 'noop_grant';
