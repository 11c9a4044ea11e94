-- Names and identifiers: stored and compared as given, at most 512 bytes of UTF-8, not blank; no character is special.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
CREATE TABLE test.names (n int, what text, name text, ok bool);
INSERT INTO test.names VALUES
	(1, '512 bytes', repeat('x', 512), true), (2, '513 bytes', repeat('x', 513), false),
	(3, '512 bytes in 256 characters', repeat('é', 256), true), (4, '514 bytes in 257 characters', repeat('é', 257), false),
	(5, '513 bytes in 171 characters', repeat('€', 171), false), (6, '512 bytes in 128 characters', repeat('😀', 128), true),
	(7, '513 bytes, the last character one', repeat('😀', 128) || 'x', false),
	(8, 'empty', '', false), (9, 'a blank', ' ', false), (10, 'a tab', E'\t', false), (11, 'all ASCII white space', E' \t\n\x0B\f\r', false),
	(12, '513 blanks', repeat(' ', 513), false), (13, 'a blank in front', ' a', true), (14, 'a blank behind', 'a ', true),
	(15, 'a no-break space', U&'\00A0', true), (16, 'an em space', U&'\2003', true), (17, 'a zero-width space', U&'\200B', true), (18, 'a control character', E'\x01', true),
	(19, 'a line break inside', E'a\nb', true), (20, 'a quote', $$a'b"c$$, true), (21, 'SQL', $$'; DROP TABLE ratelimit.counters; --$$, true),
	(22, 'a backslash', '\', true), (23, 'patterns', '%_*?[a-z]', true), (24, 'braces', '{a,b}', true), (25, 'a slash', 'a/b', true), (26, 'a colon', 'a:b', true),
	(27, 'a percent format', '%s%n', true), (28, 'a dollar', '$1', true), (29, 'the word NULL', 'NULL', true), (30, 'a number', '0', true);
-- For each argument of each function, as an argument and as a key of a list: accepted or 22023.
CREATE FUNCTION test.verdicts(statement text) RETURNS TABLE (wrong bigint, sqlstates text) LANGUAGE sql AS $$
	SELECT count(*) FILTER (WHERE (e.result = 'no error') <> t.ok), string_agg(DISTINCT left(e.result, 5), ' ') FILTER (WHERE NOT t.ok)
	FROM test.names t, LATERAL (SELECT test.error(format(statement, quote_literal(t.name), quote_literal(to_jsonb(t.name))))) e (result)
$$;
SELECT statement, v.* FROM (VALUES
	(1, $$SELECT rl_check(%1$s, 'a', 'rpm', 1)$$), (2, $$SELECT rl_check('key', %1$s, 'rpm', 1)$$), (3, $$SELECT rl_check('key', 'a', %1$s, 1)$$),
	(4, $$SELECT rl_consume(%1$s, 'a', 'rpm', 1)$$), (5, $$SELECT rl_consume('key', %1$s, 'rpm', 1)$$), (6, $$SELECT rl_consume('key', 'a', %1$s, 1)$$),
	(7, $$SELECT rl_reserve(%1$s, 'a', 'rpm', 9)$$), (8, $$SELECT rl_reserve('key', %1$s, 'rpm', 9)$$), (9, $$SELECT rl_reserve('key', 'a', %1$s, 9)$$),
	(10, $$SELECT rl_reserve('key', 'a', 'rpm', 999, task_id => %1$s)$$), (11, $$SELECT rl_reserve('key', 'a', 'rpm', 999, attempt_id => %1$s)$$),
	(12, $$SELECT rl_reserve('key', 'a', 'rpm', 999, request_id => %1$s)$$), (13, $$SELECT rl_reserve('[]', %1$s)$$),
	(15, $$SELECT rl_attach(%1$s)$$),
	(16, $$SELECT rl_reserve(test.list(test.limit('a', 'rpm', 999, 1, jsonb_build_object('scope_type', %2$s::jsonb))))$$),
	(17, $$SELECT rl_reserve(test.list(test.limit('a', 'rpm', 999, 1, jsonb_build_object('scope_key', %2$s::jsonb))))$$),
	(18, $$SELECT rl_reserve(test.list(test.limit('a', 'rpm', 999, 1, jsonb_build_object('metric', %2$s::jsonb))))$$),
	(19, $$SELECT rl_reserve(test.list(test.limit('a', 'rpm', 999, 1, jsonb_build_object('attempt_id', %2$s::jsonb))))$$)) s (n, statement),
	test.verdicts(statement) v ORDER BY n;
-- As given: every accepted name has a counter of its own and comes back unchanged.
SELECT count(*) AS names, count(DISTINCT c.scope_key) AS counters, bool_and(c.used = 1) AS one_each FROM test.names t
LEFT JOIN ratelimit.counters c ON c.scope_key = t.name AND c.metric = 'rpm' AND c.scope_type = 'key' AND c.used > 0 WHERE t.ok;
SELECT bool_and(d.scope_type = name AND d.scope_key = name AND d.metric = name) AS unchanged FROM test.names, rl_check(name, name, name, 5) d WHERE ok;
-- Compared byte by byte: no case, no normal form, no trailing blanks, no collation.
SELECT name, (rl_consume('key', name, 'bytes', 1)).allowed FROM unnest(ARRAY['a', 'A', 'a ', ' a', U&'\00E9', U&'e\0301', 'ß', 'ss', 'a']) WITH ORDINALITY u (name, n) ORDER BY n;
-- The parts do not run into one another.
SELECT (rl_consume('a', 'bc', 'd', 1)).allowed, (rl_consume('ab', 'c', 'd', 1)).allowed, (rl_consume('a', 'b', 'cd', 1)).allowed;
-- A NUL cannot be part of text, in jsonb neither: PostgreSQL refuses it.
SELECT left(test.error($$SELECT rl_check('[{"scope_type": "key", "scope_key": "a\u0000b", "metric": "rpm", "limit": 1}]')$$), 5) AS sqlstate;
-- Messages show the value; a long one is cut.
\pset format unaligned
\t on
SELECT n, what, test.error(format('SELECT rl_check(%L, ''a'', ''rpm'', 1)', name)) FROM test.names WHERE n IN (2, 4, 5, 9, 12) ORDER BY n;
SELECT test.error(format('SELECT rl_attach(%L)', repeat(' ', 300)));
SELECT test.error(format('SELECT rl_reserve(%L::jsonb)', test.list(test.limit('a', repeat('é', 300), 1))));
\t off
\pset format aligned
DROP TABLE test.names;
DROP FUNCTION test.verdicts(text);
SELECT * FROM test.problems();
