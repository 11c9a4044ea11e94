-- Everything changes with the caller's transaction, and every decision sees the newest state.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
-- ROLLBACK undoes counters, reservations, leases and requests.
SELECT test.values() AS before \gset
BEGIN;
SELECT allowed FROM rl_consume('key', 'a', 'rpm', 2, 2);
SELECT allowed FROM rl_reserve('key', 'a', 'tpm', 10, 10, request_id => 'a');
SELECT allowed FROM rl_reserve('key', 'a', 'concurrent', 1);
SELECT allowed, reason FROM rl_consume('key', 'a', 'rpm', 2);
SELECT allowed, reason FROM rl_reserve('key', 'a', 'concurrent', 1);
ROLLBACK;
SELECT test.values() = :'before' AS nothing_left;
SELECT allowed FROM rl_consume('key', 'a', 'rpm', 2, 1);
SELECT allowed FROM rl_reserve('key', 'a', 'concurrent', 2);
SELECT test.values() AS before \gset
-- The same on rows that exist, for settling, renewing and attaching as well.
SELECT (rl_reserve('key', 'b', 'tpm', 10, 4)).reservation_id AS r, (rl_reserve('key', 'b', 'concurrent', 2)).lease_id AS l \gset
SELECT test.values() AS before \gset
BEGIN;
SELECT rl_commit(ARRAY[:'r']::uuid[], '{"tpm": 3}');
SELECT (rl_renew(ARRAY[:'l']::uuid[], 1000)).renewed;
SELECT rl_attach('x', ARRAY[:'r']::uuid[], ARRAY[:'l']::uuid[]);
SELECT rl_release(lease_ids => ARRAY[:'l']::uuid[]);
ROLLBACK;
SELECT test.values() = :'before' AS as_before;
-- ROLLBACK TO SAVEPOINT gives back at once what was taken since, and only that; later calls in the transaction go on from there.
BEGIN;
SELECT allowed, used FROM rl_consume('key', 'c', 'rpm', 3);
SELECT allowed FROM rl_reserve('key', 'c', 'concurrent', 2);
SAVEPOINT s;
SELECT allowed, used FROM rl_consume('key', 'c', 'rpm', 3, 2);
SELECT allowed, used FROM rl_reserve('key', 'c', 'concurrent', 2);
SELECT allowed, used FROM rl_consume('key', 'c', 'rpm', 3);
SELECT allowed, used FROM rl_reserve('key', 'c', 'concurrent', 2);
ROLLBACK TO s;
SELECT allowed, used FROM rl_consume('key', 'c', 'rpm', 3);
SELECT allowed, used FROM rl_reserve('key', 'c', 'concurrent', 2);
SAVEPOINT t;
SELECT allowed, used FROM rl_consume('key', 'c', 'rpm', 3);
RELEASE t;
ROLLBACK TO s;
SELECT allowed, used FROM rl_consume('key', 'c', 'rpm', 3);
COMMIT;
SELECT used FROM rl_check('key', 'c', 'rpm', 3);
SELECT used FROM rl_check('key', 'c', 'concurrent', 3);
SELECT * FROM test.problems();
-- An error in a call, caught by a savepoint, leaves the transaction usable and undoes nothing else.
BEGIN;
SELECT allowed FROM rl_consume('key', 'd', 'rpm', 3);
SAVEPOINT s;
SELECT rl_consume('key', 'd', 'rpm', -3);
ROLLBACK TO s;
SELECT allowed, used FROM rl_consume('key', 'd', 'rpm', 3);
COMMIT;
DO $$
BEGIN
	PERFORM rl_consume('key', 'd', 'rpm', 10);
	BEGIN
		PERFORM rl_consume('key', 'd', 'rpm', 10), rl_consume('key', 'd', 'rpm', 'NaN');
	EXCEPTION WHEN invalid_parameter_value THEN
		RAISE NOTICE 'caught';
	END;
	PERFORM rl_consume('key', 'd', 'rpm', 10);
END $$;
SELECT used FROM rl_check('key', 'd', 'rpm', 10);
-- Called many times in one statement, each call sees what the one before it did ...
SELECT n, (rl_consume('key', 'e', 'rpm', 3)).allowed FROM generate_series(1, 5) n;
SELECT n, (rl_check('key', 'e', 'rpm', 3)).remaining, (rl_reserve('key', 'e', 'tpm', 2)).remaining, (rl_check('key', 'e', 'tpm', 2)).reserved FROM generate_series(1, 3) n;
SELECT n, (rl_reserve('key', 'e', 'concurrent', 3)).allowed FROM generate_series(1, 5) n;
SELECT n, d.allowed, d.used FROM generate_series(1, 3) n, LATERAL rl_consume(test.list(test.limit('f' || n % 1, 'rpm', 2), test.limit('g', 'rpm', 5, n % 1 + 1))) d ORDER BY n, d.ordinal;
WITH q AS MATERIALIZED (SELECT rl_consume('key', 'h', 'rpm', 2) AS a, rl_consume('key', 'h', 'rpm', 2) AS b, rl_consume('key', 'h', 'rpm', 2) AS c)
SELECT (a).allowed, (b).allowed, (c).allowed FROM q;
-- ... for settling as well: the second one finds nothing to settle.
SELECT (rl_reserve('key', 'i', 'tpm', 10, 4)).reservation_id AS r, (rl_reserve('key', 'i', 'concurrent', 2)).lease_id AS l \gset
SELECT rl_commit(ARRAY[:'r']::uuid[]), rl_commit(ARRAY[:'r']::uuid[]), rl_release(ARRAY[:'r']::uuid[], ARRAY[:'l']::uuid[]),
	rl_release(lease_ids => ARRAY[:'l']::uuid[]);
