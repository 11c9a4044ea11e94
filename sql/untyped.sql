-- PREPARE with untyped parameters at every arity of every function: that is how drivers call that send no types.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
PREPARE check4 AS SELECT allowed, remaining FROM rl_check($1, $2, $3, $4);
PREPARE check5 AS SELECT allowed, remaining FROM rl_check($1, $2, $3, $4, $5);
PREPARE check6 AS SELECT allowed, remaining FROM rl_check($1, $2, $3, $4, $5, $6);
PREPARE check1 AS SELECT ordinal, allowed, remaining FROM rl_check($1);
PREPARE consume4 AS SELECT allowed, remaining FROM rl_consume($1, $2, $3, $4);
PREPARE consume5 AS SELECT allowed, remaining FROM rl_consume($1, $2, $3, $4, $5);
PREPARE consume6 AS SELECT allowed, remaining FROM rl_consume($1, $2, $3, $4, $5, $6);
PREPARE consume1 AS SELECT ordinal, allowed, remaining FROM rl_consume($1);
PREPARE reserve4 AS SELECT allowed, remaining FROM rl_reserve($1, $2, $3, $4);
PREPARE reserve5 AS SELECT allowed, remaining FROM rl_reserve($1, $2, $3, $4, $5);
PREPARE reserve6 AS SELECT allowed, remaining FROM rl_reserve($1, $2, $3, $4, $5, $6);
PREPARE reserve7 AS SELECT allowed, remaining FROM rl_reserve($1, $2, $3, $4, $5, $6, $7);
PREPARE reserve8 AS SELECT allowed, remaining FROM rl_reserve($1, $2, $3, $4, $5, $6, $7, $8);
PREPARE reserve9 AS SELECT allowed, remaining FROM rl_reserve($1, $2, $3, $4, $5, $6, $7, $8, $9);
PREPARE reserve10 AS SELECT allowed, remaining FROM rl_reserve($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);
PREPARE reserve1 AS SELECT ordinal, allowed, remaining FROM rl_reserve($1);
PREPARE reserve2 AS SELECT ordinal, allowed, remaining FROM rl_reserve($1, $2);
PREPARE reserve3 AS SELECT ordinal, allowed, remaining FROM rl_reserve($1, $2, $3);
PREPARE commit1 AS SELECT rl_commit($1);
PREPARE commit2 AS SELECT rl_commit($1, $2);
PREPARE release1 AS SELECT * FROM rl_release($1);
PREPARE release2 AS SELECT * FROM rl_release($1, $2);
PREPARE release3 AS SELECT * FROM rl_release($1, $2, $3);
PREPARE attach1 AS SELECT * FROM rl_attach($1);
PREPARE attach2 AS SELECT * FROM rl_attach($1, $2);
PREPARE attach3 AS SELECT * FROM rl_attach($1, $2, $3);
PREPARE renew1 AS SELECT ordinal, renewed FROM rl_renew($1);
PREPARE renew2 AS SELECT ordinal, renewed FROM rl_renew($1, $2);
PREPARE acquire2 AS SELECT granted FROM rl_acquire_bucket($1, $2);
PREPARE acquire3 AS SELECT granted FROM rl_acquire_bucket($1, $2, $3);
PREPARE acquire4 AS SELECT granted FROM rl_acquire_bucket($1, $2, $3, $4);
PREPARE penalize2 AS SELECT rl_penalize($1, $2);
PREPARE reap1 AS SELECT * FROM rl_reap($1);
PREPARE shard1 AS SELECT rl_shard($1);
PREPARE shard2 AS SELECT rl_shard($1, $2);
-- What each parameter was taken for.
SELECT name, parameter_types FROM pg_prepared_statements ORDER BY length(name), name;
-- Every arity is there: as many as the functions have arguments, less those without a default.
SELECT count(*) AS arities, count(*) = (SELECT sum(least(pronargs, pronargdefaults + 1)) FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
	AND d.deptype = 'e' JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'ratelimit' WHERE pronargs > 0 AND pronamespace = 'public'::regnamespace) AS all
