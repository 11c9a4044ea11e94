# shellcheck shell=bash
# Exactness of the counters: 64 sessions make 2,048 tries at a key with a limit of 100, and exactly 100 are granted.
# Every round begins with keys that nobody has touched, so that the first touch is contended as well.
#
# The window is the longest there is, so that no test sees it end.

sql -c 'CREATE TABLE decision (round text, allowed bool)'

consume=$(script consume <<'END'
INSERT INTO decision SELECT :round, allowed FROM rl_consume('load', :round, 'requests', 100, 1, 31622400);
END
)
reserve=$(script reserve <<'END'
INSERT INTO decision SELECT :round, allowed FROM rl_reserve('load', :round, 'requests', 100, 1, 31622400);
END
)
three_limits=$(script three_limits <<'END'
INSERT INTO decision
SELECT :round, bool_and(allowed)
  FROM rl_reserve((SELECT jsonb_agg(jsonb_build_object('scope_type', scope_type, 'scope_key', :round::text,
                                                       'metric', 'requests', 'limit', 100,
                                                       'window_seconds', 31622400) ORDER BY random())
                     FROM unnest('{load_key,load_tenant,load_model}'::text[]) AS scope_type));
END
)

exactly_100() {
	is "$1: no error, no deadlock" "" "$(storm "$2" 32 "round=$1")"
	is "$1: exactly 100 grants" "100 of 2048" "$(sql -c "
		SELECT count(*) FILTER (WHERE allowed) || ' of ' || count(*) FROM decision WHERE round = '$1'")"
}

rounds=3
[ -z "${LONG-}" ] || rounds=30
for ((i = 1; i <= rounds; i++)); do
	exactly_100 "consume, round $i" "$consume"
	exactly_100 "reserve, round $i" "$reserve"
	exactly_100 "three limits in random orders, round $i" "$three_limits"
done

is "every counter stands at its limit" "$((rounds * 5)) at 100" "$(sql -c "
	SELECT count(*) || ' at ' || string_agg(DISTINCT (used + reserved)::text, ', ') FROM ratelimit.counters")"
is "a reservation for each unit that was reserved" "$((rounds * 400))" "$(sql -c '
	SELECT count(*) FROM ratelimit.reservations')"
