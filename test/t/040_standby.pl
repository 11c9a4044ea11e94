# A hot standby: what writes nothing works there, everything else raises 25006 at once, whatever it would have answered,
# with a hint to go to the primary. The same in READ ONLY transactions, without that hint. After promotion all works.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use RateLimit;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = start_server('primary', "ratelimit.clock = '2030-01-01 00:00:10+00'\n", allows_streaming => 1);
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

$primary->safe_psql('postgres', q{
	SELECT rl_reserve('t', 'k', 'rpm', 2, task_id => 'a'), rl_reserve('t', 'k', 'concurrent', 1, task_id => 'a');
	CREATE TABLE ids AS SELECT ARRAY(SELECT reservation_id FROM ratelimit.reservations) AS reservations, ARRAY(SELECT lease_id FROM ratelimit.leases) AS leases;});
$primary->wait_for_catchup($standby);

my $limit = q{[{"scope_type": "t", "scope_key": "k", "metric": "rpm", "limit": 2}]};
my $slot = q{[{"scope_type": "t", "scope_key": "q", "limit": 1, "queue_limit": null}]};
$primary->safe_psql('postgres', "SELECT rl_admit('a', '$slot', 'async'), rl_enqueue('b', '$slot')");
$primary->wait_for_catchup($standby);
my %writers = (
	rl_consume => [ q{SELECT rl_consume('t', 'k', 'rpm', 2)}, q{SELECT rl_consume('t', 'k', 'rpm', 0)}, q{SELECT rl_consume('t', 'k', 'rpm', NULL)},
		qq{SELECT rl_consume('$limit')}, q{SELECT rl_consume('[]')}, q{SELECT rl_consume('t', 'k', 'rpm', -1)} ],
	rl_reserve => [ q{SELECT rl_reserve('t', 'k', 'rpm', 2)}, q{SELECT rl_reserve('t', 'k', 'concurrent', 1)}, q{SELECT rl_reserve('t', 'k', 'rpm', 0)},
		qq{SELECT rl_reserve('$limit')}, q{SELECT rl_reserve('[]')}, q{SELECT rl_reserve('{}')} ],
	rl_commit  => [ q{SELECT rl_commit(reservations) FROM ids}, q{SELECT rl_commit('{}')}, q{SELECT rl_commit(NULL)} ],
	rl_release => [ q{SELECT rl_release(reservations, leases) FROM ids}, q{SELECT rl_release()}, q{SELECT rl_release('{}', '{}')} ],
	rl_attach  => [ q{SELECT rl_attach('a', reservations, leases) FROM ids}, q{SELECT rl_attach('a')}, q{SELECT rl_attach('')} ],
	rl_renew   => [ q{SELECT rl_renew(leases) FROM ids}, q{SELECT rl_renew('{}')}, q{SELECT rl_renew(NULL)} ],
	rl_admit   => [ qq{SELECT rl_admit('a', '$slot')}, qq{SELECT rl_admit('new', '$slot')}, q{SELECT rl_admit('new', '[]')}, q{SELECT rl_admit(NULL, NULL)} ],
	rl_admit_wait => [ q{CALL rl_admit_wait('new', '[]')} ],
	rl_cancel  => [ q{SELECT rl_cancel('a')}, q{SELECT rl_cancel('none')}, q{SELECT rl_cancel(NULL)} ],
	rl_defer   => [ q{SELECT rl_defer('b')}, q{SELECT rl_defer('none')} ],
	rl_dispatch => [ q{SELECT rl_dispatch()}, q{SELECT rl_dispatch(0)} ],
	rl_enqueue => [ qq{SELECT rl_enqueue('b', '$slot')}, q{SELECT rl_enqueue('b', '[{}]')} ],
	rl_rebind  => [ qq{SELECT rl_rebind('b', '$slot')}, q{SELECT rl_rebind('none', '[]')} ],
	rl_renew_waiters => [ q{SELECT rl_renew_waiters('{a}', '{a}')}, q{SELECT rl_renew_waiters('{}', '{}')} ],
	rl_worker_heartbeat => [ q{SELECT rl_worker_heartbeat('w')} ],
	rl_worker_stop => [ q{SELECT rl_worker_stop('w')} ],
	rl_start => [ q{SELECT rl_start('a', 'w')}, q{SELECT rl_start(NULL, NULL)} ],
	rl_heartbeat => [ q{SELECT rl_heartbeat('a', gen_random_uuid())} ],
	rl_submission => [ q{SELECT rl_submission('a', gen_random_uuid(), 'none')} ],
	rl_finish => [ q{SELECT rl_finish('a', gen_random_uuid(), 'failed')} ],
	rl_resolve => [ q{SELECT rl_resolve('a', 'failed')} ],
	rl_take_events => [ q{SELECT rl_take_events()} ],
	rl_reap => [ q{SELECT rl_reap()} ],
	rl_recover => [ q{SELECT rl_recover()}, q{SELECT rl_recover(everything => true)} ]);

