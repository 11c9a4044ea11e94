# shellcheck shell=bash
# One-shot keys come and go: when the reaper has been, and VACUUM, the tables have the size that they had.
keys=${LONG:+1000000}
keys=${keys:-10000}
size="SELECT pg_size_pretty(sum(pg_relation_size(oid))) FROM pg_class WHERE oid IN ('ratelimit.counters'::regclass, 'ratelimit.scopes'::regclass,
	'ratelimit.leases'::regclass, 'ratelimit.reservations'::regclass, 'ratelimit.tasks'::regclass, 'ratelimit.task_events'::regclass)"
for wave in 1 2; do
	sql -c "SET ratelimit.clock = '203$wave-01-01 00:00:00+00'" -c "
		SELECT count(rl_consume('key', n::text, 'rpm', 9)), count(rl_reserve('once', n::text, 'concurrent', 9)),
			count(rl_reserve('once', n::text, 'rpm', 9)), count(rl_enqueue(n::text, '[]')) FROM generate_series(1, $keys) n" -c "
		DO \$\$ BEGIN
			FOR n IN 1 .. $keys LOOP PERFORM rl_cancel(n::text); IF n % 100 = 0 THEN COMMIT; END IF; END LOOP;
		END \$\$" >/dev/null
	# Reservations that nobody settled are released at first; they and their counters go when that is old.
	for day in 01 03; do
		sql -c "SET ratelimit.clock = '203$wave-06-$day 00:00:00+00'" -c 'DO $$ DECLARE r record; BEGIN
			LOOP r := rl_reap(10000); COMMIT; EXIT WHEN r = ROW(0, 0, 0, 0, 0); END LOOP; END $$'
	done
	is "wave $wave: nothing is left of $keys one-shot keys" "0 0 0 0 0 0" "$(sql -At -F ' ' -c "SELECT (SELECT count(*) FROM ratelimit.counters),
		(SELECT count(*) FROM ratelimit.scopes), (SELECT count(*) FROM ratelimit.leases), (SELECT count(*) FROM ratelimit.reservations),
		(SELECT count(*) FROM ratelimit.tasks), (SELECT count(*) FROM ratelimit.task_events)")"
	sql -c VACUUM
	is "wave $wave: the tables are empty again" "0 bytes" "$(sql -At -c "$size")"
done
is "everything agrees after two waves" "" "$(sql -At -c "SELECT * FROM rl_verify()")"
