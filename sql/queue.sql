-- rl_admit and rl_enqueue: who is let in, who goes, in which order; line by line with the contract.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
-- A free slot: admitted at once, with a lease for each limited scope.
SELECT test.stand(rl_admit('a', jsonb_build_array(test.scope('m', 1, '{"queue_limit": 2}'))));
SELECT ordinal, mode, status, admitted, retryable, priority, enqueued_at, wait_deadline_at, admitted_at, waiter_lease_expires_at, scopes, blockers
FROM rl_status('a');
SELECT scope_key, amount, limit_value, ttl_seconds, task_id FROM ratelimit.leases;
-- Again, the same admission; nothing is written for it.
SELECT test.contents() AS before \gset
SELECT test.stand(rl_admit('a', jsonb_build_array(test.scope('m', 1, '{"queue_limit": 2}'))));
SELECT test.contents() = :'before' AS unchanged;
-- Nobody may wait, the queue is full, more is asked than fits, nothing is allowed: denied, and nothing is written.
SELECT test.stand(rl_admit('x', jsonb_build_array(test.scope('m', 1))));
SELECT test.stand(rl_admit('x', jsonb_build_array(test.scope('m', 2, '{"amount": 3}'))));
SELECT test.stand(rl_admit('x', jsonb_build_array(test.scope('n', 1), test.scope('m', 0))));
SELECT test.stand(rl_enqueue('x', jsonb_build_array(test.scope('n', 1), test.scope('m', 0))));
SELECT test.contents() = :'before' AS unchanged;
-- Until the next lease ends, but at least 1 s and at most 30 s; 1 s without any.
SET ratelimit.clock = '2025-01-01 12:01:50+00';
SELECT test.stand(rl_admit('x', jsonb_build_array(test.scope('m', 1))));
SET ratelimit.clock = '2025-01-01 12:01:59.5+00';
SELECT test.stand(rl_admit('x', jsonb_build_array(test.scope('m', 1))));
SET ratelimit.clock = '2025-01-01 12:00:00+00';
-- Those that wait, in the order of priority, age and id.
SELECT test.stand(rl_admit('c', jsonb_build_array(test.scope('m', 1, '{"queue_limit": 9}'))));
SELECT test.stand(rl_admit('b', jsonb_build_array(test.scope('m', 1, '{"queue_limit": 9}'))));
SET ratelimit.clock = '2025-01-01 12:00:01+00';
SELECT test.stand(rl_admit('a2', jsonb_build_array(test.scope('m', 1, '{"queue_limit": 9}'))));
SELECT test.stand(rl_admit('first', jsonb_build_array(test.scope('m', 1, '{"queue_limit": 9}')), priority => -1));
SELECT test.stand(rl_admit('x', jsonb_build_array(test.scope('m', 1, '{"queue_limit": 4}'))));
SELECT task_id, ordinal, priority FROM rl_waiting();
SELECT waiting FROM ratelimit.scopes;
-- A saturated scope keeps the head waiting; the others are no heads once it is free.
SELECT rl_release(lease_ids => lease_ids) FROM rl_status('a');
SELECT test.stand(rl_admit('b', jsonb_build_array(test.scope('m', 1, '{"queue_limit": 9}'))));
SELECT test.stand(w) FROM rl_waiting() w;
SELECT test.stand(rl_admit('first', jsonb_build_array(test.scope('m', 1, '{"queue_limit": 9}'))));
SELECT * FROM test.problems();

