# Everything that moves, rewrites, rebuilds or copies a table, while 8 sessions acquire: the permits granted and the tokens
# gone are equal to the last one, and table, index and checksums are sound.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => ['--data-checksums']);
$node->append_conf('postgresql.conf', "autovacuum = off\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION ratelimit; CREATE EXTENSION amcheck');

my ($sessions, $calls) = (8, 1500);
my $script = PostgreSQL::Test::Utils::tempdir() . '/calls.sql';
append_to_file($script, <<'END');
\set bucket random(1, 400)
SELECT * FROM rl_acquire_bucket(:bucket::text, '[{"rule_id": "a", "requests_per_window": 1000000, "window_ms": 1000},
	{"rule_id": "b", "requests_per_window": 2000000, "window_ms": 1000}]');
END
my @commands = (
	'VACUUM ratelimit.buckets', 'VACUUM (FREEZE) ratelimit.buckets', 'ANALYZE ratelimit.buckets',
	'VACUUM FULL ratelimit.buckets', 'CLUSTER ratelimit.buckets USING buckets_pkey', 'REINDEX TABLE ratelimit.buckets',
	'REINDEX TABLE CONCURRENTLY ratelimit.buckets', 'CHECKPOINT',
	'SELECT bt_index_check(indexrelid, true) FROM pg_index WHERE indrelid = \'ratelimit.buckets\'::regclass',
	'SELECT count(*) FROM ratelimit.bucket_state');
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';

my $pgbench = IPC::Run::start(
	[ 'pgbench', '-n', '-c', $sessions, '-j', '2', '-t', $calls, '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ],
	'>', \my $out, '2>', \my $err, init => sub { $ENV{PGOPTIONS} = '-c ratelimit.clock=2030-01-01' });
my $rounds = 0;
do {
	for my $command (@commands) {
		my ($status, undef, $error) = $node->psql('postgres', $command);
		is($status, 0, "$command, round $rounds") or diag($error);
	}
	$node->command_ok([ 'pg_dump', '-f', $dump, 'postgres' ], "pg_dump, round $rounds");
	$rounds++;
	$pgbench->pump_nb;
} while $pgbench->pumpable && $rounds < 20;
$pgbench->finish;
is($err =~ s/^.*?(error|aborted).*$/$1/sr =~ /error|aborted/ ? $err : '', '', 'no call failed');
like($out, qr{transactions actually processed: (\d+)}, 'pgbench is done');
my ($granted) = $out =~ /actually processed: (\d+)/;
is($granted, $sessions * $calls, 'all calls were made');

my $sums = q(SELECT rule_id, sum(capacity - tokens)::bigint FROM ratelimit.buckets GROUP BY 1 ORDER BY 1);
is($node->safe_psql('postgres', $sums), "a|$granted\nb|$granted", 'the tokens gone are the permits granted, for each rule');
is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT FROM ratelimit.buckets GROUP BY bucket_id, rule_id HAVING count(*) > 1) twice'),
	0, 'no row is there twice');
is($node->safe_psql('postgres', "SELECT count(*) FROM verify_heapam('ratelimit.buckets')"), 0, 'the heap is sound');
is($node->safe_psql('postgres', "SELECT bt_index_check(indexrelid, true) FROM pg_index WHERE indrelid = 'ratelimit.buckets'::regclass"),
	'', 'the index has every row');

# A dump of the end carries the state; what is restored goes on from there.
$node->command_ok([ 'pg_dump', '-f', $dump, 'postgres' ], 'pg_dump at the end');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr('restored') ], 'restore');
is($node->safe_psql('restored', $sums), "a|$granted\nb|$granted", 'restored as it was');
is($node->safe_psql('restored', q(SET ratelimit.clock = '2030-01-01'; SELECT granted FROM rl_acquire_bucket('1',
	'[{"rule_id": "a", "requests_per_window": 1000000, "window_ms": 1000}]', 5))), 5, 'and in use');
my ($status, undef, $error) = $node->psql('restored', 'UPDATE ratelimit.buckets SET tokens = 1');
like($error, qr/cannot be updated/, 'and guarded as before');

$node->stop;
$node->command_ok([ 'pg_checksums', '--check', '-D', $node->data_dir ], 'every checksum is right');
done_testing();
