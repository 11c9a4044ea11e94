-- rl_acquire_bucket and rl_penalize: every number below follows from the formulas of the contract, by hand.
CALL test.begin();
CREATE FUNCTION test.rule(rule_id text, requests float8, window_ms int8, more jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('rule_id', rule_id, 'requests_per_window', requests, 'window_ms', window_ms) || more
$$;
CREATE FUNCTION test.rules(VARIADIC jsonb[]) RETURNS jsonb LANGUAGE sql AS 'SELECT jsonb_agg(r) FROM unnest($1) r';
-- A grant with all instants as milliseconds since the clock of this file began.
CREATE FUNCTION test.acquire(bucket_id text, rules jsonb, requested int DEFAULT 1, successes int DEFAULT 0,
	OUT granted int, OUT wait_ms int8, OUT now_ms int8, OUT scheduled int8[], OUT rps float8, OUT cool int8, OUT retry int8)
LANGUAGE sql AS $$
	SELECT g.granted, g.wait_ms, g.server_now_ms - 1893456000000,
		ARRAY(SELECT s - 1893456000000 FROM unnest(g.scheduled_at_ms) s), g.effective_rps,
		g.cool_until_ms - 1893456000000, g.claimed_retry_at_ms - 1893456000000
	FROM rl_acquire_bucket(bucket_id, rules, requested, successes) g
$$;
CREATE FUNCTION test.state(bucket text) RETURNS TABLE (rule_id text, tokens float8, capacity float8, refill float8,
	base float8, min float8, max float8, ceiling bool, seen bool, dispatch text, cool text) LANGUAGE sql AS $$
	SELECT rule_id, round(tokens::numeric, 6)::float8, capacity, refill_rps, base_rps, min_rps, max_rps, ceiling_configured,
		backpressure_seen, to_char(next_dispatch_at, 'HH24:MI:SS.MS'), to_char(cool_until, 'HH24:MI:SS.MS')
	FROM ratelimit.bucket_state WHERE bucket_id = bucket ORDER BY rule_id
$$;
-- 3 requests per 10 s: capacity 3, base 0.3/s. A new bucket is full; permits are spaced by 1000 / (0.3 x 0.8) = 4166.67,
-- rounded up, since below 100/s there is a margin of 20 %.
SET ratelimit.clock = '2030-01-01 00:00:00+00';
\x on
SELECT granted, wait_ms, server_now_ms, lease_ids, scheduled_at_ms, effective_rps, cool_until_ms, claimed_retry_at_ms
FROM rl_acquire_bucket('a', test.rules(test.rule('r', 3, 10000)), 5);
\x off
-- Empty: one token takes 1 / 0.3 s = 3333.33 ms, rounded up.
SELECT granted, wait_ms, scheduled, rps FROM test.acquire('a', test.rules(test.rule('r', 3, 10000)));
-- One millisecond too early, then exactly then. The first three occupy the time until 3 x 4167 = 12501.
SET ratelimit.clock = '2030-01-01 00:00:03.333+00';
SELECT granted, wait_ms, scheduled FROM test.acquire('a', test.rules(test.rule('r', 3, 10000)));
SET ratelimit.clock = '2030-01-01 00:00:03.334+00';
SELECT granted, wait_ms, scheduled FROM test.acquire('a', test.rules(test.rule('r', 3, 10000)));
SELECT * FROM test.state('a');
-- A clock set back gives nothing, and the wait includes the way back: 3333 ms, and 3333 more for (1 - 0.0002) / 0.3.
SET ratelimit.clock = '2030-01-01 00:00:00.001+00';
SELECT granted, now_ms, wait_ms FROM test.acquire('a', test.rules(test.rule('r', 3, 10000)));
-- Spent at once: a rollback gives nothing back, of a row that was there before.
SET ratelimit.clock = '2030-01-01 01:00:00+00';
BEGIN;
SELECT granted FROM test.acquire('a', test.rules(test.rule('r', 3, 10000)), 2);
ROLLBACK;
SELECT granted FROM test.acquire('a', test.rules(test.rule('r', 3, 10000)), 2);
-- The first acquire of a new bucket belongs to its transaction, also to a savepoint.
BEGIN;
SAVEPOINT s;
SELECT granted FROM test.acquire('undone', test.rules(test.rule('r', 3, 10000)), 2);
ROLLBACK TO s;
SELECT count(*) AS rows FROM test.state('undone');
SELECT granted FROM test.acquire('undone', test.rules(test.rule('r', 3, 10000)), 3);
ROLLBACK;
SELECT count(*) AS rows FROM test.state('undone');
-- Many a second: 1,000/s go out in bursts of floor(1000 / 100) = 10, every 10 ms.
SELECT granted, scheduled[1] - now_ms AS first, scheduled[10] - now_ms AS tenth, scheduled[11] - now_ms AS eleventh,
	scheduled[25] - now_ms AS last
FROM test.acquire('fast', test.rules(test.rule('r', 1000, 1000)), 25);
-- Several rules: all agree and all pay; the slowest sets the pace. Order by bytes of the id, not by place.
SET ratelimit.clock = '2030-01-01 00:00:00+00';
SELECT granted, scheduled, rps FROM test.acquire('two', test.rules(test.rule('z', 10, 1000), test.rule('Z', 2, 1000)), 5);
SELECT * FROM test.state('two');
-- A rule more: a new row, full; the others keep what is left.
SELECT granted, wait_ms FROM test.acquire('two', test.rules(test.rule('z', 10, 1000), test.rule('new', 1, 1000)), 5);
SELECT rule_id, tokens FROM test.state('two');
-- A refusal: half the rate, no tokens, 30 s of silence, for every rule of the bucket. Once per cooldown.
SELECT rl_penalize('two', 30000) AS changed;
SELECT rl_penalize('two', 40000) AS changed;
SELECT * FROM test.state('two');
SELECT granted, wait_ms, rps, cool, retry FROM test.acquire('two', test.rules(test.rule('z', 10, 1000)));
-- More than 45 minutes are only told, not obeyed; nothing and nobody change nothing.
SELECT rl_penalize('two', 3600000) AS changed, rl_penalize('two', 0) AS nothing, rl_penalize('two', -5) AS less, rl_penalize('nobody', 1000) AS unknown;
SELECT cool, retry FROM test.acquire('two', test.rules(test.rule('z', 10, 1000)));
SELECT rl_penalize('two', 9223372036854775807) AS saturated;
SELECT claimed_retry_at FROM ratelimit.bucket_state WHERE bucket_id = 'two' LIMIT 1;
-- After the cooldown a permit goes out at its end at the earliest; the rate climbs only with successes, by max(1, base / 10),
-- when the bucket is less than half full and a second has passed.
SET ratelimit.clock = '2030-01-01 00:45:00+00';
SELECT granted, wait_ms, rps FROM test.acquire('two', test.rules(test.rule('z', 10, 1000)), 1, 0);
SELECT granted, wait_ms, rps FROM test.acquire('two', test.rules(test.rule('z', 10, 1000)), 1, 7);
SET ratelimit.clock = '2030-01-01 00:45:00.500+00';
SELECT granted, rps FROM test.acquire('two', test.rules(test.rule('z', 10, 1000)), 10, 7);
SET ratelimit.clock = '2030-01-01 00:45:01+00';
SELECT granted, rps FROM test.acquire('two', test.rules(test.rule('z', 10, 1000)), 10, 7);
-- Before any refusal it doubles, up to 25 times the base for a rule whose id says default:.
SET ratelimit.clock = '2030-01-01 00:00:00+00';
SELECT granted FROM test.acquire('up', test.rules(test.rule('default:x', 1, 1000)), 1, 1);
SET ratelimit.clock = '2030-01-01 00:00:01+00';
SELECT granted, rps FROM test.acquire('up', test.rules(test.rule('default:x', 1, 1000)), 1, 1);
SELECT granted, rps FROM test.acquire('up', test.rules(test.rule('default:x', 1, 1000)), 1, 1);
SELECT max FROM test.state('up');
-- The configuration travels with the call; what was learned stays, within the new bounds.
SELECT rps FROM test.acquire('up', test.rules(test.rule('default:x', 10, 1000)));
SELECT * FROM test.state('up');
SELECT rps FROM test.acquire('up', test.rules(test.rule('default:x', 1, 10000)));
SELECT * FROM test.state('up');
-- A ceiling of its own; the key alone configures it; a call without the key keeps the stored one.
SELECT max, ceiling FROM test.acquire('c', test.rules(test.rule('r', 2, 1000, '{"adaptive_max_rps": 5}'))), test.state('c');
SELECT max, ceiling FROM test.acquire('c', test.rules(test.rule('r', 2, 1000))), test.state('c');
SELECT max, ceiling FROM test.acquire('c', test.rules(test.rule('r', 2, 1000, '{"adaptive_max_rps": null}'))), test.state('c');
-- No rules; the order of keys and white space in rules do not matter, nor do NULLs where there is a default.
SELECT granted, wait_ms, scheduled, rps, cool + 1893456000000 AS cool FROM test.acquire('none', '[]');
SELECT granted FROM rl_acquire_bucket('n', '[ {"window_ms": 1000, "rule_id": "r", "max_concurrency": null, "requests_per_window": 1e0} ]', NULL, NULL);
-- Any bytes make an id.
SELECT granted FROM rl_acquire_bucket(E'a\tb''"', test.rules(test.rule('ü', 1, 1000), test.rule(repeat('x', 512), 1, 1000)));
SELECT length(rule_id), tokens FROM test.state(E'a\tb''"');
-- The table cannot be rewritten, by the owner either, in no session_replication_role.
\set VERBOSITY terse
SET session_replication_role = replica;
UPDATE ratelimit.buckets SET tokens = capacity;
UPDATE ratelimit.buckets SET tokens = capacity WHERE false;
TRUNCATE ratelimit.buckets;
INSERT INTO ratelimit.buckets SELECT * FROM ratelimit.buckets ON CONFLICT (bucket_id, rule_id) DO UPDATE SET tokens = 0;
RESET session_replication_role;
\set VERBOSITY default
UPDATE ratelimit.buckets SET tokens = capacity;
-- Deleting is allowed: the bucket is forgotten. In the same transaction it is born anew.
BEGIN;
DELETE FROM ratelimit.buckets WHERE bucket_id = 'a';
SELECT granted FROM test.acquire('a', test.rules(test.rule('r', 3, 10000)), 5);
DELETE FROM ratelimit.buckets WHERE bucket_id = 'a';
SELECT granted FROM test.acquire('a', test.rules(test.rule('r', 3, 10000)), 5);
ROLLBACK;
SELECT granted FROM test.acquire('a', test.rules(test.rule('r', 3, 10000)), 5);
-- The reaper's part: full, not cooling, nothing scheduled any more, and not used for the time given.
DELETE FROM ratelimit.buckets;
SET ratelimit.clock = '2030-01-01 00:00:00+00';
SELECT granted FROM test.acquire('idle', test.rules(test.rule('r', 1, 10000)));
SELECT granted FROM test.acquire('cooling', test.rules(test.rule('r', 1, 10000)));
SELECT rl_penalize('cooling', 60000);
SET ratelimit.clock = '2030-01-01 00:00:12.499+00';
SELECT ratelimit.reap_buckets(10, 0);
SET ratelimit.clock = '2030-01-01 00:00:12.500+00';
SELECT ratelimit.reap_buckets(10, 20000);
BEGIN;
SELECT ratelimit.reap_buckets(10, 0);
SELECT bucket_id FROM ratelimit.bucket_state ORDER BY 1;
-- Created anew by the reaper's own transaction, full.
SELECT granted FROM test.acquire('idle', test.rules(test.rule('r', 1, 10000)));
ROLLBACK;
-- Spared by the rollback, but marked: the next acquire clears the mark.
SELECT bucket_id, retired FROM ratelimit.buckets ORDER BY 1;
SELECT granted, scheduled FROM test.acquire('idle', test.rules(test.rule('r', 1, 10000)), 2);
SELECT bucket_id, retired FROM ratelimit.buckets ORDER BY 1;
SET ratelimit.clock = '2030-01-02 00:00:00+00';
BEGIN;
SELECT ratelimit.reap_buckets(10, 0);
ROLLBACK;
SELECT rl_penalize('idle', 5000);
SELECT bucket_id, retired FROM ratelimit.buckets ORDER BY 1;
SELECT ratelimit.reap_buckets(1, 0), ratelimit.reap_buckets(1, 0);
SELECT bucket_id FROM ratelimit.buckets ORDER BY 1;
-- DROP and CREATE EXTENSION in one session: no stale table is written to.
BEGIN;
DROP EXTENSION ratelimit CASCADE;
CREATE EXTENSION ratelimit;
SELECT granted FROM rl_acquire_bucket('a', '[{"rule_id": "r", "requests_per_window": 3, "window_ms": 10000}]', 5);
SELECT bucket_id, tokens FROM ratelimit.buckets;
ROLLBACK;
SELECT bucket_id FROM ratelimit.buckets ORDER BY 1;
SELECT * FROM test.problems();
