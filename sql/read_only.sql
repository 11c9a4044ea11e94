-- Read only: functions that write raise 25006 at once, whatever they would have answered; in a parallel worker 25000.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT allowed FROM rl_consume('key', 'full', 'rpm', 1);
SELECT lease_id AS lease FROM rl_reserve('key', 'full', 'concurrent', 1) \gset
CREATE TABLE test.writers (n int, statement text);
INSERT INTO test.writers VALUES
	(1, $$SELECT rl_consume('key', 'a', 'rpm', 5)$$),
	(2, $$SELECT rl_consume('key', 'full', 'rpm', 1)$$),
	(3, $$SELECT rl_consume('key', 'a', 'rpm', 0)$$),
	(4, $$SELECT rl_consume('key', 'a', 'rpm', NULL)$$),
	(5, $$SELECT rl_consume('key', 'a', 'rpm', 'NaN')$$),
	(6, $$SELECT rl_consume(NULL, NULL, NULL, NULL)$$),
	(7, $$SELECT rl_consume('[]')$$),
	(8, $$SELECT rl_consume('5')$$),
	(9, $$SELECT rl_reserve('key', 'a', 'rpm', 5)$$),
	(10, $$SELECT rl_reserve('key', 'full', 'rpm', 1)$$),
	(11, $$SELECT rl_reserve('key', 'a', 'concurrent', 5)$$),
	(12, $$SELECT rl_reserve('key', 'full', 'concurrent', 1)$$),
	(13, $$SELECT rl_reserve('key', 'a', 'rpm', 5, 0)$$),
	(14, $$SELECT rl_reserve('[]')$$),
	(15, $$SELECT rl_reserve(NULL::jsonb)$$),
	(16, $$SELECT rl_commit('{}')$$),
	(17, $$SELECT rl_commit(NULL)$$),
	(18, $$SELECT rl_release()$$),
	(19, $$SELECT rl_release('{}', ARRAY[gen_random_uuid()])$$),
	(20, $$SELECT rl_attach('x')$$),
	(21, $$SELECT rl_attach(NULL)$$),
	(22, $$SELECT rl_renew('{}')$$),
	(23, $$SELECT rl_renew(NULL)$$);
\pset format unaligned
\t on
BEGIN READ ONLY;
SELECT n, statement, test.error(statement) FROM test.writers ORDER BY n;
-- These write nothing and work.
SELECT allowed, used FROM rl_check('key', 'full', 'rpm', 1);
SELECT allowed, used FROM rl_check('key', 'full', 'concurrent', 1);
SELECT ordinal, allowed FROM rl_check(test.list(test.limit('full', 'rpm', 1), test.limit('a', 'rpm', 1)));
SELECT rl_shard('key', 'a') = rl_shard('key', 'a'), rl_version() = '1.0', rl_shard('01890a5d-ac96-7abc-8123-456789abcdef');
COMMIT;
-- Also when it is read only by default, or only from here on.
SET default_transaction_read_only = on;
SELECT left(test.error($$SELECT rl_consume('key', 'a', 'rpm', 5)$$), 5);
SELECT allowed FROM rl_check('key', 'full', 'rpm', 1);
RESET default_transaction_read_only;
BEGIN;
SELECT allowed FROM rl_consume('key', 'b', 'rpm', 5);
SET TRANSACTION READ ONLY;
SELECT left(test.error($$SELECT rl_consume('key', 'b', 'rpm', 5)$$), 5);
SELECT used FROM rl_check('key', 'b', 'rpm', 5);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE;
SELECT used FROM rl_check('key', 'b', 'rpm', 5);
COMMIT;
-- In a parallel worker. The functions are PARALLEL UNSAFE, so that it takes a wrong mark to get there.
BEGIN;
ALTER FUNCTION rl_consume(text, text, text, float8, float8, int) PARALLEL SAFE;
ALTER FUNCTION rl_consume(jsonb) PARALLEL SAFE;
ALTER FUNCTION rl_reserve(text, text, text, float8, float8, int, int, text, text, text) PARALLEL SAFE;
ALTER FUNCTION rl_reserve(jsonb, text, text) PARALLEL SAFE;
ALTER FUNCTION rl_commit(uuid[], jsonb) PARALLEL SAFE;
ALTER FUNCTION rl_release(uuid[], uuid[], text) PARALLEL SAFE;
ALTER FUNCTION rl_attach(text, uuid[], uuid[]) PARALLEL SAFE;
ALTER FUNCTION rl_renew(uuid[], int) PARALLEL SAFE;
ALTER FUNCTION rl_check(text, text, text, float8, float8, int) PARALLEL SAFE;
ALTER FUNCTION rl_check(jsonb) PARALLEL SAFE;
SET LOCAL force_parallel_mode = on;
\set VERBOSITY terse
SAVEPOINT s;
SELECT rl_consume('key', 'a', 'rpm', 5);
ROLLBACK TO s;
\set VERBOSITY sqlstate
SELECT rl_consume('key', 'a', 'rpm', 5);
ROLLBACK TO s;
SELECT rl_consume('key', 'full', 'rpm', 1);
ROLLBACK TO s;
SELECT rl_consume('[]');
ROLLBACK TO s;
SELECT rl_reserve('key', 'a', 'rpm', 5);
ROLLBACK TO s;
SELECT rl_reserve('[]');
ROLLBACK TO s;
SELECT rl_commit('{}');
ROLLBACK TO s;
SELECT rl_release();
ROLLBACK TO s;
SELECT rl_attach('x');
ROLLBACK TO s;
SELECT rl_renew('{}');
ROLLBACK TO s;
-- rl_check neither: a worker cannot take a fresh snapshot.
SELECT rl_check('key', 'a', 'rpm', 5);
ROLLBACK TO s;
SELECT rl_check('[]');
ROLLBACK TO s;
\set VERBOSITY default
-- What is PARALLEL SAFE does work there.
SELECT rl_shard('key', '{123456789}'), rl_version();
ROLLBACK;
-- Marked as they are, they never get there.
SET force_parallel_mode = on;
SELECT allowed FROM rl_consume('key', 'c', 'rpm', 5);
SELECT (rl_check('key', 'c', 'rpm', 5)).used;
RESET force_parallel_mode;
\t off
\pset format aligned
SELECT scope_key, used FROM ratelimit.counters ORDER BY scope_key;
DROP TABLE test.writers;
SELECT * FROM test.problems();
