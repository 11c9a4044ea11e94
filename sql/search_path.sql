-- A hostile search path: nothing that a caller can create is used inside the functions.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
CREATE ROLE regress_ratelimit_hostile;
CREATE SCHEMA hostile AUTHORIZATION regress_ratelimit_hostile;
CREATE TABLE hostile.traps (who text, what text);
GRANT ALL ON hostile.traps TO PUBLIC;
SET ROLE regress_ratelimit_hostile;
-- Operators, functions, types and tables that shadow those of the system for the types that the functions use.
CREATE FUNCTION hostile.trap(what text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN INSERT INTO hostile.traps VALUES (current_user, what); RETURN false; END $$;
DO $$
DECLARE
	type text;
	op text;
	body text;
BEGIN
	FOREACH type IN ARRAY '{text,float8,int4,int8,uuid,timestamptz,tid,bool,jsonb,xid}'::text[] LOOP
		FOREACH op IN ARRAY '{=,<,<=,>,>=,<>}'::text[] LOOP
			EXECUTE format('CREATE FUNCTION hostile.%I(pg_catalog.%s, pg_catalog.%s) RETURNS pg_catalog.bool LANGUAGE sql AS %L', 'op' || op, type, type,
				format('SELECT hostile.trap(%L)', op || ' ' || type));
			EXECUTE format('CREATE OPERATOR hostile.%s (LEFTARG = pg_catalog.%s, RIGHTARG = pg_catalog.%s, FUNCTION = hostile.%I)', op, type, type, 'op' || op);
		END LOOP;
	END LOOP;
	EXECUTE 'CREATE FUNCTION hostile.plus(pg_catalog.timestamptz, pg_catalog.interval) RETURNS pg_catalog.timestamptz LANGUAGE sql AS ''SELECT $1 FROM hostile.trap(''''+'''')''';
	EXECUTE 'CREATE OPERATOR hostile.+ (LEFTARG = pg_catalog.timestamptz, RIGHTARG = pg_catalog.interval, FUNCTION = hostile.plus)';
	EXECUTE 'CREATE FUNCTION hostile.fplus(pg_catalog.float8, pg_catalog.float8) RETURNS pg_catalog.float8 LANGUAGE sql AS ''SELECT $1 FROM hostile.trap(''''+'''')''';
	EXECUTE 'CREATE OPERATOR hostile.+ (LEFTARG = pg_catalog.float8, RIGHTARG = pg_catalog.float8, FUNCTION = hostile.fplus)';
	EXECUTE 'CREATE OPERATOR hostile.- (LEFTARG = pg_catalog.float8, RIGHTARG = pg_catalog.float8, FUNCTION = hostile.fplus)';
END $$;
CREATE FUNCTION hostile.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT pg_catalog.now() FROM hostile.trap('now') $$;
CREATE FUNCTION hostile.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT pg_catalog.now() FROM hostile.trap('clock_timestamp') $$;
CREATE FUNCTION hostile.make_interval(secs float8) RETURNS interval LANGUAGE sql AS $$ SELECT '1 s'::pg_catalog.interval FROM hostile.trap('make_interval') $$;
CREATE FUNCTION hostile.sum_state(float8, float8) RETURNS float8 LANGUAGE sql AS $$ SELECT 0::pg_catalog.float8 FROM hostile.trap('sum') $$;
CREATE AGGREGATE hostile.sum(float8) (SFUNC = hostile.sum_state, STYPE = float8, INITCOND = '0');
CREATE FUNCTION hostile.greatest(timestamptz, timestamptz) RETURNS timestamptz LANGUAGE sql AS $$ SELECT $1 FROM hostile.trap('greatest') $$;
CREATE FUNCTION hostile.unnest(uuid[]) RETURNS SETOF uuid LANGUAGE sql AS $$ SELECT NULL::pg_catalog.uuid FROM hostile.trap('unnest') $$;
CREATE DOMAIN hostile.text AS pg_catalog.text CHECK (hostile.trap('text'));
CREATE DOMAIN hostile.timestamptz AS pg_catalog.timestamptz CHECK (hostile.trap('timestamptz'));
CREATE DOMAIN hostile.uuid AS pg_catalog.uuid CHECK (hostile.trap('uuid'));
CREATE DOMAIN hostile.float8 AS pg_catalog.float8 CHECK (hostile.trap('float8'));
CREATE TABLE hostile.counters (LIKE hostile.traps);
CREATE TABLE hostile.pg_class (LIKE hostile.traps);
RESET ROLE;
-- The traps work.
SET search_path = hostile, public, pg_catalog;
SELECT 'a'::pg_catalog.text = 'a'::pg_catalog.text AS equal, now() IS NOT NULL AS now;
SELECT who OPERATOR(pg_catalog.=) current_user AS me, what FROM hostile.traps ORDER BY what;
TRUNCATE hostile.traps;
-- Every function, with plans that are made now: a new connection has none.
\connect -
SET search_path = hostile, public, pg_catalog;
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SET timezone = 'UTC';
SET datestyle = 'ISO';
-- pg_temp comes first for tables and types: temporary tables named like ours.
CREATE TEMP TABLE counters (x int);
CREATE TEMP TABLE leases (x int);
CREATE TEMP TABLE scopes (x int);
CREATE TEMP TABLE reservations (x int);
CREATE TEMP TABLE requests (x int);
CREATE TYPE pg_temp.decision AS (x int);
SELECT allowed, used, remaining FROM rl_check('key', 'a', 'rpm', 5);
SELECT allowed, used, remaining FROM rl_consume('key', 'a', 'rpm', 5);
SELECT allowed, used, remaining FROM rl_consume('key', 'a', 'rpm', 5);
SELECT allowed, used, remaining FROM rl_consume('[{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 5}, {"scope_type": "key", "scope_key": "b", "metric": "rpm", "limit": 5}]');
SELECT allowed, reserved, remaining, reservation_id AS r FROM rl_reserve('key', 'a', 'tpm', 5, request_id => 'r') \gset
SELECT allowed, reserved, reservation_id OPERATOR(pg_catalog.=) :'r' AS same FROM rl_reserve('key', 'a', 'tpm', 5, request_id => 'r');
SELECT lease_id AS l FROM rl_reserve('key', 'a', 'concurrent', 2, lease_ttl_seconds => 10) \gset
SELECT allowed, used, remaining FROM rl_reserve('[{"scope_type": "key", "scope_key": "a", "metric": "concurrent", "limit": 2}, {"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 5}]');
SELECT allowed, reason, used, reset_at FROM rl_reserve('key', 'a', 'concurrent', 2);
SELECT renewed, expires_at FROM rl_renew(ARRAY[:'l']::pg_catalog.uuid[], 15);
SET ratelimit.clock = '2030-01-01 00:00:25+00';
SELECT allowed, used FROM rl_check('key', 'a', 'concurrent', 2);
SELECT allowed, used, lease_id AS l FROM rl_reserve('key', 'a', 'concurrent', 2) \gset
SELECT :'allowed' AS allowed, :used AS used;
SELECT * FROM rl_attach('x', ARRAY[:'r']::pg_catalog.uuid[], ARRAY[:'l']::pg_catalog.uuid[]);
SELECT rl_commit(ARRAY[:'r']::pg_catalog.uuid[], '{"tpm": 2}');
SELECT * FROM rl_release(ARRAY[:'r']::pg_catalog.uuid[], ARRAY[:'l']::pg_catalog.uuid[]);
SET ratelimit.retention = 0;
SELECT * FROM rl_release((SELECT pg_catalog.array_agg(reservation_id) FROM ratelimit.reservations));
RESET ratelimit.retention;
-- The queue, once with a task in every state.
CREATE TEMP TABLE tasks (x int);
CREATE TEMP TABLE waiting (x int);
CREATE TEMP TABLE awaited (x int);
CREATE TEMP TABLE workers (x int);
CREATE TYPE pg_temp.admission AS (x int);
\set one '[{"scope_type": "model", "scope_key": "m", "limit": 1, "queue_limit": 9}]'
\set two '[{"scope_type": "model", "scope_key": "n", "limit": 2, "queue_limit": null}, {"scope_type": "pool", "scope_key": "p", "limit_from": "worker_capacity", "fifo": false}]'
SELECT rl_worker_heartbeat('w', 4), rl_worker_heartbeat('w'), rl_worker_stop('none');
SELECT status FROM rl_admit('a', :'one');
SELECT status FROM rl_admit('b', :'one');
SELECT status FROM rl_admit('b', :'one');
SELECT status FROM rl_enqueue('c', :'two');
SELECT status FROM rl_enqueue('d', :'one');
SELECT task_id, blockers FROM rl_waiting();
SELECT rl_defer('d', 'x', 5000), rl_renew_waiters('{b}', '{b}');
SELECT task_id FROM rl_dispatch();
SELECT status FROM rl_rebind('d', :'two');
SELECT task_id FROM rl_dispatch();
SELECT rl_cancel('a'), rl_cancel('c', 'x', 'failed');
SELECT status FROM rl_admit('b', :'two');
SET ratelimit.clock = '2030-01-01 00:03:25+00';
SELECT status FROM rl_admit('b', :'two');
SELECT task_id, status, reason FROM rl_status('c');
SELECT candidate, chosen FROM rl_route('[{"candidate": "a", "limits": [{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 5}]}]');
SELECT waiting, oldest_wait_seconds FROM ratelimit.queue_metrics;
DO $$
DECLARE
	answer ratelimit.admission;
BEGIN
	CALL rl_admit_wait('e', '[{"scope_type": "model", "scope_key": "m", "limit": 1, "queue_limit": 9}]', NULL, 0, answer);
	CALL rl_admit_wait('f', '[{"scope_type": "model", "scope_key": "m", "limit": 1, "queue_limit": 9}]', '0', 0, answer);
	RAISE NOTICE '%', answer.status;
END $$;
SELECT rl_shard('key', '{123456789}'), rl_shard('01890a5d-ac96-7abc-8123-456789abcdef'), rl_version() IS NOT NULL AS version;
SELECT rl_consume('key', 'a', 'rpm', -1);
SELECT pg_catalog.count(*) AS sprung FROM hostile.traps;
-- CREATE EXTENSION itself.
BEGIN;
DROP EXTENSION ratelimit;
CREATE EXTENSION ratelimit SCHEMA public;
SELECT allowed, used FROM rl_consume('key', 'a', 'rpm', 5);
SELECT pg_catalog.count(*) AS sprung FROM hostile.traps;
ROLLBACK;
-- An empty search path.
SET search_path = '';
SELECT allowed, used FROM public.rl_consume('key', 'c', 'rpm', 5);
SELECT allowed, reserved FROM public.rl_reserve('key', 'c', 'rpm', 5);
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA hostile CASCADE;
RESET client_min_messages;
DROP ROLE regress_ratelimit_hostile;
SELECT * FROM test.problems();
