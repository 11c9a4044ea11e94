# A session that makes 100,000 calls of the admission queue, half of them errors, grows by less than 1 MB after the first.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use RateLimit;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_server('main', "synchronous_commit = off\nlog_min_error_statement = panic\nlog_min_messages = panic\n");
$node->safe_psql('postgres', <<'SQL');
	CREATE FUNCTION slot(key text, lim float8) RETURNS jsonb LANGUAGE sql AS $$
		SELECT jsonb_build_array(jsonb_build_object('scope_type', 't', 'scope_key', key, 'limit', lim, 'queue_limit', NULL))
	$$;
	CREATE PROCEDURE many_calls(pairs int) LANGUAGE plpgsql AS $$
	DECLARE
		a ratelimit.admission;
		refused int := 0;
	BEGIN
		FOR i IN 1..pairs LOOP
			CASE i % 12
				WHEN 0 THEN a := rl_admit('h', slot('a', 1), 'sync', NULL, NULL);
				WHEN 1 THEN a := rl_admit('w' || i % 7, slot('a', 1));
				WHEN 2 THEN PERFORM rl_dispatch(5);
				WHEN 3 THEN PERFORM rl_cancel('w' || i % 7);
				WHEN 4 THEN PERFORM rl_enqueue('e' || i % 5, slot('b', 3));
				WHEN 5 THEN PERFORM rl_rebind('e' || i % 5, slot('c', 3));
				WHEN 6 THEN PERFORM rl_defer('e' || i % 5);
				WHEN 7 THEN PERFORM count(*) FROM rl_waiting(3);
				WHEN 8 THEN PERFORM rl_renew_waiters('{w1,w2}', '{w1,w2}');
				WHEN 9 THEN PERFORM count(*) FROM rl_status('w' || i % 7);
				WHEN 10 THEN PERFORM count(*) FROM rl_route(
					'[{"candidate": "a", "limits": [{"scope_type": "t", "scope_key": "a", "metric": "rpm", "limit": 5}]}]');
				ELSE PERFORM rl_worker_heartbeat('w', 3), rl_release(lease_ids => lease_ids) FROM rl_status('e' || i % 5);
			END CASE;
			BEGIN
				CASE i % 6
					WHEN 0 THEN PERFORM rl_admit('t', '[{}]');
					WHEN 1 THEN PERFORM rl_enqueue('t', '[{"scope_type": "a", "scope_key": "b", "limit": -1}]');
					WHEN 2 THEN PERFORM rl_dispatch(0);
					WHEN 3 THEN PERFORM rl_route('[1]');
					WHEN 4 THEN PERFORM rl_cancel(NULL);
					ELSE PERFORM rl_admit('t', '[]', 'both');
				END CASE;
			EXCEPTION WHEN OTHERS THEN
				refused := refused + 1;
			END;
			IF i % 50 = 0 THEN
				DELETE FROM ratelimit.tasks WHERE status IN ('cancelled', 'failed');
				COMMIT;
			END IF;
		END LOOP;
		ASSERT refused = pairs, format('%s of %s errors', refused, pairs);
	END $$;
	-- Waits that end at once, one after the other.
	CREATE PROCEDURE many_waits(n int) LANGUAGE plpgsql AS $$
	DECLARE
		a ratelimit.admission;
	BEGIN
		FOR i IN 1..n LOOP
			CALL rl_admit_wait('wait' || i, slot('a', 1), '11 ms', 0, a);
			DELETE FROM ratelimit.tasks WHERE task_id = 'wait' || i;
		END LOOP;
	END $$;
SQL

my $measure = <<'SQL' x 2;
	SELECT 'memory', (regexp_match(pg_read_file('/proc/self/smaps_rollup'), 'Anonymous:\s+(\d+)'))[1]::int, sum(total_bytes) / 1024
	FROM pg_backend_memory_contexts;
SQL
my $out = $node->safe_psql('postgres', "CALL many_calls(2000); CALL many_waits(20);\n${measure}CALL many_calls(50000);\n${measure}CALL many_waits(300);\n$measure");
# The first of each pair only warms up what measuring itself needs.
my @measured = map { [ split /\|/ ] } grep { /^memory/ } split /\n/, $out;
is(scalar @measured, 6, 'memory was measured three times') or diag($out);
my ($warm, $calls, $waits) = @measured[ 1, 3, 5 ];
cmp_ok($calls->[1] - $warm->[1], '<', 1024, '100,000 calls: grown by ' . ($calls->[1] - $warm->[1]) . ' kB');
cmp_ok($calls->[2] - $warm->[2], '<', 1024, '... and the memory contexts by ' . ($calls->[2] - $warm->[2]) . ' kB');
cmp_ok($waits->[1] - $calls->[1], '<', 256, '300 waits: grown by ' . ($waits->[1] - $calls->[1]) . ' kB');
cmp_ok($waits->[2] - $calls->[2], '<', 64, '... and the memory contexts by ' . ($waits->[2] - $calls->[2]) . ' kB');
is(drift($node), '', 'aggregates and rows agree');
$node->stop;
done_testing();
