# A backend is killed with SIGKILL after, and in the middle of, every call that moves the queue, before and after its commit.
# After restart recovery everything is as it was last committed, and the queue goes on.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use RateLimit;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_server('main', "restart_after_crash = on\nautovacuum = off\nratelimit.clock = '2030-01-01 00:00:10+00'\n");

sub sql { return $node->safe_psql('postgres', $_[0]) }

sql(q{
	CREATE FUNCTION slots(VARIADIC keys text[]) RETURNS jsonb LANGUAGE sql AS $$
		SELECT jsonb_agg(jsonb_build_object('scope_type', 't', 'scope_key', k, 'limit', 2, 'queue_limit', NULL)) FROM unnest(keys) k
	$$;
	CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF current_setting('application_name') = 'victim' THEN
			PERFORM pg_sleep(60);
		END IF;
		RETURN NULL;
	END $$});

# Two hold the slots of a, two wait for a and b, one for b alone; b has room for two.
sub fill
{
	sql(q{
		TRUNCATE ratelimit.tasks, ratelimit.waiting, ratelimit.awaited, ratelimit.scopes, ratelimit.leases;
		SELECT rl_admit('hold' || i, slots('a'), 'async') FROM generate_series(1, 2) i;
		SELECT rl_enqueue('ab' || i, slots('a', 'b')) FROM generate_series(1, 2) i;
		SELECT rl_admit('sync', slots('a'))});
}

# All there is, identifiers aside.
sub state
{
	return sql(q{
		SELECT task_id, status, error_code, put_aside_until, cardinality(lease_ids), scopes FROM ratelimit.tasks ORDER BY 1;
		SELECT scope_key, kind, task_id FROM ratelimit.waiting ORDER BY 1, 3;
		SELECT scope_key, task_id FROM ratelimit.leases ORDER BY 1, 2;
		SELECT scope_key, waiting, leased, lease_count, head_at FROM ratelimit.scopes ORDER BY 1});
}

sub kill_backend
{
	my ($pid, $run) = @_;
	kill 'KILL', $pid;
	eval { $run->finish };
	$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
}

# As it should be after the crash; and whoever waits gets a slot once all are given back.
sub check
{
	my ($stage, $expected) = @_;
	is(state(), $expected, "$stage: all is as it was last committed");
	is(queue_drift($node), '', '... rows and aggregates agree');
	my $ids = sql(q{
		SELECT FROM rl_release(lease_ids => ARRAY(SELECT lease_id FROM ratelimit.leases));
		SELECT rl_admit('sync', slots('a')) IS NULL;
		SELECT string_agg(task_id, ' ') FROM rl_dispatch()});
	like($ids, qr/ab1|ab2/, '... the next in line get the slots');
	is(queue_drift($node), '', '... rows and aggregates agree afterwards');
}

my %calls = (
	'a new task waits'     => q{SELECT rl_admit('new', slots('a', 'c'))},
	'a new task goes'      => q{SELECT rl_admit('new', slots('c'))},
	'a task is enqueued'   => q{SELECT rl_enqueue('new', slots('a', 'c'))},
	'slots are released'   => q{SELECT rl_release(lease_ids => ARRAY(SELECT lease_id FROM ratelimit.leases WHERE task_id = 'hold1'))},
	'a holder is cancelled' => q{SELECT rl_cancel('hold1')},
	'a waiting task is cancelled' => q{SELECT rl_cancel('sync')},
	'a task is moved'      => q{SELECT rl_rebind('ab1', slots('b', 'c'))},
	'a holder moves'       => q{SELECT rl_admit('hold1', slots('c', 'd'))},
	'a task is put aside'  => q{SELECT rl_defer('ab1', 'x', 1)},
	'a slot is dispatched' => q{SELECT rl_cancel('hold1'); SELECT task_id FROM rl_dispatch()});

for my $name (sort keys %calls)
{
	fill();
	my $before = state();
	my $open = session($node);
	ask($open, "BEGIN; $calls{$name}");
	kill_backend($open->{pid}, $open->{psql}{run});
	check("$name, not committed", $before);

	fill();
	$before = state();
	my $done = session($node);
	ask($done, $calls{$name});
	my $after = state();
	isnt($after, $before, "$name: something is changed");
	kill_backend($done->{pid}, $done->{psql}{run});
	check("$name, committed", $after);
}

# A dispatcher in the middle of its transaction, which frees a slot first: at each of its statements, and in its commit.
my @stages = (
	'AFTER INSERT ON ratelimit.leases', 'AFTER DELETE ON ratelimit.waiting', 'AFTER UPDATE ON ratelimit.scopes',
	'AFTER UPDATE ON ratelimit.tasks');
for my $deferred ('', 'DEFERRABLE INITIALLY DEFERRED ')
{
	for my $stage (@stages)
	{
		fill();
		sql(q{SELECT rl_cancel('hold1')});
		my $before = state();
		my $kind = $deferred ? 'CONSTRAINT TRIGGER' : 'TRIGGER';
		sql("CREATE $kind stop $stage ${deferred}FOR EACH ROW EXECUTE FUNCTION stop()");
		my $open = session($node, "SET application_name = 'victim'");
		begin_asking($open, 'SELECT task_id FROM rl_dispatch()');
		$node->poll_query_until('postgres', "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $open->{pid}")
		  or die "the dispatcher does not come to: $stage";
		kill_backend($open->{pid}, $open->{psql}{run});
		my ($table) = $stage =~ /ON (\S+)/;
		sql("DROP TRIGGER stop ON $table");
		check(($deferred ? 'a dispatcher commits, ' : 'a dispatcher, ') . lc $stage, $before);
	}
}

$node->stop;
done_testing();
