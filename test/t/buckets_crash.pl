# What a crash forgets of buckets: nothing that took part in a commit with ratelimit.bucket_durable; without it at most what
# the WAL writer had no time to write, three times wal_writer_delay; never a part of a row.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => ['--data-checksums']);
# Nothing but the WAL writer is to write: it sleeps deeply, and has to be woken.
$node->append_conf('postgresql.conf', "wal_writer_delay = 1s\nautovacuum = off\ncheckpoint_timeout = 1h\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION ratelimit');

# The clock stands still and a permit is worth 100 ms, so the row says in two columns how many were granted.
my $clock = "SET ratelimit.clock = '2030-01-01 00:00:00+00';";
my $acquire = q(SELECT granted FROM rl_acquire_bucket('b', '[{"rule_id": "r", "requests_per_window": 100000, "window_ms": 8000000}]'););
my $spent = q(SELECT 100000 - tokens || ' ' || (next_dispatch_at_ms - 1893456000000) / 100 FROM ratelimit.buckets);

sub restarted {
	$node->stop('immediate');
	$node->start;
	return $node->safe_psql('postgres', $spent);
}

$node->safe_psql('postgres', "$clock $acquire");
is($node->safe_psql('postgres', $spent), '1 1', 'one permit is spent');

is($node->safe_psql('postgres', "$clock SET ratelimit.bucket_durable = on; " . $acquire x 200), join("\n", (1) x 200), '200 acquires');
is(restarted(), '201 201', 'durable: an immediate stop loses none of 200');
$node->safe_psql('postgres', "$clock SET ratelimit.bucket_durable = on; BEGIN; SAVEPOINT s; $acquire ROLLBACK TO s; COMMIT;");
is(restarted(), '202 202', 'durable: also one in a savepoint that was rolled back');
$node->safe_psql('postgres', "$clock SET ratelimit.bucket_durable = on; SELECT rl_penalize('b', 1000)");
is(restarted(), '100000 202', 'durable: a penalty');

is($node->safe_psql('postgres', "$clock DELETE FROM ratelimit.buckets; $acquire"), 1, 'a new bucket');
my $xid = 'SELECT pg_snapshot_xmax(pg_current_snapshot())';
my $before = $node->safe_psql('postgres', $xid);
$node->safe_psql('postgres', "$clock $acquire");
is($node->safe_psql('postgres', $xid), $before, 'an acquire takes no transaction id');
$node->safe_psql('postgres', "$clock SET ratelimit.bucket_durable = on; $acquire");
isnt($node->safe_psql('postgres', $xid), $before, 'a durable one does');

# The session stays in its transaction, where no commit tells the WAL writer anything.
my $session = $node->background_psql('postgres');
$session->query_safe("$clock BEGIN; " . $acquire x 100);
my $lsn = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
my $began = time;
ok($node->poll_query_until('postgres', "SELECT pg_current_wal_flush_lsn() >= '$lsn'"), 'the WAL writer wrote them');
my $took = time - $began;
cmp_ok($took, '<', 5, "within three times wal_writer_delay and some time to notice (it took $took s)");
$session->query_safe($acquire x 50);
my ($tokens, $instants) = split / /, restarted();
cmp_ok($tokens, '>=', 103, 'what was written is there, though its transaction never ended');
cmp_ok($tokens, '<=', 153, 'and nothing else');
is($instants, $tokens, 'no part of a row is newer than the rest');
eval { $session->quit };

# Crashes in the middle of everything.
my $calls = PostgreSQL::Test::Utils::tempdir() . '/calls.sql';
append_to_file($calls, "\\set bucket random(1, 5)\n" . $acquire =~ s/'b'/:bucket::text/r);
for my $round (1 .. 3) {
	my $pgbench = IPC::Run::start(
		[ 'pgbench', '-n', '-c', '8', '-j', '2', '-T', '20', '-f', $calls, '-h', $node->host, '-p', $node->port, 'postgres' ],
		'>', '/dev/null', '2>', '/dev/null', init => sub { $ENV{PGOPTIONS} = '-c ratelimit.clock=2030-01-01T00:00:00Z' });
	$node->poll_query_until('postgres', "SELECT coalesce(sum(100000 - tokens), 0) > 2000 * $round FROM ratelimit.buckets WHERE bucket_id <> 'b'");
	$node->stop('immediate');
	eval { $pgbench->finish };
	$node->start;
	is($node->safe_psql('postgres', "SELECT bucket_id, tokens, next_dispatch_at_ms FROM ratelimit.buckets
		WHERE bucket_id <> 'b' AND 100000 - tokens <> (next_dispatch_at_ms - 1893456000000) / 100"), '', "crash $round: no row is torn");
}
done_testing();
