-- A denial that the committed state proves writes nothing: no row version, no row lock, no transaction id, no WAL.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT allowed FROM rl_consume('key', 'full', 'rpm', 3, 3);
SELECT allowed FROM rl_reserve('key', 'full', 'tpm', 3, 3);
SELECT allowed FROM rl_reserve('key', 'full', 'concurrent', 3, 3);
SELECT allowed FROM rl_reserve('key', 'over', 'concurrent', 3, 2, lease_ttl_seconds => 1);
SELECT allowed FROM rl_reserve('key', 'over', 'concurrent', 3, 1);
SET ratelimit.clock = '2030-01-01 00:00:20+00';
CREATE TABLE test.denials (n int, statement text);
INSERT INTO test.denials VALUES
	(1, $$SELECT allowed FROM rl_consume('key', 'full', 'rpm', 3)$$),
	(2, $$SELECT allowed FROM rl_consume('key', 'full', 'rpm', 0)$$),
	(3, $$SELECT allowed FROM rl_consume('key', 'new', 'rpm', 3, 4)$$),
	(4, $$SELECT allowed FROM rl_reserve('key', 'full', 'rpm', 3)$$),
	(5, $$SELECT allowed FROM rl_reserve('key', 'full', 'tpm', 3, request_id => 'denied')$$),
	(6, $$SELECT allowed FROM rl_reserve('key', 'full', 'concurrent', 3)$$),
	(7, $$SELECT allowed FROM rl_reserve('key', 'over', 'concurrent', 3, 3)$$),
	(8, $$SELECT DISTINCT allowed FROM rl_consume(test.list(test.limit('new', 'rpm', 3), test.limit('full', 'rpm', 3)))$$),
	(9, $$SELECT DISTINCT allowed FROM rl_reserve(test.list(test.limit('new', 'rpm', 3), test.limit('new', 'concurrent', 3), test.limit('full', 'concurrent', 3)), 'task', 'denied')$$),
	(10, $$SELECT DISTINCT allowed FROM rl_reserve(test.list(test.limit('over', 'concurrent', 3), test.limit('full', 'rpm', 3)))$$);
-- Runs a denial, without a subtransaction, and tells what it left behind.
CREATE FUNCTION test.deny(statement text, OUT allowed bool, OUT xid xid8, OUT nothing_written bool, OUT row_locks bigint, OUT wal text) LANGUAGE plpgsql AS $$
DECLARE
	before text := test.contents();
	line text;
BEGIN
	EXECUTE statement INTO allowed;
	-- The second time, every page has its hint bits: then EXPLAIN shows no WAL at all.
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, WAL, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || statement LOOP
		wal := coalesce(wal, substring(line FROM 'WAL:.*'));
	END LOOP;
	xid := pg_current_xact_id_if_assigned();
	SELECT count(*) INTO row_locks FROM pg_locks
	WHERE pid = pg_backend_pid() AND relation::regclass::text LIKE 'ratelimit.%' AND mode IN ('RowShareLock', 'RowExclusiveLock');
	nothing_written := test.contents() = before;
END $$;
SELECT test.contents() IS NOT NULL AS read_once;
-- The helper can fail.
SELECT d.allowed, d.xid IS NOT NULL AS xid, d.nothing_written, d.row_locks > 0 AS row_locks, d.wal IS NOT NULL AS wal
FROM test.deny($$SELECT allowed FROM rl_consume('key', 'other', 'rpm', 3)$$) d;
SELECT format('SELECT %s AS n, d.* FROM test.deny(%L) d', n, statement) FROM test.denials ORDER BY n \gexec
-- The same inside a transaction that goes on: still no transaction id.
BEGIN;
SELECT allowed, reason FROM rl_consume('key', 'full', 'rpm', 3);
SELECT ordinal, allowed, reason FROM rl_reserve(test.list(test.limit('full', 'rpm', 3), test.limit('full', 'concurrent', 3)), NULL, 'denied');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_transaction_id;
COMMIT;
-- Nor do rl_check and calls that grant without taking anything.
BEGIN;
SELECT allowed FROM rl_check('key', 'new', 'rpm', 3);
SELECT allowed FROM rl_consume('key', 'new', 'rpm', NULL);
SELECT allowed FROM rl_reserve('key', 'new', 'rpm', 3, 0);
SELECT ordinal FROM rl_reserve('[]');
SELECT ordinal FROM rl_consume('[]');
SELECT rl_commit('{}');
SELECT rl_release();
SELECT rl_attach('x');
SELECT ordinal FROM rl_renew('{}');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_transaction_id;
COMMIT;
-- Repeated often, they leave the tables no larger and no row dead.
SELECT count(*) FILTER (WHERE (rl_consume('key', 'full', 'rpm', 3)).allowed) AS allowed FROM generate_series(1, 1000);
SELECT count(*) AS rows, pg_relation_size('ratelimit.counters') <= 8192 AS one_page FROM ratelimit.counters WHERE scope_key = 'full';
DROP TABLE test.denials;
DROP FUNCTION test.deny(text);
SELECT * FROM test.problems();