-- All scopes at once. X is full, so the task waits, and holds those up that are behind it in Y; Z is nobody's business.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
SELECT test.stand(rl_admit('holder', jsonb_build_array(test.scope('x', 1))));
SELECT test.stand(rl_admit('both', jsonb_build_array(test.scope('x', 1, '{"queue_limit": 9}'), test.scope('y', 1, '{"queue_limit": 9}'))));
SET ratelimit.clock = '2025-01-01 12:00:01+00';
SELECT test.stand(rl_admit('behind', jsonb_build_array(test.scope('y', 1, '{"queue_limit": 0}'))));
SELECT test.stand(rl_admit('elsewhere', jsonb_build_array(test.scope('z', 1))));
-- fifo false: counted and saturated, but not in the order.
SELECT test.stand(rl_admit('passes', jsonb_build_array(test.scope('y', 1, '{"fifo": false}'))));
SELECT scope_key, waiting FROM ratelimit.scopes ORDER BY scope_key;
-- Who would have to wait would wait in all of its scopes, so a scope where nobody may wait denies. Nothing to ask for: at once. A scope without a limit: no lease, but its order holds.
SELECT test.stand(rl_admit('nothing', '[]'));
SELECT test.stand(rl_admit('unlimited', jsonb_build_array(test.scope('u', NULL))));
SELECT test.stand(rl_admit('mixed', jsonb_build_array(test.scope('u', NULL), test.scope('x', 1, '{"queue_limit": 9}'))));
SELECT test.stand(rl_admit('mixed', jsonb_build_array(test.scope('u', NULL, '{"queue_limit": null}'), test.scope('x', 1, '{"queue_limit": null}'))));
SELECT test.stand(rl_admit('unlimited2', jsonb_build_array(test.scope('u', NULL))));
-- Duplicates collapse to the first, in the snapshot as well.
SELECT test.stand(rl_admit('twice', jsonb_build_array(test.scope('t', 5, '{"amount": 2}'), test.scope('t', 1))));
SELECT scopes FROM rl_status('twice');
SELECT * FROM test.problems();

-- Deadlines: the smallest wait among scopes where somebody may wait, 24 h without any; over at the very instant.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
SELECT wait_deadline_at FROM rl_admit('h', jsonb_build_array(test.scope('m', 1), test.scope('q', 9, '{"queue_limit": 1, "max_wait_seconds": 30}'),
	test.scope('r', 9, '{"queue_limit": 0, "max_wait_seconds": 5}')));
SELECT wait_deadline_at FROM rl_admit('d', jsonb_build_array(test.scope('n', 1)));
SELECT test.stand(a), wait_deadline_at FROM rl_admit('w', jsonb_build_array(test.scope('m', 1, '{"queue_limit": 5, "max_wait_seconds": 20}'))) a;
SET ratelimit.clock = '2025-01-01 12:00:19.999999+00';
SELECT test.stand(rl_admit('w', jsonb_build_array(test.scope('m', 1, '{"queue_limit": 5, "max_wait_seconds": 20}'))));
SET ratelimit.clock = '2025-01-01 12:00:20+00';
SELECT test.stand(rl_status('w'));
SELECT test.stand(rl_admit('w', jsonb_build_array(test.scope('m', 1, '{"queue_limit": 5, "max_wait_seconds": 20}'))));
SELECT status, error_code, finished_at FROM ratelimit.tasks WHERE task_id = 'w';
SELECT test.stand(rl_enqueue('w', jsonb_build_array(test.scope('m', 1, '{"queue_limit": 5}'))));
-- After retention the id is free.
SET ratelimit.clock = '2025-01-01 13:00:19+00';
SELECT test.stand(rl_status('w'));
SET ratelimit.clock = '2025-01-01 13:00:20+00';
SELECT test.stand(rl_status('w'));
SELECT test.contents() AS before \gset
SELECT test.stand(rl_admit('w', jsonb_build_array(test.scope('m', 0))));
SELECT test.contents() = :'before' AS denied_without_a_write;
SELECT test.stand(rl_admit('w', jsonb_build_array(test.scope('m', 1, '{"queue_limit": 5}'))));
SELECT * FROM test.problems();

