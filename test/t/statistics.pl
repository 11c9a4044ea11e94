# ratelimit.statistics: what is counted when the library is preloaded, for each database, until a reset or a restart; and
# nothing at all when it is not.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use RateLimit;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $settings = "ratelimit.clock = '2030-01-01 00:00:10+00'\nratelimit.reap_interval = 0\nratelimit.recover_interval = 0\n";
my $node = start_server('main', "shared_preload_libraries = 'ratelimit'\n$settings");
my $all = q{SELECT function, scope_type, metric, allowed, denied, waits, wake_ups, reaped, recovered FROM ratelimit.statistics ORDER BY 1, 2, 3};

sub sql { return $node->safe_psql('postgres', shift) }

is(sql($all), '', 'nothing was counted before the first call');

# Each limit of a granted call counts; of a denied one those that deny.
sql(q{SELECT rl_consume('key', 'a', 'requests', 3) FROM generate_series(1, 5);
	SELECT rl_check('key', 'a', 'requests', 3), rl_check('key', 'b', 'requests', 3);
	SELECT rl_consume('[{"scope_type": "key", "scope_key": "b", "metric": "requests", "limit": 3},
		{"scope_type": "key", "scope_key": "b", "metric": "tokens", "limit": 3}]');
	SELECT rl_consume('[{"scope_type": "key", "scope_key": "a", "metric": "requests", "limit": 3},
		{"scope_type": "key", "scope_key": "b", "metric": "tokens", "limit": 3}]');
	SELECT rl_reserve('user', 'ada', 'concurrent', 1) FROM generate_series(1, 2);
	SELECT rl_enforce('key', 'c', 'requests', 1)});
is(sqlstate($node, q{SELECT rl_enforce('key', 'c', 'requests', 1)}), '53400', 'denied by an error');
is(sql($all), <<'END' =~ s/\n\z//r, 'limits');
rl_check|key|requests|1|1|0|0|0|0
rl_consume|key|requests|4|3|0|0|0|0
rl_consume|key|tokens|1|0|0|0|0|0
rl_enforce|key|requests|1|1|0|0|0|0
rl_reserve|user|concurrent|1|1|0|0|0|0
END

# What is rolled back was decided all the same.
sql(q{BEGIN; SELECT rl_consume('key', 'd', 'requests', 3); ROLLBACK});
like(sql($all), qr/^rl_consume\|key\|requests\|5\|3\|/m, 'a decision that was rolled back');

# Tasks, buckets, upkeep.
sql(q{SELECT rl_reset_statistics()});
is(sql($all), '', 'a reset');
my $scope = q('[{"scope_type": "model", "scope_key": "m", "limit": 1, "queue_limit": 1}]');
my $rules = q('[{"rule_id": "r", "requests_per_window": 2, "window_ms": 1000}]');
sql("SELECT rl_admit('t1', $scope)");
sql("SELECT rl_enqueue('t2', $scope)");
sql("SELECT rl_admit('t3', $scope)");
sql("SELECT rl_cancel('t1')");
sql('SELECT rl_dispatch()');
sql("CALL rl_admit_wait('t4', $scope, '0 s')");
sql("SELECT rl_acquire_bucket('b', $rules, 5) FROM generate_series(1, 3)");
sql("SELECT rl_rebind('nobody', $scope)");
sql(q{SET ratelimit.clock = '2030-01-03'; SELECT rl_reap()});
sql(q{UPDATE ratelimit.scopes SET leased = leased + 5; SELECT rl_recover()});
like(sql(q{SELECT wake_ups FROM ratelimit.statistics WHERE function = 'rl_admit_wait'}), qr/^[1-9]\d*$/, 'the next task was told');
is(sql($all =~ s/ORDER/WHERE function <> 'rl_admit_wait' ORDER/r), <<'END' =~ s/\n\z//r, 'tasks, buckets and upkeep');
rl_acquire_bucket|ratelimit.bucket||1|2|0|0|0|0
rl_admit|model|concurrent|1|1|0|0|0|0
rl_dispatch|||1|0|0|0|0|0
rl_reap|||0|0|0|0|10|0
rl_recover|||0|0|0|0|0|2
END

# A session that waits, is told, and goes.
my $free = $scope =~ s/"m"/"free"/r;
sql("SELECT rl_admit('t5', $free)");
sql('SELECT rl_reset_statistics()');
my $sleeper = session($node);
begin_asking($sleeper, "CALL rl_admit_wait('t6', $free)");
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM ratelimit.statistics WHERE function = 'rl_admit_wait' AND waits = 1}), 'a session waits');
sql("SELECT rl_cancel('t5')");
like(answer($sleeper), qr/admitted/, 'a waiting session is woken');
is(sql($all), "rl_admit_wait|model|concurrent|1|0|0|0|0|0\nrl_admit_wait|||0|0|1|1|0|0", 'and was counted');

