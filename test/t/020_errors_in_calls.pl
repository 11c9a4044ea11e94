# Errors in the middle of calls: raised by the server inside SPI after something was written, cancels and timeouts while
# waiting for a lock, the end of the session. Whatever the path, nothing of the call stays, the caller is the caller
# again, and the same transaction can go on from a savepoint.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use RateLimit;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_server('main', "ratelimit.clock = '2030-01-01 00:00:10+00'\n");
$node->safe_psql('postgres', <<'SQL');
	CREATE ROLE client LOGIN;
	CREATE ROLE other;
	GRANT other TO client;
	DO $$
	DECLARE f regprocedure;
	BEGIN
		FOR f IN SELECT oid FROM pg_proc WHERE proname ~ '^rl_' LOOP EXECUTE 'GRANT EXECUTE ON ROUTINE ' || f || ' TO client'; END LOOP;
	END $$;

	-- A mine for each table: it goes off for task, attempt or key "mine", after what was written before, and tells who it
	-- ran as.
	CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF to_jsonb(NEW)::text LIKE '%mine ' || TG_TABLE_NAME || ' ' || TG_OP || '%' THEN
			RAISE EXCEPTION USING ERRCODE = 'RL001', MESSAGE = 'mine', DETAIL = current_user, HINT = TG_OP, CONSTRAINT = TG_TABLE_NAME;
		END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER mine AFTER INSERT OR UPDATE ON ratelimit.counters FOR EACH ROW EXECUTE FUNCTION mine();
	CREATE TRIGGER mine AFTER INSERT OR UPDATE ON ratelimit.reservations FOR EACH ROW EXECUTE FUNCTION mine();
	CREATE TRIGGER mine AFTER INSERT OR UPDATE ON ratelimit.scopes FOR EACH ROW EXECUTE FUNCTION mine();
	CREATE TRIGGER mine AFTER INSERT OR UPDATE ON ratelimit.leases FOR EACH ROW EXECUTE FUNCTION mine();
	CREATE TRIGGER mine AFTER INSERT OR UPDATE ON ratelimit.requests FOR EACH ROW EXECUTE FUNCTION mine();
	ALTER TABLE ratelimit.reservations ADD CONSTRAINT not_13 CHECK (amount <> 13);
	ALTER TABLE ratelimit.leases ADD CONSTRAINT not_13 CHECK (amount <> 13);

	CREATE FUNCTION caught(query text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		m text; d text; h text; k text;
	BEGIN
		EXECUTE query;
		RETURN 'nothing';
	EXCEPTION WHEN OTHERS OR QUERY_CANCELED THEN
		GET STACKED DIAGNOSTICS m = MESSAGE_TEXT, d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT, k = CONSTRAINT_NAME;
		RETURN concat_ws('|', SQLSTATE, m, d, h, k);
	END $$;

	-- Everything there is, to compare before and after.
	CREATE FUNCTION contents() RETURNS text LANGUAGE sql VOLATILE SECURITY DEFINER AS $$
		SELECT md5(concat((SELECT string_agg(t::text, ',' ORDER BY t::text) FROM ratelimit.counters t),
			(SELECT string_agg(t::text, ',' ORDER BY t::text) FROM ratelimit.reservations t),
			(SELECT string_agg(t::text, ',' ORDER BY t::text) FROM ratelimit.scopes t),
			(SELECT string_agg(t::text, ',' ORDER BY t::text) FROM ratelimit.leases t),
			(SELECT string_agg(t::text, ',' ORDER BY t::text) FROM ratelimit.requests t)))
	$$;
	SELECT rl_reserve('t', 'k', 'rpm', 100, task_id => 'held'), rl_reserve('t', 'k', 'concurrent', 100, task_id => 'held');
	CREATE TABLE ids AS SELECT ARRAY(SELECT reservation_id FROM ratelimit.reservations) AS reservations, ARRAY(SELECT lease_id FROM ratelimit.leases) AS leases;
	GRANT SELECT ON ids TO client;
SQL

my $client = session($node, 'SET ROLE client; SET SESSION AUTHORIZATION client');

# The caller is the caller again: by name, by what it may read, and free to change its role.
sub is_caller_again
{
	my ($session, $what) = @_;
	is( ask($session, 'SELECT current_user; SELECT count(*) FROM ratelimit.counters; SET ROLE other; SELECT current_user; RESET ROLE'),
		"client\nother 42501", "$what: the user is who it was");
}
is_caller_again($client, 'before');

# ----- no error at all: granted, denied, nothing to do ----------------------------------------------------------------

for my $call (
	"rl_check('t', 'k', 'rpm', 100)", "rl_check('t', 'k', 'concurrent', 1)", "rl_consume('t', 'fine', 'rpm', 100)", "rl_consume('t', 'fine', 'rpm', 0)",
	"rl_reserve('t', 'fine', 'rpm', 100, request_id => 'twice')", "rl_reserve('t', 'fine', 'rpm', 100, request_id => 'twice')",
	"rl_reserve('t', 'k', 'rpm', 1)", "rl_reserve('t', 'fine', 'concurrent', 9)", "rl_reserve('[]')", "rl_check('[]')",
	"rl_attach('a', (SELECT reservations FROM ids), (SELECT leases FROM ids))", "rl_renew((SELECT leases FROM ids))",
	"rl_commit('{00000000-0000-0000-0000-000000000000}')", "rl_commit('{}')", "rl_release()",
	"rl_release('{00000000-0000-0000-0000-000000000000}', '{00000000-0000-0000-0000-000000000000}')")
{
	like(ask($client, "SELECT current_user FROM (SELECT count(*) FROM (SELECT $call OFFSET 0) c) d"), qr/^client$/, "$call, seen in the same statement");
	is_caller_again($client, '... then');
	is(ask($client, "BEGIN; DO \$\$ BEGIN PERFORM $call; END \$\$; SELECT current_user; COMMIT"), 'client', '... in the same transaction');
	is_caller_again($client, '... then');
}

# ----- raised by the server in the middle of a call -----------------------------------------------------------------

my $lists = q{'[{"scope_type": "t", "scope_key": "%s", "metric": "rpm", "limit": 100}, {"scope_type": "t", "scope_key": "k", "metric": "concurrent", "limit": 100}]'};
my @mines = (
	[ "SELECT rl_reserve('t', 'k', 'rpm', 100, 13)", '23514|new row for relation "reservations" violates check constraint "not_13"' ],
	[ "SELECT rl_reserve('t', 'fresh', 'rpm', 100, 13)", '23514|new row for relation "reservations" violates check constraint "not_13"' ],
	[ "SELECT rl_reserve('t', 'k', 'concurrent', 100, 13)", '23514|new row for relation "leases" violates check constraint "not_13"' ],
	[ "SELECT rl_reserve('t', 'fresh', 'concurrent', 100, 13)", '23514|new row for relation "leases" violates check constraint "not_13"' ],
	[ "SELECT rl_consume('t', 'mine counters INSERT', 'rpm', 100)", 'RL001|mine|postgres|INSERT|counters' ],
	[ "SELECT rl_reserve('t', 'k', 'rpm', 100, task_id => 'mine reservations INSERT')", 'RL001|mine|postgres|INSERT|reservations' ],
	[ "SELECT rl_reserve('t', 'k', 'concurrent', 100, task_id => 'mine leases INSERT')", 'RL001|mine|postgres|INSERT|leases' ],
	[ "SELECT rl_reserve('t', 'mine scopes INSERT', 'concurrent', 100)", 'RL001|mine|postgres|INSERT|scopes' ],
	[ "SELECT rl_reserve('t', 'k', 'rpm', 100, request_id => 'mine requests INSERT')", 'RL001|mine|postgres|INSERT|requests' ],
	[ "SELECT rl_reserve('t', 'k', 'rpm', 100, attempt_id => 'mine reservations INSERT', request_id => 'r')", 'RL001|mine|postgres|INSERT|reservations' ],
	[ 'SELECT rl_reserve(' . sprintf($lists, 'k') . ", task_id => 'mine leases INSERT')", 'RL001|mine|postgres|INSERT|leases' ],
	[ 'SELECT rl_reserve(' . sprintf($lists, 'fresh') . ", task_id => 'mine leases INSERT')", 'RL001|mine|postgres|INSERT|leases' ],
	[ 'SELECT rl_reserve(' . sprintf($lists, 'mine counters INSERT') . ')', 'RL001|mine|postgres|INSERT|counters' ],
	[ "SELECT rl_attach('mine reservations UPDATE', reservations) FROM ids", 'RL001|mine|postgres|UPDATE|reservations' ],
	[ "SELECT rl_attach('mine leases UPDATE', reservations, leases) FROM ids", 'RL001|mine|postgres|UPDATE|leases' ],
	[ "SELECT rl_release(reservations, leases, 'mine reservations UPDATE') FROM ids", 'RL001|mine|postgres|UPDATE|reservations' ],
	[ "SELECT rl_reserve('t', 'k', 'rpm', -1)", '22023|invalid value for argument "limit_value"|The value is -1.' ],
);
my $before = ask($client, 'SELECT contents()');
for my $mine (@mines)
{
	my ($call, $error) = @$mine;
	my $state = substr $error, 0, 5;
	like(ask($client, "SELECT caught(\$q\$$call\$q\$)"), qr/^\Q$error\E/, "$call, in an exception block");
	is_caller_again($client, '... then');
	is(ask($client, $call), $state, '... at top level');
	is_caller_again($client, '... then');
	is( ask($client, "BEGIN; SELECT (rl_consume('t', 'own', 'rpm', 100)).allowed; SAVEPOINT s; $call; ROLLBACK TO s; "
			. "SELECT (rl_reserve('t', 'own', 'rpm', 100)).used; ROLLBACK"),
		"t\n1 $state", '... below a savepoint, with calls before and after it');
	is_caller_again($client, '... then');
	is(ask($client, 'SELECT contents()'), $before, '... and nothing of it stays');
}
is(drift($node), '', 'aggregates and rows agree');

# A row that exists: the mine is laid on the update, so the row comes from before the trigger.
$node->safe_psql('postgres', q{
	ALTER TABLE ratelimit.counters DISABLE TRIGGER mine; ALTER TABLE ratelimit.scopes DISABLE TRIGGER mine;
	SELECT rl_reserve('t', 'mine counters UPDATE', 'rpm', 100), rl_reserve('t', 'mine scopes UPDATE', 'concurrent', 100);
	ALTER TABLE ratelimit.counters ENABLE TRIGGER mine; ALTER TABLE ratelimit.scopes ENABLE TRIGGER mine;
	TRUNCATE ids;
	INSERT INTO ids SELECT ARRAY(SELECT reservation_id FROM ratelimit.reservations), ARRAY(SELECT lease_id FROM ratelimit.leases);});
$before = ask($client, 'SELECT contents()');
for my $mine (
	[ "SELECT rl_consume('t', 'mine counters UPDATE', 'rpm', 100)", 'counters' ],
	[ "SELECT rl_reserve('t', 'mine counters UPDATE', 'rpm', 100)", 'counters' ],
	[ 'SELECT rl_reserve(' . sprintf($lists, 'mine counters UPDATE') . ')', 'counters' ],
	[ "SELECT rl_reserve('t', 'mine scopes UPDATE', 'concurrent', 100)", 'scopes' ],
	[ 'SELECT rl_commit(reservations) FROM ids', 'counters' ],
	[ 'SELECT rl_release(reservations, leases) FROM ids', 'scopes' ])
{
	my ($call, $table) = @$mine;
	is(ask($client, "SELECT caught(\$q\$$call\$q\$)"), "RL001|mine|postgres|UPDATE|$table", "$call, in an exception block");
	is(ask($client, $call), 'RL001', '... at top level');
	is_caller_again($client, '... then');
	is(ask($client, 'SELECT contents()'), $before, '... and nothing of it stays');
}

# ----- waiting ------------------------------------------------------------------------------------------------------

# What the waiting call waits for, how that is held, and the call.
my %waits = (
	'a counter' => [ "SELECT rl_consume('t', 'k', 'rpm', 100)", "SELECT rl_reserve('t', 'k', 'rpm', 100)" ],
	'a counter in a list' => [ "SELECT rl_consume('t', 'k', 'rpm', 100)", 'SELECT rl_reserve(' . sprintf($lists, 'k') . ')' ],
	'a counter that is new' => [ "SELECT rl_consume('t', 'new', 'rpm', 100)", "SELECT rl_consume('t', 'new', 'rpm', 100)" ],
	'a scope' => [ "SELECT rl_reserve('t', 'k', 'concurrent', 100)", "SELECT rl_reserve('t', 'k', 'concurrent', 100)" ],
	'a scope behind a counter' => [ "SELECT rl_reserve('t', 'k', 'concurrent', 100)", 'SELECT rl_reserve(' . sprintf($lists, 'k') . ')' ],
	'a request' => [ "SELECT rl_reserve('t', 'l', 'rpm', 100, request_id => 'q')", "SELECT rl_reserve('t', 'k', 'rpm', 100, request_id => 'q')" ],
	'a settlement' => [ "SELECT rl_commit(reservations) FROM ids", "SELECT rl_release(reservations) FROM ids" ],
	'a lease' => [ "SELECT rl_attach('a', lease_ids => leases) FROM ids", "SELECT rl_renew(leases) FROM ids" ],
	'a lease to release' => [ "SELECT rl_renew(leases) FROM ids", "SELECT rl_release(lease_ids => leases) FROM ids" ],
);
$node->safe_psql('postgres', 'DROP TRIGGER mine ON ratelimit.counters; DROP TRIGGER mine ON ratelimit.scopes');

my $holder = session($node);
my $again = "SELECT (rl_consume('t', 'own', 'rpm', 100)).allowed";
for my $what (sort keys %waits)
{
	my ($hold, $call) = @{ $waits{$what} };
	$before = ask($client, 'SELECT contents()');
	ask($holder, "BEGIN; $hold");

	for my $limit ([ 'statement_timeout', '57014' ], [ 'lock_timeout', '55P03' ])
	{
		my ($setting, $state) = @$limit;
		is(ask($client, "SET $setting = '20ms'; $call; RESET $setting"), $state, "$setting while waiting for $what");
		is_caller_again($client, '... then');
		is( ask($client, "BEGIN; SAVEPOINT s; SET LOCAL $setting = '20ms'; $call; ROLLBACK TO s; $again; ROLLBACK"),
			"t $state", '... below a savepoint, with a call after it');
		is( ask($client, "BEGIN; SET LOCAL lock_timeout = '20ms'; SELECT left(caught(\$q\$$call\$q\$), 5); $again; ROLLBACK"),
			"55P03\nt", '... in an exception block, with a call after it');
		is_caller_again($client, '... then');
	}

	begin_asking($client, "BEGIN; SAVEPOINT s; $call");
	wait_until_blocked($client);
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($client->{pid})");
	is(answer($client), '57014', "cancelled while waiting for $what");
	is(ask($client, "ROLLBACK TO s; $again; ROLLBACK"), 't', '... and a call after it in the same transaction');
	is_caller_again($client, '... then');

	my $victim = session($node);
	begin_asking($victim, $call);
	wait_until_blocked($victim);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($victim->{pid}, 60000)");
	ok($node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $victim->{pid})"),
		"terminated while waiting for $what");
	eval { $victim->{psql}->{run}->finish };

	begin_asking($client, "BEGIN; $call");
	wait_until_blocked($client);
	ask($holder, 'ROLLBACK');
	unlike(answer($client), qr/\b[0-9A-Z]{5}\z/, '... a call that waits to the end gets its answer');
	ask($client, 'ROLLBACK');
	is(ask($client, 'SELECT contents()'), $before, '... and nothing of all that stays');
}

# The session of the holder ends: its unit is free at once.
for my $end ('pg_terminate_backend', 'a client that goes away')
{
	my $gone = session($node);
	is(ask($gone, "BEGIN; SELECT (rl_reserve('t', 'one', 'rpm', 1)).allowed, (rl_reserve('t', 'one', 'concurrent', 1)).allowed"),
		't|t', "the only unit and slot, held by a session that ends: $end");
	begin_asking($client, "BEGIN; SELECT (rl_reserve('t', 'one', 'rpm', 1)).allowed, (rl_reserve('t', 'one', 'concurrent', 1)).allowed");
	wait_until_blocked($client);
	if ($end eq 'pg_terminate_backend') { $node->safe_psql('postgres', "SELECT pg_terminate_backend($gone->{pid})") }
	else { $gone->{psql}->{run}->kill_kill }
	is(answer($client), 't|t', '... are granted to the next');
	ask($client, 'ROLLBACK');
	eval { $gone->{psql}->{run}->finish };
}
is(drift($node), '', 'aggregates and rows agree');

$_->{psql}->quit for $client, $holder;
unlike(slurp_file($node->logfile), qr/WARNING|terminated by signal|leak/, 'no warning about anything left open, no crash');
$node->stop;
done_testing();
