-- The views on state, and rl_top.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
-- Nothing.
SELECT (SELECT count(*) FROM ratelimit.windows) AS windows, (SELECT count(*) FROM ratelimit.live_leases) AS live_leases,
	(SELECT count(*) FROM ratelimit.queue) AS queue, (SELECT count(*) FROM ratelimit.live_workers) AS live_workers, (SELECT count(*) FROM rl_top()) AS top;
-- Counters of the current window, with what is left.
SELECT allowed FROM rl_consume('key', 'a', 'rpm', 8, 2);
SELECT allowed FROM rl_reserve('key', 'a', 'rpm', 8, 4);
SELECT allowed FROM rl_consume('key', 'a', 'rph', 10, 1, 3600);
SELECT reservation_id AS r FROM rl_reserve('key', 'b', 'rpm', 4) \gset
SELECT rl_commit(ARRAY[:'r']::uuid[], '{"rpm": 6}');
-- (Unlimited ones are not counted.)
SELECT allowed FROM rl_consume('key', 'c', 'rpm', NULL);
SELECT * FROM ratelimit.windows ORDER BY scope_type, scope_key, metric;
-- rl_top: the fullest first, those over their limit before.
SELECT * FROM rl_top();
SELECT scope_key FROM rl_top(1);
SELECT scope_key, metric FROM rl_top(NULL);
SELECT test.error('SELECT rl_top(0)');
SELECT test.error('SELECT rl_top(10001)');
BEGIN READ ONLY;
SELECT count(*) FROM rl_top(10000);
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
COMMIT;
-- The most extreme numbers that there are do not keep anybody from looking.
INSERT INTO ratelimit.counters (scope_type, scope_key, metric, window_seconds, window_start, used, reserved, limit_value, touched_at)
VALUES ('odd', 'large', 'm', 60, '2030-01-01', 1.7e308, 1.7e308, 1.7e308, '2030-01-01'), ('odd', 'over', 'm', 60, '2030-01-01', 1.7e308, 1.7e308, 5e-324, '2030-01-01'),
	('odd', 'small', 'm', 60, '2030-01-01', 5e-324, 0, 1.7e308, '2030-01-01');
SELECT scope_key, remaining, percent_used FROM ratelimit.windows WHERE scope_type = 'odd' ORDER BY 1;
SELECT scope_key, percent_used FROM rl_top(2);
DELETE FROM ratelimit.counters WHERE scope_type = 'odd';
SELECT allowed FROM rl_consume('key', 'huge', 'rpm', 5);
-- A key that was given another limit keeps that of its last grant; one with limit 0 stays out.
UPDATE ratelimit.counters SET limit_value = 0 WHERE scope_key = 'huge';
SELECT count(*) FROM ratelimit.windows WHERE scope_key = 'huge';
DELETE FROM ratelimit.counters WHERE scope_key = 'huge';
-- At the very end of a window it is over.
SET ratelimit.clock = '2030-01-01 00:00:59.999999+00';
SELECT scope_key, metric FROM ratelimit.windows ORDER BY 1, 2;
SET ratelimit.clock = '2030-01-01 00:01:00+00';
SELECT scope_key, metric FROM ratelimit.windows ORDER BY 1, 2;
SELECT scope_key, metric FROM rl_top();
-- A clock that is set back shows the newest window, which stays the current one.
SET ratelimit.clock = '2029-12-31 23:59:10+00';
SELECT scope_key, metric, window_start FROM ratelimit.windows ORDER BY 1, 2;
-- Leases: live ones only.
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT lease_id IS NOT NULL AS l FROM rl_reserve('user', 'ada', 'concurrent', 3, 2, lease_ttl_seconds => 10, task_id => 't', attempt_id => 'x');
SELECT lease_id IS NOT NULL AS l FROM rl_reserve('user', 'ada', 'concurrent', 3, lease_ttl_seconds => 20);
SELECT scope_type, scope_key, amount, limit_value, ttl_seconds, created_at, expires_at, task_id, attempt_id FROM ratelimit.live_leases ORDER BY expires_at;
SET ratelimit.clock = '2030-01-01 00:00:20+00';
SELECT amount, expires_at FROM ratelimit.live_leases;
SELECT count(*) FROM ratelimit.leases;
-- The queue, with what blocks each task; not bounded as rl_waiting is.
SELECT lease_id IS NOT NULL AS l FROM rl_reserve('model', 'm', 'concurrent', 1, lease_ttl_seconds => 600);
SELECT (rl_enqueue('late', '[{"scope_type": "model", "scope_key": "m", "limit": 1, "queue_limit": null}]', 5)).status;
SELECT (rl_admit('sync', '[{"scope_type": "model", "scope_key": "m", "limit": 1, "queue_limit": null}]')).status;
SELECT (rl_enqueue('first', '[{"scope_type": "model", "scope_key": "m", "limit": 1, "queue_limit": null}]', -1)).status;
SELECT position, task_id, mode, priority, enqueued_at, wait_deadline_at, waiter_lease_expires_at, blockers FROM ratelimit.queue ORDER BY position;
SELECT scopes FROM ratelimit.queue WHERE task_id = 'late';
SELECT waiting, oldest_wait_seconds FROM ratelimit.queue_metrics;
SELECT rl_cancel('first');
SELECT position, task_id FROM ratelimit.queue ORDER BY position;
SELECT (SELECT jsonb_agg(task_id) FROM ratelimit.queue) = (SELECT jsonb_agg(task_id) FROM rl_waiting()) AS as_rl_waiting;
-- Workers of the application.
SELECT rl_worker_heartbeat('w1', 4);
SELECT rl_worker_heartbeat('w2');
SELECT rl_worker_stop('w2');
SELECT * FROM ratelimit.live_workers;
SET ratelimit.worker_stale_after = '2min';
SELECT worker_id, stale_at FROM ratelimit.live_workers;
RESET ratelimit.worker_stale_after;
SET ratelimit.clock = '2030-01-01 00:01:19.999999+00';
SELECT count(*) FROM ratelimit.live_workers;
SET ratelimit.clock = '2030-01-01 00:01:20+00';
SELECT count(*) FROM ratelimit.live_workers;
-- Counts need the library to be preloaded (test/t/statistics.pl); without it there are none, and nothing to reset.
SELECT count(*) >= 0 AS statistics FROM ratelimit.statistics;
SELECT rl_reset_statistics();
-- They show the clock and the settings to a session that has not called anything before.
\connect -
SET timezone = 'UTC';
SELECT count(*) FROM ratelimit.live_workers;
SELECT abs(extract(epoch FROM ratelimit.decision_clock() - clock_timestamp())) < 5 AS real_clock;
\set VERBOSITY sqlstate
SELECT ratelimit.worker_stale_at(NULL);
SELECT * FROM test.problems();
