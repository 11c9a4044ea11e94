-- Bad input to rl_acquire_bucket and rl_penalize: an error before anything is written.
CALL test.begin();
\pset format unaligned
\t on
CREATE FUNCTION test.bad_rule(changes jsonb, dropped text DEFAULT '') RETURNS text LANGUAGE sql AS $$
	SELECT test.error(format('SELECT rl_acquire_bucket(%L, %L)', 'bad', jsonb_build_array(
		'{"rule_id": "r", "requests_per_window": 1, "window_ms": 1000}'::jsonb - dropped || changes)))
$$;
SELECT test.error($$SELECT rl_acquire_bucket(NULL, '[]')$$);
SELECT test.error($$SELECT rl_acquire_bucket(' ', '[]')$$);
SELECT test.error(format('SELECT rl_acquire_bucket(%L, %L)', repeat('x', 513), '[]'));
SELECT test.error($$SELECT rl_acquire_bucket('bad', NULL)$$);
SELECT test.error($$SELECT rl_acquire_bucket('bad', 'null')$$);
SELECT test.error($$SELECT rl_acquire_bucket('bad', '{}')$$);
SELECT test.error($$SELECT rl_acquire_bucket('bad', '[1]')$$);
SELECT test.error($$SELECT rl_acquire_bucket('bad', '[]', 0)$$);
SELECT test.error($$SELECT rl_acquire_bucket('bad', '[]', 10001)$$);
SELECT test.error($$SELECT rl_acquire_bucket('bad', '[]', 1, -1)$$);
SELECT test.bad_rule('{}', 'rule_id');
SELECT test.bad_rule('{}', 'requests_per_window');
SELECT test.bad_rule('{}', 'window_ms');
SELECT test.bad_rule('{"rule_id": null}');
SELECT test.bad_rule('{"rule_id": 7}');
SELECT test.bad_rule('{"rule_id": "\t"}');
SELECT test.bad_rule(jsonb_build_object('rule_id', repeat('x', 513)));
SELECT test.bad_rule('{"requests_per_window": null}');
SELECT test.bad_rule('{"requests_per_window": "3"}');
SELECT test.bad_rule('{"requests_per_window": 0}');
SELECT test.bad_rule('{"requests_per_window": 1e999}');
SELECT test.bad_rule('{"requests_per_window": 1e308, "window_ms": 1}');
SELECT test.bad_rule('{"window_ms": null}');
SELECT test.bad_rule('{"window_ms": 0}');
SELECT test.bad_rule('{"window_ms": 0.5}');
SELECT test.bad_rule('{"window_ms": 1e30}');
SELECT test.bad_rule('{"max_concurrency": -1}');
SELECT test.bad_rule('{"max_concurrency": 1.5}');
SELECT test.bad_rule('{"adaptive_max_rps": 0}');
SELECT test.bad_rule('{"adaptive_max_rps": 1e999}');
SELECT test.bad_rule('{"rule_id": "default:r", "requests_per_window": 1e307}');
SELECT test.bad_rule('{"burst": 3}');
SELECT test.error($$SELECT rl_acquire_bucket('bad', '[{"rule_id": "r", "requests_per_window": 1, "window_ms": 1},
	{"rule_id": "r", "requests_per_window": 2, "window_ms": 2}]')$$);
SELECT test.error(format('SELECT rl_acquire_bucket(%L, %L)', 'bad', (SELECT jsonb_agg(jsonb_build_object('rule_id', i::text,
	'requests_per_window', 1, 'window_ms', 1000)) FROM generate_series(1, 17) i)));
SELECT test.error($$SELECT rl_penalize(NULL, 1)$$);
SELECT test.error($$SELECT rl_penalize('', 1)$$);
SELECT test.error($$SELECT rl_penalize('bad', NULL)$$);
SELECT test.error($$SELECT ratelimit.reap_buckets(0)$$);
SELECT test.error($$SELECT ratelimit.reap_buckets(1, -1)$$);
BEGIN READ ONLY;
SELECT test.error($$SELECT rl_acquire_bucket('bad', '[]')$$);
SELECT test.error($$SELECT rl_penalize('bad', 0)$$);
SELECT count(*) FROM ratelimit.bucket_state;
ROLLBACK;
\t off
\pset format aligned
-- A bad rule is not remembered as a good one, and 16 rules are accepted.
SELECT granted FROM rl_acquire_bucket('good', (SELECT jsonb_agg(jsonb_build_object('rule_id', i::text,
	'requests_per_window', i, 'window_ms', 1000)) FROM generate_series(1, 16) i), 3);
SELECT bucket_id, count(*) FROM ratelimit.buckets GROUP BY 1;