sub told
{
	my ($node, $sql) = @_;
	my $err;
	$node->psql('postgres', $sql, stderr => \$err, extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	my ($state) = $err =~ /ERROR:\s+(\w{5})/;
	my ($hint) = $err =~ /HINT:\s+(.*)/;
	return ($state // 'none', $hint // '');
}

for my $function (sort keys %writers)
{
	for my $call (@{ $writers{$function} })
	{
		my ($state, $hint) = told($standby, $call);
		is($state, '25006', "$call on the standby");
		like($hint, qr/primary/, '... with a hint to the primary');
		($state, $hint) = told($primary, "BEGIN READ ONLY; $call");
		is($state, '25006', '... in a read-only transaction');
		unlike($hint, qr/primary/, '... without that hint');
	}
}

my $reads = q{
	SELECT allowed, reason, retry_after_ms, used, reserved, remaining FROM rl_check('t', 'k', 'rpm', 2);
	SELECT allowed, reason, used, reserved FROM rl_check('t', 'new', 'rpm', 2, 3);
	SELECT allowed, reason, retry_after_ms, used FROM rl_check('t', 'k', 'concurrent', 1);
	SELECT allowed, reason FROM rl_check('[{"scope_type": "t", "scope_key": "k", "metric": "rpm", "limit": 1}, {"scope_type": "t", "scope_key": "k", "metric": "concurrent", "limit": 2}]');
	SELECT count(*) FROM rl_check('[]');
	SELECT rl_shard('t', '123456789'), rl_shard('t', '{123456789}x'), rl_shard(NULL, 'a');
	SELECT rl_shard(leases[1]) = rl_shard('t', 'k') FROM ids;
	SELECT rl_version() IS NOT NULL;
	SELECT status, cardinality(lease_ids) FROM rl_status('a');
	SELECT task_id, blockers -> 0 ->> 'reason' FROM rl_waiting();
	SELECT candidate, chosen FROM rl_route('[{"candidate": "c", "limits": [{"scope_type": "t", "scope_key": "k", "metric": "rpm", "limit": 2}]}]');
	SELECT waiting, waiting_async FROM ratelimit.queue_metrics;
	SELECT count(*) FROM rl_verify();
	SELECT count(*) FROM ratelimit.recent_events};
my $answers = join "\n", 't||0|0|1|1', 'f|amount_exceeds_limit||', 'f|concurrency_saturated|5000|1', 'f|window_exhausted', 'f|', '0',
  join('|', map { $primary->safe_psql('postgres', "SELECT $_") } "rl_shard('t', '123456789')", "rl_shard('t', '{123456789}x')") . '|', 't', 't', 'admitted|1', 'b|saturated', 'c|t', '1|1', '0', '3';
is($standby->safe_psql('postgres', $reads), $answers, 'rl_check, rl_shard and rl_version work on the standby');
is($primary->safe_psql('postgres', "BEGIN READ ONLY; $reads"), $answers, '... and in a read-only transaction');
is($standby->safe_psql('postgres', "BEGIN ISOLATION LEVEL REPEATABLE READ; $reads"), $answers, '... and in REPEATABLE READ on the standby');

# What happens on the primary is seen, by sessions that have kept their plans as well.
my $reader = session($standby);
my $look = q{SELECT used, reserved, allowed FROM rl_check('t', 'k', 'rpm', 2)};
is(ask($reader, $look), '0|1|t', 'a session of the standby looks');
$primary->safe_psql('postgres', q{SELECT rl_consume('t', 'k', 'rpm', 2)});
$primary->wait_for_catchup($standby);
is(ask($reader, $look), '1|1|f', '... and sees what was committed on the primary since');
$primary->safe_psql('postgres', q{SELECT rl_commit(reservations) FROM ids});
$primary->wait_for_catchup($standby);
is(ask($reader, "BEGIN; $look; COMMIT"), '2|0|f', '... again');
is(drift($standby), '', 'aggregates and rows agree on the standby');

$standby->promote;
is(ask($reader, q{SELECT allowed, reason FROM rl_consume('t', 'k', 'rpm', 2)}), 'f|window_exhausted', 'after promotion the same session may write');
is(ask($reader, q{SELECT allowed FROM rl_reserve('t', 'k', 'concurrent', 2)}), 't', '... and is granted');
is(ask($reader, q{SELECT r.leases FROM ids, rl_release(lease_ids => ids.leases) r}), '1', '... and releases what the old primary granted');
is(ask($reader, q{SELECT rl_cancel('a')}) . ask($reader, q{SELECT task_id FROM rl_dispatch()}), 'tb', '... and the queue moves on');
is(drift($standby), '', 'aggregates and rows agree after promotion');

$reader->{psql}->quit;
$standby->stop;
$primary->stop;
done_testing();
