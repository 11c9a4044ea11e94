-- rl_dispatch: in order, all or nothing, past what is blocked; and what the dispatcher remembers of scopes.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
CREATE FUNCTION test.job(id text, at timestamptz, scopes jsonb, priority int DEFAULT 0) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('ratelimit.clock', at::text, false);
	RETURN test.stand(rl_enqueue(id, scopes, priority));
END $$;
CREATE FUNCTION test.slot(key text, lim float8 DEFAULT 1, more jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS $$
	SELECT test.scope(key, lim, '{"queue_limit": null}' || more)
$$;
-- Priority, then age, then id; a task that shares no scope with a blocked one is not delayed by it.
SELECT test.job('m1', '2025-01-01 12:00:01+00', jsonb_build_array(test.slot('m')));
SELECT test.job('m2', '2025-01-01 12:00:02+00', jsonb_build_array(test.slot('m')));
SELECT test.job('b', '2025-01-01 12:00:03+00', jsonb_build_array(test.slot('n', 2)));
SELECT test.job('a', '2025-01-01 12:00:03+00', jsonb_build_array(test.slot('n', 2)));
SELECT test.job('urgent', '2025-01-01 12:00:04+00', jsonb_build_array(test.slot('o')), -5);
SELECT test.job('c', '2025-01-01 12:00:05+00', jsonb_build_array(test.slot('n', 2)));
SELECT test.stand(d), ordinal FROM rl_dispatch() d;
SELECT test.stand(w) FROM rl_waiting() w;
-- Nothing more can go: the scopes are remembered as idle, and a call that finds nothing writes nothing.
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT scope_key, waiting, s.ready, look_at FROM ratelimit.scopes s JOIN ratelimit.awaited USING (scope_type, scope_key) ORDER BY 1;
SELECT test.contents() AS before \gset
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT test.contents() = :'before' AS unchanged;
-- Whatever changes makes them ready: a release, an expiry.
SELECT rl_release(lease_ids => lease_ids) FROM rl_status('a');
SELECT test.stand(d) FROM rl_dispatch() d;
SET ratelimit.clock = '2025-01-01 12:02:04.999+00';
SELECT test.stand(d) FROM rl_dispatch() d;
SET ratelimit.clock = '2025-01-01 12:02:05+00';
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT * FROM test.problems();

-- max_tasks bounds what is admitted; all or nothing.
CALL test.begin();
SELECT test.job('t' || i, '2025-01-01 12:00:00+00', jsonb_build_array(test.slot('m', 3))) FROM generate_series(1, 5) i;
SELECT test.stand(d) FROM rl_dispatch(2) d;
SELECT test.stand(d) FROM rl_dispatch(2) d;
SELECT test.job('both', '2025-01-01 11:00:00+00', jsonb_build_array(test.slot('free'), test.slot('m', 3)));
SET ratelimit.clock = '2025-01-01 12:00:00+00';
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT scope_key, leased, waiting FROM ratelimit.scopes ORDER BY 1;
BEGIN;
SELECT rl_release(lease_ids => lease_ids) FROM rl_status('t1');
SELECT test.stand(d) FROM rl_dispatch() d;
ROLLBACK;
SELECT * FROM test.problems();

-- A sync head is left to its waiter, and holds async ones up until it is gone.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
SELECT test.stand(rl_admit('h', jsonb_build_array(test.slot('m'))));
SELECT test.stand(rl_admit('s', jsonb_build_array(test.slot('m'))));
SELECT test.job('j', '2025-01-01 12:00:01+00', jsonb_build_array(test.slot('m')));
SELECT rl_release(lease_ids => lease_ids) FROM rl_status('h');
SELECT test.stand(d) FROM rl_dispatch() d;
SET ratelimit.clock = '2025-01-01 12:00:15+00';
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT * FROM test.problems();

-- Scopes with fifo false: passed over by saturation only, whether the task is ordered elsewhere or not.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
SELECT test.stand(rl_admit('h', jsonb_build_array(test.slot('pool', 2, '{"fifo": false, "amount": 2}'))));
SELECT test.job('x' || i, '2025-01-01 12:00:01+00', jsonb_build_array(test.slot('x' || i), test.slot('pool', 2, '{"fifo": false}'))) FROM generate_series(1, 3) i;
SELECT test.job('f' || i, '2025-01-01 12:00:02+00', jsonb_build_array(test.slot('pool', 2, '{"fifo": false}'))) FROM generate_series(1, 3) i;
SELECT test.job('z', '2025-01-01 12:00:03+00', jsonb_build_array(test.slot('z', 1, '{"fifo": false}')));
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT scope_key, ready FROM ratelimit.scopes WHERE waiting > 0 ORDER BY 1;
SELECT rl_release(lease_ids => lease_ids) FROM rl_status('h');
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT rl_cancel('x1');
SELECT rl_cancel('x2');
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT * FROM test.problems();

-- Past its deadline a task is passed over; it counts until it is reaped.
CALL test.begin();
SELECT test.job('old', '2025-01-01 12:00:00+00', jsonb_build_array(test.slot('m', 1, '{"max_wait_seconds": 5}')));
SELECT test.job('new', '2025-01-01 12:00:01+00', jsonb_build_array(test.slot('m')));
SET ratelimit.clock = '2025-01-01 12:00:05+00';
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT waiting FROM ratelimit.scopes;
SELECT expired_waiters, expired_deadlines FROM ratelimit.queue_metrics;
SELECT test.stand(w) FROM rl_waiting() w;
SELECT * FROM test.problems();

-- A task that was put aside is back while its scope counts as idle: the next call that has room for it finds it, though
-- this one was full, stopped before it, or found it blocked where it is only counted.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
SELECT test.stand(rl_admit('hold', jsonb_build_array(test.slot('h')), 'async')), test.stand(rl_admit('hold2', jsonb_build_array(test.slot('pool')), 'async'));
SELECT test.stand(rl_enqueue('back', jsonb_build_array(test.slot('x')))), test.stand(rl_enqueue('back2', jsonb_build_array(test.slot('y'), test.slot('pool', 1, '{"fifo": false}'))));
SELECT test.job('xh', '2025-01-01 12:00:01+00', jsonb_build_array(test.slot('x'), test.slot('h'))), test.job('yh', '2025-01-01 12:00:01+00', jsonb_build_array(test.slot('y'), test.slot('h')));
SELECT rl_defer('back', NULL, 2000), rl_defer('back2', NULL, 2000);
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT scope_key, ready FROM ratelimit.scopes WHERE waiting > 0 ORDER BY 1;
SELECT test.job('first', '2025-01-01 12:00:03+00', jsonb_build_array(test.slot('z')), -1);
SELECT test.stand(d) FROM rl_dispatch(1) d;
SELECT scope_key, ready FROM ratelimit.scopes WHERE waiting > 0 ORDER BY 1;
SELECT test.stand(d) FROM rl_dispatch(1) d;
SELECT rl_release(lease_ids => lease_ids) FROM rl_status('hold2');
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT * FROM test.problems();
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
SELECT test.stand(rl_admit('hold2', jsonb_build_array(test.slot('pool')), 'async')), test.stand(rl_admit('hold', jsonb_build_array(test.slot('h')), 'async'));
SELECT test.stand(rl_enqueue('back', jsonb_build_array(test.slot('y'), test.slot('pool', 1, '{"fifo": false}'))));
SELECT test.job('yh', '2025-01-01 12:00:01+00', jsonb_build_array(test.slot('y'), test.slot('h')));
SELECT rl_defer('back', NULL, 2000);
SELECT test.stand(d) FROM rl_dispatch() d;
SET ratelimit.clock = '2025-01-01 12:00:03+00';
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT rl_release(lease_ids => lease_ids) FROM rl_status('hold2');
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT * FROM test.problems();

-- It stops at a task for which there are no workers, though others behind it could go, and goes on when there are.
CALL test.begin();
SELECT test.job('a', '2025-01-01 12:00:00+00', jsonb_build_array(test.slot('m'), test.slot('pool', NULL, '{"limit_from": "worker_capacity", "fifo": false}')));
SELECT test.job('b', '2025-01-01 12:00:01+00', jsonb_build_array(test.slot('n')));
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT rl_worker_heartbeat('w', 1);
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT * FROM test.problems();

-- All of those that are ordered nowhere and fit go in one call, past one that does not.
CALL test.begin();
SELECT test.job('f' || i, '2025-01-01 12:00:00+00', jsonb_build_array(test.slot('pool', 4, jsonb_build_object('fifo', false)),
	test.slot('p' || (i = 1)::int, CASE i WHEN 1 THEN 0.5 ELSE 9 END, '{"fifo": false, "amount": 0.5}'))) FROM generate_series(1, 6) i;
SELECT allowed FROM rl_reserve('model', 'p1', 'concurrent', 9);
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT * FROM test.problems();

-- A task that is ordered nowhere and waits for a scope that is not its first is looked at each time.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
SELECT test.stand(rl_admit('h', jsonb_build_array(test.slot('second')), 'async'));
SELECT test.job('f', '2025-01-01 12:00:01+00', jsonb_build_array(test.slot('first', 9, '{"fifo": false}'), test.slot('second', 1, '{"fifo": false}')));
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT rl_cancel('h');
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT * FROM test.problems();

-- Of several planned tasks only those with a limit reckon with the scope's room: expired leases make way for all of them.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
SELECT test.stand(rl_admit('e' || i, jsonb_build_array(test.slot('m', 5, '{"lease_ttl_seconds": 1}')), 'async')) FROM generate_series(1, 5) i;
SELECT test.job('a', '2025-01-01 12:00:02+00', jsonb_build_array(test.slot('m', NULL, '{"amount": 9}')));
SELECT test.job('b', '2025-01-01 12:00:03+00', jsonb_build_array(test.slot('m', 5, '{"amount": 5}')));
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT * FROM test.problems();
DROP FUNCTION test.job(text, timestamptz, jsonb, int), test.slot(text, float8, jsonb);
RESET ratelimit.clock;
