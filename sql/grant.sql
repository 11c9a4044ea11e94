-- rl_grant and rl_revoke: the four levels.
CALL test.begin();
\pset format unaligned
\t on
CREATE ROLE regress_ratelimit_app;
CREATE ROLE "regress ""Quoted"" role";
CREATE ROLE regress_ratelimit_other;
-- What a role may call of the extension, and which of its views and tables it may read.
CREATE FUNCTION test.may(role name) RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(E'\n', 'calls: ' || (SELECT string_agg(DISTINCT p.proname, ' ' ORDER BY p.proname) FROM pg_proc p
			JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
			JOIN pg_extension e ON d.refobjid = e.oid AND e.extname = 'ratelimit'
			WHERE has_function_privilege(role, p.oid, 'EXECUTE') AND p.proname NOT IN ('rl_version', 'rl_shard')),
		'reads: ' || (SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class
			WHERE relnamespace = 'ratelimit'::regnamespace AND relkind IN ('r', 'v') AND has_table_privilege(role, oid, 'SELECT')),
		'writes: ' || (SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class
			WHERE relnamespace = 'ratelimit'::regnamespace AND relkind IN ('r', 'v')
				AND has_table_privilege(role, oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')),
		'uses the schema: ' || has_schema_privilege(role, 'ratelimit', 'USAGE') || ', creates in it: ' || has_schema_privilege(role, 'ratelimit', 'CREATE'))
$$;
SELECT test.may('regress_ratelimit_app');
SELECT rl_grant('regress_ratelimit_app', 'client');
SELECT test.may('regress_ratelimit_app');
-- The next level replaces the one before.
SELECT rl_grant('regress_ratelimit_app', 'worker');
SELECT test.may('regress_ratelimit_app');
SELECT rl_grant('regress_ratelimit_app', 'operator');
SELECT test.may('regress_ratelimit_app');
SELECT rl_grant('regress_ratelimit_app', 'monitor');
SELECT test.may('regress_ratelimit_app');
SELECT rl_grant('regress_ratelimit_app', 'monitor');
-- Every form of a function is granted.
SELECT count(*) FROM pg_proc WHERE proname = 'rl_check' AND NOT has_function_privilege('regress_ratelimit_app', oid, 'EXECUTE');
-- A monitor sees the views, and cannot change anything.
SELECT count(*) > 0 AS views, bool_and(has_table_privilege('regress_ratelimit_app', oid, 'SELECT')) AS all_of_them
FROM pg_class WHERE relnamespace = 'ratelimit'::regnamespace AND relkind = 'v';
SELECT allowed FROM rl_consume('key', 'a', 'rpm', 4);
SET ROLE regress_ratelimit_app;
SELECT count(*) FROM ratelimit.windows;
SELECT count(*) FROM ratelimit.live_leases;
SELECT count(*) FROM ratelimit.queue;
SELECT waiting FROM ratelimit.queue_metrics;
SELECT count(*) FROM ratelimit.bucket_state;
SELECT count(*) FROM ratelimit.live_workers;
SELECT count(*) FROM ratelimit.worker_status;
SELECT count(*) FROM ratelimit.recent_events;
SELECT scope_key, percent_used FROM rl_top();
SELECT allowed FROM rl_check('key', 'a', 'rpm', 4);
SELECT count(*) FROM rl_verify();
\set VERBOSITY sqlstate
SELECT rl_consume('key', 'a', 'rpm', 4);
SELECT used FROM ratelimit.counters;
DELETE FROM ratelimit.windows;
RESET ROLE;
\set VERBOSITY default
-- All of it is taken back, by hand given privileges included, and the role can be dropped.
GRANT EXECUTE ON FUNCTION rl_reap(int) TO regress_ratelimit_app WITH GRANT OPTION;
SET ROLE regress_ratelimit_app;
GRANT EXECUTE ON FUNCTION rl_reap(int) TO regress_ratelimit_other;
RESET ROLE;
SELECT rl_revoke('regress_ratelimit_app');
SELECT test.may('regress_ratelimit_app'), test.may('regress_ratelimit_other');
SELECT rl_revoke('regress_ratelimit_app');
DROP ROLE regress_ratelimit_other;
-- A name that needs quotes, and a member of the role.
SELECT rl_grant('regress "Quoted" role', 'client');
GRANT "regress ""Quoted"" role" TO regress_ratelimit_app;
SET ROLE regress_ratelimit_app;
SELECT allowed FROM rl_consume('key', 'a', 'rpm', 4);
RESET ROLE;
SELECT rl_revoke('regress "Quoted" role');
SELECT test.may('regress_ratelimit_app');
-- With the transaction.
BEGIN;
SELECT rl_grant('regress_ratelimit_app', 'operator');
ROLLBACK;
SELECT test.may('regress_ratelimit_app');
-- Bad input.
SELECT test.error($$SELECT rl_grant('regress_ratelimit_app', 'admin')$$);
SELECT test.error($$SELECT rl_grant('regress_ratelimit_app', 'Client')$$);
SELECT test.error($$SELECT rl_grant('regress_ratelimit_app', '')$$);
SELECT test.error($$SELECT rl_grant('regress_ratelimit_nobody', 'client')$$);
SELECT test.error($$SELECT rl_grant('public', 'client')$$);
SELECT test.error($$SELECT rl_grant('', 'client')$$);
SELECT test.error($$SELECT rl_grant('regress_ratelimit_app, PUBLIC', 'client')$$);
SELECT test.error($$SELECT rl_grant(NULL, 'client')$$);
SELECT test.error($$SELECT rl_grant('regress_ratelimit_app', NULL)$$);
SELECT test.error($$SELECT rl_revoke('regress_ratelimit_nobody')$$);
SELECT test.error($$SELECT rl_revoke(NULL)$$);
SELECT left(test.error(format('SELECT rl_grant(%L, %L)', nspowner::regrole::text, 'client')), 50) FROM pg_namespace WHERE nspname = 'ratelimit';
SELECT left(test.error(format('SELECT rl_revoke(%L)', nspowner::regrole::text)), 50) FROM pg_namespace WHERE nspname = 'ratelimit';
BEGIN READ ONLY;
SELECT left(test.error($$SELECT rl_grant('regress_ratelimit_app', 'client')$$), 5), left(test.error($$SELECT rl_revoke('regress_ratelimit_app')$$), 5);
ROLLBACK;
-- For the owner and superusers only, also where somebody may execute them.
SET ROLE regress_ratelimit_app;
SELECT rl_grant('regress_ratelimit_app', 'client');
SELECT rl_revoke('regress_ratelimit_app');
RESET ROLE;
GRANT USAGE ON SCHEMA test TO regress_ratelimit_app;
GRANT EXECUTE ON FUNCTION rl_grant(name, text), rl_revoke(name) TO regress_ratelimit_app;
SET ROLE regress_ratelimit_app;
SELECT test.error($$SELECT rl_grant('regress_ratelimit_app', 'client')$$);
SELECT test.error($$SELECT rl_revoke('regress_ratelimit_app')$$);
-- (Before anything is said about the arguments.)
SELECT left(test.error($$SELECT rl_grant('regress_ratelimit_nobody', 'x')$$), 5);
RESET ROLE;
REVOKE USAGE ON SCHEMA test FROM regress_ratelimit_app;
REVOKE EXECUTE ON FUNCTION rl_grant(name, text), rl_revoke(name) FROM regress_ratelimit_app;
-- An owner that is no superuser, and whoever is a member of that role.
CREATE ROLE regress_ratelimit_owner;
BEGIN;
DO $$
DECLARE
	routine regprocedure;
	rel regclass;
BEGIN
	FOR routine IN SELECT objid FROM pg_depend WHERE classid = 'pg_proc'::regclass AND deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'ratelimit') LOOP
		EXECUTE format('ALTER ROUTINE %s OWNER TO regress_ratelimit_owner', routine);
	END LOOP;
	FOR rel IN SELECT oid FROM pg_class WHERE relnamespace = 'ratelimit'::regnamespace AND relkind IN ('r', 'v') LOOP
		EXECUTE format('ALTER TABLE %s OWNER TO regress_ratelimit_owner', rel);
	END LOOP;
	ALTER SCHEMA ratelimit OWNER TO regress_ratelimit_owner;
END $$;
GRANT regress_ratelimit_owner TO "regress ""Quoted"" role";
SET ROLE "regress ""Quoted"" role";
SELECT rl_grant('regress_ratelimit_app', 'client');
RESET ROLE;
SELECT has_function_privilege('regress_ratelimit_app', 'rl_commit(uuid[], jsonb)', 'EXECUTE') AS granted;
SET ROLE regress_ratelimit_app;
SELECT allowed FROM rl_consume('key', 'a', 'rpm', 4);
RESET ROLE;
ROLLBACK;
DROP ROLE regress_ratelimit_owner, regress_ratelimit_app, "regress ""Quoted"" role";
DROP FUNCTION test.may(name);
SELECT * FROM test.problems();
