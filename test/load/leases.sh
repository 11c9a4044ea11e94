# shellcheck shell=bash
# Exactness of the leases: 64 sessions over 50 slots.

sql -c 'CREATE TABLE decision (round text, allowed bool)'

grant=$(script grant <<'END'
INSERT INTO decision SELECT :round, allowed FROM rl_reserve('load', :round, 'concurrent', 50, 1, 60, 3600);
END
)
# Takes a slot, looks how many are taken, gives it back (`{NULL}` names no lease).
pass_through=$(script pass_through <<'END'
SELECT coalesce(lease_id::text, 'NULL') AS lease, allowed FROM rl_reserve('load', 'busy', 'concurrent', 50, 1, 60, 3600) \gset
INSERT INTO decision SELECT 'busy', used <= 50 FROM rl_check('load', 'busy', 'concurrent', 50);
SELECT * FROM rl_release(lease_ids => ('{' || :lease || '}')::uuid[]);
END
)

rounds=3
[ -z "${LONG-}" ] || rounds=30
for ((i = 1; i <= rounds; i++)); do
	is "round $i: no error" "" "$(storm "$grant" 4 "round=$i")"
	is "round $i: exactly 50 grants" "50 of 256" "$(sql -c "
		SELECT count(*) FILTER (WHERE allowed) || ' of ' || count(*) FROM decision WHERE round = '$i'")"
done
is "as many leases as grants" $((rounds * 50)) "$(sql -c 'SELECT count(*) FROM ratelimit.leases')"

is "grant and release at once: no error" "" "$(storm "$pass_through" 32)"
is "grant and release at once: never more than 50 live" "2048 of 2048" "$(sql -c "
	SELECT count(*) FILTER (WHERE allowed) || ' of ' || count(*) FROM decision WHERE round = 'busy'")"
is "grant and release at once: every slot is free again" "0" "$(sql -c "
	SELECT used FROM rl_check('load', 'busy', 'concurrent', 50)")"
