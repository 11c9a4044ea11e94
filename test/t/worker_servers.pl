# The background worker and its server: start, settings, stop, crash, standby, and without preload.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Worker;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::Local qw(timegm);

my $node = new_server('primary', 'ratelimit.reap_interval = 1', 'ratelimit.recover_interval = 1');
$node->start;
create_database($node, 'app');
picked_up($node, 'app', 'picked up');

# Settings are read again.
sub set_intervals {
	my ($seconds) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET ratelimit.$_ = $seconds") for 'reap_interval', 'recover_interval';
	$node->reload;
}
my $rounds = status($node, 'app', 'rounds');
wait_until($node, 'app', "SELECT rounds > $rounds + 2 FROM ratelimit.worker_status", 15, 'rounds go on');
set_intervals(3600);
$rounds = '';
wait_until($node, 'app', q{SELECT state = 'idle' FROM ratelimit.worker_status}, 10, 'the last round ends');
let_pass($node, 1);
$rounds = status($node, 'app', 'rounds');
let_pass($node, 4);
is(status($node, 'app', 'rounds'), $rounds, 'a longer interval holds after SIGHUP');
set_intervals(1);
wait_until($node, 'app', "SELECT rounds > $rounds FROM ratelimit.worker_status", 5, 'so does a shorter one, at once');
set_intervals(0);
let_pass($node, 2);
$rounds = status($node, 'app', 'rounds');
let_pass($node, 3);
is(status($node, 'app', 'rounds'), $rounds, 'zero switches rounds off');
create_database($node, 'quiet');
wait_until($node, 'quiet', q{SELECT state = 'idle' FROM ratelimit.worker_status WHERE database = 'quiet'}, 10, 'new databases are known all the same');
set_intervals(1);

# A session that is killed takes all processes with it; they come back.
my $launcher = status($node, 'app', 'launcher_pid');
my $victim = $node->background_psql('app');
my $pid = $victim->query_safe('SELECT pg_backend_pid()');
kill 'KILL', $pid;
$node->poll_query_until('postgres', 'SELECT true');
wait_until($node, 'app', "SELECT rounds > 0 AND launcher_pid <> $launcher FROM ratelimit.worker_status WHERE database = 'app'", 15,
	'after a crash of a session the worker goes on');
eval { $victim->quit };

# So does a launcher that somebody ends.
$launcher = status($node, 'app', 'launcher_pid');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($launcher)");
wait_until($node, 'app', "SELECT launcher_pid <> $launcher FROM ratelimit.worker_status WHERE database = 'app'", 15,
	'a launcher that was terminated is started again');

# A standby has no launcher; once promoted it has.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
is($standby->safe_psql('app', q{SELECT state, launcher_pid IS NULL FROM ratelimit.worker_status WHERE database = 'app'}), 'standby|t',
	'a standby says that it is one');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'ratelimit%'}), 0, 'and has no worker');
is($standby->safe_psql('app', q{SELECT allowed FROM rl_check('user', 'ada', 'rpm', 5)}), 't', 'while its sessions read');

# Fast shutdown: the launcher is what is left to stop.
my $offset = -s $node->logfile;
$node->stop('fast');
my ($asked) = lines_in_log($node, qr/received fast shutdown request/, $offset);
my ($ended) = lines_in_log($node, qr/ shutting down$/, $offset);
cmp_ok(seconds_of($ended) - seconds_of($asked), '<', 1, 'the processes end within a second of a fast shutdown');

$standby->promote;
picked_up($standby, 'app', 'active within 10 s of promotion');
$standby->stop('immediate');
$standby->start;
picked_up($standby, 'app', 'and after an immediate stop');

# Without preload everything works but the worker, and the view says so.
$standby->adjust_conf('postgresql.conf', 'shared_preload_libraries', q{''});
$standby->restart;
is($standby->safe_psql('app', q{SELECT state, rounds, launcher_pid IS NULL FROM ratelimit.worker_status}), 'not preloaded|0|t', 'without preload the view says why nothing happens');
is($standby->safe_psql('app', q{SELECT allowed FROM rl_consume('user', 'ada', 'rpm', 5)}), 't', 'and calls work');
$standby->stop('fast');

# No slot for a worker: said once, and tried until there is one. The server's own launcher takes one, ours another.
my $small = new_server('small', 'max_worker_processes = 3', 'ratelimit.reap_interval = 1');
$small->start;
my $holder = $small->background_psql('postgres', on_error_stop => 0);
$holder->query_safe('SET force_parallel_mode = on');
$holder->query_until(qr/holding/, "\\echo holding\nSELECT pg_sleep(600);\n");
$small->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'parallel worker'});
$offset = -s $small->logfile;
create_database($small, 'app');
let_pass($small, 5);
is(scalar lines_in_log($small, qr/ratelimit found no free slot/, $offset), 1, 'out of worker slots: said once');
is(status($small, 'app', 'rounds'), 0, 'and there was no round');
$small->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND backend_type = 'client backend'});
picked_up($small, 'app', 'once there is a slot, rounds begin');
eval { $holder->quit };
$small->stop('fast');

sub seconds_of {
	my ($line) = @_;
	my ($year, $month, $day, $hour, $minute, $second) = $line =~ /^(\d+)-(\d+)-(\d+) (\d+):(\d+):([\d.]+)/ or die "no time in: $line\n";
	return timegm(int $second, $minute, $hour, $day, $month - 1, $year) + $second - int $second;
}

done_testing();
