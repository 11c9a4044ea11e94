-- rl_reap: removes what is over, each kind at the very instant and bounded by the batch.
CALL test.begin();
DELETE FROM ratelimit.buckets;
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT * FROM rl_reap();
-- Leases: over at the very instant of their expiry, whoever looks.
SELECT lease_id AS a FROM rl_reserve('key', 'a', 'concurrent', 9, 2, lease_ttl_seconds => 10) \gset
SELECT allowed FROM rl_reserve('key', 'a', 'concurrent', 9, 3, lease_ttl_seconds => 20);
SELECT allowed FROM rl_reserve('key', 'b', 'concurrent', 9, 1, lease_ttl_seconds => 10);
SET ratelimit.clock = '2030-01-01 00:00:19.999999+00';
SELECT expired_leases FROM rl_reap();
SET ratelimit.clock = '2030-01-01 00:00:20+00';
SELECT * FROM rl_reap();
SELECT scope_key, leased, lease_count, expires_from FROM ratelimit.scopes ORDER BY scope_key;
SELECT scope_key, amount FROM ratelimit.leases;
SELECT renewed FROM rl_renew(ARRAY[:'a']::uuid[]);
SELECT * FROM rl_reap();
-- Bounded by the batch, oldest first.
SELECT count(*) FROM generate_series(1, 5) i, rl_reserve('key', 'c' || i % 2, 'concurrent', 9, lease_ttl_seconds => 10 + i);
SET ratelimit.clock = '2030-01-01 00:00:34+00';
SELECT expired_leases FROM rl_reap(2);
SELECT scope_key, expires_at FROM ratelimit.leases ORDER BY expires_at;
SELECT expired_leases FROM rl_reap(2);
SELECT expired_leases FROM rl_reap(2);
SELECT scope_key, leased, lease_count, expires_from FROM ratelimit.scopes WHERE scope_key LIKE 'c%' ORDER BY scope_key;
SET ratelimit.clock = '2030-01-01 00:00:35+00';
SELECT expired_leases FROM rl_reap(2);
SELECT * FROM test.problems();
-- Reservations: an hour after their window, not after they were made.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT reservation_id AS a FROM rl_reserve('key', 'a', 'rpm', 9, 2) \gset
SELECT reservation_id AS b FROM rl_reserve('key', 'a', 'rpm', 9, 3) \gset
SELECT rl_commit(ARRAY[:'b']::uuid[]);
SELECT allowed FROM rl_reserve('key', 'hour', 'rph', 9, 4, 3600);
SET ratelimit.clock = '2030-01-01 01:00:59.999999+00';
SELECT expired_reservations, deleted FROM rl_reap();
SET ratelimit.clock = '2030-01-01 01:01:00+00';
SELECT expired_reservations FROM rl_reap();
SELECT scope_key, amount, status, actual_amount, reason, finalized_at FROM ratelimit.reservations ORDER BY scope_key;
SELECT scope_key, window_start, used, reserved FROM ratelimit.counters ORDER BY scope_key;
SELECT rl_commit(ARRAY[:'a']::uuid[]), reservations FROM rl_release(ARRAY[:'a']::uuid[]);
-- What the counter holds of a newer window stays.
SET ratelimit.clock = '2030-01-01 01:02:10+00';
SELECT allowed FROM rl_reserve('key', 'new', 'rpm', 9, 2);
SET ratelimit.clock = '2030-01-01 02:02:10+00';
SELECT allowed FROM rl_reserve('key', 'new', 'rpm', 9, 5);
SET ratelimit.clock = '2030-01-01 02:03:00+00';
SELECT expired_reservations FROM rl_reap();
SELECT window_start, used, reserved FROM ratelimit.counters WHERE scope_key = 'new';
-- The grace is a setting, and so is what is left of a reservation that was released.
SET ratelimit.reservation_grace = 0;
SET ratelimit.retention = 0;
SELECT expired_reservations FROM rl_reap();
SELECT count(*) FROM ratelimit.reservations WHERE reason = 'expired';
RESET ratelimit.reservation_grace;
RESET ratelimit.retention;
SELECT * FROM test.problems();
-- Bounded by the batch, several windows of one key, and one whose counter is gone.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT count(*) FROM generate_series(1, 3) i, rl_reserve('key', 'a', 'rpm', 9 + i);
SET ratelimit.clock = '2030-01-01 00:01:10+00';
SELECT count(*) FROM generate_series(1, 2) i, rl_reserve('key', 'a', 'rpm', 9 + i);
SELECT allowed FROM rl_reserve('key', 'b', 'rpm', 9);
DELETE FROM ratelimit.counters WHERE scope_key = 'b';
SET ratelimit.clock = '2030-01-01 01:02:00+00';
SELECT expired_reservations FROM rl_reap(4);
SELECT window_start, reserved FROM ratelimit.counters;
SELECT expired_reservations FROM rl_reap(4);
SELECT expired_reservations FROM rl_reap(4);
SELECT window_start, reserved FROM ratelimit.counters;
SELECT * FROM test.problems();
-- Finished rows: deleted an hour after they were settled, whatever became of them.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT array_agg(reservation_id) AS ids FROM generate_series(1, 4) i, rl_reserve('key', 'a' || i, 'rpm', 9) \gset
SET ratelimit.clock = '2030-01-01 00:00:20+00';
SELECT rl_commit((:'ids'::uuid[])[1:2]);
SELECT reservations FROM rl_release((:'ids'::uuid[])[3:3]);
SET ratelimit.clock = '2030-01-01 01:00:19.999999+00';
SELECT deleted FROM rl_reap();
SET ratelimit.clock = '2030-01-01 01:00:20+00';
SELECT deleted FROM rl_reap(2);
SELECT deleted FROM rl_reap(2);
SELECT status FROM ratelimit.reservations;
SELECT rl_commit((:'ids'::uuid[]));
-- Requests: kept for an hour, and as long as something of theirs is left.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT allowed FROM rl_reserve(test.list(test.limit('a', 'rpm', 0, 0)), request_id => 'nothing');
SELECT reservation_id AS a FROM rl_reserve('key', 'a', 'rpm', 9, request_id => 'window') \gset
SELECT lease_id AS b FROM rl_reserve('key', 'b', 'concurrent', 9, lease_ttl_seconds => 7201, request_id => 'lease') \gset
SET ratelimit.clock = '2030-01-01 01:00:09.999999+00';
SELECT deleted FROM rl_reap();
SET ratelimit.clock = '2030-01-01 01:00:10+00';
SELECT deleted FROM rl_reap();
SELECT request_id FROM ratelimit.requests ORDER BY request_id;
SELECT rl_commit(ARRAY[:'a']::uuid[]);
-- The same id still gives the same reservation.
SELECT reservation_id = :'a' AS same FROM rl_reserve('key', 'a', 'rpm', 9, request_id => 'window');
SET ratelimit.clock = '2030-01-01 02:00:09.999999+00';
SELECT deleted FROM rl_reap();
SET ratelimit.clock = '2030-01-01 02:00:10+00';
SELECT deleted FROM rl_reap();
SELECT request_id FROM ratelimit.requests ORDER BY request_id;
SELECT count(*) FROM ratelimit.reservations;
SET ratelimit.clock = '2030-01-01 03:00:10+00';
SELECT expired_leases, deleted FROM rl_reap();
SELECT request_id FROM ratelimit.requests ORDER BY request_id;
-- Idle counters: a day after they were last touched, if the window is over.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT allowed FROM rl_consume('key', 'minute', 'rpm', 9);
SELECT allowed FROM rl_consume('key', 'week', 'rpw', 9, 1, 7 * 86400);
SELECT allowed FROM rl_consume('key', 'again', 'rpm', 9);
SELECT window_start + interval '7 days' AS week_ends FROM ratelimit.counters WHERE scope_key = 'week' \gset
SELECT :'week_ends';
SET ratelimit.clock = '2030-01-01 12:00:00+00';
SELECT allowed FROM rl_consume('key', 'again', 'rpm', 9);
SET ratelimit.clock = '2030-01-02 00:00:09.999999+00';
SELECT deleted FROM rl_reap();
SET ratelimit.clock = '2030-01-02 00:00:10+00';
SELECT deleted FROM rl_reap();
SELECT scope_key, idle_from FROM ratelimit.counters ORDER BY scope_key;
SET ratelimit.clock = '2030-01-02 11:59:59.999999+00';
SELECT deleted FROM rl_reap();
SET ratelimit.clock = '2030-01-02 12:00:00+00';
SELECT deleted FROM rl_reap();
SET ratelimit.clock = '2030-01-02 23:59:59.999999+00';
SELECT deleted FROM rl_reap();
SET ratelimit.clock = :'week_ends';
SELECT deleted FROM rl_reap();
SELECT count(*) FROM ratelimit.counters;
-- A key that comes back starts anew.
SELECT allowed, used FROM rl_consume('key', 'minute', 'rpm', 9);
-- Bounded by the batch; the idle time is a setting.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT count(*) FROM generate_series(1, 5) i, rl_consume('key', 'k' || i, 'rpm', 9);
SET ratelimit.clock = '2030-01-01 00:01:00+00';
SET ratelimit.idle_retention = 51;
SELECT deleted FROM rl_reap();
SET ratelimit.idle_retention = 50;
SELECT deleted FROM rl_reap(3);
SELECT deleted FROM rl_reap(3);
SET ratelimit.idle_retention = 0;
SELECT allowed FROM rl_consume('key', 'k', 'rpm', 9);
SELECT deleted FROM rl_reap();
SET ratelimit.clock = '2030-01-01 00:02:00+00';
SELECT deleted FROM rl_reap();
RESET ratelimit.idle_retention;
-- A clock that went back deletes nothing.
SELECT allowed FROM rl_consume('key', 'k', 'rpm', 9);
SET ratelimit.clock = '2029-12-01 00:00:00+00';
SELECT * FROM rl_reap();
SELECT count(*) FROM ratelimit.counters;
-- Idle scopes: a day after their last lease went. One with a lease stays, however old.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
SELECT lease_id AS a FROM rl_reserve('key', 'a', 'concurrent', 9, lease_ttl_seconds => 10 * 86400) \gset
SELECT lease_id AS b FROM rl_reserve('key', 'b', 'concurrent', 9) \gset
SELECT leases FROM rl_release(lease_ids => ARRAY[:'b']::uuid[]);
SET ratelimit.clock = '2030-01-02 00:00:09.999999+00';
SELECT deleted FROM rl_reap();
SET ratelimit.clock = '2030-01-02 00:00:10+00';
SELECT deleted FROM rl_reap();
SELECT scope_key, lease_count, idle_from FROM ratelimit.scopes;
SET ratelimit.clock = '2030-01-03 08:00:00+00';
SELECT deleted FROM rl_reap();
SELECT leases FROM rl_release(lease_ids => ARRAY[:'a']::uuid[]);
SET ratelimit.clock = '2030-01-04 07:59:59.999999+00';
SELECT deleted FROM rl_reap();
SET ratelimit.clock = '2030-01-04 08:00:00+00';
SELECT deleted FROM rl_reap();
SELECT count(*) FROM ratelimit.scopes;
-- Idle buckets.
SELECT granted FROM rl_acquire_bucket('bucket', '[{"rule_id": "r", "requests_per_window": 5, "window_ms": 1000}]');
SET ratelimit.clock = '2030-01-05 08:00:00+00';
SELECT deleted FROM rl_reap();
SELECT count(*) FROM ratelimit.buckets;
-- Undone with the transaction.
SELECT allowed FROM rl_reserve('key', 'a', 'concurrent', 9, lease_ttl_seconds => 10);
SET ratelimit.clock = '2030-01-05 09:00:00+00';
BEGIN;
SELECT expired_leases FROM rl_reap();
ROLLBACK;
SELECT leased, lease_count FROM ratelimit.scopes;
SELECT expired_leases FROM rl_reap(NULL);
SELECT leased, lease_count FROM ratelimit.scopes;
-- The batch.
\pset format unaligned
\t on
SELECT test.error('SELECT rl_reap(0)');
SELECT test.error('SELECT rl_reap(10001)');
SELECT count(*) FROM rl_reap(1) a, rl_reap(10000) b;
\t off
SELECT * FROM test.problems();
