-- The extension, and helpers that the other files use. Runs first; then any file can run alone:
--   make installcheck REGRESS="setup leases" ISOLATION= TAP_TESTS=
CREATE EXTENSION ratelimit;
CREATE SCHEMA test;
-- Every file begins with this: nothing stored, and output that depends on no setting of the caller.
CREATE PROCEDURE test.begin() LANGUAGE plpgsql AS $$
BEGIN
	TRUNCATE ratelimit.counters, ratelimit.reservations, ratelimit.requests, ratelimit.scopes, ratelimit.leases,
		ratelimit.tasks, ratelimit.waiting, ratelimit.awaited, ratelimit.workers, ratelimit.attempts, ratelimit.task_events;
	UPDATE ratelimit.repair_position SET aggregates = 'counters', scope_type = '', scope_key = '', metric = '', window_seconds = 0;
	DELETE FROM ratelimit.buckets; -- which refuses TRUNCATE
	PERFORM set_config('timezone', 'UTC', false), set_config('datestyle', 'ISO', false), set_config('intervalstyle', 'postgres', false),
		set_config('search_path', 'public', false);
END $$;
-- What a statement that must fail says: SQLSTATE, message, detail and hint.
CREATE FUNCTION test.error(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	message text;
	detail text;
	hint text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN format(E'%s: %s\n    DETAIL: %s\n    HINT: %s', SQLSTATE, message, detail, hint);
END $$;
-- Every sum that is kept beside the rows it sums up, where the two differ. Every file ends with it; no row is right.
CREATE FUNCTION test.problems() RETURNS TABLE (object text, key text, kept float8, found float8) LANGUAGE sql AS $$
	SELECT object, key || ': ' || problem, found, expected FROM rl_verify()
	UNION ALL
	SELECT 'counters.reserved', concat_ws('/', c.scope_type, c.scope_key, c.metric, c.window_seconds), c.reserved, s.amount
	FROM ratelimit.counters c CROSS JOIN LATERAL (
		SELECT coalesce(sum(r.amount), 0) FROM ratelimit.reservations r
		WHERE r.status = 'reserved' AND r.window_start = c.window_start AND (r.scope_type, r.scope_key, r.metric,
			r.window_seconds) = (c.scope_type, c.scope_key, c.metric, c.window_seconds)) s (amount)
	WHERE abs(c.reserved - s.amount) > 1e-9 * greatest(1, s.amount)
	UNION ALL
	SELECT 'reservation without a counter', concat_ws('/', r.scope_type, r.scope_key, r.metric, r.window_seconds), NULL, r.amount
	FROM ratelimit.reservations r
	WHERE r.status = 'reserved' AND NOT EXISTS (SELECT FROM ratelimit.counters c
		WHERE c.window_start >= r.window_start AND (r.scope_type, r.scope_key, r.metric,
			r.window_seconds) = (c.scope_type, c.scope_key, c.metric, c.window_seconds))
	UNION ALL
	SELECT 'negative counter', concat_ws('/', scope_type, scope_key, metric, window_seconds), used, reserved
	FROM ratelimit.counters WHERE used < 0 OR reserved < 0
	UNION ALL
	SELECT 'scopes.' || v.name, concat_ws('/', s.scope_type, s.scope_key), v.kept, v.found
	FROM ratelimit.scopes s CROSS JOIN LATERAL (
		SELECT coalesce(sum(l.amount), 0), count(*), min(l.expires_at) FROM ratelimit.leases l
		WHERE (l.scope_type, l.scope_key) = (s.scope_type, s.scope_key)) f (amount, count, expires_at)
	CROSS JOIN LATERAL (VALUES
		('leased', s.leased, f.amount),
		('lease_count', s.lease_count, f.count),
		('expires_from', CASE WHEN s.expires_from > f.expires_at THEN 1 ELSE 0 END, 0)) v (name, kept, found)
	WHERE abs(v.kept - v.found) > 1e-9 * greatest(1, v.found)
	UNION ALL
	SELECT 'lease without a scope', concat_ws('/', l.scope_type, l.scope_key), NULL, l.amount
	FROM ratelimit.leases l
	WHERE NOT EXISTS (SELECT FROM ratelimit.scopes s WHERE (l.scope_type, l.scope_key) = (s.scope_type, s.scope_key))
	UNION ALL
	SELECT 'scopes.waiting', concat_ws('/', s.scope_type, s.scope_key), s.waiting, w.count
	FROM ratelimit.scopes s CROSS JOIN LATERAL (
		SELECT count(*) FROM ratelimit.waiting w
		WHERE (w.scope_type, w.scope_key) = (s.scope_type, s.scope_key)) w (count)
	WHERE s.waiting <> w.count
	UNION ALL
	SELECT 'awaited', concat_ws('/', scope_type, scope_key), s.waiting, NULL
	FROM ratelimit.scopes s FULL JOIN ratelimit.awaited a USING (scope_type, scope_key)
	WHERE (coalesce(s.waiting, 0) > 0) <> (a.ready IS NOT NULL) OR (s.ready, s.head_priority, s.head_at) <> (a.ready, a.head_priority, a.head_at)
	UNION ALL
	SELECT 'waiting without a scope', concat_ws('/', w.scope_type, w.scope_key), NULL, 1
	FROM ratelimit.waiting w
	WHERE NOT EXISTS (SELECT FROM ratelimit.scopes s WHERE (w.scope_type, w.scope_key) = (s.scope_type, s.scope_key))
	UNION ALL
	SELECT 'places of a task', t.task_id, CASE WHEN t.status = 'waiting' THEN greatest(1, jsonb_array_length(t.scopes)) ELSE 0 END, w.count
	FROM ratelimit.tasks t CROSS JOIN LATERAL (
		SELECT count(*) FROM ratelimit.waiting w
		WHERE (w.task_id, w.priority, w.enqueued_at) = (t.task_id, t.priority, t.enqueued_at)) w (count)
	WHERE w.count <> CASE WHEN t.status = 'waiting' THEN greatest(1, jsonb_array_length(t.scopes)) ELSE 0 END
	UNION ALL
	SELECT 'waiting without a task', concat_ws('/', w.scope_type, w.scope_key, w.task_id), NULL, 1
	FROM ratelimit.waiting w WHERE NOT EXISTS (SELECT FROM ratelimit.tasks t WHERE t.task_id = w.task_id)
	UNION ALL
	SELECT 'search for the head begins too late', concat_ws('/', w.scope_type, w.scope_key, w.task_id), NULL, 1
	FROM ratelimit.waiting w JOIN ratelimit.scopes s USING (scope_type, scope_key) JOIN ratelimit.tasks t USING (task_id)
	WHERE (w.priority, w.enqueued_at) < (s.head_priority, s.head_at) AND w.kind <> 'c' AND t.wait_deadline_at > clock_timestamp()
		AND coalesce(t.waiter_expires_at, 'infinity') > clock_timestamp() AND current_setting('ratelimit.clock', true) = ''
$$;
-- Everything that is stored, row versions and row locks included: two equal results mean that nothing was written.
CREATE FUNCTION test.contents() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	name text;
	rows text;
	contents text := '';
BEGIN
	FOREACH name IN ARRAY '{counters,reservations,requests,scopes,leases,tasks,waiting,awaited}'::text[] LOOP
		EXECUTE format('SELECT string_agg(concat_ws('' '', ctid, xmin, xmax, t), E''\n'' ORDER BY ctid) FROM ratelimit.%I t', name)
			INTO rows;
		contents := contents || name || E'\n' || coalesce(rows, '') || E'\n';
	END LOOP;
	RETURN contents;
END $$;
-- The same without row versions and locks, for calls that may lock before they know better.
CREATE FUNCTION test.values() RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(E'\n',
		(SELECT string_agg(t::text, E'\n' ORDER BY t::text) FROM ratelimit.counters t),
		(SELECT string_agg(t::text, E'\n' ORDER BY t::text) FROM ratelimit.reservations t),
		(SELECT string_agg(t::text, E'\n' ORDER BY t::text) FROM ratelimit.requests t),
		(SELECT string_agg(t::text, E'\n' ORDER BY t::text) FROM ratelimit.scopes t),
		(SELECT string_agg(t::text, E'\n' ORDER BY t::text) FROM ratelimit.leases t),
		(SELECT string_agg(t::text, E'\n' ORDER BY t::text) FROM ratelimit.tasks t),
		(SELECT string_agg(t::text, E'\n' ORDER BY t::text) FROM ratelimit.waiting t),
		(SELECT string_agg(t::text, E'\n' ORDER BY t::text) FROM ratelimit.awaited t))
$$;
-- An element of a list of limits, and a list.
CREATE FUNCTION test.limit(scope_key text, metric text, lim float8, amount float8 DEFAULT 1, more jsonb DEFAULT '{}') RETURNS jsonb
LANGUAGE sql AS $$
	SELECT jsonb_build_object('scope_type', 'key', 'scope_key', scope_key, 'metric', metric, 'limit', lim, 'amount', amount) || more
$$;
CREATE FUNCTION test.list(VARIADIC jsonb[]) RETURNS jsonb LANGUAGE sql AS 'SELECT jsonb_agg(l) FROM unnest($1) l';
-- The helpers can fail: each kind of inconsistency is found.
CALL test.begin();
INSERT INTO ratelimit.counters (scope_type, scope_key, metric, window_seconds, window_start, used, reserved, limit_value, touched_at)
VALUES ('key', 'a', 'rpm', 60, '2030-01-01', 0, 2, 5, '2030-01-01'), ('key', 'b', 'rpm', 60, '2030-01-01', -1, 0, 5, '2030-01-01');
INSERT INTO ratelimit.reservations (reservation_id, scope_type, scope_key, metric, window_seconds, window_start, due_at,
	created_at, amount, limit_value)
SELECT gen_random_uuid(), 'key', k, 'rpm', 60, '2030-01-01', '2030-01-01 00:01', '2030-01-01', 1, 5 FROM unnest('{a,c}'::text[]) k;
INSERT INTO ratelimit.scopes (scope_type, scope_key, leased, lease_count, expires_from, touched_at)
VALUES ('key', 'a', 3, 2, '2030-01-02', '2030-01-01');
INSERT INTO ratelimit.leases (lease_id, scope_type, scope_key, expires_at, created_at, amount, limit_value, ttl_seconds)
SELECT gen_random_uuid(), 'key', k, '2030-01-01 00:01', '2030-01-01', 2, 5, 60 FROM unnest('{a,b}'::text[]) k;
SELECT * FROM test.problems() ORDER BY object, key;
SELECT test.error('SELECT 1/0') LIKE '22012: division by zero%' AS caught, test.error('SELECT 1');
CALL test.begin();
SELECT * FROM test.problems();
-- A scope that a task asks for, and where a task stands, in one line: status, reason, when to ask again, what it waits for.
CREATE FUNCTION test.scope(scope_key text, lim float8, more jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('scope_type', 'model', 'scope_key', scope_key, 'limit', lim) || more
$$;
-- (Of any type, so that nothing depends on the extension, which a test drops.)
CREATE FUNCTION test.stand(admission anyelement) RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' ', a ->> 'task_id', CASE WHEN (a ->> 'newly_admitted')::bool THEN 'newly' END, a ->> 'status', a ->> 'reason',
		CASE WHEN (a ->> 'admitted')::bool THEN jsonb_array_length(a -> 'lease_ids') || ' leases'
			ELSE coalesce((a ->> 'retry_after_ms') || ' ms', 'never') END,
		(SELECT string_agg(concat_ws(' ', b ->> 'scope_key', b ->> 'reason'), ', ') FROM jsonb_array_elements(a -> 'blockers') b),
		CASE WHEN a ->> 'scope_key' IS NOT NULL THEN format('at %s: %s of %s used, asks %s, next free %s, depth %s of %s', a ->> 'scope_key',
			a ->> 'used', coalesce(a ->> 'limit_value', 'no limit'), a ->> 'amount',
			coalesce(to_char((a ->> 'reset_at')::timestamptz, 'HH24:MI:SS'), 'never'), a ->> 'queue_depth', coalesce(a ->> 'queue_limit', 'any')) END)
	FROM to_jsonb(admission) a WHERE admission IS NOT NULL OR a ->> 'task_id' IS NOT NULL
$$;
