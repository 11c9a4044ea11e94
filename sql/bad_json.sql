-- Lists of limits in jsonb: every key with every wrong type, unknown keys, other shapes.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT test.contents() AS before \gset
\pset format unaligned
\t on
-- Not a list of objects.
SELECT j, test.error(format('SELECT rl_reserve(%L::jsonb)', j)) FROM unnest(ARRAY['null', '{}', '5', '"text"', 'true', '[1]', '["text"]', '[null]', '[true]',
	'[[]]', '[{}, 5]', '{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 1}',
	'[[{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 1}]]']) j;
-- A required key that is missing.
SELECT k, test.error(format('SELECT rl_consume(%L::jsonb)', jsonb_build_array(test.limit('a', 'rpm', 1) - k))) FROM unnest('{scope_type,scope_key,metric,limit}'::text[]) k;
SELECT test.error('SELECT rl_consume(''[{}]'')');
-- Unknown keys: the hint lists the known ones. Names are case-sensitive.
SELECT k, test.error(format('SELECT rl_check(%L::jsonb)', jsonb_build_array(test.limit('a', 'rpm', 1), test.limit('a', 'rpm', 1, 1, jsonb_build_object(k, 1)))))
FROM unnest('{limits,Limit,limit_value,"",task_id,request_id}'::text[]) k;
-- JSON null: the default where there is one, unlimited for limit, 22004 for the rest.
SELECT k, test.error(format('SELECT rl_consume(%L::jsonb)', jsonb_build_array(test.limit('a', 'rpm', 1, 1, jsonb_build_object(k, NULL)))))
FROM unnest('{scope_type,scope_key,metric}'::text[]) k;
-- Every known key with every wrong type.
SELECT k, v, test.error(format('SELECT rl_reserve(%L::jsonb)', jsonb_build_array(test.limit('a', 'rpm', 1, 1, jsonb_build_object(k, v)))))
FROM unnest('{scope_type,scope_key,metric,attempt_id}'::text[]) k, unnest(ARRAY['5', 'true', '[]', '{}']::jsonb[]) v;
SELECT k, v, test.error(format('SELECT rl_reserve(%L::jsonb)', jsonb_build_array(test.limit('a', 'rpm', 1, 1, jsonb_build_object(k, v)))))
FROM unnest('{limit,amount,window_seconds,lease_ttl_seconds}'::text[]) k, unnest(ARRAY['"5"', 'true', '[]', '{}']::jsonb[]) v;
-- Values out of range.
SELECT k, v, test.error(format('SELECT rl_reserve(%L::jsonb)', jsonb_build_array(test.limit('a', 'rpm', 1, 1, jsonb_build_object(k, v)))))
FROM unnest('{window_seconds,lease_ttl_seconds}'::text[]) k, unnest('{0,-1,1.5,31622401,1e30}'::jsonb[]) v;
SELECT k, test.error(format('SELECT rl_reserve(%L::jsonb)', jsonb_build_array(test.limit('a', 'rpm', 1, 1, jsonb_build_object(k, v)))))
FROM unnest('{limit,amount}'::text[]) k, unnest('{-1,-1e-300}'::jsonb[]) v;
SELECT k, v, test.error(format('SELECT rl_reserve(%L::jsonb)', jsonb_build_array(test.limit('a', 'rpm', 1, 1, jsonb_build_object(k, v)))))
FROM unnest('{scope_type,scope_key,metric,attempt_id}'::text[]) k, unnest('{"\"\"","\" \\t\""}'::jsonb[]) v;
-- The element is named.
SELECT test.error($$SELECT rl_check(test.list(test.limit('a', 'rpm', 1), test.limit('a', 'rpm', 1), test.limit('a', 'rpm', -1)))$$);
-- Long values are cut, also between the bytes of a character.
SELECT test.error($$SELECT rl_check(test.list(test.limit('a', 'rpm', 1, 1, jsonb_build_object(repeat('é', 300), 1))))$$);
-- rl_consume and rl_check refuse alike.
SELECT f, test.error(format('SELECT %I(''[{"scope_type": 5}]'')', f)) FROM unnest('{rl_check,rl_consume,rl_reserve}'::text[]) f;
\t off
\pset format aligned
SELECT test.contents() = :'before' AS nothing_written;
-- What is accepted: null for a key with a default, whole numbers however they are written, the opaque keys with any value.
SELECT ordinal, allowed, limit_value, amount, reset_at - window_start AS length, lease_expires_at FROM rl_reserve('[
	{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 5, "amount": null, "window_seconds": null, "lease_ttl_seconds": null, "attempt_id": null},
	{"scope_type": "key", "scope_key": "a", "metric": "concurrent", "limit": 5, "amount": null, "lease_ttl_seconds": null},
	{"scope_type": "key", "scope_key": "a", "metric": "tpm", "limit": 5e0, "amount": 0.5, "window_seconds": 6e1, "lease_ttl_seconds": 1.0},
	{"scope_type": "key", "scope_key": "a", "metric": "tpm", "limit": null, "scope_name": null, "metadata": [1, {"a": "b"}], "policy": false}]');
-- A key given twice: jsonb keeps the last one.
SELECT limit_value FROM rl_check('[{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 5, "limit": 6}]');
-- Numbers that double precision cannot tell from 0 are 0: nothing to take, and a limit of 0.
SELECT ordinal, allowed, reason FROM rl_check('[
	{"scope_type": "key", "scope_key": "a", "metric": "x", "limit": 5, "amount": 1e-400},
	{"scope_type": "key", "scope_key": "a", "metric": "x", "limit": 1e-400}]');
-- Large values that are stored compressed or out of line.
CREATE TABLE test.lists (limits jsonb);
INSERT INTO test.lists SELECT jsonb_agg(test.limit('a' || i, 'rpm', 5, 1, jsonb_build_object('metadata', repeat('x', 100)))) FROM generate_series(1, 500) i;
INSERT INTO test.lists SELECT jsonb_agg(test.limit('b' || i, 'rpm', 5, 1, jsonb_build_object('metadata', md5(i::text)))) FROM generate_series(1, 1000) i;
SELECT (SELECT count(*) FROM rl_consume(limits) WHERE allowed) FROM test.lists;
DROP TABLE test.lists;
SELECT * FROM test.problems();
