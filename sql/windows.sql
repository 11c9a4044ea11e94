-- Windows: aligned to the epoch, over at reset_at, never opened again.
CALL test.begin();
-- window_start = floor(epoch / window_seconds) * window_seconds, for lengths that divide a day and others.
SET ratelimit.clock = '2030-01-01 12:34:56.789+00';
SELECT w AS window_seconds, d.window_start, d.reset_at,
	d.window_start = to_timestamp(floor(extract(epoch FROM timestamptz '2030-01-01 12:34:56.789+00') / w) * w) AS aligned,
	d.reset_at = d.window_start + make_interval(secs => w) AS long_enough
FROM unnest('{1,7,60,61,3600,86400,604800,31622400}'::int[]) w, rl_check('key', 'a', 'rpm', 1, 1, w) d;
-- Before the epoch as well.
SET ratelimit.clock = '1969-12-31 23:59:59.5+00';
SELECT w AS window_seconds, d.window_start, d.reset_at FROM unnest('{1,60,31622400}'::int[]) w, rl_check('key', 'a', 'rpm', 1, 1, w) d;
SET ratelimit.clock = '1970-01-01 00:00:00+00';
SELECT window_start, reset_at FROM rl_check('key', 'a', 'rpm', 1);
-- A retry is rounded up to whole milliseconds ...
SET ratelimit.clock = '2030-01-01 00:00:10.0001+00';
SELECT allowed, remaining FROM rl_consume('key', 'a', 'rpm', 1);
SELECT allowed, reason, retry_after_ms FROM rl_consume('key', 'a', 'rpm', 1);
SET ratelimit.clock = '2030-01-01 00:00:10.001+00';
SELECT retry_after_ms FROM rl_check('key', 'a', 'rpm', 1);
SET ratelimit.clock = '2030-01-01 00:00:10.000999+00';
SELECT retry_after_ms FROM rl_check('key', 'a', 'rpm', 1);
-- ... and at least one second.
SET ratelimit.clock = '2030-01-01 00:00:58.999999+00';
SELECT retry_after_ms FROM rl_check('key', 'a', 'rpm', 1);
SET ratelimit.clock = '2030-01-01 00:00:59+00';
SELECT retry_after_ms FROM rl_check('key', 'a', 'rpm', 1);
SET ratelimit.clock = '2030-01-01 00:00:59.5+00';
SELECT retry_after_ms FROM rl_check('key', 'a', 'rpm', 1);
-- A microsecond before reset_at the window still counts, at the very instant it is over.
SET ratelimit.clock = '2030-01-01 00:00:59.999999+00';
SELECT allowed, reason, retry_after_ms, used, window_start FROM rl_consume('key', 'a', 'rpm', 1);
SET ratelimit.clock = '2030-01-01 00:01:00+00';
SELECT allowed, used, window_start, reset_at FROM rl_check('key', 'a', 'rpm', 1);
SELECT allowed, used, window_start, reset_at FROM rl_consume('key', 'a', 'rpm', 1);
SELECT window_start, used, reserved FROM ratelimit.counters;
-- The new window starts empty, promises included; windows without a call are skipped.
SELECT allowed FROM rl_reserve('key', 'b', 'rpm', 5, 5);
SET ratelimit.clock = '2030-01-01 00:07:30+00';
SELECT allowed, used, reserved, remaining, window_start FROM rl_reserve('key', 'b', 'rpm', 5, 2);
SELECT window_start, used, reserved FROM ratelimit.counters WHERE scope_key = 'b';
-- A clock that goes backwards never refills and reopens nothing: the newest window stays the current one, and the wait is
-- an honest one, until that window ends.
SET ratelimit.clock = '2030-01-01 00:01:30+00';
SELECT allowed, reserved, remaining, window_start, reset_at FROM rl_check('key', 'b', 'rpm', 5);
SELECT allowed, reserved, remaining, window_start FROM rl_consume('key', 'b', 'rpm', 5, 3);
SELECT allowed, reason, retry_after_ms, used, reserved, window_start, reset_at FROM rl_consume('key', 'b', 'rpm', 5);
SELECT window_start, used, reserved FROM ratelimit.counters WHERE scope_key = 'b';
SELECT window_start, due_at AS reset_at, created_at FROM ratelimit.reservations WHERE scope_key = 'b' ORDER BY window_start;
-- Nor is a stored time moved back.
SELECT touched_at FROM ratelimit.counters WHERE scope_key = 'b';
SELECT * FROM test.problems();
-- The retry was honest.
SET ratelimit.clock = '2030-01-01 00:08:00+00';
SELECT allowed, used, reserved, window_start FROM rl_consume('key', 'b', 'rpm', 5);
-- The bounds of window_seconds.
SELECT w AS window_seconds, left(test.error(format('SELECT rl_consume(''key'', ''c'', ''rpm'', 1, 1, %s)', w)), 6) AS result
FROM unnest('{-1,0,1,31622400,31622401}'::int[]) w;
SELECT window_seconds FROM ratelimit.counters WHERE scope_key = 'c' ORDER BY 1;
-- The real clock.
RESET ratelimit.clock;
SELECT d.window_start <= clock_timestamp() AND d.reset_at > clock_timestamp() - interval '1 s' AS now,
	d.reset_at - d.window_start AS length FROM rl_check('key', 'real', 'rpm', 1, 1, 1000) d;
-- It is read for every decision: never the transaction's frozen now().
BEGIN;
SELECT allowed FROM rl_consume('key', 'real', 'rpm', 1, 1, 31622400);
SELECT touched_at > now() AS later_than_the_transaction FROM ratelimit.counters WHERE scope_key = 'real';
COMMIT;
SELECT * FROM test.problems();
