-- The life of a task: start, heartbeat, submission, finish, resolve; recovery; events. Times are those of ratelimit.clock.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:00+00';
CREATE FUNCTION pg_temp.one(scope text, slots float8 DEFAULT 1) RETURNS jsonb LANGUAGE sql AS
$$SELECT jsonb_build_array(jsonb_build_object('scope_type', 'model', 'scope_key', scope, 'limit', slots, 'queue_limit', 100))$$;
CREATE VIEW pg_temp.task AS SELECT task_id, status, mode, error_code, attempt_no, execution_token IS NOT NULL AS executed,
	worker_id, remote_id, submission, cardinality(lease_ids) AS leases FROM ratelimit.tasks;

-- Admitted, started, heard of, submitted, finished.
SELECT status FROM rl_admit('a', pg_temp.one('m'));
SELECT allowed FROM rl_reserve('user', 'u', 'tpm', 1000, 100, task_id => 'a');
SELECT execution_token AS token, execution_token IS NOT NULL AS started, attempt_no, expires_at, remote_id FROM rl_start('a', 'w1', attempt_id => 'try 1') \gset
SELECT :'started' AS started, :'attempt_no' AS attempt_no, :'expires_at' AS expires_at;
SELECT rl_shard(:'token'::uuid) = rl_shard('task', 'a') AS shard_of_the_task;
SELECT * FROM pg_temp.task;
-- A second start of a running task gives nothing.
SELECT * FROM rl_start('a', 'w2');
SET ratelimit.clock = '2030-01-01 00:01:00+00';
SELECT rl_heartbeat('a', :'token');
SELECT expires_at FROM ratelimit.leases;
-- With another token nothing happens.
SELECT rl_heartbeat('a', gen_random_uuid()), rl_submission('a', gen_random_uuid(), 'submitting'), rl_finish('a', gen_random_uuid(), 'failed');
SELECT rl_submission('a', :'token', 'submitting');
SELECT rl_submission('a', :'token', 'response_received', 'remote 1');
SELECT rl_submission('a', :'token', 'submitting');
SELECT * FROM pg_temp.task;
SELECT rl_submission('a', :'token', 'none');
SELECT submission, remote_id FROM pg_temp.task;
SELECT rl_finish('a', :'token', 'succeeded', '{"tpm": 70}');
SELECT rl_finish('a', :'token', 'succeeded');
SELECT * FROM pg_temp.task;
SELECT used, reserved FROM ratelimit.counters;
SELECT leased, lease_count FROM ratelimit.scopes;
SELECT attempt_no, attempt_id, worker_id, outcome, error_code, retryable, finished_at FROM ratelimit.attempts;
SELECT * FROM rl_start('a', 'w1');
SELECT * FROM rl_take_events();
SELECT * FROM rl_take_events();
SELECT * FROM rl_verify();

-- A task that nobody admitted; failure releases.
SELECT execution_token AS token FROM rl_start('b', 'w1') \gset
SELECT allowed FROM rl_reserve('user', 'u', 'tpm', 1000, 100, task_id => 'b');
SELECT rl_finish('b', :'token', 'failed', error_code => 'boom');
SELECT * FROM pg_temp.task WHERE task_id = 'b';
SELECT used, reserved FROM ratelimit.counters;

-- A lost lease sends an admitted task back to waiting, with its age.
SELECT status FROM rl_admit('c', pg_temp.one('m'));
SET ratelimit.clock = '2030-01-01 00:04:00+00';
SELECT * FROM rl_start('c', 'w1');
SELECT status, enqueued_at, wait_deadline_at FROM ratelimit.tasks WHERE task_id = 'c';
SELECT status FROM rl_admit('c', pg_temp.one('m'));
-- rl_heartbeat of a task that lost a lease renews nothing.
SELECT execution_token AS token FROM rl_start('c', 'w1', 600) \gset
SET ratelimit.clock = '2030-01-01 00:06:00+00';
SELECT rl_heartbeat('c', :'token');
SELECT execution_expires_at FROM ratelimit.tasks WHERE task_id = 'c';
-- Cancelling takes the token away.
SELECT rl_cancel('c', 'no more');
SELECT rl_finish('c', :'token', 'succeeded');
SELECT outcome, error_code FROM ratelimit.attempts WHERE task_id = 'c';
SELECT * FROM rl_verify();

