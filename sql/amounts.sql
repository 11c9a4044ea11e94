-- Amounts: finite doubles, compared with a relative tolerance, counters never below 0.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
-- Three times 0.1 fits 0.3.
SELECT i, (rl_consume('key', 'a', 'usd', 0.3, 0.1)).allowed FROM generate_series(1, 4) i;
SELECT i, (rl_reserve('key', 'b', 'usd', 0.3, 0.1)).allowed FROM generate_series(1, 4) i;
SELECT remaining FROM rl_check('key', 'b', 'usd', 0.3, 0.1);
SELECT i, (rl_reserve('key', 'b', 'concurrent', 0.3, 0.1)).allowed FROM generate_series(1, 4) i;
SELECT remaining FROM rl_check('key', 'b', 'concurrent', 0.3, 0.1);
-- So does one amount, and a repeated key, that is too much by rounding only.
SELECT allowed, reason FROM rl_check('key', 'c', 'usd', 0.3, 0.1::float8 + 0.2::float8);
SELECT allowed FROM rl_check('[{"scope_type": "key", "scope_key": "c", "metric": "usd", "limit": 0.3, "amount": 0.1},
	{"scope_type": "key", "scope_key": "c", "metric": "usd", "limit": 0.3, "amount": 0.2}]');
-- The tolerance is 1e-9 of the limit, no more, whatever its size.
SELECT l AS limit_value, a.allowed AS within, b.allowed AS beyond, b.reason FROM unnest('{1e-6,1,1e6,1e15,1e300}'::float8[]) l,
	rl_check('key', 'c', 'usd', l, l * (1 + 0.9e-9)) a, rl_check('key', 'c', 'usd', l, l * (1 + 1.1e-9)) b;
-- Large amounts stay finite.
SELECT allowed, remaining FROM rl_consume('key', 'd', 'usd', 1.7976931348623157e308, 1.7976931348623157e308);
SELECT allowed, reason, used, remaining FROM rl_consume('key', 'd', 'usd', 1.7976931348623157e308, 1e308);
SELECT ordinal, allowed, reason FROM rl_consume('[
	{"scope_type": "key", "scope_key": "e", "metric": "usd", "limit": 1.5e308, "amount": 1e308},
	{"scope_type": "key", "scope_key": "e", "metric": "usd", "limit": 1.5e308, "amount": 1e308}]');
-- The smallest ones count as well.
SELECT allowed, remaining FROM rl_consume('key', 'f', 'usd', 1, 5e-324);
SELECT allowed, used FROM rl_consume('key', 'f', 'usd', 5e-324, 5e-324);
-- Fractions survive, and what was taken back leaves no rounding dust below 0.
SELECT array_agg((rl_reserve('key', 'g', 'usd', 1, 0.1)).reservation_id) AS ids FROM generate_series(1, 3) \gset
SELECT reserved > 0.29 AND reserved < 0.31 AS held FROM ratelimit.counters WHERE scope_key = 'g';
SELECT * FROM rl_release(:'ids');
SELECT reserved >= 0 AND reserved < 1e-9 AS none, used FROM ratelimit.counters WHERE scope_key = 'g';
SELECT allowed, remaining FROM rl_consume('key', 'g', 'usd', 1, 1);
-- An actual amount may be anything finite; the sum stays finite.
SELECT reservation_id AS id FROM rl_reserve('key', 'h', 'usd', 10, 1) \gset
SELECT rl_commit(ARRAY[:'id']::uuid[], '{"usd": 1.7e308}'), rl_commit(NULL::uuid[] || '{}', '{}');
SELECT used, reserved FROM ratelimit.counters WHERE scope_key = 'h';
SELECT allowed, reason, remaining FROM rl_consume('key', 'h', 'usd', 1e300, 1);
-- NaN and the infinities are errors.
\pset format unaligned
\t on
SELECT test.error(format('SELECT rl_consume(''key'', ''i'', ''usd'', %L, %L)', l, a)) FROM (VALUES
	('NaN', '1'), ('Infinity', '1'), ('-Infinity', '1'), ('1', 'NaN'), ('1', 'Infinity'), ('1', '-Infinity'), ('1', '-1'), ('-1', '1'),
	('1', '-5e-324')) v (l, a);
SELECT test.error($$SELECT rl_consume('[{"scope_type": "key", "scope_key": "i", "metric": "usd", "limit": 1e400}]')$$);
SELECT test.error($$SELECT rl_consume('[{"scope_type": "key", "scope_key": "i", "metric": "usd", "limit": 1, "amount": -1}]')$$);
SELECT test.error($$SELECT rl_consume('[{"scope_type": "key", "scope_key": "i", "metric": "usd", "limit": -0.5}]')$$);
\t off
\pset format aligned
-- A negative zero is zero.
SELECT allowed, reason FROM rl_consume('key', 'i', 'usd', 1, '-0');
SELECT allowed, reason FROM rl_consume('key', 'i', 'usd', '-0', 1);
SELECT count(*) AS counters FROM ratelimit.counters WHERE scope_key = 'i';
SELECT * FROM test.problems();
