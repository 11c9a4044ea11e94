# pg_dump and restore: the state of every table, live leases and waiting tasks included, and the privileges of rl_grant.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use RateLimit;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_server('main', "ratelimit.clock = '2030-01-01 00:00:10+00'\n");
my $scopes = q('[{"scope_type": "model", "scope_key": "m", "limit": 1, "queue_limit": null}]');
my $rules = q('[{"rule_id": "r", "requests_per_window": 10, "window_ms": 1000, "max_concurrency": 5}]');
$node->safe_psql('postgres', <<"SQL");
CREATE ROLE app; CREATE ROLE watcher; CREATE ROLE gone;
SELECT rl_grant('app', 'client'), rl_grant('watcher', 'operator'), rl_grant('gone', 'worker');
SELECT rl_grant('watcher', 'monitor'), rl_revoke('gone');
SELECT rl_consume('key', 'a', 'requests', 5, 3);
SELECT rl_reserve('key', 'a', 'tokens', 100, 40, request_id => 'request');
SELECT rl_commit(ARRAY[(rl_reserve('key', 'a', 'tokens', 100, 10)).reservation_id]);
SELECT rl_reserve('user', 'ada', 'concurrent', 2, lease_ttl_seconds => 600, task_id => 'mine');
SELECT rl_admit('running', $scopes), rl_enqueue('waiting', $scopes, -1), rl_admit('sync', $scopes);
SELECT rl_worker_heartbeat('worker', 3), rl_start('running', 'worker');
SELECT rl_acquire_bucket('bucket', $rules, 4), rl_penalize('bucket', 1000);
SQL

my @tables = split /\n/, $node->safe_psql('postgres', q{
	SELECT relname FROM pg_class WHERE relnamespace = 'ratelimit'::regnamespace AND relkind = 'r' ORDER BY 1});
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';

sub contents
{
	my ($database, $table) = @_;
	return $node->safe_psql($database, "SELECT t FROM ratelimit.$table t ORDER BY t::text");
}

my $privileges = q{
	SELECT r, p.oid::regprocedure FROM unnest('{app,watcher,gone}'::text[]) r, pg_proc p WHERE proname ~ '^rl_' AND has_function_privilege(r, p.oid, 'EXECUTE')
	UNION ALL
	SELECT 'public', p.oid::regprocedure FROM pg_proc p WHERE proname ~ '^rl_' AND (proacl IS NULL OR EXISTS (SELECT FROM aclexplode(proacl) WHERE grantee = 0))
	UNION ALL
	SELECT r, c.oid FROM unnest('{app,watcher,gone}'::text[]) r, pg_class c WHERE relnamespace = 'ratelimit'::regnamespace AND relkind IN ('r', 'v')
		AND has_table_privilege(r, c.oid, 'SELECT, INSERT, UPDATE, DELETE')
	UNION ALL
	SELECT r, 0 FROM unnest('{app,watcher,gone}'::text[]) r WHERE has_schema_privilege(r, 'ratelimit', 'USAGE')
	ORDER BY 1, 2};
$privileges =~ s/c\.oid FROM/c.relname::text FROM/;
$privileges =~ s/p\.oid::regprocedure/p.oid::regprocedure::text/g;
$privileges =~ s/SELECT r, 0/SELECT r, 'schema'/;

for my $format ('plain', 'custom')
{
	$node->safe_psql('postgres', "CREATE DATABASE $format");
	$node->command_ok([ 'pg_dump', '-F', $format, '-f', "$dump.$format", 'postgres' ], "pg_dump, $format");
	my @restore = $format eq 'plain' ? ('psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$dump.$format")
	  : ('pg_restore', '--exit-on-error', '-j', '2', "$dump.$format");
	$node->command_ok([ @restore, '-d', $node->connstr($format) ], "restore, $format");
	for my $table (@tables)
	{
		my $rows = contents('postgres', $table);
		isnt($rows, '', "$table has rows");
		is(contents($format, $table), $rows, "and they are restored, $format");
	}
	is($node->safe_psql($format, $privileges), $node->safe_psql('postgres', $privileges), "so are the privileges, $format");
	is($node->safe_psql($format, 'SELECT * FROM rl_verify()'), '', 'sums agree with their rows');
}
like($node->safe_psql('plain', $privileges), qr/^app\|rl_consume\(jsonb\)$/m, 'a client is there');
unlike($node->safe_psql('plain', $privileges), qr/^gone\|(?!rl_shard|rl_version)/m, 'and nothing of a role whose level was revoked');

# What was restored goes on from where it was.
is($node->safe_psql('plain', q{SELECT allowed, used FROM rl_consume('key', 'a', 'requests', 5, 3)}), 'f|3', 'a counter');
is($node->safe_psql('plain', q{SELECT allowed, used, reserved FROM rl_check('key', 'a', 'tokens', 100, 50)}), 't|10|40', 'a reservation');
is($node->safe_psql('plain', q{SELECT rl_commit(array_agg(reservation_id)) FROM rl_reserve('key', 'a', 'tokens', 100, 40, request_id => 'request')}),
	1, 'a request, whose reservation is settled');
is($node->safe_psql('plain', q{SELECT renewed FROM rl_renew((SELECT array_agg(lease_id) FROM ratelimit.live_leases WHERE task_id = 'mine'))}), 't', 'a lease');
is($node->safe_psql('plain', q{SELECT rl_finish('running', (SELECT execution_token FROM ratelimit.tasks WHERE task_id = 'running'), 'succeeded')}),
	't', 'a running task, by its token');
is($node->safe_psql('plain', q{SELECT task_id FROM rl_dispatch()}), 'waiting', 'the queue');
is($node->safe_psql('plain', "SELECT granted, cool_until_ms > 0 FROM rl_acquire_bucket('bucket', $rules)"), '0|t', 'a bucket');
is($node->safe_psql('plain', 'SELECT * FROM rl_verify()'), '', 'sums agree with their rows');
$node->stop;
done_testing();
