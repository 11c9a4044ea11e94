# shellcheck shell=bash
# Upkeep, for bench/run: how many rows a second rl_reap and rl_recover get through when 100,000 are due.

upkeep_rows_due=100000
upkeep_calls=('reap 100,000 expired leases' 'reap 100,000 open reservations' 'reap 100,000 idle counters' 'recover 100,000 tasks'
	'verify 100,000 tasks')

# Committed every 500, as a queue is filled in use: one transaction of 100,000 would drag its own dead rows along.
upkeep_fill_tasks="DO \$\$ DECLARE scopes jsonb; BEGIN
	FOR i IN 1 .. $upkeep_rows_due LOOP
		scopes := jsonb_build_array(jsonb_build_object('scope_type', 's', 'scope_key', (i % 100)::text, 'limit', 1e9, 'queue_limit', NULL));
		PERFORM rl_admit(i::text, scopes, 'async'), rl_start(i::text, 'dead', 1);
		IF i % 500 = 0 THEN COMMIT; END IF;
	END LOOP;
END \$\$"

# In a database of its own, at a fixed time; then the clock is moved on and the call repeated until nothing is left.
upkeep_setup_of() {
	case $1 in
	*leases) echo "SELECT count(rl_reserve('k', (i % 100)::text, 'concurrent', 1e9, lease_ttl_seconds => 1)) FROM generate_series(1, :n) i" ;;
	*reservations) echo "SELECT count(rl_reserve('k', (i % 100)::text, 'rpm', 1e9)) FROM generate_series(1, :n) i" ;;
	*counters) echo "SELECT count(rl_consume('k', i::text, 'rpm', 1)) FROM generate_series(1, :n) i" ;;
	*tasks) echo "$upkeep_fill_tasks" ;;
	esac
}

upkeep_call_of() {
	case $1 in
	reap*) echo 'DO $$ DECLARE r record; BEGIN LOOP r := rl_reap(500); COMMIT; EXIT WHEN r = ROW(0, 0, 0, 0, 0); END LOOP; END $$' ;;
	recover*) echo 'DO $$ DECLARE r ratelimit.recovery; BEGIN LOOP r := rl_recover(500); COMMIT; EXIT WHEN r.failed_attempts = 0; END LOOP; END $$' ;;
	verify*) echo 'SELECT count(*) FROM rl_verify()' ;;
	esac
}

upkeep_rows() {
	local row began ended
	heading '| upkeep, one session | rows a second |' "${upkeep_calls[@]}" || return 0
	for row in "${upkeep_calls[@]}"; do
		is_wanted "$row" || continue
		sql -d postgres -c "SET client_min_messages = error" -c 'DROP DATABASE IF EXISTS upkeep' -c 'CREATE DATABASE upkeep'
		{
			printf "CREATE EXTENSION ratelimit;\nSET ratelimit.clock = '2030-01-01 00:00:00+00';\n"
			upkeep_setup_of "$row"
			printf ';\nVACUUM ANALYZE;\n'
		} | sql -d upkeep -v n="$upkeep_rows_due" >/dev/null
		began=$(date +%s%N)
		printf "SET ratelimit.clock = '2030-01-01 04:00:00+00';\nSET ratelimit.idle_retention = '1h';\n%s;\n" "$(upkeep_call_of "$row")" |
			sql -d upkeep >/dev/null
		ended=$(date +%s%N)
		printf '| %s | %d |\n' "$row" $((upkeep_rows_due * 1000000 / ((ended - began) / 1000 + 1)))
	done
}
