# A session that waits is killed with SIGKILL at every stage of its way, and the server restarts: nothing is lost or doubled,
# and the queue goes on.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run ();
use RateLimit;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_server('main', "restart_after_crash = on\nautovacuum = off\nratelimit.waiter_ttl = 2\n");

sub sql { return $node->safe_psql('postgres', $_[0]) }

# A trigger that stops whoever does something to a row, at once or when it commits.
sql(q{
	CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF current_setting('application_name') = 'victim' THEN
			PERFORM pg_sleep(60);
		END IF;
		RETURN NULL;
	END $$});

sub scopes { return qq([{"scope_type": "model", "scope_key": "$_[0]", "limit": 1, "queue_limit": null}]) }

sub begin_call {
	my ($task, $key) = @_;
	my $session = { out => '', err => '' };
	local $ENV{PGAPPNAME} = 'victim';
	$session->{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', "CALL rl_admit_wait('$task', '" . scopes($key) . "')" ],
		'<', \undef, '>', \$session->{out}, '2>', \$session->{err}, IPC::Run::timeout(180));
	return $session;
}

# Waits until the victim sleeps: in the trigger, or in rl_admit_wait.
sub await_sleep {
	my ($event) = @_;
	$node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'victim' AND wait_event = '$event'")
	  or die "the victim does not reach $event";
}

sub kill_victim {
	my ($session) = @_;
	my $pid = sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'victim'");
	kill 'KILL', $pid;
	eval { $session->{run}->finish };
	$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
}

# What the wait has come to after the crash, and that the next one in line gets the slot.
sub check {
	my ($stage, $task, $key, $expected) = @_;
	is(queue_drift($node), '', "$stage: rows and aggregates agree");
	is(sql("SELECT concat_ws(' ', status, error_code) FROM ratelimit.tasks WHERE task_id = '$task'"), $expected,
		"$stage: the task is as it was last committed");
	my $next = begin_call("after_$key", $key);
	if ($expected ne 'admitted') {
		sql("SELECT rl_release('{}', ARRAY(SELECT lease_id FROM ratelimit.leases WHERE scope_key = '$key'))");
	} else {
		sql("SELECT rl_cancel('$task')");
	}
	$next->{run}->finish;
	like($next->{out}, qr/,admitted,t,t,/, "$stage: the next one gets the slot");
	is(queue_drift($node), '', "$stage: rows and aggregates agree afterwards");
}

sub stage {
	my ($stage, $key, $trigger, $event, $expected, $disturb) = @_;
	sql("SELECT rl_admit('holder_$key', '" . scopes($key) . "')");
	sql("CREATE $trigger EXECUTE FUNCTION stop()") if $trigger;
	my $session = begin_call($key, $key);
	if ($disturb) {
		await_sleep('Extension');
		$disturb->($key);
	}
	await_sleep($event);
	kill_victim($session);
	sql("DROP TRIGGER stop ON " . ($trigger =~ /ON (\S+)/)[0]) if $trigger;
	check($stage, $key, $key, $expected);
}

sub release { sql("SELECT rl_release('{}', ARRAY(SELECT lease_id FROM ratelimit.leases WHERE scope_key = '$_[0]'))") }

sub cancel {
	sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim'");
}

stage('entering the queue', 'enter', 'TRIGGER stop AFTER INSERT ON ratelimit.waiting FOR EACH ROW', 'PgSleep', '');
stage('committing that', 'commit',
	'CONSTRAINT TRIGGER stop AFTER INSERT ON ratelimit.waiting DEFERRABLE INITIALLY DEFERRED FOR EACH ROW', 'PgSleep', '');
stage('asleep', 'asleep', undef, 'Extension', 'waiting');
stage('admitted, not yet committed', 'going', 'TRIGGER stop AFTER INSERT ON ratelimit.leases FOR EACH ROW', 'PgSleep', 'waiting',
	\&release);
stage('committing the admission', 'gone',
	'CONSTRAINT TRIGGER stop AFTER INSERT ON ratelimit.leases DEFERRABLE INITIALLY DEFERRED FOR EACH ROW', 'PgSleep', 'waiting',
	\&release);
stage('leaving after a cancel', 'leaving', 'TRIGGER stop AFTER DELETE ON ratelimit.waiting FOR EACH ROW', 'PgSleep', 'waiting',
	\&cancel);
stage('renewing its lease', 'renewing', "TRIGGER stop AFTER UPDATE ON ratelimit.tasks FOR EACH ROW
	WHEN (NEW.waiter_expires_at > OLD.waiter_expires_at + interval '100 ms')", 'PgSleep', 'waiting');

# What the client was told is on disk, though the renewals before it need not be.
$node->append_conf('postgresql.conf', "wal_writer_delay = 10s\n");
$node->reload;
sql("SELECT rl_admit('holder_told', '" . scopes('told') . "')");
my $told = begin_call('told', 'told');
await_sleep('Extension');
release('told');
$told->{run}->finish;
like($told->{out}, qr/,admitted,t,t,/, 'a sleeper is admitted');
$node->stop('immediate');
$node->start;
is(sql("SELECT status FROM ratelimit.tasks WHERE task_id = 'told'"), 'admitted', '... and still is after a crash at once');
is(queue_drift($node), '', '... rows and aggregates agree');

done_testing();