-- Recovery: a worker that is live keeps its task; one that is not loses it.
SELECT rl_worker_heartbeat('w1', 2), rl_worker_heartbeat('w2', 2);
SELECT status FROM rl_enqueue('async', pg_temp.one('q', 10));
SELECT status FROM rl_enqueue('review', pg_temp.one('q', 10));
SELECT status FROM rl_enqueue('kept', pg_temp.one('q', 10));
SELECT task_id FROM rl_dispatch();
SELECT status FROM rl_admit('sync', pg_temp.one('q', 10));
SELECT execution_token AS async_token FROM rl_start('async', 'w1', 10) \gset
SELECT execution_token AS token FROM rl_start('review', 'w1', 20, at_most_once => true) \gset
SELECT rl_submission('review', :'token', 'submitting');
SELECT execution_token AS kept_token FROM rl_start('kept', 'w2', 10) \gset
SELECT execution_token IS NOT NULL AS started FROM rl_start('sync', 'w1', 10);
SELECT allowed FROM rl_reserve('user', 'u', 'tpm', 1000, 100, task_id => 'async');
SET ratelimit.clock = '2030-01-01 00:06:30+00';
SELECT * FROM rl_recover();
SELECT rl_worker_stop('w1');
SELECT * FROM rl_recover(2);
SELECT * FROM pg_temp.task WHERE task_id IN ('async', 'review', 'kept', 'sync') ORDER BY 1;
SELECT * FROM rl_recover();
SELECT * FROM rl_recover();
SELECT * FROM pg_temp.task WHERE task_id IN ('async', 'review', 'kept', 'sync') ORDER BY 1;
SELECT task_id, attempt_no, outcome, error_code, retryable FROM ratelimit.attempts WHERE outcome = 'lost' ORDER BY 1;
SELECT used, reserved FROM ratelimit.counters;
SELECT leased, lease_count, waiting FROM ratelimit.scopes WHERE scope_key = 'q';
-- The worker that lost it can do nothing with its old token, the second one's work stands.
SELECT rl_heartbeat('async', :'async_token'), rl_submission('async', :'async_token', 'submitting'), rl_finish('async', :'async_token', 'failed');
SELECT task_id FROM rl_dispatch();
SELECT execution_token AS token, attempt_no FROM rl_start('async', 'w2') \gset
SELECT :'attempt_no' AS attempt_no;
SELECT rl_finish('async', :'async_token', 'failed'), rl_finish('async', :'token', 'succeeded');
-- In review.
SELECT status FROM rl_admit('review', pg_temp.one('q', 10), 'async');
SELECT * FROM rl_start('review', 'w2');
SELECT rl_cancel('review'), rl_resolve('nobody', 'failed'), rl_resolve('async', 'failed');
SELECT rl_resolve('review', 'waiting'), rl_resolve('review', 'waiting');
SELECT status, wait_deadline_at, error_code FROM ratelimit.tasks WHERE task_id = 'review';
SELECT event_type, status, error_code FROM rl_take_events(1000) WHERE task_id = 'review';
SELECT * FROM rl_verify();
-- A worker that was not heard of for ratelimit.worker_stale_after is not live: at the very instant.
SET ratelimit.clock = '2030-01-01 00:06:59.999+00';
SELECT requeued_async_tasks FROM rl_recover();
SET ratelimit.clock = '2030-01-01 00:07:00+00';
SELECT requeued_async_tasks FROM rl_recover();

