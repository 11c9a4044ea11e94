-- Bad input: an error before anything is written; the message names the argument, DETAIL gives the value, HINT what is accepted.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT test.contents() AS before \gset
\pset format unaligned
\t on
-- NULL where there is no default: 22004.
SELECT statement, test.error(statement) FROM (VALUES
	(1, $$SELECT rl_check(NULL, 'a', 'rpm', 1)$$), (2, $$SELECT rl_check('key', NULL, 'rpm', 1)$$), (3, $$SELECT rl_check('key', 'a', NULL, 1)$$),
	(4, $$SELECT rl_consume(NULL, 'a', 'rpm', 1)$$), (5, $$SELECT rl_consume('key', NULL, 'rpm', 1)$$), (6, $$SELECT rl_consume('key', 'a', NULL, 1)$$),
	(7, $$SELECT rl_reserve(NULL, 'a', 'rpm', 1)$$), (8, $$SELECT rl_reserve('key', NULL, 'rpm', 1)$$), (9, $$SELECT rl_reserve('key', 'a', NULL, 1)$$),
	(10, $$SELECT rl_check(NULL)$$), (11, $$SELECT rl_consume(NULL)$$), (12, $$SELECT rl_reserve(NULL::jsonb)$$), (13, $$SELECT rl_commit(NULL)$$),
	(14, $$SELECT rl_attach(NULL)$$), (15, $$SELECT rl_renew(NULL)$$)) v (n, statement) ORDER BY n;
-- Each argument of each function, out of range.
SELECT statement, test.error(statement) FROM (VALUES
	(1, $$SELECT rl_check('', 'a', 'rpm', 1)$$), (2, $$SELECT rl_check('key', ' ', 'rpm', 1)$$), (3, $$SELECT rl_check('key', 'a', '', 1)$$),
	(4, $$SELECT rl_check('key', 'a', 'rpm', -1)$$), (5, $$SELECT rl_check('key', 'a', 'rpm', 1, -1)$$), (6, $$SELECT rl_check('key', 'a', 'rpm', 1, 1, 0)$$),
	(7, $$SELECT rl_consume('', 'a', 'rpm', 1)$$), (8, $$SELECT rl_consume('key', '', 'rpm', 1)$$), (9, $$SELECT rl_consume('key', 'a', '', 1)$$),
	(10, $$SELECT rl_consume('key', 'a', 'rpm', -1)$$), (11, $$SELECT rl_consume('key', 'a', 'rpm', 1, 'NaN')$$), (12, $$SELECT rl_consume('key', 'a', 'rpm', 1, 1, 31622401)$$),
	(13, $$SELECT rl_reserve('', 'a', 'rpm', 1)$$), (14, $$SELECT rl_reserve('key', '', 'rpm', 1)$$), (15, $$SELECT rl_reserve('key', 'a', '', 1)$$),
	(16, $$SELECT rl_reserve('key', 'a', 'rpm', 'Infinity')$$), (17, $$SELECT rl_reserve('key', 'a', 'rpm', 1, '-Infinity')$$),
	(18, $$SELECT rl_reserve('key', 'a', 'rpm', 1, window_seconds => 0)$$), (19, $$SELECT rl_reserve('key', 'a', 'rpm', 1, lease_ttl_seconds => 31622401)$$),
	(20, $$SELECT rl_reserve('key', 'a', 'rpm', 1, task_id => '')$$), (21, $$SELECT rl_reserve('key', 'a', 'rpm', 1, attempt_id => ' ')$$),
	(22, $$SELECT rl_reserve('key', 'a', 'rpm', 1, request_id => '')$$), (23, $$SELECT rl_reserve('[]', '')$$), (24, $$SELECT rl_reserve('[]', 'a', '')$$),
	(25, $$SELECT rl_attach('')$$), (26, $$SELECT rl_renew('{}', 0)$$)) v (n, statement) ORDER BY n;
-- Scope types of the extension itself: refused by whatever writes, but not by rl_check (check.sql) and rl_shard (identity.sql).
SELECT statement, test.error(statement) FROM (VALUES
	(1, $$SELECT rl_consume('ratelimit.', 'a', 'rpm', 1)$$), (2, $$SELECT rl_reserve('ratelimit.bucket', 'a', 'concurrent', 1)$$),
	(3, $$SELECT rl_consume('ratelimit.x', 'a', 'rpm', NULL)$$),
	(4, $$SELECT rl_consume('[{"scope_type": "ratelimit.x", "scope_key": "a", "metric": "rpm", "limit": 1}]')$$),
	(5, $$SELECT rl_reserve('[{"scope_type": "ratelimit.x", "scope_key": "a", "metric": "rpm", "limit": 1}]')$$)) v (n, statement) ORDER BY n;
\t off
\pset format aligned
SELECT test.contents() = :'before' AS nothing_written;
-- ... and only those.
SELECT scope_type, (rl_consume(scope_type, 'a', 'rpm', 1)).allowed FROM unnest('{ratelimit,ratelimits.x,"Ratelimit.x"," ratelimit.x",x.ratelimit.}'::text[]) scope_type;
-- An error in a list is found before the elements in front of it are written.
SELECT test.contents() AS before \gset
SELECT left(test.error($$SELECT rl_consume(test.list(test.limit('a', 'rpm', 5), test.limit('b', 'rpm', -5)))$$), 5) AS sqlstate;
SELECT left(test.error($$SELECT rl_reserve(test.list(test.limit('a', 'rpm', 5), test.limit('b', 'rpm', 5)), 'task', '')$$), 5) AS sqlstate;
SELECT left(test.error($$SELECT rl_release('{}', '{}'), rl_commit('{}', '[]')$$), 5) AS sqlstate;
SELECT test.contents() = :'before' AS nothing_written;
-- NULL for an argument with a default means the default.
SELECT amount, reset_at - window_start AS length FROM rl_check('key', 'n', 'rpm', 5, NULL, NULL);
SELECT amount, remaining, reset_at - window_start AS length FROM rl_consume('key', 'n', 'rpm', 5, NULL, NULL);
SELECT amount, reset_at - window_start AS length FROM rl_reserve('key', 'n', 'rpm', 5, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT amount, lease_expires_at FROM rl_reserve('key', 'n', 'concurrent', 5, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT task_id, attempt_id FROM ratelimit.reservations;
SELECT count(*) AS requests FROM ratelimit.requests;
SELECT ordinal FROM rl_reserve('[]', NULL, NULL);
-- A limit that is NULL means unlimited.
SELECT allowed, limit_value, used FROM rl_check('key', 'n', 'rpm', NULL);
-- Errors of types are PostgreSQL's.
SELECT left(test.error($$SELECT rl_consume('key', 'a', 'rpm', 'many')$$), 5) AS number, left(test.error($$SELECT rl_consume('key', 'a', 'rpm', 1, 1, 99999999999)$$), 5) AS int,
	left(test.error($$SELECT rl_check('{')$$), 5) AS jsonb, left(test.error($$SELECT rl_commit('{x}')$$), 5) AS uuid;
SELECT * FROM test.problems();
