# Random calls by eight sessions at once over few keys: no limit is ever exceeded, in no state that anybody could see is
# an aggregate different from its rows, single calls never deadlock, and only REPEATABLE READ and SERIALIZABLE get 40001.
# A ninth session looks on all the time.
#
# SEED=n repeats the choices, though not their interleaving; LONG=1 makes ten times as many.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use RateLimit;
use POSIX qw(:sys_wait_h);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed     = $ENV{SEED} // int(rand(2**31));
my $sessions = 8;
my $calls    = $ENV{LONG} ? 10_000 : 1000;
srand($seed);
diag("SEED=$seed");

# Each key keeps its limit, and nobody commits more than was reserved: so each row stays within it at any time.
my %limit = (rpm => 6, tpm => 20, concurrent => 4);

sub pick { return $_[ int rand @_ ] }

sub element
{
	my ($what) = @_;
	my $metric = pick('rpm', 'tpm', $what eq 'consume' ? () : 'concurrent');
	return ("k" . pick(1, 1, 2, 3), $metric, $limit{$metric}, pick(1, 1, 2, 0.5), pick(60, 10), pick(2, 10, 30));
}

sub reserve
{
	my ($what, $n) = @_;
	my @elements = map { [ element($what) ] } 1 .. pick(1, 1, 2, 3, 4);
	my $request = $what eq 'reserve' && rand() < 0.2 ? "'q" . int(rand(40)) . "'" : 'NULL';
	$request = 'NULL' if @elements > 1;    # one id always asks for the same
	my @arguments;
	if (@elements == 1)
	{
		my ($key, $metric, $bound, $amount, $window, $ttl) = @{ $elements[0] };
		($key, $metric, $bound, $amount, $window) = ('k1', 'rpm', 6, 1, 60) if $request ne 'NULL';
		@arguments = ("'t', '$key', '$metric', $bound, $amount, $window", $what eq 'reserve' ? "$ttl, NULL, NULL, $request" : ());
	}
	else
	{
		@arguments = "'[" . join(', ', map { sprintf '{"scope_type": "t", "scope_key": "%s", "metric": "%s", "limit": %s, "amount": %s, "window_seconds": %d, "lease_ttl_seconds": %d}', @$_ } @elements) . "]'";
	}
	return "SELECT coalesce(array_agg(reservation_id) FILTER (WHERE reservation_id IS NOT NULL), '{}') AS r_$n, coalesce(array_agg(lease_id) FILTER (WHERE lease_id IS NOT NULL), '{}') AS l_$n FROM rl_$what("
	  . join(', ', @arguments) . ') \\gset';
}

# The ids that one of the last calls of the session was given.
sub given { my ($which, $n) = @_; return ":'${which}_" . pick(map { $_ < 0 ? 0 : $_ } $n - 1 .. $n - 1, $n - 4 .. $n - 1) . "'::uuid[]" }

sub script
{
	my ($isolation) = @_;
	my @lines = ("SET default_transaction_isolation = '$isolation';", "\\set r_0 '{}'", "\\set l_0 '{}'");
	for my $n (1 .. $calls)
	{
		push @lines, "\\set r_$n '{}'", "\\set l_$n '{}'";
		# The sessions' clocks run through the same minutes, never quite together, and sometimes backwards.
		push @lines, sprintf "SELECT set_config('ratelimit.clock', ('2030-01-01 00:00:00+00'::timestamptz + interval '%.3f s')::text, false) \\gset",
		  $n * 900 / $calls + rand(4) - (rand() < 0.1 ? 10 : 0)
		  if rand() < 0.3;
		my $call = pick(
			(sub { reserve('reserve', $n) }) x 5,
			(sub { reserve('consume', $n) }) x 2,
			sub { reserve('check', $n) },
			(sub { 'SELECT rl_commit(' . given('r', $n) . ', \'{"tpm": 0.25}\');' }) x 2,
			(sub { 'SELECT rl_release(' . given('r', $n) . ', ' . given('l', $n) . ');' }) x 3,
			(sub { 'SELECT rl_renew(' . given('l', $n) . ');' }) x 2,
			sub { "SELECT rl_attach('a', " . given('r', $n) . ', ' . given('l', $n) . ');' })->();
		my $way = rand();
		push @lines, $way < 0.7 ? $call : $way < 0.8 ? ('BEGIN;', $call, 'ROLLBACK;') : $way < 0.9 ? ('BEGIN;', 'SAVEPOINT s;', $call, 'ROLLBACK TO s;', 'COMMIT;') : ('BEGIN;', 'SAVEPOINT s;', $call, 'RELEASE s;', 'COMMIT;');
	}
	return join("\n", '\\o /dev/null', @lines) . "\n";
}

