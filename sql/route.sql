-- rl_route: the first candidate whose windows pass, the pinned one before the order; writes nothing.
CALL test.begin();
SET ratelimit.clock = '2030-01-01 00:00:10.25+00';
-- A window of 60 s of which 5 are spent, one of 1 h of which all is spent, and a scope whose only slot is taken.
SELECT allowed FROM rl_consume('model', 'a', 'rpm', 5, 5);
SELECT allowed FROM rl_consume('model', 'b', 'rph', 10, 10, 3600);
SELECT allowed FROM rl_reserve('model', 'c', 'concurrent', 1);
-- In the order given, with the reason and the wait of the limit to wait for the longest.
SELECT * FROM rl_route('[
	{"candidate": "a", "limits": [{"scope_type": "model", "scope_key": "a", "metric": "rpm", "limit": 5}]},
	{"candidate": "b", "limits": [{"scope_type": "model", "scope_key": "a", "metric": "rpm", "limit": 5},
		{"scope_type": "model", "scope_key": "b", "metric": "rph", "limit": 10, "window_seconds": 3600}]},
	{"candidate": "c", "limits": [{"scope_type": "model", "scope_key": "c", "metric": "rpm", "limit": 5}]},
	{"candidate": "d", "limits": []},
	{"candidate": "e", "limits": [{"scope_type": "model", "scope_key": "b", "metric": "rph", "limit": 10, "window_seconds": 3600},
		{"scope_type": "model", "scope_key": "e", "metric": "rpm", "limit": 0},
		{"scope_type": "model", "scope_key": "a", "metric": "rpm", "limit": 5}]},
	{"candidate": "f", "limits": [{"scope_type": "model", "scope_key": "f", "metric": "rpm", "limit": 5, "amount": 6},
		{"scope_type": "model", "scope_key": "e", "metric": "rpm", "limit": 0}]}]');
-- The pinned one that passes comes first; one that does not pass or is not there is ignored.
CREATE FUNCTION pg_temp.three(pinned text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT concat_ws(' ', candidate, chosen, reason, retry_after_ms) FROM rl_route('[
		{"candidate": "a", "limits": [{"scope_type": "model", "scope_key": "a", "metric": "rpm", "limit": 5}]},
		{"candidate": "b", "limits": [{"scope_type": "model", "scope_key": "b", "metric": "rpm", "limit": 5}]},
		{"candidate": "c", "limits": [{"scope_type": "model", "scope_key": "c", "metric": "rpm", "limit": 5}]}]', pinned)
$$;
SELECT pg_temp.three(NULL);
SELECT pg_temp.three('c');
SELECT pg_temp.three('a');
SELECT pg_temp.three('nobody');
SELECT pg_temp.three('');
-- Slots and queues are no obstacle, whatever they say; their values are checked all the same.
SELECT * FROM rl_route('[{"candidate": "c", "limits": [
	{"scope_type": "model", "scope_key": "c", "metric": "concurrent", "limit": 1},
	{"scope_type": "model", "scope_key": "d", "metric": "concurrent", "limit": 0},
	{"scope_type": "model", "scope_key": "d", "metric": "queue_size", "limit": 0}]}]');
-- A key that one candidate names twice is asked for the sum; two candidates do not add up.
SELECT * FROM rl_route('[
	{"candidate": "twice", "limits": [{"scope_type": "model", "scope_key": "x", "metric": "rpm", "limit": 5, "amount": 3},
		{"scope_type": "model", "scope_key": "x", "metric": "rpm", "limit": 5, "amount": 3}]},
	{"candidate": "once", "limits": [{"scope_type": "model", "scope_key": "x", "metric": "rpm", "limit": 5, "amount": 3}]}]');
-- No candidate, and none that passes.
SELECT * FROM rl_route('[]');
SELECT * FROM rl_route('[{"candidate": "a", "limits": [{"scope_type": "model", "scope_key": "a", "metric": "rpm", "limit": 5}]}]');
-- Scopes of the extension's own may be looked at. Nothing is written, also where nothing may be written.
BEGIN READ ONLY;
SELECT * FROM rl_route('[{"candidate": "a", "limits": [{"scope_type": "ratelimit.x", "scope_key": "a", "metric": "rpm", "limit": 5}]}]');
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
COMMIT;
BEGIN;
SELECT pg_temp.three(NULL);
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
COMMIT;
SELECT count(*) FROM ratelimit.counters;
-- What a caller sees next minute.
SET ratelimit.clock = '2030-01-01 00:01:00+00';
SELECT pg_temp.three(NULL);
-- Bad input.
\set VERBOSITY default
SELECT rl_route(NULL);
SELECT rl_route('null');
SELECT rl_route('{}');
SELECT rl_route('[1]');
SELECT rl_route('[{"candidate": "a"}]');
SELECT rl_route('[{"limits": []}]');
SELECT rl_route('[{"candidate": null, "limits": []}]');
SELECT rl_route('[{"candidate": 1, "limits": []}]');
SELECT rl_route('[{"candidate": " ", "limits": []}]');
SELECT rl_route('[{"candidate": "a", "limits": null}]');
SELECT rl_route('[{"candidate": "a", "limits": {}}]');
SELECT rl_route('[{"candidate": "a", "limits": [], "weight": 1}]');
SELECT rl_route('[{"candidate": "a", "limits": []}, {"candidate": "a", "limits": []}]');
SELECT rl_route('[{"candidate": "a", "limits": []},
	{"candidate": "b", "limits": [{"scope_type": "m", "scope_key": "k", "metric": "rpm", "limit": 1, "amount": -1}]}]');
SELECT rl_route('[{"candidate": "a", "limits": [{"scope_type": "m", "scope_key": "k", "metric": "concurrent"}]}]');
SELECT rl_route('[{"candidate": "a", "limits": [{"scope_type": "m", "scope_key": "k", "metric": "rpm", "limits": 1}]}]');
\set VERBOSITY sqlstate
SELECT rl_route((SELECT jsonb_agg(jsonb_build_object('candidate', i, 'limits', '[]'::jsonb)) FROM generate_series(1, 1001) i));
SELECT rl_route(jsonb_build_array(jsonb_build_object('candidate', 'a', 'limits', (SELECT jsonb_agg(jsonb_build_object('scope_type',
	'm', 'scope_key', i::text, 'metric', 'rpm', 'limit', 1)) FROM generate_series(1, 1001) i))));
\set VERBOSITY default
SELECT count(*) FROM rl_route((SELECT jsonb_agg(jsonb_build_object('candidate', i::text, 'limits', '[]'::jsonb)) FROM generate_series(1, 1000) i));
SELECT count(*) FROM ratelimit.counters;
