-- What becomes of a task that waits: rl_rebind, other scopes, waiters, rl_defer, rl_cancel, and who is told of it.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
CREATE FUNCTION test.slots(VARIADIC keys text[]) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_agg(test.scope(k, 1, '{"queue_limit": 9}') ORDER BY n) FROM unnest(keys) WITH ORDINALITY AS u (k, n)
$$;
-- rl_rebind moves a waiting task and keeps its age; the deadline only comes nearer. Others are left as they are.
SELECT test.stand(rl_admit('hold', test.slots('m'))), rl_rebind('unknown', '[]') IS NULL AS unknown;
SELECT test.stand(rl_admit('w', test.slots('m'), priority => 3, waiter_id => 'me'));
SELECT test.stand(rl_rebind('hold', test.slots('n')));
SET ratelimit.clock = '2025-01-01 12:00:05+00';
SELECT test.stand(a), mode, priority, enqueued_at, wait_deadline_at, waiter_lease_expires_at
FROM rl_rebind('w', jsonb_build_array(test.scope('n', 1, '{"queue_limit": 1, "max_wait_seconds": 60}'))) a;
SELECT scope_key, waiting FROM ratelimit.scopes ORDER BY scope_key;
SELECT wait_deadline_at FROM rl_rebind('w', jsonb_build_array(test.scope('n', 1, '{"queue_limit": 1, "max_wait_seconds": 6000}')));
-- Denied: it waits on where it was. Itself it does not count.
SELECT test.values() AS before \gset
SELECT test.stand(rl_rebind('w', jsonb_build_array(test.scope('m', 1))));
SELECT test.values() = :'before' AS unchanged;
SELECT test.stand(rl_rebind('w', jsonb_build_array(test.scope('n', 1), test.scope('m', 1, '{"queue_limit": 1}'))));
SELECT test.stand(rl_rebind('w', jsonb_build_array(test.scope('n', 1, '{"queue_limit": 1}'), test.scope('m', 1, '{"queue_limit": 1}'))));
-- rl_admit with other scopes does the same, and tries at once.
SELECT test.stand(rl_admit('w', test.slots('n'), waiter_id => 'me'));
-- On an admitted one: its own leases do not count; it gives them back for the new place.
SELECT test.stand(rl_admit('w', jsonb_build_array(test.scope('m', 1))));
SELECT test.stand(rl_admit('w', test.slots('n', 'o')));
SELECT test.stand(rl_admit('w', test.slots('o', 'm')));
SELECT scope_key, leased, waiting FROM ratelimit.scopes ORDER BY scope_key;
-- The same scopes with other numbers replace the stored ones.
SELECT test.stand(rl_admit('w', jsonb_build_array(test.scope('m', 2, '{"queue_limit": 9}'), test.scope('o', 1))));
SELECT scopes FROM rl_status('w');
-- The mode stays as first given.
SELECT test.error($$SELECT rl_admit('w', '[]', 'async')$$);
SELECT test.error($$SELECT rl_enqueue('w', '[]')$$);
SELECT * FROM test.problems();

-- A waiter that is gone is no head, but counts; it may come back. A later waiter takes over.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
SELECT test.stand(rl_admit('hold', test.slots('m')));
SELECT test.stand(rl_admit('a', test.slots('m')));
SET ratelimit.clock = '2025-01-01 12:00:01+00';
SELECT test.stand(rl_admit('b', test.slots('m')));
SELECT rl_release(lease_ids => lease_ids) FROM rl_status('hold');
SET ratelimit.clock = '2025-01-01 12:00:14+00';
SELECT test.stand(rl_admit('b', test.slots('m'), waiter_id => 'b2'));
SELECT rl_renew_waiters('{b,b,a,hold,x}', '{b2,b2,b,hold,x}');
SELECT task_id, waiter_id, waiter_expires_at FROM ratelimit.tasks WHERE status = 'waiting' ORDER BY 1;
SET ratelimit.clock = '2025-01-01 12:00:15+00';
SELECT waiting, waiting_sync, waiting_async, oldest_wait_seconds, expired_waiters, expired_deadlines FROM ratelimit.queue_metrics;
BEGIN;
SELECT test.stand(rl_admit('b', test.slots('m'), waiter_id => 'b2'));
ROLLBACK;
SELECT test.stand(rl_status('a'));
-- Renewing revives it: it is the head again, although somebody has looked past it.
SELECT test.stand(rl_admit('c', test.slots('m')));
SELECT head_at FROM ratelimit.scopes;
SELECT rl_renew_waiters('{a}', '{a}');
SELECT head_at FROM ratelimit.scopes;
SELECT test.stand(rl_admit('b', test.slots('m'), waiter_id => 'b2'));
SELECT test.stand(rl_admit('a', test.slots('m')));
SELECT test.error($$SELECT rl_renew_waiters('{a}', '{}')$$);
SELECT * FROM test.problems();

