-- Install, remove and install again, in one session whose plans are in use.
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION ratelimit;
-- Nothing is left behind.
SELECT count(*) AS schemas FROM pg_namespace WHERE nspname = 'ratelimit';
SELECT count(*) AS functions FROM pg_proc WHERE proname LIKE 'rl\_%';
-- SCHEMA ratelimit cannot be chosen.
\pset format unaligned
\t on
SELECT test.error('CREATE EXTENSION ratelimit SCHEMA ratelimit');
CREATE SCHEMA ratelimit;
SELECT test.error('CREATE EXTENSION ratelimit SCHEMA ratelimit');
-- A schema of that name that somebody else made is not taken over.
SELECT test.error('CREATE EXTENSION ratelimit');
\t off
\pset format aligned
DROP SCHEMA ratelimit;
-- Nor is a function of somebody else's, which would stay his.
CREATE FUNCTION public.rl_check(limits jsonb) RETURNS SETOF int LANGUAGE sql AS 'SELECT 1';
SELECT left(test.error('CREATE EXTENSION ratelimit'), 5);
DROP FUNCTION public.rl_check(jsonb);
SELECT count(*) AS extensions FROM pg_extension WHERE extname = 'ratelimit';
-- The default: functions in public, tables, types and views in ratelimit.
CREATE EXTENSION ratelimit;
SELECT extversion, extnamespace::regnamespace, extrelocatable FROM pg_extension WHERE extname = 'ratelimit';
CREATE FUNCTION test.places() RETURNS TABLE (kind text, schema text, count bigint) LANGUAGE sql AS $$
	SELECT kind, schema, count(*) FROM (
		SELECT 'function', p.pronamespace::regnamespace::text FROM pg_depend d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
		WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'ratelimit')
		UNION ALL
		SELECT CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'c' THEN 'type' ELSE c.relkind::text END, c.relnamespace::regnamespace::text
		FROM pg_class c WHERE c.relkind IN ('r', 'v', 'c') AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'ratelimit')) s (kind, schema)
	GROUP BY kind, schema ORDER BY kind, schema
$$;
SELECT kind, schema, count > 0 AS some FROM test.places();
-- Whoever chooses it, the schema belongs to the extension: it cannot be dropped alone, and goes with it.
DROP SCHEMA ratelimit;
-- Plans that are in use survive DROP and CREATE EXTENSION.
SELECT allowed, used FROM rl_consume('key', 'a', 'rpm', 5);
SELECT allowed, reserved, reservation_id IS NOT NULL AS reservation FROM rl_reserve('key', 'a', 'tpm', 5);
SELECT allowed, used, lease_id IS NOT NULL AS lease FROM rl_reserve('key', 'a', 'concurrent', 5);
SELECT rl_commit('{}'), rl_release((SELECT array_agg(reservation_id) FROM ratelimit.reservations), (SELECT array_agg(lease_id) FROM ratelimit.leases));
DROP EXTENSION ratelimit;
SELECT rl_consume('key', 'a', 'rpm', 5);
CREATE EXTENSION ratelimit;
SELECT allowed, used FROM rl_consume('key', 'a', 'rpm', 5);
SELECT allowed, used FROM rl_consume('key', 'a', 'rpm', 5);
SELECT allowed, reserved, reservation_id IS NOT NULL AS reservation FROM rl_reserve('key', 'a', 'tpm', 5);
SELECT allowed, used, lease_id IS NOT NULL AS lease FROM rl_reserve('key', 'a', 'concurrent', 5);
SELECT rl_commit('{}'), rl_release((SELECT array_agg(reservation_id) FROM ratelimit.reservations), (SELECT array_agg(lease_id) FROM ratelimit.leases));
-- In one transaction that is rolled back, too.
BEGIN;
DROP EXTENSION ratelimit;
CREATE EXTENSION ratelimit;
SELECT allowed, used FROM rl_consume('key', 'a', 'rpm', 5);
ROLLBACK;
SELECT allowed, used FROM rl_consume('key', 'a', 'rpm', 5);
-- A plan of the caller, prepared before.
PREPARE consume AS SELECT allowed, used FROM rl_consume('key', 'a', 'rpm', 5);
EXECUTE consume;
DROP EXTENSION ratelimit;
EXECUTE consume;
CREATE EXTENSION ratelimit;
EXECUTE consume;
DEALLOCATE consume;
-- A function of the caller, with plans of its own.
CREATE FUNCTION test.consume() RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RETURN (rl_consume('key', 'b', 'rpm', 2)).allowed; END $$;
SELECT test.consume(), test.consume(), test.consume();
DROP EXTENSION ratelimit;
CREATE EXTENSION ratelimit;
SELECT test.consume(), test.consume(), test.consume();
DROP FUNCTION test.consume();
-- The tables change under plans that are in use.
SELECT allowed, used FROM rl_consume('key', 'c', 'rpm', 5);
ALTER TABLE ratelimit.counters ADD COLUMN extra text DEFAULT 'x';
SELECT allowed, used FROM rl_consume('key', 'c', 'rpm', 5);
ALTER TABLE ratelimit.counters DROP COLUMN extra;
SELECT allowed, used FROM rl_consume('key', 'c', 'rpm', 5);
ALTER TABLE ratelimit.counters DROP CONSTRAINT counters_pkey, ADD CONSTRAINT counters_pkey PRIMARY KEY (scope_type, scope_key, metric, window_seconds);
SELECT allowed, used FROM rl_consume('key', 'c', 'rpm', 5);
ALTER TABLE ratelimit.counters SET (fillfactor = 70);
VACUUM FULL ratelimit.counters;
SELECT allowed, used FROM rl_consume('key', 'c', 'rpm', 5);
SELECT allowed, reason, used FROM rl_consume('key', 'c', 'rpm', 5);
ANALYZE ratelimit.counters;
TRUNCATE ratelimit.counters;
SELECT allowed, used FROM rl_consume('key', 'c', 'rpm', 5);
DROP EXTENSION ratelimit;
-- Another schema: the functions are there, the rest is where it always is.
CREATE SCHEMA "Other Schema";
CREATE EXTENSION ratelimit SCHEMA "Other Schema";
SELECT extnamespace::regnamespace FROM pg_extension WHERE extname = 'ratelimit';
SELECT kind, schema, count > 0 AS some FROM test.places();
SELECT allowed, used FROM "Other Schema".rl_consume('key', 'a', 'rpm', 5);
SELECT rl_version();
SET search_path = "Other Schema";
SELECT allowed, used FROM rl_consume('key', 'a', 'rpm', 5);
SELECT allowed, ordinal FROM rl_reserve('[{"scope_type": "key", "scope_key": "a", "metric": "concurrent", "limit": 5}]');
RESET search_path;
-- It cannot be moved.
ALTER EXTENSION ratelimit SET SCHEMA public;
-- Only one at a time, and only by a superuser.
CREATE EXTENSION ratelimit;
DROP EXTENSION ratelimit;
DROP SCHEMA "Other Schema";
CREATE ROLE regress_ratelimit_user;
DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO regress_ratelimit_user', current_database()); END $$;
SET ROLE regress_ratelimit_user;
CREATE EXTENSION ratelimit;
RESET ROLE;
DROP OWNED BY regress_ratelimit_user;
DROP ROLE regress_ratelimit_user;
DROP FUNCTION test.places();
CREATE EXTENSION ratelimit;
SELECT * FROM test.problems();
