-- The off switch: ratelimit.enabled and ratelimit.when_disabled.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT rl_version() IS NOT NULL AS loaded;
SELECT name, setting, context, vartype, enumvals FROM pg_settings WHERE name IN ('ratelimit.enabled', 'ratelimit.when_disabled') ORDER BY name;
-- A full window and a full scope, seen by every function that decides.
SELECT allowed FROM rl_consume('key', 'full', 'rpm', 1);
SELECT lease_id AS l FROM rl_reserve('key', 'full', 'concurrent', 1) \gset
SELECT reservation_id AS r FROM rl_reserve('key', 'other', 'rpm', 1, request_id => 'r') \gset
CREATE FUNCTION test.all_decisions() RETURNS SETOF text LANGUAGE sql AS $$
	SELECT concat_ws(' ', 'check', d) FROM rl_check('key', 'full', 'rpm', 1) d
	UNION ALL SELECT concat_ws(' ', 'check', d) FROM rl_check('[{"scope_type": "key", "scope_key": "full", "metric": "concurrent", "limit": 1},
		{"scope_type": "key", "scope_key": "x", "metric": "rpm", "limit": null}, {"scope_type": "key", "scope_key": "x", "metric": "rpm", "limit": 0}]') d
	UNION ALL SELECT concat_ws(' ', 'consume', d) FROM rl_consume('key', 'full', 'rpm', 1) d
	UNION ALL SELECT concat_ws(' ', 'consume', d) FROM rl_consume('[{"scope_type": "key", "scope_key": "new", "metric": "rpm", "limit": 1}]') d
	UNION ALL SELECT concat_ws(' ', 'reserve', d) FROM rl_reserve('key', 'full', 'concurrent', 1) d
	UNION ALL SELECT concat_ws(' ', 'reserve', d) FROM rl_reserve('[{"scope_type": "key", "scope_key": "new", "metric": "rpm", "limit": 1}]', 'task', 'r2') d
	UNION ALL SELECT concat_ws(' ', 'empty', d) FROM rl_consume('[]') d
	UNION ALL SELECT concat_ws(' ', 'route', d) FROM rl_route('[{"candidate": "a", "limits": []}, {"candidate": "b", "limits":
		[{"scope_type": "key", "scope_key": "full", "metric": "rpm", "limit": 1}]}]', 'b') d
	UNION ALL SELECT concat_ws(' ', 'admit', d) FROM rl_admit('t1', '[{"scope_type": "key", "scope_key": "full", "limit": 1}]', priority => 3) d
	UNION ALL SELECT concat_ws(' ', 'enqueue', d) FROM rl_enqueue('t2', '[{"scope_type": "key", "scope_key": "full", "limit": 1}]') d
	UNION ALL SELECT concat_ws(' ', 'bucket', d) FROM rl_acquire_bucket('b', '[{"rule_id": "r", "requests_per_window": 1, "window_ms": 1000, "max_concurrency": 1}]', 3) d
	UNION ALL SELECT concat_ws(' ', 'bucket', d) FROM rl_acquire_bucket('b', '[]', 3) d
