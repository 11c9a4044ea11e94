-- Calls over several limits: all or nothing, the rows in the order of the request.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
-- Denied when one of them denies, wherever it stands; nothing is changed then.
SELECT allowed FROM rl_consume('key', 'full', 'rpm', 1);
SELECT test.contents() AS before \gset
SELECT ordinal, allowed, reason, retryable, retry_after_ms, scope_key, used, remaining
FROM rl_reserve(test.list(test.limit('full', 'rpm', 1), test.limit('a', 'rpm', 5), test.limit('b', 'rpm', 5)));
SELECT ordinal, allowed, reason, retryable, retry_after_ms, scope_key, used, remaining
FROM rl_consume(test.list(test.limit('a', 'rpm', 5), test.limit('b', 'rpm', 5), test.limit('full', 'rpm', 1)));
SELECT ordinal, allowed, reason FROM rl_reserve(test.list(test.limit('a', 'rpm', 5), test.limit('b', 'rpm', 0)));
SELECT ordinal, allowed, reason FROM rl_reserve(test.list(test.limit('a', 'rpm', 5, 6), test.limit('b', 'rpm', 5)));
SELECT test.contents() = :'before' AS nothing_written;
-- Granted when all grant. The order of the rows is that of the request, not that of the keys.
SELECT ordinal, allowed, reason, scope_key, metric, amount, remaining, reservation_id IS NOT NULL AS reservation
FROM rl_reserve(test.list(test.limit('z', 'rpm', 5), test.limit('a', 'tpm', 5, 2), test.limit('a', 'rpm', 5, 3), test.limit('B', 'rpm', NULL)));
SELECT scope_key, metric, used, reserved FROM ratelimit.counters ORDER BY scope_key, metric;
-- Without ORDER BY as well.
SELECT array_agg(ordinal) = array_agg(ordinal ORDER BY ordinal) AS in_order, count(*)
FROM rl_check((SELECT jsonb_agg(test.limit((1000 - i)::text, 'rpm', 5)) FROM generate_series(1, 50) i));
-- A repeated key: the amounts add up, each element compares the sum with its own limit and gets its own reservation.
SELECT ordinal, allowed, reason, amount, used, reserved, remaining, reservation_id IS NOT NULL AS reservation
FROM rl_reserve(test.list(test.limit('r', 'rpm', 10, 2), test.limit('r', 'rpm', 6, 3)));
SELECT used, reserved FROM ratelimit.counters WHERE scope_key = 'r';
SELECT amount, limit_value FROM ratelimit.reservations WHERE scope_key = 'r' ORDER BY amount;
-- The sum of 5 does not fit beside 5 in a limit of 8, though each alone would.
SELECT ordinal, allowed, reason, retry_after_ms, amount, reserved, remaining
FROM rl_reserve(test.list(test.limit('r', 'rpm', 10, 2), test.limit('r', 'rpm', 8, 3)));
-- The sum exceeds one of the limits: that one can never be granted.
SELECT ordinal, allowed, reason, retryable, retry_after_ms, amount, reserved, remaining
FROM rl_reserve(test.list(test.limit('r', 'rpm', 20, 4), test.limit('r', 'rpm', 7, 4)));
SELECT ordinal, allowed, amount, reserved, remaining
FROM rl_consume(test.list(test.limit('r', 'rpm', 10, 2), test.limit('r', 'rpm', 9, 1), test.limit('r', 'rpm', 8, 0)));
SELECT used, reserved FROM ratelimit.counters WHERE scope_key = 'r';
SELECT ordinal, allowed, used, reserved, remaining FROM rl_check(test.list(test.limit('r', 'rpm', 10), test.limit('r', 'rpm', 10)));
-- Another window is another key, and so is an unlimited element: they do not add up.
SELECT ordinal, allowed, amount, reset_at - window_start AS length, remaining
FROM rl_consume(test.list(test.limit('s', 'rpm', 3, 2), test.limit('s', 'rpm', 3, 2, '{"window_seconds": 3600}'), test.limit('s', 'rpm', NULL, 9)));
-- A thousand elements of one key.
SELECT count(*), bool_and(allowed) AS allowed, min(remaining) AS least, max(remaining) AS most, count(DISTINCT reservation_id) AS ids
FROM rl_reserve((SELECT jsonb_agg(test.limit('t', 'rpm', 1000)) FROM generate_series(1, 1000)));
SELECT used, reserved FROM ratelimit.counters WHERE scope_key = 't';
SELECT count(*), bool_or(allowed) AS allowed, array_agg(DISTINCT reason) AS reasons
FROM rl_consume((SELECT jsonb_agg(test.limit('t', 'rpm', 999)) FROM generate_series(1, 1000)));
-- 1,000 keys in one call, and not one more.
SELECT count(*), bool_and(allowed) AS allowed, count(DISTINCT ordinal) AS ordinals, max(ordinal) AS last
FROM rl_consume((SELECT jsonb_agg(test.limit('u' || i, 'rpm', 1)) FROM generate_series(1, 1000) i));
SELECT count(*), bool_or(allowed) AS allowed, count(reason) AS reasons
FROM rl_consume((SELECT jsonb_agg(test.limit('u' || i, 'rpm', 1)) FROM generate_series(1000, 1, -1) i));
\pset format unaligned
\t on
SELECT f, test.error(format('SELECT %I((SELECT jsonb_agg(test.limit(''v'' || i, ''rpm'', 1)) FROM generate_series(1, 1001) i))', f))
FROM unnest('{rl_check,rl_consume,rl_reserve}'::text[]) f;
\t off
\pset format aligned
SELECT count(*) AS counters FROM ratelimit.counters WHERE scope_key LIKE 'v%';
-- An empty list returns no row and counts as allowed: with a request_id it is remembered like every granted call.
SELECT * FROM rl_check('[]');
SELECT * FROM rl_consume('[]');
SELECT ordinal, allowed FROM rl_reserve('[]', 'task', 'empty');
SELECT request_id FROM ratelimit.requests;
SELECT ordinal, allowed FROM rl_reserve('[]', 'task', 'empty');
SELECT left(test.error($$SELECT rl_reserve(test.list(test.limit('w', 'rpm', 1)), 'task', 'empty')$$), 5) AS sqlstate;
-- Only elements that are not enforced: allowed, a row each, nothing written.
SELECT test.contents() AS before \gset
SELECT ordinal, allowed, reason, used, remaining, reservation_id, lease_id
FROM rl_reserve(test.list(test.limit('x', 'rpm', NULL), test.limit('x', 'queue_size', 5), test.limit('x', 'rpm', 5, 0)));
SELECT test.contents() = :'before' AS nothing_written;
SELECT * FROM test.problems();
