# shellcheck shell=bash
# 16 sessions recover 1,000 orphans at once: each is recovered once, and the sums add up; while nobody is waited for.
orphans=1000
# shellcheck disable=SC2154 # work is set by lib.sh
answers=$work/recovery
sql -c "SET ratelimit.clock = '2030-01-01 00:00:00+00'" -c "
	SELECT count(rl_enqueue('task ' || n, jsonb_build_array(jsonb_build_object('scope_type', 'model', 'scope_key', 'm' || n % 7,
		'limit', 1000, 'queue_limit', null)))) FROM generate_series(1, $orphans) n" -c "
	SELECT count(*) FROM rl_dispatch(10000)" -c "
	SELECT count(rl_start('task ' || n, 'dead', 10)), count(rl_reserve('user', 'u' || n % 3, 'tpm', 1e9, 2, task_id => 'task ' || n))
	FROM generate_series(1, $orphans) n" >/dev/null
pids=()
for session in $(seq 16); do
	# A call that found nothing may have met a scope that another session held: three in a row are the end.
	sql -At -c "SET ratelimit.clock = '2030-01-01 00:00:30+00'" -c "
		DO \$\$
		DECLARE r ratelimit.recovery; idle int := 0; requeued int := 0; leases int := 0; reservations int := 0; attempts int := 0;
		BEGIN
			WHILE idle < 3 LOOP
				r := rl_recover(20);
				COMMIT;
				requeued := requeued + r.requeued_async_tasks; leases := leases + r.released_concurrency_leases;
				reservations := reservations + r.released_rate_reservations; attempts := attempts + r.failed_attempts;
				idle := CASE WHEN r.requeued_async_tasks = 0 THEN idle + 1 ELSE 0 END;
			END LOOP;
			RAISE NOTICE 'recovered % % % %', requeued, leases, reservations, attempts;
		END \$\$" >"$answers.$session" 2>&1 &
	pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || true; done
counts=$(cat "$answers".* | awk '/recovered/ { a += $(NF-3); b += $(NF-2); c += $(NF-1); d += $NF } END { print a, b, c, d }')
is "each orphan is recovered once by 16 sessions at once" "$orphans $orphans $orphans $orphans" "$counts"
is "nobody failed" "" "$(grep -h ERROR "$answers".* || true)"
is "each waits again, once" "$orphans" "$(sql -At -c "SELECT count(*) FROM ratelimit.waiting")"
is "each has one closed attempt" "$orphans" "$(sql -At -c "SELECT count(*) FROM ratelimit.attempts WHERE outcome = 'lost'")"
is "everything agrees after recovery" "" "$(sql -At -c "SELECT * FROM rl_verify()")"
