-- The callable functions: arguments, results, marks and privileges.
BEGIN;
SET LOCAL client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS ratelimit;

CREATE TEMP TABLE expected (name text, arguments text, result text, volatility "char", parallel "char", public_may_call bool);
INSERT INTO expected VALUES
	('rl_check', 'scope_type text, scope_key text, metric text, limit_value double precision, amount double precision DEFAULT 1, window_seconds integer DEFAULT 60',
		'ratelimit.decision', 'v', 'u', false),
	('rl_check', 'limits jsonb', 'SETOF ratelimit.decision', 'v', 'u', false),
	('rl_consume', 'scope_type text, scope_key text, metric text, limit_value double precision, amount double precision DEFAULT 1, window_seconds integer DEFAULT 60',
		'ratelimit.decision', 'v', 'u', false),
	('rl_consume', 'limits jsonb', 'SETOF ratelimit.decision', 'v', 'u', false),
	('rl_reserve', 'scope_type text, scope_key text, metric text, limit_value double precision, amount double precision DEFAULT 1, window_seconds integer DEFAULT 60, lease_ttl_seconds integer DEFAULT 120, task_id text DEFAULT NULL::text, attempt_id text DEFAULT NULL::text, request_id text DEFAULT NULL::text',
		'ratelimit.decision', 'v', 'u', false),
	('rl_reserve', 'limits jsonb, task_id text DEFAULT NULL::text, request_id text DEFAULT NULL::text', 'SETOF ratelimit.decision', 'v', 'u', false),
	('rl_enforce', 'scope_type text, scope_key text, metric text, limit_value double precision, amount double precision DEFAULT 1, window_seconds integer DEFAULT 60',
		'void', 'v', 'u', false),
	('rl_enforce', 'limits jsonb', 'void', 'v', 'u', false),
	('rl_headers', 'decisions ratelimit.decision[]', 'jsonb', 'v', 'u', false),
	('rl_commit', 'reservation_ids uuid[], actual jsonb DEFAULT NULL::jsonb', 'integer', 'v', 'u', false),
	('rl_release', 'reservation_ids uuid[] DEFAULT ''{}''::uuid[], lease_ids uuid[] DEFAULT ''{}''::uuid[], reason text DEFAULT ''released''::text, OUT reservations integer, OUT leases integer',
		'record', 'v', 'u', false),
	('rl_attach', 'attempt_id text, reservation_ids uuid[] DEFAULT ''{}''::uuid[], lease_ids uuid[] DEFAULT ''{}''::uuid[], OUT reservations integer, OUT leases integer',
		'record', 'v', 'u', false),
	('rl_renew', 'lease_ids uuid[], ttl_seconds integer DEFAULT NULL::integer, OUT ordinal integer, OUT lease_id uuid, OUT renewed boolean, OUT expires_at timestamp with time zone',
		'SETOF record', 'v', 'u', false),
	('rl_admit', 'task_id text, scopes jsonb, mode text DEFAULT NULL::text, priority integer DEFAULT 0, waiter_id text DEFAULT NULL::text',
		'ratelimit.admission', 'v', 'u', false),
	('rl_enqueue', 'task_id text, scopes jsonb, priority integer DEFAULT 0', 'ratelimit.admission', 'v', 'u', false),
	('rl_rebind', 'task_id text, scopes jsonb', 'ratelimit.admission', 'v', 'u', false),
	('rl_dispatch', 'max_tasks integer DEFAULT 64', 'SETOF ratelimit.admission', 'v', 'u', false),
	('rl_status', 'task_id text', 'SETOF ratelimit.admission', 'v', 'u', false),
	('rl_waiting', 'max_tasks integer DEFAULT 64, mode text DEFAULT NULL::text', 'SETOF ratelimit.admission', 'v', 'u', false),
	('rl_defer', 'task_id text, error_code text DEFAULT NULL::text, retry_after_ms bigint DEFAULT NULL::bigint', 'timestamp with time zone', 'v', 'u', false),
	('rl_renew_waiters', 'task_ids text[], waiter_ids text[]', 'integer', 'v', 'u', false),
	('rl_cancel', 'task_id text, reason text DEFAULT ''cancelled''::text, outcome text DEFAULT ''cancelled''::text', 'boolean', 'v', 'u', false),
	('rl_admit_wait', 'IN task_id text, IN scopes jsonb, IN max_wait interval DEFAULT NULL::interval, IN priority integer DEFAULT 0, INOUT result ratelimit.admission DEFAULT NULL::ratelimit.admission',
		NULL, 'v', 'u', false),
	('rl_route', 'candidates jsonb, pinned text DEFAULT NULL::text, OUT ordinal integer, OUT candidate text, OUT chosen boolean, OUT reason text, OUT retry_after_ms bigint',
		'SETOF record', 'v', 'u', false),
	('rl_worker_heartbeat', 'worker_id text, capacity integer DEFAULT NULL::integer', 'timestamp with time zone', 'v', 'u', false),
	('rl_worker_stop', 'worker_id text', 'boolean', 'v', 'u', false),
	('rl_acquire_bucket', 'bucket_id text, rules jsonb, requested integer DEFAULT 1, observed_successes integer DEFAULT 0',
		'ratelimit.bucket_grant', 'v', 'u', false),
	('rl_penalize', 'bucket_id text, cooldown_ms bigint', 'integer', 'v', 'u', false),
	('rl_top', 'max_keys integer DEFAULT 20, OUT scope_type text, OUT scope_key text, OUT metric text, OUT window_seconds integer, OUT limit_value double precision, OUT used double precision, OUT reserved double precision, OUT percent_used double precision',
		'SETOF record', 'v', 'u', false),
	('rl_reset_statistics', '', 'void', 'v', 'u', false),
	('rl_grant', 'role name, level text', 'void', 'v', 'u', false),
	('rl_revoke', 'role name', 'void', 'v', 'u', false),
	-- Not for callers, hence in schema ratelimit.
	('level_rows', 'OUT level text, OUT routine text', 'SETOF record', 'v', 'u', false),
	('statistics_rows', 'OUT function text, OUT scope_type text, OUT metric text, OUT allowed bigint, OUT denied bigint, OUT waits bigint, OUT wake_ups bigint, OUT reaped bigint, OUT recovered bigint, OUT since timestamp with time zone',
		'SETOF record', 'v', 'u', false),
	('queue_rows', '', 'SETOF ratelimit.admission', 'v', 'u', false),
	('decision_clock', '', 'timestamp with time zone', 'v', 'u', false),
	('worker_stale_at', 'heartbeat_at timestamp with time zone', 'timestamp with time zone', 'v', 'u', false),
	('reap_buckets', 'batch integer DEFAULT 500, retention_ms bigint DEFAULT 86400000', 'integer', 'v', 'u', false),
	('bucket_rows', 'OUT bucket_id text, OUT rule_id text, OUT tokens double precision, OUT capacity double precision, OUT refill_rps double precision, OUT base_rps double precision, OUT min_rps double precision, OUT max_rps double precision, OUT ceiling_configured boolean, OUT backpressure_seen boolean, OUT refilled_at timestamp with time zone, OUT next_dispatch_at timestamp with time zone, OUT cool_until timestamp with time zone, OUT claimed_retry_at timestamp with time zone, OUT last_ramp_at timestamp with time zone',
		'SETOF record', 'v', 'u', false),
	('worker_rows', 'OUT database oid, OUT state text, OUT launcher_pid integer, OUT worker_pid integer, OUT rounds bigint, OUT last_round_at timestamp with time zone, OUT last_round_ms double precision, OUT last_rows bigint, OUT total_rows bigint, OUT failures integer, OUT last_error_at timestamp with time zone, OUT last_sqlstate text, OUT last_error text',
		'SETOF record', 'v', 'u', false),
	('extension_created', '', 'void', 'v', 'u', false),
	('refuse_rewrite', '', 'trigger', 'v', 'u', false),
	('rl_reap', 'batch integer DEFAULT 500, OUT expired_waiters integer, OUT expired_deadlines integer, OUT expired_leases integer, OUT expired_reservations integer, OUT deleted integer',
		'record', 'v', 'u', false),
	('rl_start', 'task_id text, worker_id text, execution_ttl_seconds integer DEFAULT 120, attempt_id text DEFAULT NULL::text, at_most_once boolean DEFAULT false, OUT execution_token uuid, OUT attempt_no integer, OUT expires_at timestamp with time zone, OUT remote_id text',
		'record', 'v', 'u', false),
	('rl_heartbeat', 'task_id text, execution_token uuid, execution_ttl_seconds integer DEFAULT 120', 'timestamp with time zone', 'v', 'u', false),
	('rl_submission', 'task_id text, execution_token uuid, state text, remote_id text DEFAULT NULL::text', 'boolean', 'v', 'u', false),
	('rl_finish', 'task_id text, execution_token uuid, outcome text, actual jsonb DEFAULT NULL::jsonb, error_code text DEFAULT NULL::text', 'boolean', 'v', 'u', false),
	('rl_resolve', 'task_id text, outcome text', 'boolean', 'v', 'u', false),
	('rl_take_events', 'max_events integer DEFAULT 100', 'SETOF ratelimit.task_event', 'v', 'u', false),
	('rl_recover', 'batch integer DEFAULT 50, everything boolean DEFAULT false', 'ratelimit.recovery', 'v', 'u', false),
	('rl_verify', 'OUT object text, OUT key text, OUT problem text, OUT expected double precision, OUT found double precision', 'SETOF record', 'v', 'u', false),
	('rl_shard', 'scope_type text, scope_key text', 'integer', 'i', 's', true),
	('rl_shard', 'id uuid', 'integer', 'i', 's', true),
	('rl_version', '', 'text', 's', 's', true);