-- Reaping: deadlines before waiters, each right at its edge.
SELECT status FROM rl_admit('holder', pg_temp.one('r'));
SELECT status FROM rl_admit('gone', pg_temp.one('r'));
SELECT status FROM rl_admit('late', jsonb_set(pg_temp.one('r'), '{0,max_wait_seconds}', '5'));
SET ratelimit.clock = '2030-01-01 00:07:04.999+00';
SELECT * FROM rl_reap();
SET ratelimit.clock = '2030-01-01 00:07:05+00';
SELECT * FROM rl_reap();
SET ratelimit.clock = '2030-01-01 00:07:14.999+00';
SELECT expired_waiters FROM rl_reap();
SET ratelimit.clock = '2030-01-01 00:07:15+00';
SELECT expired_waiters FROM rl_reap();
SELECT task_id, status, error_code FROM ratelimit.tasks WHERE task_id IN ('gone', 'late') ORDER BY 1;
-- Admitted, never started, and the lease ran out.
SET ratelimit.clock = '2030-01-01 00:08:59.999+00';
SELECT expired_waiters, expired_leases FROM rl_reap();
SET ratelimit.clock = '2030-01-01 00:09:00+00';
SELECT expired_waiters, expired_leases FROM rl_reap();
SELECT status, error_code FROM ratelimit.tasks WHERE task_id = 'holder';
SELECT * FROM rl_verify();

-- A finished task that still holds something is cleaned.
SELECT (rl_reserve('user', 'u', 'tpm', 1000, 1, task_id => 'holder')).allowed, (rl_reserve('user', 'u', 'concurrent', 5, task_id => 'holder')).allowed;
SELECT * FROM rl_recover();
SELECT * FROM rl_recover();

-- A cold start.
SELECT task_id FROM rl_dispatch();
SELECT execution_token IS NOT NULL AS started FROM rl_start('kept', 'w3');
SELECT (rl_reserve('user', 'x', 'tpm', 1000, 5)).allowed, (rl_reserve('user', 'x', 'concurrent', 5)).allowed;
SELECT (rl_reserve('user', 'x', 'tpm', 1000, 1, task_id => 'holder')).allowed, (rl_reserve('user', 'x', 'concurrent', 5, task_id => 'holder')).allowed;
SELECT * FROM rl_recover(everything => true);
SELECT * FROM pg_temp.task WHERE task_id IN ('kept', 'review') ORDER BY 1;
SELECT task_id, event_type, status FROM rl_take_events(1000) WHERE event_type = 'task.recovered' ORDER BY 1;
SELECT count(*) FROM ratelimit.leases;
SELECT count(*) FROM ratelimit.reservations WHERE status = 'reserved';
-- What changes no state is no event, also after one that says where it came from.
SELECT rl_defer('kept', 'later', 1000) IS NOT NULL AS put_aside;
SELECT count(*) FROM rl_take_events(1000) WHERE task_id = 'kept';
SELECT * FROM rl_verify();

-- Retention: the task goes with its attempts and events.
SET ratelimit.clock = '2030-01-01 01:30:00+00';
SELECT deleted > 0 AS deleted FROM rl_reap();
SELECT count(*) FROM ratelimit.tasks WHERE finished_at < '2030-01-01 00:30:00+00';
SELECT count(*) FROM ratelimit.attempts WHERE task_id = 'a';
SELECT execution_token IS NOT NULL AS started, attempt_no FROM rl_start('a', 'w1');
SELECT * FROM rl_verify();

-- Bad arguments.
SELECT test.error($$SELECT * FROM rl_start(NULL, 'w')$$);
SELECT test.error($$SELECT * FROM rl_start('t', ' ')$$);
SELECT test.error($$SELECT * FROM rl_start('t', 'w', 0)$$);
SELECT test.error($$SELECT rl_heartbeat('t', NULL)$$);
SELECT test.error($$SELECT rl_submission('t', gen_random_uuid(), 'sent')$$);
SELECT test.error($$SELECT rl_finish('t', gen_random_uuid(), 'done')$$);
SELECT test.error($$SELECT rl_finish('t', gen_random_uuid(), 'succeeded', '[]')$$);
SELECT test.error($$SELECT rl_resolve('t', 'running')$$);
SELECT test.error($$SELECT * FROM rl_take_events(0)$$);
SELECT test.error($$SELECT * FROM rl_recover(0)$$);
SELECT test.error($$SELECT * FROM rl_reap(10001)$$);
SELECT * FROM test.problems();
RESET ratelimit.clock;