-- From functions that are not volatile, too: never with the caller's snapshot.
CREATE FUNCTION test.stable_consume(k text) RETURNS bool STABLE LANGUAGE sql AS $$ SELECT allowed FROM public.rl_consume('key', k, 'rpm', 3) $$;
CREATE FUNCTION test.stable_used(k text) RETURNS float8 STABLE LANGUAGE sql AS $$ SELECT used FROM public.rl_check('key', k, 'rpm', 3) $$;
CREATE FUNCTION test.stable_plpgsql(k text) RETURNS text STABLE LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT string_agg((public.rl_consume('key', k, 'rpm', 3)).allowed::text, ' ') FROM generate_series(1, 2));
END $$;
CREATE FUNCTION test.immutable_consume(k text) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	RETURN (public.rl_consume('key', k, 'rpm', 3)).allowed;
END $$;
SELECT n, test.stable_used('j') AS before, test.stable_consume('j') AS allowed, test.stable_used('j') AS after FROM generate_series(1, 4) n;
SELECT test.stable_plpgsql('k'), test.stable_plpgsql('k'), test.stable_used('k');
SELECT n, test.immutable_consume(left('l' || n, 1)) FROM generate_series(1, 4) n;
DROP FUNCTION test.stable_consume(text), test.stable_used(text), test.stable_plpgsql(text), test.immutable_consume(text);
-- As a default, in a trigger, in a cursor, in RETURNING, and with what the transaction itself has not committed.
CREATE TABLE test.calls (n int PRIMARY KEY, allowed bool DEFAULT (rl_consume('key', 'm', 'rpm', 2)).allowed);
INSERT INTO test.calls SELECT generate_series(1, 3) RETURNING *;
UPDATE test.calls SET allowed = NOT allowed RETURNING n, (rl_check('key', 'm', 'rpm', 5)).remaining;
BEGIN;
DECLARE c CURSOR FOR SELECT n, (rl_consume('key', 'n', 'rpm', 2)).remaining FROM generate_series(1, 3) n;
FETCH 1 FROM c;
SELECT allowed, remaining FROM rl_consume('key', 'n', 'rpm', 2);
FETCH 2 FROM c;
COMMIT;
DROP TABLE test.calls;
-- REPEATABLE READ and SERIALIZABLE: alone they work like READ COMMITTED.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT n, (rl_consume('key', 'o', 'rpm', 2)).allowed FROM generate_series(1, 3) n;
SELECT ordinal, allowed FROM rl_reserve(test.list(test.limit('o', 'tpm', 5), test.limit('o', 'concurrent', 5)));
SELECT ordinal, allowed, used, reserved FROM rl_check(test.list(test.limit('o', 'tpm', 5), test.limit('o', 'concurrent', 5)));
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT n, (rl_consume('key', 'p', 'rpm', 2)).allowed FROM generate_series(1, 3) n;
SELECT ordinal, allowed FROM rl_reserve(test.list(test.limit('p', 'tpm', 5), test.limit('p', 'concurrent', 5)));
SELECT ordinal, allowed, used, reserved FROM rl_check(test.list(test.limit('p', 'tpm', 5), test.limit('p', 'concurrent', 5)));
COMMIT;
-- Settings of the caller that change how plain statements behave do not change ours.
SET enable_indexscan = off;
SET enable_seqscan = off;
SET default_transaction_isolation = 'repeatable read';
SET plan_cache_mode = 'force_custom_plan';
SELECT allowed, used FROM rl_consume('key', 'e', 'rpm', 4);
RESET enable_indexscan;
RESET enable_seqscan;
RESET default_transaction_isolation;
RESET plan_cache_mode;
-- No session state is left behind: no advisory lock, no temporary table, no prepared statement.
SELECT count(*) AS locks FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';
SELECT count(*) AS temporary FROM pg_class WHERE relpersistence = 't';
SELECT count(*) AS prepared FROM pg_prepared_statements;
SELECT count(*) AS cursors FROM pg_cursors WHERE name <> '';
SELECT * FROM test.problems();
