-- Who may call what, and what a caller needs.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
CREATE ROLE regress_ratelimit_nobody;
CREATE ROLE regress_ratelimit_caller;
-- PUBLIC may call rl_version and rl_shard only.
SELECT p.oid::regprocedure AS function FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'ratelimit' WHERE has_function_privilege('regress_ratelimit_nobody', p.oid, 'EXECUTE') ORDER BY 1::text;
SET ROLE regress_ratelimit_nobody;
SELECT rl_version() IS NOT NULL AS version, rl_shard('key', '{123456789}') AS shard, rl_shard('01890a5d-ac96-7abc-8123-456789abcdef');
SELECT rl_check('key', 'a', 'rpm', 5);
SELECT rl_check('[]');
SELECT rl_consume('key', 'a', 'rpm', 5);
SELECT rl_consume('[]');
SELECT rl_enforce('key', 'a', 'rpm', 5);
SELECT rl_enforce('[]');
SELECT rl_headers('{}');
SELECT rl_reserve('key', 'a', 'rpm', 5);
SELECT rl_reserve('[]');
SELECT rl_commit('{}');
SELECT rl_release();
SELECT rl_attach('x');
SELECT rl_renew('{}');
SELECT * FROM ratelimit.counters;
SELECT NULL::ratelimit.decision;
RESET ROLE;
-- EXECUTE is enough to call: no privilege on the schema, the tables or the types.
GRANT EXECUTE ON FUNCTION rl_check(text, text, text, float8, float8, int), rl_check(jsonb), rl_consume(text, text, text, float8, float8, int),
	rl_consume(jsonb), rl_reserve(text, text, text, float8, float8, int, int, text, text, text), rl_reserve(jsonb, text, text), rl_commit(uuid[], jsonb),
	rl_release(uuid[], uuid[], text), rl_attach(text, uuid[], uuid[]), rl_renew(uuid[], int) TO regress_ratelimit_caller;
SELECT has_schema_privilege('regress_ratelimit_caller', 'ratelimit', 'USAGE') AS usage, has_table_privilege('regress_ratelimit_caller', 'ratelimit.counters', 'SELECT') AS selects;
SET ROLE regress_ratelimit_caller;
SELECT allowed, used, remaining FROM rl_check('key', 'a', 'rpm', 2);
SELECT allowed, used, remaining FROM rl_consume('key', 'a', 'rpm', 2);
SELECT ordinal, allowed FROM rl_consume('[{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 2}]');
SELECT allowed, reason FROM rl_consume('key', 'a', 'rpm', 2);
SELECT reservation_id AS r FROM rl_reserve('key', 'a', 'tpm', 2, request_id => 'r') \gset
SELECT allowed, reservation_id = :'r' AS same FROM rl_reserve('key', 'a', 'tpm', 2, request_id => 'r');
SELECT lease_id AS l FROM rl_reserve('[{"scope_type": "key", "scope_key": "a", "metric": "concurrent", "limit": 2}]') \gset
SELECT rl_attach('x', ARRAY[:'r']::uuid[], ARRAY[:'l']::uuid[]);
SELECT renewed FROM rl_renew(ARRAY[:'l']::uuid[]);
SELECT rl_commit(ARRAY[:'r']::uuid[]);
SELECT rl_release('{}', ARRAY[:'l']::uuid[]);
SELECT ordinal, allowed FROM rl_check('[{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 2}]');
-- The tables stay closed; whoever calls is himself again afterwards, also after an error and after a rollback to a savepoint.
SELECT used FROM ratelimit.counters;
DELETE FROM ratelimit.counters;
SELECT current_user, session_user = current_user AS same;
SELECT rl_consume('key', 'a', 'rpm', -1);
SELECT current_user;
BEGIN;
SAVEPOINT s;
SELECT rl_consume('key', 'a', 'rpm', 2, 'NaN');
ROLLBACK TO s;
SELECT current_user, (rl_check('key', 'a', 'rpm', 2)).used;
COMMIT;
RESET ROLE;
-- What the caller's own functions do, they do as the caller.
CREATE FUNCTION test.who() RETURNS text VOLATILE LANGUAGE plpgsql AS $$ BEGIN RETURN current_user; END $$;
GRANT USAGE ON SCHEMA test TO regress_ratelimit_caller;
SET ROLE regress_ratelimit_caller;
SELECT scope_key FROM rl_consume('key', test.who(), 'rpm', 2);
RESET ROLE;
SELECT scope_key FROM ratelimit.counters WHERE scope_key LIKE 'regress%';
-- A SECURITY DEFINER function lends its owner's EXECUTE.
CREATE FUNCTION test.lent(k text) RETURNS bool SECURITY DEFINER SET search_path = pg_catalog LANGUAGE sql AS $$ SELECT allowed FROM public.rl_consume('key', k, 'rpm', 1) $$;
GRANT USAGE ON SCHEMA test TO regress_ratelimit_nobody;
SET ROLE regress_ratelimit_nobody;
SELECT test.lent('b'), test.lent('b');
RESET ROLE;
DROP FUNCTION test.who(), test.lent(text);
REVOKE USAGE ON SCHEMA test FROM regress_ratelimit_caller, regress_ratelimit_nobody;
DROP OWNED BY regress_ratelimit_caller;
DROP ROLE regress_ratelimit_nobody, regress_ratelimit_caller;
SELECT * FROM test.problems();
