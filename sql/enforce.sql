-- rl_enforce: rl_consume whose denial is an error.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10.25+00';
\pset format unaligned
\t on
-- It spends, and says nothing.
SELECT rl_enforce('key', 'a', 'rpm', 2);
SELECT rl_enforce('[{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 2}]');
SELECT used, reserved FROM ratelimit.counters;
-- Denied: the SQLSTATE of the setting, the decision as JSON, the time to retry; nothing is spent.
SELECT test.error($$SELECT rl_enforce('key', 'a', 'rpm', 2)$$);
SELECT test.error($$SELECT rl_enforce('key', 'a', 'rpm', 0)$$);
SELECT test.error($$SELECT rl_enforce('key', 'b', 'rpm', 2, 3)$$);
SELECT used, reserved FROM ratelimit.counters;
-- Of several limits, the one to wait for the longest speaks; none is spent.
SELECT test.error($$SELECT rl_enforce('[
	{"scope_type": "key", "scope_key": "b", "metric": "rpm", "limit": 2},
	{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 2},
	{"scope_type": "key", "scope_key": "c", "metric": "rph", "limit": 1, "amount": 2, "window_seconds": 3600},
	{"scope_type": "key", "scope_key": "d", "metric": "rph", "limit": 0}]')$$);
SELECT rl_enforce('key', 'c', 'rph', 2, 2, 3600);
SELECT test.error($$SELECT rl_enforce('[
	{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 2},
	{"scope_type": "key", "scope_key": "c", "metric": "rph", "limit": 2, "window_seconds": 3600}]')$$);
SELECT scope_key, used FROM ratelimit.counters ORDER BY 1;
-- What is not enforced raises nothing.
SELECT rl_enforce('key', 'a', 'rpm', NULL);
SELECT rl_enforce('key', 'a', 'rpm', 0, 0);
SELECT rl_enforce('[]');
-- The details are whole, however long, and read back as the decision.
CREATE FUNCTION test.denied(statement text) RETURNS ratelimit.decision LANGUAGE plpgsql AS $$
DECLARE
	detail text;
BEGIN
	EXECUTE statement;
	RETURN NULL;
EXCEPTION WHEN configuration_limit_exceeded THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN json_populate_record(NULL::ratelimit.decision, detail::json);
END $$;
SELECT test.denied($$SELECT rl_enforce('key', 'a', 'rpm', 2)$$) = rl_check('key', 'a', 'rpm', 2) AS same;
SELECT length((test.denied(format('SELECT rl_enforce(%L, %L, %L, 0)', repeat('"', 512), repeat('\', 512), repeat('x', 512)))).scope_key);
SELECT length((test.denied(format('SELECT rl_enforce(%L, %L, %L, 0)', repeat('ü', 256), repeat('ü', 256), repeat('ü', 256)))).metric);
DROP FUNCTION test.denied(text);
-- The setting.
SELECT setting, context, boot_val FROM pg_settings WHERE name = 'ratelimit.denied_sqlstate';
CREATE ROLE regress_ratelimit_user;
SET ROLE regress_ratelimit_user;
SET ratelimit.denied_sqlstate = 'PT429';
RESET ROLE;
DROP ROLE regress_ratelimit_user;
\set VERBOSITY verbose
\set SHOW_CONTEXT never
SELECT left(test.error($$SELECT rl_enforce('key', 'a', 'rpm', 2)$$), 20);
\set VERBOSITY default
SET ratelimit.denied_sqlstate = '';
SET ratelimit.denied_sqlstate = 'pt429';
SET ratelimit.denied_sqlstate = 'PT42';
SET ratelimit.denied_sqlstate = 'PT4290';
SET ratelimit.denied_sqlstate = 'PT 29';
SET ratelimit.denied_sqlstate = '00000';
SET ratelimit.denied_sqlstate = '01000';
SET ratelimit.denied_sqlstate = '02000';
SHOW ratelimit.denied_sqlstate;
RESET ratelimit.denied_sqlstate;
-- In a trigger: sign-ups per address.
CREATE TABLE test.signup (address text, name text);
CREATE FUNCTION test.limit_signups() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM rl_enforce('address', NEW.address, 'signups', 2, window_seconds => 3600);
	RETURN NEW;
END $$;
CREATE TRIGGER limit_signups BEFORE INSERT ON test.signup FOR EACH ROW EXECUTE FUNCTION test.limit_signups();
INSERT INTO test.signup VALUES ('192.0.2.1', 'ada'), ('192.0.2.1', 'bob');
INSERT INTO test.signup VALUES ('192.0.2.2', 'eve'), ('192.0.2.1', 'mallory');
INSERT INTO test.signup VALUES ('192.0.2.2', 'eve');
SELECT * FROM test.signup ORDER BY name;
-- A statement that was denied gives back what its other rows took.
SELECT scope_key, used FROM ratelimit.counters WHERE scope_type = 'address' ORDER BY 1;
DROP TABLE test.signup;
DROP FUNCTION test.limit_signups();
-- Bad input, and where nothing may be written.
\set VERBOSITY sqlstate
SELECT rl_enforce('key', 'a', 'concurrent', 2);
SELECT rl_enforce('key', 'a', 'rpm', -1);
SELECT rl_enforce('key', 'a', 'rpm', 'NaN');
SELECT rl_enforce(' ', 'a', 'rpm', 2);
SELECT rl_enforce('ratelimit.x', 'a', 'rpm', 2);
SELECT rl_enforce('key', NULL, 'rpm', 2);
SELECT rl_enforce(NULL);
SELECT rl_enforce('[{"scope_type": "key", "scope_key": "a", "metric": "rpm"}]');
SELECT rl_enforce('[{"scope_type": "key", "scope_key": "a", "metric": "concurrent", "limit": 1}]');
BEGIN READ ONLY;
SELECT rl_enforce('key', 'a', 'rpm', 0);
ROLLBACK;
SELECT * FROM test.problems();
