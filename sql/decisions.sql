-- The decision table: the first row that applies decides a limit.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
CREATE PROCEDURE test.fill() LANGUAGE plpgsql AS $$
BEGIN
	CALL test.begin();
	PERFORM rl_consume('key', 'full', 'rpm', 10, 10), rl_reserve('key', 'full', 'concurrent', 2, 2);
END $$;
CALL test.fill();
CREATE TABLE test.cases (n int, what text, metric text, limit_value float8, amount float8);
INSERT INTO test.cases VALUES
	(1, 'limit NULL', 'rpm', NULL, 20),
	(2, 'limit NULL, amount 0', 'rpm', NULL, 0),
	(3, 'limit NULL, concurrent', 'concurrent', NULL, 20),
	(4, 'queue_size', 'queue_size', 5, 1),
	(5, 'queue_size, limit 0', 'queue_size', 0, 1),
	(6, 'queue_size, too much', 'queue_size', 1, 2),
	(7, 'amount 0', 'rpm', 10, 0),
	(8, 'amount 0, limit 0', 'rpm', 0, 0),
	(9, 'amount 0, concurrent', 'concurrent', 1, 0),
	(10, 'limit 0', 'rpm', 0, 1),
	(11, 'limit 0, concurrent', 'concurrent', 0, 1),
	(12, 'too much', 'rpm', 10, 11),
	(13, 'too much, concurrent', 'concurrent', 2, 3),
	(14, 'concurrent, saturated', 'concurrent', 2, 1),
	(15, 'concurrent, room', 'concurrent', 3, 1),
	(16, 'window full', 'rpm', 10, 1),
	(17, 'window with room', 'rpm', 11, 1);
-- rl_check, rl_consume and rl_reserve, each alone and as a list of one, give the same answer; each case is undone again.
CREATE FUNCTION test.decide(call text, c test.cases) RETURNS SETOF ratelimit.decision LANGUAGE plpgsql AS $$
DECLARE
	d ratelimit.decision;
BEGIN
	BEGIN
		IF call LIKE '% list' THEN
			EXECUTE format('SELECT * FROM %I($1)', split_part(call, ' ', 1)) INTO d
				USING jsonb_build_array(jsonb_build_object('scope_type', 'key', 'scope_key', 'full', 'metric', c.metric,
					'limit', c.limit_value, 'amount', c.amount));
		ELSE
			EXECUTE format('SELECT * FROM %I($1, $2, $3, $4, $5)', call) INTO d
				USING 'key', 'full', c.metric, c.limit_value, c.amount;
		END IF;
		RAISE SQLSTATE 'RL000';
	EXCEPTION WHEN SQLSTATE 'RL000' THEN
		RETURN NEXT d;
	END;
END $$;
SELECT n, what, d.allowed, d.reason, d.retryable, d.retry_after_ms AS retry, d.used, d.reserved, d.remaining,
	d.reservation_id IS NOT NULL AS reservation, d.lease_id IS NOT NULL AS lease
FROM test.cases c, test.decide('rl_reserve', c) d ORDER BY n;
-- window_start and reset_at: NULL for what is not enforced or was decided without looking, and no window_start for leases.
SELECT n, what, d.window_start, d.reset_at FROM test.cases c, test.decide('rl_reserve', c) d ORDER BY n;
-- The others answer alike, but only rl_reserve gives ids, and in rl_check and in a denied call remaining is as found.
SELECT call, n, d.allowed, e.allowed
FROM test.cases c, unnest('{rl_check,rl_check list,rl_consume,rl_consume list,rl_reserve list}'::text[]) call,
	test.decide('rl_reserve', c) e, test.decide(call, c) d
WHERE NOT (call LIKE 'rl_consume%' AND c.metric = 'concurrent')
	AND (d.ordinal, d.allowed, d.reason, d.retryable, d.retry_after_ms, d.scope_type, d.scope_key, d.metric, d.limit_value,
		d.amount, d.used, d.reserved, d.window_start, d.reset_at)
	IS DISTINCT FROM (e.ordinal, e.allowed, e.reason, e.retryable, e.retry_after_ms, e.scope_type, e.scope_key, e.metric,
		e.limit_value, e.amount, e.used, e.reserved, e.window_start, e.reset_at);
SELECT call, d.n, d.remaining, (d.reservation_id, d.lease_id) IS NOT DISTINCT FROM (NULL::uuid, NULL::uuid) AS no_ids
FROM (SELECT call, n, d.* FROM test.cases c, unnest('{rl_check,rl_check list,rl_consume,rl_consume list,rl_reserve list}'::text[]) call,
	test.decide(call, c) d WHERE c.n = 17) d ORDER BY call;
-- What is not enforced, or takes nothing, writes nothing at all and makes no counter and no scope.
CALL test.fill();
SELECT test.contents() AS before \gset
SELECT what, d.allowed, d.reason, d.retryable, d.retry_after_ms, d.reservation_id, d.lease_id
FROM test.cases c, rl_reserve('key', 'full', c.metric, c.limit_value, c.amount) d WHERE n <= 9 ORDER BY n;
SELECT what, d.allowed FROM test.cases c, rl_consume('key', 'new', c.metric, c.limit_value, c.amount) d
WHERE n <= 9 AND c.metric <> 'concurrent' ORDER BY n;
SELECT test.contents() = :'before' AS nothing_written;
-- Negative and not finite come first, whatever else applies.
SELECT metric, limit_value, amount, left(test.error(format('SELECT rl_reserve(''key'', ''full'', %L, %L, %L)', metric, limit_value, amount)), 5) AS sqlstate
FROM (VALUES ('rpm', '-1', '1'), ('rpm', '1', '-1'), ('rpm', '0', '-1'), ('rpm', NULL, '-1'), ('queue_size', '-1', '0'),
	('queue_size', NULL, '-1'), ('concurrent', '-1', '0'), ('concurrent', NULL, '-1'), ('rpm', 'NaN', '1'), ('rpm', '1', 'NaN'),
	('rpm', 'Infinity', '1'), ('rpm', '1', 'Infinity'), ('rpm', '-Infinity', '1'), ('rpm', '1', '-Infinity'),
	('rpm', NULL, 'Infinity'), ('rpm', '0', 'NaN'))
	v (metric, limit_value, amount);
SELECT test.contents() = :'before' AS nothing_written;
-- The caller waits for the largest retry, and not at all if one is NULL: each row tells its own limit's.
SELECT ordinal, allowed, reason, retryable, retry_after_ms FROM rl_reserve('[
	{"scope_type": "key", "scope_key": "full", "metric": "rpm", "limit": 10},
	{"scope_type": "key", "scope_key": "full", "metric": "rpm", "limit": 10, "window_seconds": 3600},
	{"scope_type": "key", "scope_key": "full", "metric": "concurrent", "limit": 2},
	{"scope_type": "key", "scope_key": "full", "metric": "tpm", "limit": 0},
	{"scope_type": "key", "scope_key": "full", "metric": "tpm", "limit": 5, "amount": 6},
	{"scope_type": "key", "scope_key": "full", "metric": "tpm", "limit": null},
	{"scope_type": "key", "scope_key": "full", "metric": "queue_size", "limit": 0}]');
SELECT test.contents() = :'before' AS nothing_written;
SELECT * FROM test.problems();
DROP PROCEDURE test.fill();
DROP FUNCTION test.decide(text, test.cases);
DROP TABLE test.cases;