FROM pg_prepared_statements;
EXECUTE check4('key', 'a', 'rpm', '20');
EXECUTE check5('key', 'a', 'rpm', '20', '2');
EXECUTE check6('key', 'a', 'rpm', '20', '2', '60');
EXECUTE check1('[{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 20}]');
EXECUTE consume4('key', 'a', 'rpm', '20');
EXECUTE consume5('key', 'a', 'rpm', '20', '0.5');
EXECUTE consume6('key', 'a', 'rpm', '20', '2', '60');
EXECUTE consume1('[{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 20}]');
EXECUTE reserve4('key', 'a', 'rpm', '20');
EXECUTE reserve5('key', 'a', 'rpm', '20', '1.5');
EXECUTE reserve6('key', 'a', 'rpm', '20', '1', '60');
EXECUTE reserve7('key', 'a', 'rpm', '20', '1', '60', '5');
EXECUTE reserve8('key', 'a', 'rpm', '20', '1', '60', '5', 'task');
EXECUTE reserve9('key', 'a', 'rpm', '20', '1', '60', '5', 'task', 'attempt');
EXECUTE reserve10('key', 'a', 'rpm', '20', '1', '60', '5', 'task', 'attempt', 'request');
EXECUTE reserve1('[{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 20}]');
EXECUTE reserve2('[{"scope_type": "key", "scope_key": "a", "metric": "rpm", "limit": 20}]', 'task 2');
EXECUTE reserve3('[{"scope_type": "key", "scope_key": "a", "metric": "concurrent", "limit": 20}]', NULL, 'request 2');
SELECT task_id, attempt_id, count(*) FROM ratelimit.reservations GROUP BY task_id, attempt_id ORDER BY task_id, attempt_id;
SELECT array_agg(reservation_id) AS ids FROM ratelimit.reservations \gset
SELECT array_agg(lease_id) AS leases FROM ratelimit.leases \gset
EXECUTE attach1('attempt 2');
EXECUTE attach2('attempt 2', :'ids');
EXECUTE attach3('attempt 2', '{}', :'leases');
EXECUTE renew1(:'leases');
EXECUTE renew2(:'leases', '100');
EXECUTE commit1('{}');
EXECUTE commit2(:'ids', '{"rpm": 1}');
EXECUTE release1(:'ids');
EXECUTE release2('{}', '{}');
EXECUTE release3('{}', :'leases', 'done');
EXECUTE acquire2('b', '[{"rule_id": "r", "requests_per_window": 7, "window_ms": 1000}]');
EXECUTE acquire3('b', '[{"rule_id": "r", "requests_per_window": 7, "window_ms": 1000}]', '2');
EXECUTE acquire4('b', '[{"rule_id": "r", "requests_per_window": 7, "window_ms": 1000}]', '9', '1');
EXECUTE penalize2('b', '1000');
EXECUTE shard1('01890a5d-ac96-7abc-8123-456789abcdef');
EXECUTE shard2('key', '{123456789}');
-- Literals, without types either.
SELECT allowed FROM rl_consume('key', 'b', 'rpm', '5', '1', '60');
SELECT allowed FROM rl_reserve('[{"scope_type": "key", "scope_key": "b", "metric": "rpm", "limit": 5}]', 'task');
SELECT rl_commit('{}', '{}'), rl_release('{}', '{}', 'x'), rl_attach('x', '{}', '{}'), rl_shard('01890a5d-ac96-7abc-8123-456789abcdef');
-- Drivers that send types say so: integers and numerics for float8, text for text, jsonb, uuid[].
PREPARE typed(text, varchar, text, numeric, int, smallint) AS SELECT allowed FROM rl_consume($1, $2, $3, $4, $5, $6);
EXECUTE typed('key', 'b', 'rpm', 5, 1, 60);
PREPARE cast_in_sql AS SELECT allowed FROM rl_consume($1::jsonb);
EXECUTE cast_in_sql('[{"scope_type": "key", "scope_key": "b", "metric": "rpm", "limit": 5}]');
-- By name, in any order, some left out.
SELECT allowed, amount FROM rl_reserve(metric => 'rpm', scope_key => 'b', scope_type => 'key', limit_value => 5, task_id => 'x');
SELECT allowed, amount FROM rl_consume(amount => 0.5, metric => 'rpm', scope_key => 'b', scope_type => 'key', limit_value => 5);
SELECT allowed FROM rl_check(limits => '[{"scope_type": "key", "scope_key": "b", "metric": "rpm", "limit": 5}]');
SELECT ordinal FROM rl_reserve(request_id => 'r', limits => '[]');
SELECT rl_commit(actual => '{}', reservation_ids => '{}');
SELECT * FROM rl_release(reason => 'x', lease_ids => '{}');
SELECT * FROM rl_attach(lease_ids => '{}', attempt_id => 'x');
SELECT * FROM rl_renew(ttl_seconds => 5, lease_ids => '{}');
SELECT rl_shard(scope_key => 'a', scope_type => 'key') = rl_shard('key', 'a') AS same, rl_shard(id => '01890a5d-ac96-7abc-8123-456789abcdef');
-- In the select list as well as in FROM.
SELECT (rl_check('key', 'b', 'rpm', 5)).used, (SELECT count(*) FROM rl_check('[]')) AS none;
DEALLOCATE ALL;
SELECT * FROM test.problems();
