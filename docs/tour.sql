-- The tour that ./try shows. test/run compares its output with tour.out, all identifiers aside; the clock stands still,
-- so that the rest is the same every time.
\set QUIET on
\set ON_ERROR_STOP on
\pset footer off
\pset pager off
SET timezone = 'UTC';
SET client_min_messages = warning;
\echo '== ratelimit: rate limits inside PostgreSQL, decided and charged in your own transaction =='
\echo
\set ECHO queries
CREATE EXTENSION ratelimit;
\echo
\echo 'So that this tour reads the same at any time of day, it stops the clock at 42 seconds before the full minute.'
\echo
SET ratelimit.clock = '2025-01-01 12:00:18+00';
\echo
\echo '-- 1. An API key with 5 requests a minute'
\echo
\echo 'rl_consume counts one hit and answers whether it fits. The first one does, and 4 are left:'
\echo
SELECT allowed, remaining, reason, retry_after_ms FROM rl_consume('api_key', 'key-1', 'requests', 5);
\echo 'The same call five times more. The sixth hit of this minute is denied: not an error but a row, which says why and'
\echo 'when to ask again. 42,000 ms from now the next minute begins.'
\echo
\pset tuples_only on
\g
\g
\g
\g
\g
\pset tuples_only off
\echo '-- 2. A budget of 10,000 tokens a minute, when the cost is known only afterwards'
\echo
\echo 'Before the call to a language model, rl_reserve sets 1,000 tokens aside and gives an id:'
\echo
SELECT allowed, remaining, reservation_id FROM rl_reserve('api_key', 'key-1', 'tokens', 10000, 1000) \gset
\echo '(allowed:' :allowed', remaining:' :remaining')'
\echo
\echo 'rl_check looks without taking anything: 1,000 are promised, none is spent.'
\echo
SELECT used, reserved, remaining FROM rl_check('api_key', 'key-1', 'tokens', 10000);
\echo 'The call needed 812. rl_commit settles the reservation at that, and the other 188 are free again:'
\echo
SELECT rl_commit(ARRAY[:'reservation_id']::uuid[], '{"tokens": 812}') AS settled;
SELECT used, reserved, remaining FROM rl_check('api_key', 'key-1', 'tokens', 10000);
\echo '-- 3. Several limits in one call, all or nothing'
\echo
\echo 'One request has to fit the key, its tenant and the whole model. The key has no request left in this minute, so'
\echo 'the call is denied; each row tells what its own limit says:'
\echo
SELECT ordinal, scope_type, allowed, reason, retry_after_ms, used, reserved
  FROM rl_reserve('[{"scope_type": "tenant",  "scope_key": "acme",   "metric": "requests", "limit": 100},
                    {"scope_type": "api_key", "scope_key": "key-1",  "metric": "requests", "limit": 5},
                    {"scope_type": "model",   "scope_key": "large",  "metric": "requests", "limit": 1000}]');
\echo 'Nothing was charged to the two limits that had room:'
\echo
SELECT scope_type, used, reserved
  FROM rl_check('[{"scope_type": "tenant", "scope_key": "acme",  "metric": "requests", "limit": 100},
                  {"scope_type": "model",  "scope_key": "large", "metric": "requests", "limit": 1000}]');
\echo '-- 4. Two at a time: concurrency leases'
\echo
\echo 'The metric "concurrent" counts what runs at the same moment instead of what ran in a minute. Two slots:'
\echo
SELECT allowed, used, lease_id AS first_lease FROM rl_reserve('user', 'ada', 'concurrent', 2) \gset
SELECT allowed, used, lease_id AS second_lease FROM rl_reserve('user', 'ada', 'concurrent', 2) \gset
\echo 'Both were granted. The third is denied until one is given back or expires:'
\echo
SELECT allowed, reason, used, retry_after_ms FROM rl_reserve('user', 'ada', 'concurrent', 2);
\echo 'Release the first one, ask again:'
\echo
SELECT leases AS released FROM rl_release(lease_ids => ARRAY[:'first_lease']::uuid[]);
SELECT allowed, used, remaining, lease_expires_at FROM rl_reserve('user', 'ada', 'concurrent', 2);
\echo '-- 5. A provider that answers 429 halfway: adaptive token buckets'
\echo
\echo 'A provider said "8 requests a second" and means something else. A bucket hands out permits and learns: while requests'
\echo 'succeed and more are wanted, the rate climbs; a refusal halves it and stops everything for as long as was asked.'
\echo 'A client asks ten times a second and reports its successes; in second 6 a 429 comes back, "try again in 2 seconds".'
\echo 'Every answer also says from when on each permit may be used.'
\echo
SELECT granted, scheduled_at_ms[2] - server_now_ms AS second_after_ms, effective_rps
  FROM rl_acquire_bucket('provider', '[{"rule_id": "default:chat", "requests_per_window": 8, "window_ms": 1000}]', 2);
CREATE TEMP TABLE story AS SELECT second, 0 AS permits, 0.0::float8 AS rate FROM generate_series(1, 16) AS second;
DO $$
DECLARE
	answer ratelimit.bucket_grant;
BEGIN
	FOR tenth IN 10 .. 169 LOOP
		PERFORM set_config('ratelimit.clock', (timestamptz '2025-01-01 12:00:18+00' + tenth * interval '100 ms')::text, false);
		answer := rl_acquire_bucket('provider', '[{"rule_id": "default:chat", "requests_per_window": 8, "window_ms": 1000}]',
		                            requested => 100, observed_successes => 1);
		UPDATE story SET permits = permits + answer.granted, rate = answer.effective_rps WHERE second = tenth / 10;
		IF tenth = 65 THEN
			PERFORM rl_penalize('provider', 2000);
		END IF;
	END LOOP;
