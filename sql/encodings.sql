-- Databases that are not in UTF-8. Names are stored as they come; bounds and shards go by their UTF-8.
SET client_min_messages = error;
CREATE DATABASE regress_ratelimit_latin1 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0;
CREATE DATABASE regress_ratelimit_ascii ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0;
SELECT rl_shard('k', U&'\00E9') AS shard, current_database() AS home \gset
\c regress_ratelimit_latin1
CREATE EXTENSION ratelimit;
SELECT rl_shard('k', convert_from('\xe9', 'LATIN1')) = :shard AS same_shard;
SELECT allowed, rl_shard(reservation_id) = :shard AS same_shard FROM rl_reserve('k', convert_from('\xe9', 'LATIN1'), 'rpm', 1);
SELECT allowed FROM rl_consume('k', repeat(convert_from('\xe9', 'LATIN1'), 256), 'rpm', 1);
\set VERBOSITY sqlstate
SELECT allowed FROM rl_consume('k', repeat(convert_from('\xe9', 'LATIN1'), 257), 'rpm', 1);
\set VERBOSITY default
-- SQL_ASCII does not know what its bytes mean: every function takes them as they are, UTF-8 or not.
\c regress_ratelimit_ascii
CREATE EXTENSION ratelimit;
SELECT rl_shard('k', E'\xc3\xa9') = :shard AS same_shard, rl_shard('k', E'\xe9') BETWEEN 0 AND 4095 AS any_shard;
SELECT allowed, rl_shard(reservation_id) = rl_shard('k', E'\xe9') AS same_shard FROM rl_reserve('k', E'\xe9', 'rpm', 2);
SELECT allowed, reserved FROM rl_consume('k', E'\xe9', 'rpm', 2);
SELECT allowed FROM rl_consume('k', repeat(E'\xe9', 512), 'rpm', 1);
\set VERBOSITY sqlstate
SELECT allowed FROM rl_consume('k', repeat(E'\xe9', 513), 'rpm', 1);
\set VERBOSITY default
\c :home
DROP DATABASE regress_ratelimit_latin1;
DROP DATABASE regress_ratelimit_ascii;
