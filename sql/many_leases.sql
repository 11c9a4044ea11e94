-- 10,000 leases that expire at the same instant give back exactly 10,000 slots, without one false denial.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:00+00';
-- So many calls in transactions of their own: within one, no version of the scope's row could be pruned.
CREATE TABLE test.calls (n int, allowed bool);
CREATE PROCEDURE test.reserve_many(calls int) LANGUAGE plpgsql AS $$
BEGIN
	DELETE FROM test.calls;
	FOR i IN 1 .. calls LOOP
		INSERT INTO test.calls SELECT i, allowed FROM rl_reserve('key', 'a', 'concurrent', 10000, 1, 60, 60);
		IF i % 20 = 0 THEN
			COMMIT;
		END IF;
	END LOOP;
END $$;
CALL test.reserve_many(10000);
SELECT count(*) FILTER (WHERE allowed) AS granted, min(n) FILTER (WHERE NOT allowed) AS first_denied FROM test.calls;
SELECT allowed, reason, used, reset_at FROM rl_reserve('key', 'a', 'concurrent', 10000);
SELECT leased, lease_count FROM ratelimit.scopes;
-- A microsecond before the instant: all held.
SET ratelimit.clock = '2030-01-01 00:00:59.999999+00';
SELECT count(*) FILTER (WHERE (rl_reserve('key', 'a', 'concurrent', 10000, 1, 60, 60)).allowed) AS granted FROM generate_series(1, 10);
SET ratelimit.clock = '2030-01-01 00:01:00+00';
SELECT allowed, used, remaining, reset_at FROM rl_check('key', 'a', 'concurrent', 10000);
CALL test.reserve_many(10005);
SELECT count(*) FILTER (WHERE allowed) AS granted, min(n) FILTER (WHERE NOT allowed) AS first_denied FROM test.calls;
SELECT leased, lease_count FROM ratelimit.scopes;
SELECT count(*) AS rows, count(DISTINCT lease_id) AS ids, min(expires_at), max(expires_at) FROM ratelimit.leases;
SELECT * FROM test.problems();
-- At once, by one call that needs them all.
SET ratelimit.clock = '2030-01-01 00:02:00+00';
SELECT allowed, used, remaining FROM rl_reserve('key', 'a', 'concurrent', 10000, 10000);
SELECT count(*) AS rows FROM ratelimit.leases;
SELECT leased, lease_count FROM ratelimit.scopes;
SELECT * FROM test.problems();
-- Grants add up what has expired until it is removed: each of them removes a part of that, and soon nothing is left to add up.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:00+00';
CALL test.reserve_many(4000);
SET ratelimit.clock = '2030-01-01 00:01:00+00';
CALL test.reserve_many(1);
SELECT count(*) AS rows FROM ratelimit.leases WHERE expires_at <= '2030-01-01 00:01:00+00';
CALL test.reserve_many(39);
SELECT count(*) AS rows FROM ratelimit.leases WHERE expires_at <= '2030-01-01 00:01:00+00';
SELECT * FROM test.problems();
DROP PROCEDURE test.reserve_many(int);
DROP TABLE test.calls;
