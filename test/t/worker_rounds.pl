# What the background worker does in its rounds, how long they last, and what becomes of errors.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Worker;
use Test::More;

my $node = new_server('rounds', 'ratelimit.reap_interval = 1', 'ratelimit.recover_interval = 1', 'autovacuum = off');
$node->start;
create_database($node, 'app');
create_database($node, 'other');
picked_up($node, 'app', 'picked up');

# A lease that runs out, without anybody calling.
$node->safe_psql('app', q{SELECT * FROM rl_reserve('user', 'ada', 'concurrent', 5, lease_ttl_seconds => 1)});
wait_until($node, 'app', q{SELECT lease_count = 0 FROM ratelimit.scopes}, 10, 'an expired lease is removed by itself');
wait_until($node, 'app', q{SELECT total_rows >= 1 FROM ratelimit.worker_status WHERE database = 'app'}, 10, 'and counted');

# More than one round can do: each ends in time, and the next goes on soon.
$node->safe_psql('app', q{
	INSERT INTO ratelimit.counters (scope_type, scope_key, metric, window_seconds, window_start, used, reserved, limit_value, touched_at)
	SELECT 'key', i::text, 'rpm', 60, '2020-01-01', 1, 0, 5, '2020-01-01' FROM generate_series(1, 100000) i});
my $slowest = 0;
my $left = 1;
for (1 .. 120) {
	let_pass($node, 0.5);
	my $took = status($node, 'app', 'round(last_round_ms)', 'other');
	$slowest = $took if $took > $slowest;
	last if ($left = $node->safe_psql('app', 'SELECT count(*) FROM ratelimit.counters')) == 0;
}
is($left, 0, 'a large backlog is worked off');
cmp_ok($slowest, '<', 2_000, 'and no round takes longer than two seconds');

# An error is said once, however often it comes again, and does not stop the worker elsewhere.
my $offset = -s $node->logfile;
$node->safe_psql('app', 'ALTER TABLE ratelimit.leases RENAME TO hidden');
wait_until($node, 'other', q{SELECT failures >= 3 FROM ratelimit.worker_status WHERE database = 'app'}, 30, 'rounds fail, again and again');
is(scalar lines_in_log($node, qr/ratelimit could not do its work in database "app": relation "ratelimit.leases" does not exist/, $offset), 1, 'the log says so once');
is(scalar lines_in_log($node, qr/ratelimit could not/, $offset), 1, 'and nothing else');
is(status($node, 'app', q{concat_ws(' ', state, last_sqlstate, last_error)}, 'other'), 'failing 42P01 relation "ratelimit.leases" does not exist', 'the view shows the error');
my $rounds = status($node, 'other', 'rounds', 'other');
wait_until($node, 'other', "SELECT rounds > $rounds FROM ratelimit.worker_status WHERE database = 'other'", 10, 'another database is looked after meanwhile');

# Another error is another line; its end is one, too.
$node->safe_psql('app', 'ALTER TABLE ratelimit.hidden RENAME TO leases; ALTER TABLE ratelimit.requests RENAME TO hidden');
wait_until($node, 'other', q{SELECT last_error LIKE '%requests%' FROM ratelimit.worker_status WHERE database = 'app'}, 30, 'another error');
is(scalar lines_in_log($node, qr/ratelimit could not/, $offset), 2, 'is said as well');
$node->safe_psql('app', 'ALTER TABLE ratelimit.hidden RENAME TO requests');
wait_until($node, 'other', q{SELECT failures = 0 AND state IN ('idle', 'working') FROM ratelimit.worker_status WHERE database = 'app'}, 75, 'the worker gets over it');
is(scalar lines_in_log($node, qr/ratelimit does its work in database "app" again/, $offset), 1, 'and says so');
like(status($node, 'app', 'last_error', 'other'), qr/requests/, 'the last error can still be seen');

# A table that somebody holds: the round gives up in time.
my $holder = $node->background_psql('app');
$holder->query_safe('BEGIN; LOCK TABLE ratelimit.leases IN ACCESS EXCLUSIVE MODE');
$offset = -s $node->logfile;
wait_until($node, 'other', q{SELECT last_sqlstate = '55P03' FROM ratelimit.worker_status WHERE database = 'app'}, 15, 'a round does not wait for a table that is locked');
cmp_ok(status($node, 'app', 'last_round_ms', 'other'), '<', 2_000, 'but ends within two seconds');
is($node->psql('postgres', 'CREATE DATABASE waiting'), 0, 'nobody is held up by it');
$holder->query_safe('COMMIT');
wait_until($node, 'other', q{SELECT failures = 0 FROM ratelimit.worker_status WHERE database = 'app'}, 75, 'then it goes on');

# Settings of the database that would keep it from working do not.
$node->safe_psql('postgres', "ALTER DATABASE app SET $_") for 'default_transaction_read_only = on', q{default_transaction_isolation = 'serializable'}, q{search_path = ''};
$node->safe_psql('app', q{SET default_transaction_read_only = off; SELECT * FROM public.rl_reserve('user', 'eve', 'concurrent', 5, lease_ttl_seconds => 1)});
wait_until($node, 'app', q{SELECT lease_count = 0 FROM ratelimit.scopes WHERE scope_key = 'eve'}, 10, 'a read-only default does not stop it');

# Dropping the extension in the middle of it all is no error.
$offset = -s $node->logfile;
for (1 .. 5) {
	$node->safe_psql('other', 'DROP EXTENSION ratelimit');
	$node->safe_psql('other', 'CREATE EXTENSION ratelimit');
}
picked_up($node, 'other', 'the extension comes and goes');
my @failures = lines_in_log($node, qr{ratelimit could not}, $offset);
is(scalar @failures, 0, "which is no error") or diag(@failures);
eval { $holder->quit };
$node->stop('fast');

done_testing();
