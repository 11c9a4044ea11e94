-- Workers of the application: heartbeats, stopping, who is live and how much the live ones can take on together.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:00+00';
-- A heartbeat returns when the worker becomes stale.
SELECT rl_worker_heartbeat('a', 4);
SELECT rl_worker_heartbeat('b');
SELECT worker_id, heartbeat_at, capacity, stopped FROM ratelimit.workers ORDER BY worker_id;
-- Without a capacity the last one stays; with one it changes, also to 0.
SET ratelimit.clock = '2030-01-01 00:00:30+00';
SELECT rl_worker_heartbeat('a');
SELECT rl_worker_heartbeat('b', 2);
SELECT rl_worker_heartbeat('b', 0);
SELECT worker_id, heartbeat_at, capacity, stopped FROM ratelimit.workers ORDER BY worker_id;
-- The clock went backwards: the heartbeat does not.
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT rl_worker_heartbeat('a');
-- Stopping: true if it was live.
SELECT rl_worker_stop('a'), rl_worker_stop('nobody');
SELECT rl_worker_stop('a');
SELECT worker_id, heartbeat_at, capacity, stopped FROM ratelimit.workers ORDER BY worker_id;
-- A heartbeat revives it, with the capacity it had.
SELECT rl_worker_heartbeat('a');
SELECT worker_id, heartbeat_at, capacity, stopped FROM ratelimit.workers ORDER BY worker_id;
-- A worker is stale at the very instant that the heartbeat named; stopping it says so and is remembered.
SET ratelimit.clock = '2030-01-01 00:01:29.999999+00';
SELECT rl_worker_stop('a');
SET ratelimit.clock = '2030-01-01 00:01:30+00';
SELECT rl_worker_stop('b');
SELECT worker_id, stopped FROM ratelimit.workers ORDER BY worker_id;
-- The setting counts from the next call.
SET ratelimit.worker_stale_after = '2min';
SELECT rl_worker_heartbeat('a');
RESET ratelimit.worker_stale_after;
SET ratelimit.worker_stale_after = 0;
-- The live ones' capacity is the limit of a scope that says so, taken anew by every call, and wins over a limit given.
SET ratelimit.clock = '2030-01-01 00:10:00+00';
CREATE FUNCTION pg_temp.ask(task text, amount float8) RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' ', status, reason, limit_value) FROM rl_admit(task, jsonb_build_array(jsonb_build_object('scope_type', 'workers',
		'scope_key', 'all', 'limit', 99, 'limit_from', 'worker_capacity', 'amount', amount, 'queue_limit', 9)))
$$;
SELECT pg_temp.ask('none', 1), rl_cancel('none');
SELECT rl_worker_heartbeat('a', 2), rl_worker_heartbeat('b', 3);
SELECT pg_temp.ask('four', 4), pg_temp.ask('two', 2), rl_cancel('two');
SELECT rl_worker_heartbeat('b', 4);
SELECT pg_temp.ask('two more', 2);
SELECT rl_worker_stop('b'), pg_temp.ask('one', 1), rl_cancel('one');
SET ratelimit.clock = '2030-01-01 00:10:30+00';
SELECT rl_worker_heartbeat('b');
SELECT rl_worker_heartbeat('c', 2147483647), rl_worker_heartbeat('d', 2147483647);
SELECT pg_temp.ask('many', 4294967294), pg_temp.ask('more', 1), rl_cancel('more'), rl_cancel('many');
-- A rollback undoes it.
BEGIN;
SELECT rl_worker_heartbeat('c', 7);
ROLLBACK;
SELECT count(*) FROM ratelimit.workers WHERE worker_id = 'c';
-- Bad input and read-only transactions.
SELECT rl_worker_heartbeat(NULL);
SELECT rl_worker_heartbeat(' ');
SELECT rl_worker_heartbeat('a', -1);
SELECT rl_worker_stop(NULL);
SELECT rl_worker_stop('');
\set VERBOSITY sqlstate
SELECT rl_worker_heartbeat(repeat('x', 513));
BEGIN READ ONLY;
SELECT rl_worker_heartbeat('a');
ROLLBACK;
BEGIN READ ONLY;
SELECT rl_worker_stop('nobody');
ROLLBACK;
\set VERBOSITY default