$$;
CREATE FUNCTION test.contents_and_buckets() RETURNS text LANGUAGE sql AS 'SELECT test.contents() || count(*) FROM ratelimit.buckets';
SELECT test.contents_and_buckets() AS before \gset
\pset format unaligned
\t on
SET ratelimit.enabled = off;
-- allow: everything passes, nothing is written, no ids are given.
SHOW ratelimit.when_disabled;
SELECT test.all_decisions();
SELECT rl_enforce('key', 'full', 'rpm', 1);
CALL rl_admit_wait('t3', '[{"scope_type": "key", "scope_key": "full", "limit": 1}]', '1 hour');
-- deny: nothing passes; ask again in a second.
SET ratelimit.when_disabled = 'deny';
SELECT test.all_decisions();
SELECT test.error($$SELECT rl_enforce('key', 'new', 'rpm', 1)$$);
SELECT rl_enforce('[]');
CALL rl_admit_wait('t3', '[{"scope_type": "key", "scope_key": "new", "limit": 1}]', '1 hour');
-- error: 55000.
SET ratelimit.when_disabled = 'error';
SELECT test.error($$SELECT rl_check('key', 'new', 'rpm', 1)$$);
\set VERBOSITY sqlstate
SELECT rl_check('[]');
SELECT rl_consume('key', 'new', 'rpm', 1);
SELECT rl_consume('[{"scope_type": "key", "scope_key": "new", "metric": "rpm", "limit": 1}]');
SELECT rl_reserve('key', 'new', 'rpm', 1);
SELECT rl_reserve('[{"scope_type": "key", "scope_key": "new", "metric": "rpm", "limit": 1}]');
SELECT rl_enforce('key', 'new', 'rpm', 1);
SELECT rl_enforce('[{"scope_type": "key", "scope_key": "new", "metric": "rpm", "limit": 1}]');
SELECT rl_route('[{"candidate": "a", "limits": []}]');
SELECT rl_route('[]');
SELECT rl_acquire_bucket('b', '[]');
SELECT rl_admit('t1', '[]');
SELECT rl_enqueue('t2', '[]');
CALL rl_admit_wait('t3', '[]');
SELECT rl_acquire_bucket('b', '[{"rule_id": "r", "requests_per_window": 1, "window_ms": 1000}]');
-- Bad arguments are found all the same, and before.
SELECT rl_consume('key', 'new', 'rpm', -1);
SET ratelimit.when_disabled = 'allow';
SELECT rl_check('key', 'new', 'rpm', -1);
SELECT rl_consume('key', ' ', 'rpm', 1);
SELECT rl_consume('key', 'new', 'concurrent', 1);
SELECT rl_consume('[{"scope_type": "key"}]');
SELECT rl_reserve('key', 'new', 'rpm', 1, request_id => '');
SELECT rl_enforce('key', 'new', 'concurrent', 1);
SELECT rl_route('[{"candidate": "a"}]');
SELECT rl_admit('t1', '[]', 'neither');
SELECT rl_enqueue('t2', '[{}]');
SELECT rl_acquire_bucket('b', '[{"rule_id": "r"}]');
SELECT rl_acquire_bucket('b', '[]', 0);
BEGIN READ ONLY;
SELECT allowed FROM rl_check('key', 'full', 'rpm', 1);
SELECT rl_consume('key', 'new', 'rpm', 1);
ROLLBACK;
BEGIN;
CALL rl_admit_wait('t3', '[]');
ROLLBACK;
\set VERBOSITY default
SELECT test.contents_and_buckets() = :'before' AS nothing_written;
-- All the others go on.
SELECT rl_commit(ARRAY[:'r']::uuid[]);
SELECT renewed FROM rl_renew(ARRAY[:'l']::uuid[]);
SELECT * FROM rl_release('{}', ARRAY[:'l']::uuid[]);
SELECT rl_penalize('b', 1000), rl_cancel('nobody'), rl_worker_stop('nobody');
SELECT count(*) FROM rl_status('t1');
-- For superusers only; in force at once, as long as it is set.
CREATE ROLE regress_ratelimit_user;
SET ROLE regress_ratelimit_user;
SET ratelimit.enabled = on;
SET ratelimit.when_disabled = 'deny';
RESET ROLE;
DROP ROLE regress_ratelimit_user;
SET ratelimit.when_disabled = 'maybe';
SELECT allowed FROM rl_check('key', 'full', 'rpm', 1);
RESET ratelimit.enabled;
SELECT allowed FROM rl_check('key', 'full', 'rpm', 1);
BEGIN;
SET LOCAL ratelimit.enabled = off;
SELECT allowed FROM rl_check('key', 'full', 'rpm', 1);
ROLLBACK;
SELECT allowed FROM rl_check('key', 'full', 'rpm', 1);
DROP FUNCTION test.all_decisions(), test.contents_and_buckets();
SELECT * FROM test.problems();
