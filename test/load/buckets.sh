# shellcheck shell=bash
# Exactness of the buckets: with a clock that stands still a bucket of N tokens gives exactly N permits, however many
# sessions ask, also while a reaper that takes every full row for idle deletes it under their hands.

sql -c 'CREATE TABLE permit (round text, bucket text, granted int)'
export PGOPTIONS="${PGOPTIONS-} -c ratelimit.clock=2030-01-01"

# Three to one: one rule, or the same with a larger one beside it; both take from the first.
one_rule=$(script one_rule <<'END'
\set beside random(0, 3)
INSERT INTO permit SELECT :round, 'hot', granted FROM rl_acquire_bucket('hot', (
	SELECT jsonb_agg(jsonb_build_object('rule_id', id, 'requests_per_window', n, 'window_ms', 60000))
	FROM (VALUES ('a', 1000), ('b', 5000)) rule (id, n) WHERE id = 'a' OR :beside = 0), 1 + :beside);
END
)
is "one bucket: no error" "" "$(storm "$one_rule" 32 round=hot)"
is "one bucket: exactly its 1000 permits" "1000 of 2048" "$(sql -c "
	SELECT sum(granted) || ' of ' || count(*) FROM permit WHERE round = 'hot'")"
is "one bucket: the rule beside it paid for its own" "t" "$(sql -c "
	SELECT bool_and(CASE rule_id WHEN 'a' THEN tokens = 0 ELSE tokens > 4000 AND tokens < 5000 END) FROM ratelimit.bucket_state")"

# Every round is a year later, so that all buckets are full again and idle as far as the reaper can see.
buckets=300
acquire=$(script acquire <<'END'
\set bucket random(1, :buckets)
INSERT INTO permit SELECT :round, :bucket, granted FROM rl_acquire_bucket(:bucket::text,
	'[{"rule_id": "r", "requests_per_window": 2, "window_ms": 1000}]');
END
)
reap=$(script reap <<<'SELECT ratelimit.reap_buckets(100, 0);')
spare=$(script spare <<'END'
BEGIN;
SELECT ratelimit.reap_buckets(100, 0);
ROLLBACK;
END
)
rounds=10
[ -z "${LONG-}" ] || rounds=100
for ((i = 1; i <= rounds; i++)); do
	PGOPTIONS="-c ratelimit.clock=$((2030 + i))-01-01"
	# shellcheck disable=SC2154 # pg_bin is set where this file is read
	is "against the reaper, round $i: no error" "" "$(as_server "$pg_bin/pgbench" -n -M prepared -c 16 -j 2 -t 80 \
		-D "round=$i" -D "buckets=$buckets" -f "$acquire@6" -f "$reap@1" -f "$spare@1" 2>&1 | grep -iE 'error|aborted' || true)"
	# What is left in the end, so that a permit that was lost shows as well.
	sql -c "INSERT INTO permit SELECT $i, b, granted FROM generate_series(1, $buckets) b,
		LATERAL rl_acquire_bucket(b::text, '[{\"rule_id\": \"r\", \"requests_per_window\": 2, \"window_ms\": 1000}]', 2)"
done
is "against the reaper: every bucket gave exactly its 2 permits in every round" "$((rounds * buckets)) times 2" "$(sql -c "
	SELECT string_agg(count || ' times ' || sum, ', ' ORDER BY sum) FROM (SELECT sum, count(*) FROM (
		SELECT sum(granted) FROM permit WHERE round <> 'hot' GROUP BY round, bucket) given GROUP BY 1) counted")"
unset PGOPTIONS
