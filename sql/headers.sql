-- rl_headers: decisions as HTTP header fields. Every value is worked by hand.
CALL test.begin();
\pset format unaligned
\t on
-- 2030-01-01 00:00:10.25: the minute ends in 49.75 s, the hour in 3589.75 s.
SET ratelimit.clock = '2030-01-01 00:00:10.25+00';
CREATE FUNCTION test.headers(decisions ratelimit.decision[]) RETURNS SETOF text LANGUAGE sql AS
	'SELECT key || '': '' || value FROM jsonb_each_text(rl_headers(decisions)) ORDER BY key';
WITH q AS MATERIALIZED (SELECT d FROM rl_consume('key', 'a', 'rpm', 5) d)
SELECT rl_headers(array_agg(d ORDER BY (d).ordinal)) FROM q;
-- Two windows and a lease that is live for 30 s; then a second one, as found.
SELECT test.headers(array_agg(d ORDER BY (d).ordinal)) FROM rl_reserve('[
	{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 5},
	{"scope_type": "key", "scope_key": "a", "metric": "tokens", "limit": 1000.9, "amount": 100.5, "window_seconds": 3600},
	{"scope_type": "user", "scope_key": "ada", "metric": "concurrent", "limit": 2, "lease_ttl_seconds": 30}]') d;
SELECT test.headers(ARRAY[rl_reserve('user', 'ada', 'concurrent', 2)]);
-- Denied: the longest wait, in whole seconds rounded up.
SELECT test.headers(ARRAY[rl_check('user', 'ada', 'concurrent', 2)]);
SELECT test.headers(array_agg(d ORDER BY (d).ordinal)) FROM rl_consume('[
	{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 5, "amount": 4},
	{"scope_type": "key", "scope_key": "a", "metric": "tokens", "limit": 1000, "amount": 1000, "window_seconds": 3600}]') d;
-- When waiting never helps there is no time to retry; a limit that was not looked at has no quota left to tell of.
SELECT test.headers(array_agg(d ORDER BY (d).ordinal)) FROM rl_consume('[
	{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 5, "amount": 4},
	{"scope_type": "key", "scope_key": "a", "metric": "rph", "limit": 5, "amount": 6, "window_seconds": 3600}]') d;
SELECT test.headers(ARRAY[rl_check('user', 'ada', 'concurrent', 0)]);
-- Left out: no limit, amount 0, the queue's.
SELECT rl_headers(array_agg(d)) FROM rl_check('[
	{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": null},
	{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 5, "amount": 0},
	{"scope_type": "key", "scope_key": "a", "metric": "queue_size", "limit": 5}]') d;
-- A name that is there already gets its place in the call; another window is another name.
SELECT test.headers(array_agg(d ORDER BY (d).ordinal)) FROM rl_check('[
	{"scope_type": "key", "scope_key": "x", "metric": "rpm", "limit": 5},
	{"scope_type": "key", "scope_key": "y", "metric": "rpm", "limit": 6},
	{"scope_type": "key", "scope_key": "y", "metric": "rpm", "limit": 7, "window_seconds": 120},
	{"scope_type": "key", "scope_key": "z", "metric": "rpm", "limit": 8}]') d;
-- Structured fields: quotes and backslashes are escaped, what is not printable ASCII is written as %XX of its UTF-8.
SELECT test.headers(ARRAY[rl_check('a"b\c', 'x', E'50 %\tü€~', 5)]);
-- Large and small numbers: whole, at most fifteen digits; three times 0.1 of 0.3 leaves nothing, of 3.3 three.
SELECT test.headers(ARRAY[rl_check('key', 'big', 'rpm', 1e300)]);
SELECT rl_consume('key', 'small', 'rpm', 3.3, 0.1) IS NULL, rl_consume('key', 'small', 'rpm', 3.3, 0.1) IS NULL;
SELECT test.headers(ARRAY[rl_consume('key', 'small', 'rpm', 3.3, 0.1)]);
-- A window that is over has nothing left to wait for.
SELECT array_agg(d) AS kept FROM rl_check('key', 'a', 'rpm', 5) d \gset
SET ratelimit.clock = '2030-01-01 00:02:00+00';
SELECT test.headers(:'kept');
-- NULL, nothing, and rows that somebody made up.
SELECT rl_headers(NULL) IS NULL AS is_null;
SELECT rl_headers('{}');
SELECT rl_headers(ARRAY[NULL]::ratelimit.decision[]);
SELECT rl_headers(ARRAY[ROW(1, false, 'x', true, 1, 'key', 'a', 'rpm', 5, 1, 0, 0, 'NaN', '-infinity', 'infinity', NULL, NULL, NULL)]::ratelimit.decision[]);
SELECT rl_headers(ARRAY[ROW(NULL, NULL, NULL, NULL, -5, NULL, NULL, NULL, -5, 1, 0, 0, -1, '2030-01-01', '2029-01-01', NULL, NULL, NULL)]::ratelimit.decision[]);
SELECT rl_headers(ARRAY[ROW(-1, NULL, NULL, NULL, 9223372036854775807, NULL, NULL, NULL, 'Infinity', 1, 0, 0, 1, '2030-01-01', '2030-01-02', NULL, NULL, NULL)]::ratelimit.decision[]);
SELECT test.error('SELECT rl_headers(array_fill(rl_check(''key'', ''a'', ''rpm'', 5), ARRAY[1001]))');
-- It writes nothing, also where nothing may be written.
BEGIN READ ONLY;
SELECT rl_headers(ARRAY[rl_check('key', 'a', 'rpm', 5)]);
COMMIT;
DROP FUNCTION test.headers(ratelimit.decision[]);
SELECT * FROM test.problems();
