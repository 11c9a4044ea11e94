# After a crash, committed reservations and leases are there, what was rolled back or not committed is not, and the
# aggregates agree. A session that is killed gives its units and slots back.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use RateLimit;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_server('main', "restart_after_crash = on\nratelimit.clock = '2030-01-01 00:00:10+00'\n");

my $all = q{
	SELECT 'counter', scope_key, used, reserved, limit_value FROM ratelimit.counters ORDER BY scope_key;
	SELECT 'reservation', task_id, status, actual_amount FROM ratelimit.reservations ORDER BY task_id;
	SELECT 'scope', scope_key, leased, lease_count FROM ratelimit.scopes ORDER BY scope_key;
	SELECT 'lease', task_id, attempt_id FROM ratelimit.leases ORDER BY task_id;
	SELECT 'request', request_id FROM ratelimit.requests};

$node->safe_psql('postgres', q{
	SELECT rl_reserve('t', 'k', 'rpm', 9, task_id => 'kept', request_id => 'kept'), rl_reserve('t', 'k', 'rpm', 9, 2, task_id => 'settled');
	SELECT rl_reserve('t', 'k', 'rpm', 9, task_id => 'released'), rl_consume('t', 'k', 'rpm', 9);
	SELECT rl_reserve('t', 'k', 'concurrent', 9, task_id => 'kept'), rl_reserve('t', 'k', 'concurrent', 9, task_id => 'released');
	SELECT rl_commit(array_agg(reservation_id)) FROM ratelimit.reservations WHERE task_id = 'settled';
	SELECT rl_release((SELECT array_agg(reservation_id) FROM ratelimit.reservations WHERE task_id = 'released'),
		(SELECT array_agg(lease_id) FROM ratelimit.leases WHERE task_id = 'released'));
	BEGIN; SELECT rl_reserve('t', 'k', 'rpm', 9, 3, task_id => 'undone'), rl_reserve('t', 'k', 'concurrent', 9, 3, task_id => 'undone'),
		rl_consume('t', 'undone', 'rpm', 9), rl_reserve('t', 'undone', 'concurrent', 9); ROLLBACK;
	BEGIN; SAVEPOINT s; SELECT rl_consume('t', 'k', 'rpm', 9, 3); ROLLBACK TO s; SELECT rl_consume('t', 'k', 'rpm', 9, 0.5); COMMIT});
my $expected = join "\n", 'counter|k|3.5|1|9', 'reservation|kept|reserved|', 'reservation|released|released|', 'reservation|settled|committed|2',
  'scope|k|1|1', 'lease|kept|', 'request|kept';
is($node->safe_psql('postgres', $all), $expected, 'before the crash');

my $open = session($node);
is( ask($open, q{BEGIN; SELECT (rl_reserve('t', 'k', 'rpm', 9, 2, task_id => 'open', request_id => 'open')).allowed,
		(rl_reserve('t', 'k', 'concurrent', 9, 2, task_id => 'open')).allowed, (rl_consume('t', 'open', 'rpm', 9)).allowed}),
	't|t|t', 'a transaction that is open when the server crashes');
$node->stop('immediate');
eval { $open->{psql}->{run}->finish };
$node->start;
is($node->safe_psql('postgres', $all), $expected, 'after an immediate stop and a restart');
is(drift($node), '', '... aggregates and rows agree');
is( $node->safe_psql('postgres', q{SELECT reservation_id = (SELECT reservation_id FROM ratelimit.reservations WHERE task_id = 'kept')
		FROM rl_reserve('t', 'k', 'rpm', 9, request_id => 'kept')}),
	't', '... a request is still known');
is( $node->safe_psql('postgres', q{SELECT rl_commit(array_agg(reservation_id)) FROM ratelimit.reservations WHERE task_id = 'kept';
		SELECT leases FROM rl_release(lease_ids => ARRAY(SELECT lease_id FROM ratelimit.leases))}),
	"1\n1", '... and what was held can be settled');
is(drift($node), '', '... aggregates and rows agree');

# A backend that is killed takes the server through recovery; its unit and its slot are free at once.
my $take = q{SELECT (rl_reserve('t', 'one', 'rpm', 1)).allowed, (rl_reserve('t', 'one', 'concurrent', 1)).allowed};
my $victim = session($node);
is(ask($victim, "BEGIN; $take"), 't|t', 'the only unit and slot, held in a transaction');
kill 'KILL', $victim->{pid};
eval { $victim->{psql}->{run}->finish };
$node->poll_query_until('postgres', 'SELECT true');
is($node->safe_psql('postgres', $take), 't|t', '... are granted to the next after kill -9');
is(drift($node), '', '... aggregates and rows agree');

# Clients are killed in the middle of what they do, by the server's immediate stop.
my $mixed = $node->basedir . '/mixed.sql';
append_to_file($mixed, <<'SQL');
\set key random(1, 3)
BEGIN;
SELECT max(reservation_id::text) AS r, max(lease_id::text) AS l FROM rl_reserve(jsonb_build_array(
	jsonb_build_object('scope_type', 't', 'scope_key', 'm' || :key, 'metric', 'rpm', 'limit', 1e9),
	jsonb_build_object('scope_type', 't', 'scope_key', 'm' || :key, 'metric', 'concurrent', 'limit', 1e9))) \gset
COMMIT;
BEGIN;
SELECT rl_commit(ARRAY[:r]::uuid[]), rl_renew(ARRAY[:l]::uuid[]);
SELECT rl_consume('t', 'm' || :key, 'rpm', 1e9);
END;
SELECT rl_release(lease_ids => ARRAY[:l]::uuid[]);
SQL
for my $round (1 .. 3)
{
	my $run = IPC::Run::start [ 'pgbench', '-n', '-M', 'extended', '-c', '4', '-T', '60', '-f', $mixed, '-h', $node->host, '-p', $node->port, 'postgres' ], '>', '/dev/null', '2>', "$mixed.err";
	my $calls = $node->safe_psql('postgres', q{SELECT coalesce(sum(used), 0) FROM ratelimit.counters WHERE scope_key ~ '^m'});
	$node->poll_query_until('postgres', "SELECT coalesce(sum(used), 0) > $calls + 100 FROM ratelimit.counters WHERE scope_key ~ '^m'");
	$node->stop('immediate');
	eval { $run->finish };
	unlike(slurp_file("$mixed.err"), qr/ERROR/, "round $round of running clients: no error but the crash");
	$node->start;
	is(drift($node), '', "crash $round among running clients: aggregates and rows agree");
	is( $node->safe_psql('postgres', q{SELECT sum(used) >= (SELECT count(*) FROM ratelimit.reservations WHERE status = 'committed' AND scope_key ~ '^m')
			FROM ratelimit.counters WHERE scope_key ~ '^m'}),
		't', '... every settlement is counted');
}

$node->stop;
done_testing();