my $node = start_server('main', "log_statement = none\nlog_min_error_statement = panic\ndeadlock_timeout = 100ms\n");
my @isolation = (('read committed') x 6, 'repeatable read', 'serializable');
my @runs;
for my $i (0 .. $sessions - 1)
{
	my $file = $node->basedir . "/session$i.sql";
	append_to_file($file, script($isolation[$i]));
	push @runs, { file => $file };
}
my %running;
for my $run (@runs)
{
	my $pid = fork() // die "cannot fork: $!";
	if ($pid == 0)
	{
		open STDIN,  '<', '/dev/null';
		open STDOUT, '>', '/dev/null';
		open STDERR, '>', "$run->{file}.err";
		exec 'psql', '-Xq', '-v', 'VERBOSITY=sqlstate', '-d', $node->connstr('postgres'), '-f', $run->{file};
		POSIX::_exit(127);
	}
	$running{$pid} = 1;
}

# Looking on: each look is one snapshot.
my $exceeded_query = join ' UNION ALL ', (map {
		"SELECT 'counter ' || scope_key || ' $_: ' || used || ' + ' || reserved FROM ratelimit.counters WHERE metric = '$_' AND used + reserved > $limit{$_}" } 'rpm', 'tpm'),
	"SELECT 'scope ' || scope_key || ': ' || leased FROM ratelimit.scopes WHERE leased > $limit{concurrent}";
my ($looks, @drift, @exceeded) = (0);
my @statuses;
while (%running)
{
	push @drift, grep { length } drift($node);
	push @exceeded, grep { length } $node->safe_psql('postgres', $exceeded_query);
	$looks++;
	for my $pid (keys %running)
	{
		next unless waitpid($pid, WNOHANG) == $pid;
		push @statuses, $?;
		delete $running{$pid};
	}
}
is("@statuses", join(' ', (0) x $sessions), 'every session came to its end');
cmp_ok($looks, '>', 3, "$looks looks while they were at it");
is(join("\n", @drift), '', 'aggregates and rows agreed at every look');
is(join("\n", @exceeded), '', 'no limit was exceeded at any look');
is(drift($node), '', 'aggregates and rows agree at the end');
is($node->safe_psql('postgres', $exceeded_query), '', 'no limit is exceeded at the end');
for my $i (0 .. $sessions - 1)
{
	my %errors;
	$errors{$_}++ for slurp_file("$runs[$i]{file}.err") =~ /(?:ERROR|FATAL):\s+(\w+)/g;
	delete @errors{qw(40001 25P02)} if $isolation[$i] ne 'read committed';    # 25P02: the rest of such a transaction
	is(join(', ', map { "$errors{$_} of $_" } sort keys %errors), '', "session $i, $isolation[$i]: no error");
}
is( $node->safe_psql('postgres', q{SELECT count(*) FROM ratelimit.requests q
		WHERE NOT EXISTS (SELECT FROM ratelimit.reservations r WHERE r.reservation_id = q.reservation_ids[1])}),
	'0', 'every request that is remembered has its reservation');
# Of each window: what was granted and not given back, whether it still is the current one or not.
is( $node->safe_psql('postgres', qq{SELECT string_agg(concat_ws(' ', scope_key, metric, window_start, total), ', ') FROM (
			SELECT scope_key, metric, window_seconds, window_start, sum(CASE status WHEN 'reserved' THEN amount WHEN 'committed' THEN actual_amount ELSE 0 END) AS total
			FROM ratelimit.reservations GROUP BY 1, 2, 3, 4) w WHERE total > CASE metric WHEN 'rpm' THEN $limit{rpm} ELSE $limit{tpm} END}),
	'', 'no window has more reserved and committed than its limit');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM ratelimit.reservations'), '>', $sessions * $calls / 20, 'many reservations were granted');
$node->stop;
done_testing();