CREATE TEMP VIEW found AS
SELECT p.*, pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result
FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid AND e.extname = 'ratelimit';

SELECT plan(23);

SELECT bag_eq('SELECT proname::text, arguments FROM found', 'SELECT name, arguments FROM expected', 'every function has the arguments and defaults of the contract');
SELECT bag_eq('SELECT proname::text, arguments, result FROM found', 'SELECT name, arguments, result FROM expected', 'every function returns what the contract says');
SELECT bag_eq('SELECT proname::text, arguments, provolatile FROM found', 'SELECT name, arguments, volatility FROM expected', 'volatility');
SELECT bag_eq('SELECT proname::text, arguments, proparallel FROM found', 'SELECT name, arguments, parallel FROM expected', 'parallel mark');
SELECT is_empty('SELECT oid::regprocedure FROM found WHERE proname LIKE ''rl\_%'' AND pronamespace <> ''public''::regnamespace', 'those named rl_* are in the schema that CREATE EXTENSION chose');
SELECT is_empty('SELECT oid::regprocedure FROM found WHERE proname NOT LIKE ''rl\_%'' AND pronamespace <> ''ratelimit''::regnamespace', 'the others are in schema ratelimit');
SELECT is_empty($$SELECT f.oid::regprocedure FROM found f JOIN pg_language l ON l.oid = f.prolang WHERE lanname <> 'c'$$, 'all are written in C');
SELECT is_empty('SELECT oid::regprocedure FROM found WHERE probin <> ''$libdir/ratelimit''', 'all are in our library');
SELECT is_empty('SELECT oid::regprocedure FROM found WHERE prosecdef', 'none is SECURITY DEFINER');
SELECT is_empty('SELECT oid::regprocedure FROM found WHERE proconfig IS NOT NULL', 'none has a SET clause');
SELECT is_empty('SELECT oid::regprocedure FROM found WHERE proisstrict', 'none is STRICT: NULL is an error or a default');
SELECT is_empty('SELECT oid::regprocedure FROM found WHERE provariadic <> 0', 'none is VARIADIC');
SELECT is_empty('SELECT oid::regprocedure FROM found WHERE proleakproof', 'none claims to be leakproof');
SELECT bag_eq('SELECT proname::text, prokind FROM found WHERE prokind <> ''f''', $$VALUES ('rl_admit_wait', 'p'::"char")$$, 'all but the one that commits are plain functions');
SELECT is_empty('SELECT oid::regprocedure FROM found WHERE prorettype = ''record''::regtype AND proallargtypes IS NULL', 'none returns a bare record');
SELECT is_empty('SELECT oid::regprocedure FROM found WHERE obj_description(oid, ''pg_proc'') IS NULL', 'all have a comment');
SELECT is_empty('SELECT oid::regprocedure FROM found WHERE pronargs > 0 AND (proargnames IS NULL OR '''' = ANY (proargnames))', 'all arguments have names');
CREATE ROLE pgtap_ratelimit_anybody;
SELECT bag_eq($$SELECT proname::text, arguments, has_function_privilege('pgtap_ratelimit_anybody', oid, 'EXECUTE') FROM found$$,
	'SELECT name, arguments, public_may_call FROM expected', 'PUBLIC may call rl_version and rl_shard only');
SELECT is_empty($$SELECT f.oid::regprocedure, a.grantee::regrole FROM found f, aclexplode(f.proacl) a WHERE a.grantee NOT IN (0, f.proowner)$$,
	'nobody else has got a privilege at installation');

SELECT is_empty($$SELECT DISTINCT proname FROM found WHERE proname LIKE 'rl\_%' AND proname::text NOT IN (SELECT routine FROM ratelimit.level_rows())$$,
	'each has a level, or is for PUBLIC or the owner alone');
SELECT set_eq($$SELECT routine FROM ratelimit.level_rows() WHERE level = 'public'$$, 'SELECT name FROM expected WHERE public_may_call', 'those for PUBLIC are those that PUBLIC may call');
SELECT is_empty($$SELECT routine FROM ratelimit.level_rows() WHERE routine NOT IN (SELECT proname::text FROM found)$$, 'no level names a function that is not there');
-- What a view calls, its reader calls.
SELECT is_empty($$SELECT DISTINCT p.proname FROM pg_rewrite r JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
	JOIN found p ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid
	WHERE p.proname::text NOT IN (SELECT routine FROM ratelimit.level_rows() WHERE level = 'monitor')$$, 'a monitor may call what the views call');
SELECT * FROM finish();
ROLLBACK;
