# Plans and cached OIDs survive DROP and CREATE EXTENSION, in the session that does it and in others that use the
# functions meanwhile; likewise another owner, other names around them, and changes to the tables.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use RateLimit;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_server('main', "ratelimit.clock = '2030-01-01 00:00:10+00'\n");

my $limits = q{'[{"scope_type": "t", "scope_key": "k", "metric": "rpm", "limit": 9}, {"scope_type": "t", "scope_key": "k", "metric": "concurrent", "limit": 9}]'};
my $every_function = qq{
	SELECT used FROM rl_consume('t', 'k', 'rpm', 9);
	SELECT reservation_id FROM rl_reserve('t', 'k', 'rpm', 9, request_id => 'r') \\gset
	SELECT max(reservation_id::text) AS r2, max(lease_id::text) AS lease FROM rl_reserve($limits) \\gset
	SELECT used, reserved FROM rl_check('t', 'k', 'rpm', 9);
	SELECT reservations, leases FROM rl_attach('a', ARRAY[:'reservation_id']::uuid[], ARRAY[:'lease']::uuid[]);
	SELECT renewed FROM rl_renew(ARRAY[:'lease']::uuid[]);
	SELECT rl_commit(ARRAY[:'reservation_id']::uuid[]);
	SELECT reservations, leases FROM rl_release(ARRAY[:'r2']::uuid[], ARRAY[:'lease']::uuid[])};
my $fresh = "0\n1|2\n1|1\nt\n1\n1|1";

my $one = session($node);
my $two = session($node);
is(ask($one, $every_function), $fresh, 'a session uses every function');
is(ask($two, q{SELECT used FROM rl_consume('t', 'k', 'rpm', 9)}), '2', 'another one has plans as well');

ask($one, 'DROP EXTENSION ratelimit; CREATE EXTENSION ratelimit');
is(ask($one, $every_function), $fresh, 'after DROP and CREATE EXTENSION in the same session');
is(ask($two, q{SELECT used FROM rl_consume('t', 'k', 'rpm', 9)}), '2', '... and in another');

ask($one, 'BEGIN; DROP EXTENSION ratelimit; CREATE EXTENSION ratelimit');
is(ask($one, $every_function), $fresh, 'in the transaction that does it');
begin_asking($two, q{SELECT used FROM rl_consume('t', 'k', 'rpm', 9)});
wait_until_blocked($two);
ask($one, 'ROLLBACK');
is(answer($two), '3', '... and when it rolls back, another one waits and goes on with the old state');
is(ask($one, q{SELECT used FROM rl_consume('t', 'k', 'rpm', 9)}), '4', '... and so does the session itself');

ask($one, 'BEGIN; DROP EXTENSION ratelimit; CREATE EXTENSION ratelimit');
begin_asking($two, q{SELECT used FROM rl_check('t', 'k', 'rpm', 9)});
wait_until_blocked($two);
ask($one, 'COMMIT');
like(answer($two), qr/^(0|\w{5})$/, 'a call that waits behind the commit of a new extension ends');
is(ask($two, q{SELECT used FROM rl_consume('t', 'k', 'rpm', 9)}), '0', '... and the next finds the new one');

ask($one, 'DROP EXTENSION ratelimit');
is(ask($two, q{SELECT rl_consume('t', 'k', 'rpm', 9)}), '42883', 'without the extension there is no function');
ask($one, 'CREATE SCHEMA tools; CREATE EXTENSION ratelimit SCHEMA tools');
is(ask($two, q{SELECT used FROM tools.rl_consume('t', 'k', 'rpm', 9)}), '0', 'in another schema');
ask($one, 'DROP EXTENSION ratelimit; CREATE EXTENSION ratelimit');
is(ask($two, q{SELECT used FROM rl_consume('t', 'k', 'rpm', 9)}), '0', 'and back');

# The owner of schema ratelimit is cached: its statements run in his name.
ask($one, q{CREATE ROLE keeper SUPERUSER; CREATE ROLE client; ALTER SCHEMA ratelimit OWNER TO keeper;
	CREATE FUNCTION who() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'RL0' || CASE current_user WHEN 'keeper' THEN '01' ELSE '02' END; END $$;
	CREATE TRIGGER who BEFORE UPDATE ON ratelimit.counters FOR EACH ROW EXECUTE FUNCTION who()});
is(ask($two, q{SELECT rl_consume('t', 'k', 'rpm', 9)}), 'RL001', 'a new owner of the schema is noticed by a session that has cached the old one');
ask($one, 'DROP TRIGGER who ON ratelimit.counters');

# Changes to the tables.
ask($one, 'ALTER TABLE ratelimit.counters ADD COLUMN extra int DEFAULT 7; CREATE INDEX ON ratelimit.counters (touched_at); VACUUM FULL ratelimit.counters');
like(ask($two, q{SELECT used FROM rl_consume('t', 'k', 'rpm', 9)}), qr/^1$/, 'after ALTER TABLE, CREATE INDEX and VACUUM FULL');
ask($one, 'SET search_path = pg_temp; CREATE TEMP TABLE counters (a int); CREATE FUNCTION pg_temp.now() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$');
like(ask($one, q{SELECT used FROM public.rl_consume('t', 'k', 'rpm', 9)}), qr/^2$/, 'under a search_path of its own');
is(drift($node), '', 'aggregates and rows agree');

# Dropped and created again while others call without pause: an error is one of those that say that it was not there, and
# at the end all goes on.
ask($one, 'RESET search_path; DISCARD ALL');
my $many = $node->basedir . '/many.sql';
append_to_file($many, join '', (q{SELECT (rl_consume('t', 'k', 'rpm', 1e9)).allowed, (rl_reserve('t', 'k', 'concurrent', 1e9)).allowed;} . "\n") x 400);
my @runs = map {
	IPC::Run::start [ 'psql', '-XAtq', '-v', 'VERBOSITY=sqlstate', '-d', $node->connstr('postgres'), '-f', $many ], '>', "$many.$_.out", '2>', "$many.$_.err"
} 1 .. 3;
for my $round (1 .. 15)
{
	is(sqlstate($node, 'BEGIN; DROP EXTENSION ratelimit; CREATE EXTENSION ratelimit; COMMIT'), '', "round $round of dropping and creating while others call");
}
$_->finish for @runs;
my %seen;
for my $n (1 .. 3)
{
	$seen{$_}++ for slurp_file("$many.$n.err") =~ /(?:ERROR|FATAL):\s+(\w+)/g;
	$seen{$_}++ for grep { $_ ne 't|t' } split /\n/, slurp_file("$many.$n.out");
}
note explain \%seen;
# 42883 function, 42P01 table, 3F000 schema, XX000 "cache lookup failed" for what went between parsing and running,
# 40P01 where DROP and a call wait for each other.
is(join(' ', grep { !/^(42883|42P01|3F000|XX000|40P01)$/ } sort keys %seen), '', 'calls meanwhile: granted, or an error that tells that it was gone');
is(ask($two, q{SELECT allowed FROM rl_consume('t', 'k', 'rpm', 1e9)}), 't', '... and an old session goes on');
is(drift($node), '', 'aggregates and rows agree');
unlike(slurp_file($node->logfile), qr/terminated by signal/, 'no crash');

$_->{psql}->quit for $one, $two;
$node->stop;
done_testing();
