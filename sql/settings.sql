-- The settings.
CALL test.begin();
-- They are known once the library is loaded, by the first call.
SELECT rl_version() IS NOT NULL AS loaded;
-- ratelimit.clock: a timestamp with time zone as text; empty means the real clock.
SELECT name, setting, unit, context, vartype, boot_val, min_val FROM pg_settings WHERE name LIKE 'ratelimit.%' AND name IN ('ratelimit.clock', 'ratelimit.retention') ORDER BY name;
SHOW ratelimit.clock;
CREATE FUNCTION test.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT window_start FROM public.rl_check('key', 'clock', 'now', 1, 1, 1) $$;
SELECT abs(extract(epoch FROM clock_timestamp() - test.now())) < 5 AS real_clock;
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT test.now();
SET ratelimit.clock = '2030-01-01 00:00:10.999999+02';
SELECT test.now();
-- Without a zone it is read in that of the session when it is set.
SET timezone = 'Asia/Tokyo';
SET ratelimit.clock = '2030-01-01 09:00:10';
SET timezone = 'UTC';
SELECT test.now();
SET ratelimit.clock = '2030-01-01 00:00:10 America/New_York';
SELECT test.now();
SET ratelimit.clock = '2030-01-01T00:00:10Z';
SELECT test.now();
SET ratelimit.clock = '2030-01-01';
SELECT test.now();
SET ratelimit.clock = 'epoch';
SELECT test.now();
SET ratelimit.clock = '1900-01-01 00:00:00+00';
SELECT test.now();
SET ratelimit.clock = '9999-12-31 23:59:59+00';
SELECT test.now();
SET ratelimit.clock = '';
SELECT abs(extract(epoch FROM clock_timestamp() - test.now())) < 5 AS real_clock;
SET ratelimit.clock = '2030-01-01 00:00:10+00';
RESET ratelimit.clock;
SELECT abs(extract(epoch FROM clock_timestamp() - test.now())) < 5 AS real_clock;
-- What is not one is refused, and the clock stays as it was.
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SET ratelimit.clock = 'soon';
SET ratelimit.clock = 'infinity';
SET ratelimit.clock = '-infinity';
SET ratelimit.clock = ' ';
SET ratelimit.clock = '2030-02-30 00:00:00+00';
SET ratelimit.clock = '25:00';
SET ratelimit.clock = '999999-01-01 00:00:00+00';
-- So is what leaves no room for the windows and expiries around it; next to that, all of them can be stored and shown.
SET ratelimit.clock = '294276-12-31 23:59:59+00';
SET ratelimit.clock = '4714-11-24 00:00:00+00 BC';
SET ratelimit.clock = '294275-12-30 00:00:00+00';
SELECT d.* FROM test.limit('end', 'concurrent', 5, 1, '{"lease_ttl_seconds": 31622400}') l,
	LATERAL (SELECT allowed, lease_expires_at > '294276-01-01' AS far FROM rl_reserve(jsonb_build_array(l))) d;
SELECT allowed, window_start, reset_at FROM rl_reserve('key', 'end', 'rpm', 5, 1, 31622400);
SET ratelimit.clock = '4712-01-01 00:00:00+00 BC';
SELECT allowed, window_start, reset_at FROM rl_reserve('key', 'start', 'rpm', 5, 1, 31622400);
SELECT count(t::text) FROM ratelimit.reservations t WHERE scope_key IN ('end', 'start');
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT test.now();
-- It follows the transaction that sets it.
BEGIN;
SET LOCAL ratelimit.clock = '2031-01-01 00:00:00+00';
SELECT test.now();
SAVEPOINT s;
SET LOCAL ratelimit.clock = '2032-01-01 00:00:00+00';
SELECT test.now();
ROLLBACK TO s;
SELECT test.now();
COMMIT;
SELECT test.now();
CREATE FUNCTION test.then() RETURNS timestamptz LANGUAGE sql SET ratelimit.clock = '2033-01-01 00:00:00+00' AS 'SELECT test.now()';
SELECT test.now(), test.then(), test.now();
DROP FUNCTION test.then();
-- Only a superuser may set them, unless he lets somebody.
CREATE ROLE regress_ratelimit_user;
SET ROLE regress_ratelimit_user;
SET ratelimit.clock = '2034-01-01 00:00:00+00';
SET ratelimit.retention = 5;
SHOW ratelimit.clock;
RESET ROLE;
GRANT SET ON PARAMETER ratelimit.clock TO regress_ratelimit_user;
SET ROLE regress_ratelimit_user;
SET ratelimit.clock = '2034-01-01 00:00:00+00';
RESET ROLE;
REVOKE SET ON PARAMETER ratelimit.clock FROM regress_ratelimit_user;
DROP ROLE regress_ratelimit_user;
SELECT test.now();
-- A session that sets it before the library is loaded does not get around that.
CREATE ROLE regress_ratelimit_user;
\connect -
SET timezone = 'UTC';
SET ROLE regress_ratelimit_user;
SET ratelimit.clock = '2034-01-01 00:00:00+00';
SELECT rl_version() IS NOT NULL AS loaded;
SHOW ratelimit.clock;
RESET ROLE;
SELECT abs(extract(epoch FROM clock_timestamp() - test.now())) < 5 AS real_clock;
DROP ROLE regress_ratelimit_user;
-- ratelimit.retention.
SET ratelimit.retention = '2h';
SHOW ratelimit.retention;
SET ratelimit.retention = -1;
SET ratelimit.retention = 'long';
RESET ratelimit.retention;
SHOW ratelimit.retention;
-- The prefix is reserved: a misspelt name is an error.
SET ratelimit.clok = '2030-01-01 00:00:10+00';
SET ratelimit.x = 1;
SELECT set_config('ratelimit.y', '1', false);
DROP FUNCTION test.now();
SELECT * FROM test.problems();
