# A session that makes 1,000,000 calls, half of them errors, grows by less than 1 MB after the first 10,000. Calls come in
# both ways: as statements of their own, and from a PL/pgSQL loop with exception blocks, in transactions of 100.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use RateLimit;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $statements = 100_000;
my $in_loop    = 900_000;

my $node = start_server('main', <<'CONF');
synchronous_commit = off
log_statement = none
log_min_error_statement = panic
log_min_messages = panic
max_wal_size = 4GB
CONF

# One good call and one error for each number; every kind of either has its turn. The reservations and leases that the
# calls make are settled a few calls later, and the tables are kept small.
$node->safe_psql('postgres', <<'SQL');
	ALTER TABLE ratelimit.reservations ADD CONSTRAINT not_13 CHECK (amount <> 13);
	SET client_min_messages = warning;
	CREATE TABLE held (reservations uuid[], leases uuid[]);
	CREATE PROCEDURE many_calls(pairs int) LANGUAGE plpgsql AS $$
	DECLARE
		d ratelimit.decision;
		r uuid[];
		l uuid[];
		refused int := 0;
	BEGIN
		FOR i IN 1..pairs LOOP
			CASE i % 10
				WHEN 0, 1, 2, 3 THEN PERFORM rl_consume('t', 'k' || i % 7, 'rpm', 1e9);
				WHEN 4 THEN SELECT array_agg(c.reservation_id), array_agg(c.lease_id) INTO r, l FROM rl_reserve(
					'[{"scope_type": "t", "scope_key": "k", "metric": "rpm", "limit": 1e9}, {"scope_type": "t", "scope_key": "s", "metric": "concurrent", "limit": 10}]', task_id => 'x') c;
				WHEN 5 THEN PERFORM rl_renew(l), rl_attach('attempt', r, l);
				WHEN 6 THEN PERFORM rl_commit(r, '{"rpm": 2}'), rl_release(lease_ids => l);
				WHEN 7 THEN d := rl_check('t', 'k', 'rpm', 1);
				WHEN 8 THEN d := rl_consume('t', 'k', 'rpm', 1e9);
				ELSE d := rl_reserve('t', 'k', 'rpm', 0);
			END CASE;
			BEGIN
				CASE i % 5
					WHEN 0 THEN PERFORM rl_consume('t', 'k', 'rpm', -1);
					WHEN 1 THEN PERFORM rl_reserve('[{"scope_type": "t", "scope_key": "k", "metric": "rpm", "limit": 1, "unknown": 1}]');
					WHEN 2 THEN d := rl_reserve('t', 'k', 'tpm', 1e9, 13);
					WHEN 3 THEN PERFORM rl_commit(NULL);
					ELSE d := rl_check('t', repeat('x', 600), 'rpm', 1);
				END CASE;
			EXCEPTION WHEN OTHERS THEN
				refused := refused + 1;
			END;
			IF i % 50 = 0 THEN
				COMMIT;
			END IF;
			IF i % 50000 = 0 THEN
				DELETE FROM ratelimit.reservations WHERE finalized_at IS NOT NULL;
			END IF;
		END LOOP;
		ASSERT refused = pairs, format('%s of %s errors', refused, pairs);
	END $$;
SQL

my @good = (
	(q{SELECT allowed FROM rl_consume('t', 'k', 'rpm', 1e9);}) x 4,
	q{SELECT allowed FROM rl_check('t', 'k', 'rpm', 1e9);},
	q{SELECT allowed FROM rl_reserve('t', 'k', 'rpm', 0);},
	q{SELECT reservation_id FROM rl_reserve('t', 'k', 'rpm', 1e9) \gset}, q{SELECT rl_commit(ARRAY[:'reservation_id']::uuid[]);},
	q{SELECT lease_id FROM rl_reserve('t', 's', 'concurrent', 10) \gset}, q{SELECT rl_release(lease_ids => ARRAY[:'lease_id']::uuid[]);});
my @bad = (
	q{SELECT allowed FROM rl_consume('t', 'k', 'rpm', 'NaN');},
	q{SELECT allowed FROM rl_reserve('t', 'k', 'tpm', 1e9, 13);},
	q{SELECT allowed FROM rl_consume('[{"scope_type": "t", "scope_key": "", "metric": "rpm", "limit": 1}]');},
	q{SELECT rl_renew(NULL);});

sub statements
{
	my ($count) = @_;
	return join "\n", map { ($good[ $_ % @good ], $bad[ $_ % @bad ]) } 0 .. $count / 2 - 1;
}

my $measure = <<'SQL';
	\o
	\qecho
	SELECT 'memory', (regexp_match(pg_read_file('/proc/self/smaps_rollup'), 'Anonymous:\s+(\d+)'))[1]::int, sum(total_bytes) / 1024
	FROM pg_backend_memory_contexts;
	SELECT 'memory', (regexp_match(pg_read_file('/proc/self/smaps_rollup'), 'Anonymous:\s+(\d+)'))[1]::int, sum(total_bytes) / 1024
	FROM pg_backend_memory_contexts;
	\o /dev/null
SQL

my $script = $node->basedir . '/calls.sql';
open my $handle, '>', $script or die "cannot write $script: $!";
print $handle "\\o /dev/null\n", statements(5000), "\nCALL many_calls(2500);\n", $measure,
  statements($statements), "\n", $measure, 'CALL many_calls(', $in_loop / 2, ");\n", $measure;
close $handle;

my $began = time;
my $out = '';
IPC::Run::run [ 'psql', '-XAtq', '-v', 'VERBOSITY=sqlstate', '-d', $node->connstr('postgres'), '-f', $script ], '>', \$out, '2>', "$script.err";
my $err = slurp_file("$script.err");
my $took = time - $began;
my %errors;
$errors{$_}++ for $err =~ /ERROR:\s+(\w+)/g;
is(join(' ', sort keys %errors), '22004 22023 23514', 'the errors are those that were meant');
is($errors{'22004'} + $errors{'22023'} + $errors{'23514'}, ($statements + 5000) / 2, '... and as many');

# The first of each pair only warms up what measuring itself needs.
my @measured = map { [ split /\|/ ] } grep { /^memory/ } split /\n/, $out;
is(scalar @measured, 6, 'memory was measured three times') or diag($out, substr($err, -2000));
my ($warm, $half, $end) = @measured[ 1, 3, 5 ];
my $calls = $statements + $in_loop;
diag("$calls calls took $took s");
cmp_ok($half->[1] - $warm->[1], '<', 1024, "statements: grown by " . ($half->[1] - $warm->[1]) . ' kB');
cmp_ok($end->[1] - $half->[1],  '<', 1024, "loop: grown by " . ($end->[1] - $half->[1]) . ' kB');
cmp_ok($end->[1] - $warm->[1],  '<', 1024, "$calls calls: grown by " . ($end->[1] - $warm->[1]) . ' kB');
cmp_ok($end->[2] - $warm->[2],  '<', 1024, '... and the memory contexts by ' . ($end->[2] - $warm->[2]) . ' kB');
is(drift($node), '', 'aggregates and rows agree');
$node->stop;
done_testing();