-- A lost lease: the rest is released, it waits with its age and the earlier deadline, and goes again if it is its turn.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
SELECT test.stand(rl_admit('t', jsonb_build_array(test.scope('long', 1, '{"queue_limit": 5}'), test.scope('short', 1, '{"lease_ttl_seconds": 10}'))));
SET ratelimit.clock = '2025-01-01 12:00:10+00';
SELECT test.stand(rl_admit('other', jsonb_build_array(test.scope('short', 1))));
SELECT test.stand(a), enqueued_at, wait_deadline_at, admitted_at FROM rl_admit('t', jsonb_build_array(test.scope('long', 1, '{"queue_limit": 5}'), test.scope('short', 1, '{"lease_ttl_seconds": 10}'))) a;
SELECT scope_key, leased, waiting FROM ratelimit.scopes ORDER BY scope_key;
SELECT rl_cancel('other');
SELECT test.stand(a), enqueued_at, wait_deadline_at, admitted_at FROM rl_admit('t', jsonb_build_array(test.scope('long', 1, '{"queue_limit": 5}'), test.scope('short', 1, '{"lease_ttl_seconds": 10}'))) a;
SET ratelimit.clock = '2025-01-01 12:00:20+00';
SELECT test.stand(a) FROM rl_admit('t', jsonb_build_array(test.scope('long', 1, '{"queue_limit": 5}'), test.scope('short', 1, '{"lease_ttl_seconds": 10}'))) a;
-- Past the deadline it began with, it is over.
SET ratelimit.clock = '2025-01-01 12:10:00+00';
SELECT test.stand(a) FROM rl_admit('t', jsonb_build_array(test.scope('long', 1, '{"queue_limit": 5}'), test.scope('short', 1, '{"lease_ttl_seconds": 10}'))) a;
SELECT * FROM test.problems();

-- Amounts count with the tolerance: three times 0.1 fits 0.3.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
SELECT test.stand(rl_admit('t' || i, jsonb_build_array(test.scope('m', 0.3, '{"amount": 0.1}')))) FROM generate_series(1, 4) i;
SELECT * FROM test.problems();

-- rl_enqueue: active + waiting x amount + amount over the limit is the virtual depth.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
SELECT test.stand(a), mode, waiter_lease_expires_at FROM rl_enqueue('t1', jsonb_build_array(test.scope('m', 2, '{"queue_limit": 1}'))) a;
SELECT test.stand(rl_enqueue('t' || i, jsonb_build_array(test.scope('m', 2, '{"queue_limit": 1}')))) FROM generate_series(2, 4) i;
SELECT test.stand(rl_enqueue('t4', jsonb_build_array(test.scope('m', 2, '{"queue_limit": 0}'))));
SELECT test.stand(rl_enqueue('t4', jsonb_build_array(test.scope('m', 2, '{"queue_limit": 2}'))));
SELECT test.stand(rl_enqueue('t5', jsonb_build_array(test.scope('m', NULL, '{"queue_limit": 0}'))));
SELECT test.stand(rl_enqueue('t6', jsonb_build_array(test.scope('m', 2, '{"queue_limit": 100, "amount": 1.5}'))));
SELECT test.stand(rl_enqueue('t7', jsonb_build_array(test.scope('m', 2, '{"queue_limit": 7, "amount": 1.5}'))));
-- Again it comes back unchanged.
SELECT test.contents() AS before \gset
SELECT test.stand(rl_enqueue('t1', jsonb_build_array(test.scope('m', 2, '{"queue_limit": 1}')), 7));
SELECT test.contents() = :'before' AS unchanged;
SELECT test.stand(rl_enqueue('empty', '[]'));
SELECT test.stand(d) FROM rl_dispatch(1) d;
SELECT * FROM test.problems();

-- limit_from: without a live worker the scope is saturated in rl_admit, and left out in rl_enqueue.
CALL test.begin();
SET ratelimit.clock = '2025-01-01 12:00:00+00';
SELECT test.stand(rl_admit('w1', '[{"scope_type": "pool", "scope_key": "p", "limit_from": "worker_capacity"}]'));
SELECT test.stand(rl_admit('w1', '[{"scope_type": "pool", "scope_key": "p", "limit_from": "worker_capacity", "limit": 5, "queue_limit": 1}]'));
SELECT test.stand(rl_enqueue('w2', '[{"scope_type": "pool", "scope_key": "p", "limit_from": "worker_capacity"}]'));
SELECT test.stand(d) FROM rl_dispatch() d;
SELECT * FROM test.problems();
RESET ratelimit.clock;
