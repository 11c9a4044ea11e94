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
