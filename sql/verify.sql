-- Each aggregate damaged by hand is named by rl_verify and repaired by rl_recover.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:00+00';
CREATE FUNCTION pg_temp.one(scope text, slots float8 DEFAULT 1) RETURNS jsonb LANGUAGE sql AS
$$SELECT jsonb_build_array(jsonb_build_object('scope_type', 'model', 'scope_key', scope, 'limit', slots, 'queue_limit', 100))$$;
SELECT (rl_reserve('user', 'u', 'tpm', 1000, 100)).allowed, (rl_reserve('user', 'u', 'concurrent', 5)).allowed;
SELECT (rl_reserve('user', 'v', 'tpm', 1000, 7)).allowed, (rl_reserve('user', 'v', 'concurrent', 5)).allowed;
SELECT status FROM rl_admit('runs', pg_temp.one('m'));
SELECT execution_token IS NOT NULL AS started FROM rl_start('runs', 'w');
SELECT status FROM rl_admit('waits', pg_temp.one('m'));
SELECT status FROM rl_enqueue('queued', pg_temp.one('m'));
SELECT * FROM rl_verify();

CREATE FUNCTION pg_temp.damage(command text) RETURNS TABLE (step text, object text, key text, problem text, expected float8, found float8)
LANGUAGE plpgsql AS $$
DECLARE
	repaired int;
BEGIN
	EXECUTE command;
	RETURN QUERY SELECT 'found', * FROM rl_verify();
	LOOP
		repaired := (rl_recover()).repaired_aggregates;
		EXIT WHEN repaired = 0;
		RETURN QUERY SELECT 'repaired', NULL, NULL, NULL, repaired::float8, NULL::float8;
	END LOOP;
	RETURN QUERY SELECT 'left', * FROM rl_verify();
END $$;
SELECT * FROM pg_temp.damage($$UPDATE ratelimit.counters SET reserved = 55 WHERE scope_key = 'u'$$);
SELECT * FROM pg_temp.damage($$UPDATE ratelimit.counters SET used = 'NaN' WHERE scope_key = 'u'$$);
SELECT * FROM pg_temp.damage($$UPDATE ratelimit.counters SET window_start = window_start - interval '1 minute' WHERE scope_key = 'u'$$);
SELECT * FROM pg_temp.damage($$DELETE FROM ratelimit.counters$$);
SELECT * FROM pg_temp.damage($$UPDATE ratelimit.scopes SET leased = 3 WHERE scope_key = 'u'$$);
SELECT * FROM pg_temp.damage($$UPDATE ratelimit.scopes SET lease_count = 0 WHERE scope_key = 'u'$$);
SELECT * FROM pg_temp.damage($$UPDATE ratelimit.scopes SET expires_from = 'infinity' WHERE scope_key = 'u'$$);
SELECT * FROM pg_temp.damage($$DELETE FROM ratelimit.scopes WHERE scope_key = 'v'$$);
SELECT * FROM pg_temp.damage($$UPDATE ratelimit.scopes SET waiting = 7 WHERE scope_key = 'm'$$);
SELECT * FROM pg_temp.damage($$UPDATE ratelimit.scopes SET waiting = 0 WHERE scope_key = 'm'$$);
SELECT * FROM pg_temp.damage($$DELETE FROM ratelimit.awaited$$);
SELECT * FROM pg_temp.damage($$INSERT INTO ratelimit.awaited SELECT head_at, look_at, head_priority, ready, 'user', 'u' FROM ratelimit.awaited$$);
SELECT * FROM pg_temp.damage($$DELETE FROM ratelimit.waiting WHERE task_id = 'waits'$$);
SELECT * FROM pg_temp.damage($$INSERT INTO ratelimit.waiting SELECT enqueued_at, priority, kind, scope_type, scope_key, 'nobody' FROM ratelimit.waiting LIMIT 1$$);
SELECT * FROM pg_temp.damage($$INSERT INTO ratelimit.waiting SELECT enqueued_at, priority, kind, 'user', 'u', 'runs' FROM ratelimit.waiting LIMIT 1$$);
SELECT * FROM pg_temp.damage($$UPDATE ratelimit.tasks SET lease_ids = ARRAY[gen_random_uuid()] WHERE task_id = 'waits'$$);
SELECT * FROM pg_temp.damage($$DELETE FROM ratelimit.attempts$$);
SELECT * FROM pg_temp.damage($$UPDATE ratelimit.attempts SET finished_at = now()$$);
SELECT * FROM pg_temp.damage($$INSERT INTO ratelimit.attempts VALUES (now(), NULL, 7, NULL, 'waits', NULL, 'w', 'running', NULL)$$);
SELECT * FROM pg_temp.damage($$UPDATE ratelimit.tasks SET execution_token = NULL WHERE task_id = 'runs'$$);
SELECT task_id, status, error_code FROM ratelimit.tasks ORDER BY 1;
-- Whoever was repaired goes on.
SELECT status, blockers FROM rl_admit('waits', pg_temp.one('m'));
SELECT rl_cancel('waits');
SELECT task_id FROM rl_dispatch();
SELECT * FROM rl_verify();
SELECT * FROM test.problems();
RESET ratelimit.clock;
