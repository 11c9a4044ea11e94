# Many sleepers: two hundred cost the server next to nothing, and of a thousand tasks only the one that can go is told.
use strict;
use warnings;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $sleepers = 200;
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_connections = 230\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION ratelimit');

sub sql { return $node->safe_psql('postgres', $_[0]) }

my $scopes = '[{"scope_type": "model", "scope_key": "%s", "limit": 1, "queue_limit": null}]';

# --- a thousand tasks, one notification -----------------------------------------------------------------------------

my $one = sprintf $scopes, 'thousand';
sql("SELECT rl_admit('holder', '$one')");
sql("SELECT count(rl_admit('waits' || i, '$one')) FROM generate_series(1, 1000) i");
is(sql("SELECT waiting FROM ratelimit.scopes WHERE scope_key = 'thousand'"), '1000', 'a thousand tasks wait for one slot');
my $release = "SELECT rl_release('{}', ARRAY(SELECT lease_id FROM ratelimit.leases WHERE scope_key = 'thousand'))";
my (undef, $told) = $node->psql('postgres', "LISTEN ratelimit_admission;\n$release;\nSELECT 1;\n");
my @notices = $told =~ /Asynchronous notification "ratelimit_admission" with payload "([^"]*)"/g;
is("@notices", 'waits1', 'a release tells the first of them and nobody else');
(undef, $told) = $node->psql('postgres', "LISTEN ratelimit_admission;\n$release;\nSELECT 1;\n");
unlike($told, qr/Asynchronous/, 'a release of nothing tells nobody');

# --- two hundred sleepers -------------------------------------------------------------------------------------------

# The processor time that the server's processes have used, in seconds, by process.
sub cpu_seconds {
	my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /\A(\d+)/;
	my %seconds;
	for my $file (glob '/proc/[0-9]*/stat') {
		open my $handle, '<', $file or next;
		my $line = <$handle> // next;
		my ($pid) = $line =~ /\A(\d+)/;
		my @fields = split ' ', $line =~ s/\A.*\) //r;
		$seconds{$pid} = ($fields[11] + $fields[12]) / 100 if $pid == $postmaster || $fields[1] == $postmaster;
	}
	return \%seconds;
}

SKIP: {
	skip 'processor times are read from /proc', 4 unless -r '/proc/self/stat';

	my $many = sprintf $scopes, 'many';
	sql("SELECT rl_admit('holder2', '$many')");
	my $script = $node->basedir . '/wait.sql';
	append_to_file($script, "CALL rl_admit_wait('many' || :client_id, '$many');\n");
	my $output = '';
	my $bench = IPC::Run::start(
		[ 'pgbench', '-n', '-c', $sleepers, '-t', 1, '-M', 'prepared', '-f', $script, $node->connstr('postgres') ],
		'<', \undef, '>', \$output, '2>', \$output);
	ok($node->poll_query_until('postgres', "SELECT count(*) = $sleepers FROM pg_stat_activity WHERE wait_event_type = 'Extension'"),
		"$sleepers sessions sleep");
	is(sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension'
		AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)"), '0', 'none holds back vacuum');

	sleep 1;
	my ($before, $began) = (cpu_seconds(), time);
	sleep 10;
	my ($after, $elapsed, $used) = (cpu_seconds(), time - $began, 0);
	$used += $after->{$_} - ($before->{$_} // 0) for keys %$after;
	# Less than 2 % where nothing else runs. Processor time grows when others push the caches empty, and autovacuum may pass
	# by; sessions that polled ten times a second would need more than a whole processor.
	diag(sprintf 'processor time of %d sleepers: %.2f s in %.1f s, %.2f %%', $sleepers, $used, $elapsed, 100 * $used / $elapsed);
	cmp_ok($used / $elapsed, '<', 0.1, 'they need next to no processor time');

	$began = time;
	sql("SELECT rl_cancel(task_id) FROM ratelimit.tasks WHERE task_id LIKE 'many%' AND status = 'waiting'");
	$bench->finish;
	note(sprintf 'all had ended after %.1f s', time - $began);
	is(sql("SELECT count(*) FROM ratelimit.waiting WHERE scope_key = 'many'"), '0', 'all end when they are cancelled');
}

done_testing();