END $$;
\echo 'The rate before and after, second by second, each # a permit. It doubles until the first refusal and then climbs by'
\echo 'one a second, so that many clients who share a limit they do not know end up with fair shares of it:'
\echo
SELECT second, round(rate::numeric, 1) AS rate, rpad(repeat('#', permits), 66) || CASE second WHEN 6 THEN '<- 429' ELSE '' END AS permits
  FROM story ORDER BY second;
\echo 'What the bucket knows now:'
\echo
SELECT rule_id, round(tokens::numeric, 1) AS tokens, refill_rps, base_rps, max_rps, backpressure_seen FROM ratelimit.bucket_state;
\echo '-- 6. Five tasks over two slots: the admission queue'
\echo
\echo 'A provider allows two calls at once. Five tasks ask for a slot; those that get none wait in line, in the database:'
\echo
SET ratelimit.clock = '2025-01-01 12:05:00+00';
SELECT task_id, status, blockers FROM unnest('{a,b,c,d,e}'::text[]) AS name,
  rl_enqueue(name, '[{"scope_type": "provider", "scope_key": "slow", "limit": 2, "queue_limit": 10}]', priority => (name = 'e')::int * -1);
CREATE TEMP VIEW picture AS
SELECT rpad(coalesce(string_agg('[' || task_id || ']', '' ORDER BY admitted_at, task_id) FILTER (WHERE admitted), ''), 6, '[ ]') AS slots,
       string_agg(task_id, ' ' ORDER BY priority, enqueued_at, task_id) FILTER (WHERE status = 'waiting') AS line
  FROM unnest('{a,b,c,d,e}'::text[]) AS name, rl_status(name);
SELECT * FROM picture;
\echo 'A job runner dispatches: the first two in line go, and "e" is one of them, for it came with a better priority.'
\echo
SELECT ordinal, task_id, cardinality(lease_ids) AS leases FROM rl_dispatch();
SELECT * FROM picture;
\echo 'Nothing more fits until somebody is done. "e" ends, and the next in line goes:'
\echo
SELECT rl_cancel('e', 'done'), (SELECT string_agg(task_id, ' ') FROM rl_dispatch()) AS dispatched;
SELECT * FROM picture;
\echo '"c" cannot go for a reason of its own, so it is put aside for five seconds; "d" passes it when "a" is done:'
\echo
SELECT rl_defer('c', 'provider_error', 5000);
SELECT rl_cancel('a', 'done'), (SELECT string_agg(task_id, ' ') FROM rl_dispatch()) AS dispatched;
SELECT * FROM picture;
\echo 'Five seconds later "c" is back at its old place, and goes as soon as a slot is free:'
\echo
SET ratelimit.clock = '2025-01-01 12:05:05+00';
SELECT rl_cancel('b', 'done'), (SELECT string_agg(task_id, ' ') FROM rl_dispatch()) AS dispatched;
SELECT * FROM picture;
\echo 'A client that would rather sleep than ask again makes one call, which returns when its turn comes, or when its patience'
\echo 'ends. This one has none, so it is one try, and the line is as clean as before:'
\echo
CALL rl_admit_wait('f', '[{"scope_type": "provider", "scope_key": "slow", "limit": 2, "queue_limit": 10}]', max_wait => '0') \gset
SELECT task_id, status, reason FROM rl_status('f');
\echo 'The whole line in one row, for a dashboard:'
\echo
SELECT * FROM ratelimit.queue_metrics;
\echo
\echo '-- 7. A worker dies, its task comes back'
\echo
\echo 'Worker w1 takes a task, promises 100 tokens for it, and is never heard of again:'
\echo
SELECT status FROM rl_enqueue('report', '[{"scope_type": "provider", "scope_key": "fast", "limit": 1, "queue_limit": 10}]');
SELECT task_id FROM rl_dispatch();
SELECT rl_worker_heartbeat('w1');
SELECT execution_token AS old_token, attempt_no FROM rl_start('report', 'w1', execution_ttl_seconds => 30) \gset
SELECT allowed FROM rl_reserve('user', 'ada', 'tokens', 1000, 100, task_id => 'report');
\echo 'Two minutes later recovery takes the task back, with everything that it held. The background worker does this by itself:'
\echo
SET ratelimit.clock = '2025-01-01 12:07:05+00';
SELECT released_concurrency_leases AS leases, released_rate_reservations AS reservations, failed_attempts, requeued_async_tasks AS requeued FROM rl_recover();
\echo 'w2 gets it. Should w1 wake up after all, its token is worth nothing:'
\echo
SELECT rl_worker_heartbeat('w2');
SELECT task_id FROM rl_dispatch();
SELECT execution_token AS token, attempt_no FROM rl_start('report', 'w2') \gset
SELECT :attempt_no AS attempt_no, rl_finish('report', :'old_token', 'failed') AS finished_by_w1, rl_finish('report', :'token', 'succeeded') AS finished_by_w2;
SELECT seq, event_type, at FROM rl_take_events(1000) WHERE task_id = 'report';
\echo 'And every sum agrees with the rows under it:'
\echo
SELECT * FROM rl_verify();
