-- CALL rl_admit_wait: what a call needs, and what it answers without waiting for others. Sleeping, waking and all ways to end
-- are tested with several sessions, in test/t.
CALL test.begin();
CREATE FUNCTION test.one(key text) RETURNS jsonb LANGUAGE sql AS $$
	SELECT test.list(jsonb_build_object('scope_type', 'model', 'scope_key', key, 'limit', 1, 'queue_limit', 9))
$$;
-- Shows an answer without what changes from run to run.
CREATE PROCEDURE test.wait(task text, scopes jsonb, max_wait interval DEFAULT NULL, priority int DEFAULT 0) LANGUAGE plpgsql AS $$
DECLARE
	answer ratelimit.admission;
BEGIN
	CALL rl_admit_wait(task, scopes, max_wait, priority, answer);
	RAISE NOTICE '%', concat_ws(' ', answer.task_id, answer.mode, answer.status, answer.reason, 'priority', answer.priority,
		CASE WHEN answer.newly_admitted THEN 'newly admitted' END, 'with', cardinality(answer.lease_ids));
END $$;
-- Admitted at once, and again.
CALL test.wait('first', test.one('a'));
CALL test.wait('first', test.one('a'));
CALL test.wait('unlimited', '[]', '0', 7);
-- Denied at once.
CALL test.wait('never', '[{"scope_type": "model", "scope_key": "b", "limit": 0}]');
CALL test.wait('nobody may wait', '[{"scope_type": "model", "scope_key": "a", "limit": 1}]');
-- One try, and a little patience; each leaves a clean queue.
CALL test.wait('once', test.one('a'), '0');
CALL test.wait('hardly', test.one('a'), '-1 month');
CALL test.wait('briefly', test.one('a'), '50 ms');
CALL test.wait('briefly', test.one('a'));
SELECT task_id, status, error_code, waiter_pid FROM ratelimit.tasks WHERE status <> 'admitted' ORDER BY task_id;
SELECT waiting, leased FROM ratelimit.scopes WHERE scope_key = 'a';
SELECT count(*) FROM ratelimit.waiting;
-- A deadline of its own comes with a call for a task that waits already; a longer one does not put it off.
SELECT status FROM rl_admit('waits', test.one('a'));
CALL test.wait('waits', test.one('a'), '50 ms');
-- The scopes' own deadline is the earlier one.
CALL test.wait('by the scope', '[{"scope_type": "model", "scope_key": "a", "limit": 1, "queue_limit": 9, "max_wait_seconds": 1}]', '1 day');
-- Not inside a transaction block, a function, or a block that catches errors; nothing is enqueued.
BEGIN;
CALL rl_admit_wait('in a block', test.one('a'));
ROLLBACK;
DO $$ BEGIN CALL test.wait('caught', test.one('a')); EXCEPTION WHEN division_by_zero THEN END $$;
CREATE FUNCTION test.wrapped() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CALL test.wait('in a function', test.one('a')); END $$;
SELECT test.wrapped();
SELECT count(*) FROM ratelimit.tasks WHERE task_id LIKE 'in %' OR task_id = 'caught';
-- In a loop over a query the rows go on.
DO $$
DECLARE
	n int;
BEGIN
	FOR n IN SELECT g FROM generate_series(1, 3) g LOOP
		CALL test.wait('loop' || n, test.one('loop' || n));
	END LOOP;
END $$;
-- The call is made as whoever makes it, with EXECUTE and nothing else.
CREATE ROLE regress_ratelimit_waiter;
SET ROLE regress_ratelimit_waiter;
CALL rl_admit_wait('mine', '[]');
RESET ROLE;
GRANT EXECUTE ON PROCEDURE rl_admit_wait(text, jsonb, interval, int, ratelimit.admission) TO regress_ratelimit_waiter;
SELECT status FROM rl_admit('busy', test.one('mine'));
SET ROLE regress_ratelimit_waiter;
\pset format unaligned
\t on
\o /dev/null
CALL rl_admit_wait('mine', '[{"scope_type": "model", "scope_key": "mine", "limit": 1, "queue_limit": 9}]', '50 ms');
\o
\pset format aligned
\t off
SELECT current_user;
RESET ROLE;
SELECT task_id, status, error_code FROM ratelimit.tasks WHERE task_id = 'mine';
REVOKE EXECUTE ON PROCEDURE rl_admit_wait(text, jsonb, interval, int, ratelimit.admission) FROM regress_ratelimit_waiter;
DROP ROLE regress_ratelimit_waiter;
-- Any isolation level.
SET default_transaction_isolation = serializable;
CALL test.wait('serializable', test.one('a'), '50 ms');
CALL test.wait('serializable, free', test.one('c'));
RESET default_transaction_isolation;
-- Bad input, and where nothing may be written.
SELECT status FROM rl_enqueue('async', test.one('a'));
\set VERBOSITY sqlstate
CALL rl_admit_wait(NULL, '[]');
CALL rl_admit_wait('t', NULL);
CALL rl_admit_wait(' ', '[]');
CALL rl_admit_wait('t', '{}');
CALL rl_admit_wait('t', '[{"scope_type": "model", "scope_key": "a"}]');
CALL rl_admit_wait('async', test.one('a'));
SET default_transaction_read_only = on;
CALL rl_admit_wait('t', '[]');
RESET default_transaction_read_only;
BEGIN READ ONLY;
CALL rl_admit_wait('t', '[]');
ROLLBACK;
\set VERBOSITY default
SELECT count(*) FROM ratelimit.tasks WHERE task_id = 't';
SELECT * FROM test.problems();
