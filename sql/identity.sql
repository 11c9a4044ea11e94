-- rl_shard, rl_version and the ids that the extension makes.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10+00';
-- The check value of CRC-16/XMODEM: "123456789" gives 0x31C3, here modulo 4096.
SELECT rl_shard('any', '{123456789}') AS shard, x'31C3'::int % 4096 AS expected;
-- An implementation of our own, bit by bit.
CREATE FUNCTION test.crc16(bytes bytea) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	crc int := 0;
BEGIN
	FOR i IN 0 .. length(bytes) - 1 LOOP
		crc := crc # (get_byte(bytes, i) << 8);
		FOR bit IN 1 .. 8 LOOP
			crc := CASE WHEN crc & 32768 <> 0 THEN (crc << 1) # 4129 ELSE crc << 1 END & 65535;
		END LOOP;
	END LOOP;
	RETURN crc;
END $$;
SELECT to_hex(test.crc16('123456789')) AS check_value;
-- The shard key is what stands between the first { and the next }, if there is one and it is not empty; else the scope type,
-- a NUL byte, the scope key.
SELECT scope_type, scope_key, rl_shard(scope_type, scope_key) AS shard, rl_shard(scope_type, scope_key) = test.crc16(
	CASE WHEN tag IS NULL THEN convert_to(scope_type, 'UTF8') || '\x00' || convert_to(scope_key, 'UTF8') ELSE convert_to(tag, 'UTF8') END) % 4096 AS right
FROM (VALUES
	(1, 'key', 'a', NULL), (2, 'org', 'a', NULL), (3, 'ke', 'ya', NULL), (4, 'key', '', NULL), (5, '', '', NULL),
	(6, 'key', '{a}', 'a'), (7, 'org', '{a}', 'a'), (8, 'key', 'x{a}y', 'a'), (9, 'key', '{a}{b}', 'a'), (10, 'key', '{{a}}', '{a'),
	(11, 'key', '{}', NULL), (12, 'key', '{}{a}', NULL), (13, 'key', '{a', NULL), (14, 'key', 'a}', NULL), (15, 'key', '}a{', NULL), (16, 'key', '}{a}', 'a'),
	(17, '{a}', 'b', NULL), (18, 'key', '{ü}', 'ü'), (19, 'ключ', 'ü', NULL), (20, 'key', '{ }', ' '), (21, 'ratelimit.bucket', 'a', NULL),
	(22, 'key', repeat('x', 2000), NULL), (23, 'task', 'task 1', NULL)) v (n, scope_type, scope_key, tag) WHERE n <> 22 ORDER BY n;
SELECT rl_shard('key', repeat('x', 2000)) = test.crc16('key'::bytea || '\x00' || repeat('x', 2000)::bytea) % 4096 AS long_keys;
-- Never to change: these are the numbers of version 1.
SELECT rl_shard('key', 'a') AS a, rl_shard('key', 'b') AS b, rl_shard('user', 'user1000') AS c, rl_shard('x', '{user1000}.following') AS d, rl_shard('x', '{user1000}.followers') AS e;
-- In range, and spread out.
SELECT min(s) >= 0 AND max(s) <= 4095 AS in_range, count(DISTINCT s) > 3500 AS spread FROM (SELECT rl_shard('key', i::text) s FROM generate_series(1, 10000) i) t;
-- NULL gives NULL.
SELECT rl_shard(NULL, 'a') IS NULL, rl_shard('key', NULL) IS NULL, rl_shard(NULL::uuid) IS NULL;
-- Of an id: the 12 bits of rand_a; only UUIDs of version 7 and of the RFC's variant have them.
SELECT rl_shard('01890a5d-ac96-7abc-8123-456789abcdef') AS abc, x'abc'::int AS expected, rl_shard('00000000-0000-7000-8000-000000000000') AS least,
	rl_shard('ffffffff-ffff-7fff-bfff-ffffffffffff') AS greatest;
\pset format unaligned
\t on
SELECT test.error(format('SELECT rl_shard(%L::uuid)', id)) FROM unnest('{01890a5d-ac96-4abc-8123-456789abcdef,01890a5d-ac96-1abc-8123-456789abcdef,
	01890a5d-ac96-8abc-8123-456789abcdef,01890a5d-ac96-7abc-0123-456789abcdef,01890a5d-ac96-7abc-c123-456789abcdef,
	00000000-0000-0000-0000-000000000000,ffffffff-ffff-ffff-ffff-ffffffffffff}'::text[]) id;
\t off
\pset format aligned
-- The ids of reservations and leases: version 7, the variant of RFC 9562, the shard of their scope.
CREATE TABLE test.ids AS
SELECT d.scope_type, d.scope_key, coalesce(d.reservation_id, d.lease_id) AS id, d.lease_id IS NOT NULL AS lease
FROM rl_reserve((SELECT jsonb_agg(test.limit(k, m, 100)) FROM unnest('{a,b,"{a}x",é}'::text[]) k, unnest('{rpm,concurrent}'::text[]) m)) d;
SELECT count(*), bool_and(substr(id::text, 15, 1) = '7') AS version, bool_and(substr(id::text, 20, 1) IN ('8', '9', 'a', 'b')) AS variant,
	bool_and(rl_shard(id) = rl_shard(scope_type, scope_key)) AS shard FROM test.ids;
SELECT rl_shard(reservation_id) = rl_shard('key', 'a') AS shard FROM rl_reserve('key', 'a', 'rpm', 100);
-- They always use the real clock: its milliseconds are the first 48 bits.
SELECT bool_and(ms BETWEEN extract(epoch FROM clock_timestamp()) * 1000 - 600000 AND extract(epoch FROM clock_timestamp()) * 1000) AS real_clock
FROM (SELECT ('x' || translate(left(id::text, 13), '-', ''))::bit(48)::bigint AS ms FROM test.ids) t;
-- They differ also within a millisecond.
SELECT count(*), count(DISTINCT id) FROM (SELECT (rl_reserve('key', 'many', 'rpm', 1000)).reservation_id AS id FROM generate_series(1, 1000)) t;
DROP TABLE test.ids;
-- Functions that are IMMUTABLE can stand in an index and in a generated column.
CREATE TABLE test.shards (scope_key text, shard int GENERATED ALWAYS AS (rl_shard('key', scope_key)) STORED);
CREATE INDEX ON test.shards (rl_shard('key', scope_key));
INSERT INTO test.shards SELECT i FROM generate_series(1, 100) i;
SELECT count(*) FROM test.shards WHERE shard = rl_shard('key', scope_key);
DROP TABLE test.shards;
SELECT rl_version(), rl_version() = (SELECT extversion FROM pg_extension WHERE extname = 'ratelimit') AS installed;
DROP FUNCTION test.crc16(bytea);
SELECT * FROM test.problems();