# Each database has its own.
$node->safe_psql('postgres', 'CREATE DATABASE other');
is($node->safe_psql('other', "CREATE EXTENSION ratelimit; $all"), '', 'another database has none of it');
$node->safe_psql('other', q{SELECT rl_consume('key', 'a', 'requests', 3)});
is($node->safe_psql('other', $all), 'rl_consume|key|requests|1|0|0|0|0|0', 'but its own');
sql('SELECT rl_reset_statistics()');
is($node->safe_psql('other', $all), 'rl_consume|key|requests|1|0|0|0|0|0', 'which a reset elsewhere leaves');

# Many names: the first thousand for themselves, the others together; nothing is lost.
sql(q{SELECT count(rl_consume('type ' || i, 'a', 'requests', 3)) FROM generate_series(1, 2500) i;
	SELECT count(rl_consume('type ' || i, 'a', 'requests', 3)) FROM generate_series(1, 2500) i;
	SELECT rl_check('of another function', 'a', 'requests', 3)});
is(sql(q{SELECT sum(allowed), count(*) BETWEEN 900 AND 1100, count(*) FILTER (WHERE scope_type = '(other)') FROM ratelimit.statistics WHERE function = 'rl_consume'}),
	'5000|t|1', 'more names than there are places for');
is(sql(q{SELECT scope_type, metric, allowed FROM ratelimit.statistics WHERE function = 'rl_check'}), '(other)|(other)|1', 'for each function');

# Many sessions at once: every call counts.
my $script = PostgreSQL::Test::Utils::tempdir() . '/calls.sql';
append_to_file($script, "SELECT rl_check('type 1', 'a', 'requests', 3);\nSELECT rl_acquire_bucket('b', $rules);\n");
sql('SELECT rl_reset_statistics()');
$node->command_ok([ 'pgbench', '-n', '-c', 16, '-j', 2, '-t', 200, '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ], 'sixteen sessions');
is(sql(q{SELECT function, allowed + denied FROM ratelimit.statistics ORDER BY 1}), "rl_acquire_bucket|3200\nrl_check|3200", 'all of it was counted');

# Since when.
is(sql(q{SELECT bool_and(since BETWEEN pg_postmaster_start_time() AND clock_timestamp()) FROM ratelimit.statistics}), 't', 'since the reset');
my $since = sql(q{SELECT max(since) FROM ratelimit.statistics});
$node->restart;
is(sql($all), '', 'a restart begins anew');
sql(q{SELECT rl_check('key', 'a', 'requests', 3)});
is(sql(qq{SELECT since > '$since' FROM ratelimit.statistics}), 't', 'from then on');

# Who may see and reset it.
sql(q{CREATE ROLE watcher; CREATE ROLE client; SELECT rl_grant('watcher', 'operator'), rl_grant('client', 'client')});
is(sqlstate($node, 'SET ROLE watcher; SELECT * FROM ratelimit.statistics; SELECT rl_reset_statistics()'), '', 'an operator');
is(sqlstate($node, 'SET ROLE client; SELECT * FROM ratelimit.statistics; SELECT rl_reset_statistics()'), '42501 42501', 'not a client');
is(sqlstate($node, 'BEGIN READ ONLY; SELECT rl_reset_statistics()'), '25006', 'not where nothing may be changed');

# Not preloaded: nothing is counted, and nothing breaks.
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$node->restart;
is(sql(q{SELECT allowed FROM rl_consume('key', 'z', 'requests', 3); SELECT rl_reset_statistics()}), "t\n", 'not preloaded');
is(sql($all), '', 'the view is empty');
$node->stop;
done_testing();
