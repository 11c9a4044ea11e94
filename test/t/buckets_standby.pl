# Buckets that are changed in place, on a standby: the server itself compares every page after replay with what the
# primary wrote (wal_consistency_checking), the rows are the same, and after promotion they go on from there.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1, extra => ['--data-checksums']);
$primary->append_conf('postgresql.conf', "wal_consistency_checking = 'all'\n");
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION ratelimit');
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

# Births, acquires over one and over several rules, leases, penalties, row locks, deaths, a full-page image now and then.
my $calls = PostgreSQL::Test::Utils::tempdir() . '/calls.sql';
append_to_file($calls, <<'END');
\set bucket random(1, 20)
\set what random(1, 10)
SELECT * FROM rl_acquire_bucket(:bucket::text, '[{"rule_id": "a", "requests_per_window": 500, "window_ms": 1000}]', :what, 1);
SELECT * FROM rl_acquire_bucket(:bucket::text, '[{"rule_id": "b", "requests_per_window": 50, "window_ms": 1000},
	{"rule_id": "a", "requests_per_window": 500, "window_ms": 1000}, {"rule_id": "c", "requests_per_window": 9, "window_ms": 1000}]', 3);
\if :what = 1
SELECT rl_penalize(:bucket::text, 20);
SELECT * FROM rl_acquire_bucket('leased', '[{"rule_id": "l", "requests_per_window": 500, "window_ms": 1000, "max_concurrency": 5}]');
\elif :what = 2
SELECT bucket_id FROM ratelimit.buckets WHERE bucket_id = :bucket::text FOR SHARE SKIP LOCKED;
SELECT ratelimit.reap_buckets(3, 0);
\endif
END
for my $round (1 .. 3) {
	$primary->command_ok([ 'pgbench', '-n', '-c', '8', '-j', '2', '-t', '50', '-f', $calls, 'postgres' ],
		"8 sessions call, round $round");
	$primary->safe_psql('postgres', 'CHECKPOINT; VACUUM (FREEZE) ratelimit.buckets');
}
$primary->wait_for_catchup($standby);

my $rows = 'SELECT ctid, * FROM ratelimit.buckets ORDER BY bucket_id, rule_id';
my $expected = $primary->safe_psql('postgres', $rows);
isnt($expected, '', 'there are buckets');
is($standby->safe_psql('postgres', $rows), $expected, 'the standby has the same rows');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM ratelimit.bucket_state'),
	$primary->safe_psql('postgres', 'SELECT count(*) FROM ratelimit.bucket_state'), 'the view works on the standby');

my $rule = q('[{"rule_id": "a", "requests_per_window": 500, "window_ms": 1000}]');
my ($status, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY verbose\nSELECT rl_acquire_bucket('1', $rule)");
like($err, qr/25006.*rl_acquire_bucket.*recovery/, 'a standby grants nothing');
($status, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY verbose\nSELECT rl_penalize('1', 5)");
like($err, qr/25006.*rl_penalize.*recovery/, 'and penalizes nobody');

# What is spent with the clock standing still is spent on the new primary too.
my $clock = "SET ratelimit.clock = '2040-01-01';";
my $ten = q('[{"rule_id": "r", "requests_per_window": 10, "window_ms": 1000}]');
is($primary->safe_psql('postgres', "$clock SELECT granted FROM rl_acquire_bucket('ten', $ten, 4)"), 4, 'four of ten');
is($primary->safe_psql('postgres', "$clock SELECT granted FROM rl_acquire_bucket('ten', $ten, 3)"), 3, 'three more');
$primary->wait_for_catchup($standby);
$primary->stop;
$standby->promote;
is($standby->safe_psql('postgres', "$clock SELECT granted FROM rl_acquire_bucket('ten', $ten, 9)"), 3,
	'after promotion the last three are left');
unlike(slurp_file($standby->logfile), qr/inconsistent page|PANIC/, 'no page differed after replay');
done_testing();