-- The same by its own call, while somebody else has the slot.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
SELECT test.stand(rl_admit('hold', test.slots('m'))), test.stand(rl_admit('a', test.slots('m')));
SET ratelimit.clock = '2025-01-01 12:00:01+00';
SELECT test.stand(rl_admit('b', test.slots('m'), waiter_id => 'b2'));
SET ratelimit.clock = '2025-01-01 12:00:15+00';
SELECT rl_cancel('hold');
SELECT test.stand(rl_admit('c', test.slots('m')));
SELECT head_at FROM ratelimit.scopes;
SELECT allowed FROM rl_reserve('model', 'm', 'concurrent', 1, task_id => 'r');
SELECT test.stand(rl_admit('a', test.slots('m')));
SELECT head_at FROM ratelimit.scopes;
SELECT rl_release(lease_ids => array_agg(lease_id)) FROM ratelimit.leases;
SELECT test.stand(rl_admit('b', test.slots('m'), waiter_id => 'b2'));
SELECT * FROM test.problems();

-- rl_defer: as long as asked, else doubling from about 1 s, spread by the id; others pass meanwhile.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
SELECT test.stand(rl_enqueue(id, test.slots('m'))) FROM unnest('{a,b}'::text[]) id;
SELECT rl_defer('a', 'boom', 2500), rl_defer('x') IS NULL AS unknown;
SELECT test.stand(w) FROM rl_waiting() w;
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT rl_cancel('b');
SELECT test.stand(d) FROM rl_dispatch() d;
SET ratelimit.clock = '2025-01-01 12:00:02.5+00';
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT rl_defer('a') IS NULL AS admitted;
SELECT test.stand(rl_enqueue('c', test.slots('n')));
-- FNV-1a-32 of "c" is 3859557458, which is 227 modulo 401: 2.7 % longer.
SELECT n, extract(epoch FROM rl_defer('c') - '2025-01-01 12:00:02.5+00') AS seconds FROM generate_series(0, 7) n;
-- Past its deadline it fails.
SET ratelimit.clock = '2025-01-01 12:10:02.5+00';
SELECT rl_defer('c') IS NULL AS failed;
SELECT test.stand(rl_status('c'));
SELECT * FROM test.problems();

-- rl_cancel ends what has not ended, and gives everything back that carries the task's id.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
SELECT test.stand(rl_admit(id, test.slots('m'))) FROM unnest('{a,b}'::text[]) id;
SELECT allowed FROM rl_reserve('key', 'k', 'tpm', 10, 5, task_id => 'a');
SELECT allowed FROM rl_reserve('key', 'k', 'concurrent', 10, 5, task_id => 'a');
SELECT rl_cancel('a', 'changed my mind', 'failed'), rl_cancel('a'), rl_cancel('x'), rl_cancel('b');
SELECT test.stand(rl_status(id)) FROM unnest('{a,b}'::text[]) id;
SELECT test.stand(rl_admit('a', test.slots('m'))), test.stand(rl_enqueue('b', test.slots('m'))), test.stand(rl_rebind('b', test.slots('m')));
SELECT scope_key, leased, waiting FROM ratelimit.scopes ORDER BY scope_key;
SELECT reserved FROM ratelimit.counters;
SELECT status, reason FROM ratelimit.reservations;
-- Past its deadline a task is timed out, whoever finds it.
SELECT test.stand(rl_admit('h', test.slots('m'))), test.stand(rl_admit('late', test.slots('m')));
SET ratelimit.clock = '2025-01-01 12:10:00+00';
SELECT rl_cancel('late');
SELECT test.stand(rl_status('late'));
-- One that ran is not admitted again.
UPDATE ratelimit.tasks SET attempt_no = 1 WHERE task_id = 'late';
SELECT test.error($$SELECT rl_admit('late', '[]')$$);
SELECT test.stand(rl_rebind('late', '[]'));
UPDATE ratelimit.tasks SET status = 'review', attempt_no = 1 WHERE task_id = 'late';
SELECT test.stand(rl_admit('late', '[]')), rl_cancel('late');
DELETE FROM ratelimit.tasks WHERE task_id = 'late';
SELECT * FROM test.problems();
DROP FUNCTION test.slots(text[]);
RESET ratelimit.clock;
