# shellcheck shell=bash
# The admission queue under load: dispatchers that race for the same tasks, and clients that poll for a few slots.

sql -c 'CREATE TABLE admitted (task_id text)' -c "
	CREATE FUNCTION slot(key text, lim float8) RETURNS jsonb LANGUAGE sql AS \$\$
		SELECT jsonb_build_object('scope_type', 'load', 'scope_key', key, 'limit', lim, 'queue_limit', NULL)
	\$\$"

# Every aggregate beside the rows that it sums up; nothing when all agree.
inconsistent() {
	sql -c "
		SELECT 'waiting', scope_key, s.waiting, count(w) FROM ratelimit.scopes s LEFT JOIN ratelimit.waiting w USING (scope_type, scope_key)
			GROUP BY s.scope_key, s.waiting HAVING s.waiting <> count(w)
		UNION ALL
		SELECT 'leased', scope_key, s.lease_count, count(l) FROM ratelimit.scopes s LEFT JOIN ratelimit.leases l USING (scope_type, scope_key)
			GROUP BY s.scope_key, s.lease_count, s.leased HAVING s.lease_count <> count(l) OR s.leased <> count(l)
		UNION ALL
		SELECT 'awaited', scope_key, s.waiting, NULL FROM ratelimit.scopes s FULL JOIN ratelimit.awaited a USING (scope_type, scope_key)
			WHERE (coalesce(s.waiting, 0) > 0) <> (a.ready IS NOT NULL) OR (s.ready, s.head_priority, s.head_at) <> (a.ready, a.head_priority, a.head_at)
		UNION ALL
		SELECT 'task', task_id, 1, count(w) FROM ratelimit.tasks t LEFT JOIN ratelimit.waiting w USING (task_id)
			GROUP BY t.task_id, t.status HAVING (t.status = 'waiting') <> (count(w) > 0)"
}

# 16 dispatchers over 1,000 tasks in 20 scopes, some of them in two: each is admitted once, and none is left.
dispatch=$(script dispatch <<'END'
INSERT INTO admitted SELECT task_id FROM rl_dispatch(7);
END
)
sql -c "SELECT count(rl_enqueue('task-' || i, jsonb_build_array(slot('a' || i % 10, 1000), slot('b' || i % 7, 1000)))) FROM generate_series(1, 1000) i" >/dev/null
# shellcheck disable=SC2154 # test/lib.sh has the folder
errors=$(as_server "$pg_bin/pgbench" -n -M prepared -c 16 -j 2 -t 60 -f "$dispatch" 2>&1 |
	grep -iE 'error|aborted' || true)
is "16 dispatchers: no error, no deadlock" "" "$errors"
for _ in {1..200}; do
	[ "$(sql -c 'INSERT INTO admitted SELECT task_id FROM rl_dispatch() RETURNING 1' | wc -l)" != 0 ] || break
done
is "1,000 tasks are admitted, each once" "1000 1000" "$(sql -c "SELECT count(*) || ' ' || count(DISTINCT task_id) FROM admitted")"
is "and hold two leases each" "2000" "$(sql -c 'SELECT count(*) FROM ratelimit.leases')"
is "after the dispatchers everything adds up" "" "$(inconsistent)"

# 64 clients over 3 slots: each polls until it is admitted, looks how many are, and gives its slot back.
sql -c "SELECT count(rl_cancel(task_id)) FROM ratelimit.tasks" -c "CREATE TABLE seen (used float8)" >/dev/null
client=$(script client <<'END'
\set n random(1, 1000000000)
BEGIN;
SELECT status = 'admitted' AS in FROM rl_admit('client-' || :client_id, jsonb_build_array(slot('slots', 3), slot('other', 3))) \gset
COMMIT;
\if :in
INSERT INTO seen SELECT leased FROM ratelimit.scopes WHERE scope_key = 'slots';
BEGIN;
SELECT rl_cancel('client-' || :client_id);
DELETE FROM ratelimit.tasks WHERE task_id = 'client-' || :client_id;
COMMIT;
\else
\sleep 10 ms
\endif
END
)
is "64 clients over 3 slots: no error, no deadlock" "" "$(storm "$client" 40)"
is "never more than 3 at once, and more than 3 got in" "t t" "$(sql -c 'SELECT max(used) <= 3, count(*) > 3 FROM seen' | tr '|' ' ')"
is "after the clients everything adds up" "" "$(inconsistent)"

# Everything at once: enqueue, admit, rebind, defer, cancel, dispatch, release, on few tasks and scopes.
storm_script=$(script everything <<'END'
\set id random(1, 40)
\set what random(1, 9)
\set a random(1, 4)
\set b random(1, 4)
\if :what = 1
SELECT rl_dispatch(3);
\elif :what = 2
SELECT rl_cancel('t' || :id); DELETE FROM ratelimit.tasks WHERE task_id = 't' || :id AND status = 'cancelled';
\elif :what = 3
SELECT rl_rebind('t' || :id, jsonb_build_array(slot('s' || :a, 2), slot('s' || :b, 2)));
\elif :what = 4
SELECT rl_defer('t' || :id, 'x', 1);
\elif :what = 5
SELECT rl_release(lease_ids => lease_ids) FROM rl_status('t' || :id);
\elif :what = 6
SELECT rl_renew_waiters(ARRAY['t' || :id, 't' || :a], ARRAY['t' || :id, 't' || :a]);
\else
SELECT rl_admit('t' || :id, jsonb_build_array(slot('s' || :a, 2), slot('s' || :b, 2)), CASE :id % 2 WHEN 0 THEN 'sync' ELSE 'async' END);
\endif
END
)
tries=40
[ -z "${LONG-}" ] || tries=600
is "everything at once: no error, no deadlock" "" "$(storm "$storm_script" $tries)"
is "everything at once: no scope is overfilled" "0" "$(sql -c "SELECT count(*) FROM ratelimit.scopes WHERE scope_key LIKE 's_' AND leased > 2")"
is "everything at once: all adds up" "" "$(inconsistent)"
