-- What is named by its id is found by its id, whatever the statistics say when a statement is planned and whatever the session
-- has set: no call walks over other rows, and rows are locked in the order of the ids.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:00+00';
-- How many rows of a table an index scan of this transaction has fetched.
CREATE FUNCTION test.fetched(name text) RETURNS bigint LANGUAGE sql AS $$
	SELECT coalesce(idx_tup_fetch, 0) + coalesce(seq_tup_read, 0)
	FROM pg_stat_xact_all_tables WHERE schemaname = 'ratelimit' AND relname = name
$$;
-- Open reservations are rare when the plans are made, and many later.
SELECT count(rl_commit(ids)) FROM (SELECT array_agg(reservation_id) FROM generate_series(1, 600) i,
	LATERAL rl_reserve('key', 'k' || i % 20, 'rpm', 1000000, sign(i))) r (ids);
ANALYZE ratelimit.reservations;
\c -
SET ratelimit.clock = '2030-01-01 00:00:00+00';
CREATE TABLE test.ids AS SELECT i, reservation_id AS id FROM generate_series(1, 300) i,
	LATERAL rl_reserve('key', 'k' || i % 20, 'rpm', 1000000, sign(i));
BEGIN;
SELECT test.fetched('reservations') AS before \gset
SELECT rl_commit(array(SELECT id FROM test.ids WHERE i = 300));
SELECT * FROM rl_release(array(SELECT id FROM test.ids WHERE i IN (100, 299)));
SELECT test.fetched('reservations') - :before <= 10 AS by_id;
COMMIT;
-- Leases likewise: few when the plans are made.
SELECT lease_id FROM rl_reserve('key', 'few', 'concurrent', 10) \gset
ANALYZE ratelimit.leases;
\c -
SET ratelimit.clock = '2030-01-01 00:00:00+00';
TRUNCATE test.ids;
INSERT INTO test.ids SELECT i, lease_id FROM generate_series(1, 300) i,
	LATERAL rl_reserve('key', 'k', 'concurrent', 1000, sign(i), 60, 600 - i);
BEGIN;
SELECT test.fetched('leases') AS before \gset
SELECT * FROM rl_release(lease_ids => array(SELECT id FROM test.ids WHERE i IN (1, 300)));
SELECT test.fetched('leases') - :before <= 12 AS by_id;
COMMIT;
-- A release does not look at what has expired in the scope.
INSERT INTO test.ids SELECT 1000, lease_id FROM rl_reserve('key', 'k', 'concurrent', 1000, 1, 60, 3600);
SET ratelimit.clock = '2030-01-01 00:30:00+00';
BEGIN;
SELECT test.fetched('leases') AS before \gset
SELECT * FROM rl_release(lease_ids => array(SELECT id FROM test.ids WHERE i = 1000));
SELECT test.fetched('leases') - :before <= 12 AS by_id;
COMMIT;
-- Settings of the session do not lead to other plans.
\c -
SET ratelimit.clock = '2030-01-01 00:00:00+00';
SET enable_indexscan = off;
SET enable_tidscan = off;
BEGIN;
SELECT test.fetched('leases') AS before \gset
SELECT * FROM rl_release(lease_ids => array(SELECT id FROM test.ids WHERE i IN (2, 299)));
SELECT test.fetched('leases') - :before <= 12 AS by_id;
COMMIT;
SELECT current_setting('enable_indexscan'), current_setting('enable_tidscan'), current_setting('enable_seqscan');
-- The end of a task finds what carries its id by that, however much is live and open.
\c -
SET ratelimit.clock = '2030-01-01 00:00:00+00';
SELECT count(rl_reserve('many', i::text, 'concurrent', 1)), count(rl_reserve('many', i::text, 'rpm', 1)) FROM generate_series(1, 300) i;
SELECT execution_token AS token FROM rl_start('t', 'w') \gset
BEGIN;
SELECT test.fetched('leases') + test.fetched('reservations') AS before \gset
SELECT rl_heartbeat('t', :'token') IS NOT NULL AS renewed, rl_finish('t', :'token', 'succeeded');
SELECT test.fetched('leases') + test.fetched('reservations') - :before <= 12 AS by_task;
COMMIT;
SELECT * FROM test.problems();
DROP TABLE test.ids;
DROP FUNCTION test.fetched;
