# The two doors between C++ and the server, by a module of test functions: whatever is thrown becomes an ERROR with
# everything it had, every object is destroyed, and the session goes on as if nothing had happened.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use RateLimit;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $folder = "$FindBin::RealBin/../boundary";
my $module = "$folder/ratelimit_boundary";
# A tree without sources brings the module along.
system_or_bail('make', '-s', '-C', $folder) if -d "$FindBin::RealBin/../../src/pg";
BAIL_OUT("make -C test/boundary has not been run") unless -e "$module.so";

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->start;

my $functions = <<"SQL";
	CREATE FUNCTION boundary_raise(kind text, depth int = 5) RETURNS text LANGUAGE c AS '$module';
	CREATE FUNCTION boundary_raise_text(state text, message text, detail text, hint text) RETURNS void LANGUAGE c AS '$module';
	CREATE FUNCTION boundary_raise_uncopied() RETURNS void LANGUAGE c AS '$module';
	CREATE FUNCTION boundary_nest(query text, kind text) RETURNS text LANGUAGE c AS '$module';
	CREATE FUNCTION boundary_probes() RETURNS bool LANGUAGE c AS '$module';
	CREATE FUNCTION boundary_in_flight() RETURNS bool LANGUAGE c AS '$module';
	CREATE FUNCTION boundary_holdoff() RETURNS bool LANGUAGE c AS '$module';
	CREATE FUNCTION boundary_returns_set(rows int, kind text) RETURNS TABLE (a int, b text) LANGUAGE c AS '$module';
	CREATE FUNCTION boundary_loop() RETURNS void LANGUAGE c AS '$module';
	CREATE FUNCTION boundary_wait(seconds float8) RETURNS void LANGUAGE c AS '$module';

	-- Runs a statement in an exception block, and says what it raised.
	CREATE FUNCTION caught(query text) RETURNS text LANGUAGE plpgsql AS \$\$
	DECLARE
		m text; d text; h text; k text;
	BEGIN
		EXECUTE query;
		RETURN 'nothing';
	EXCEPTION WHEN OTHERS OR ASSERT_FAILURE OR QUERY_CANCELED THEN
		GET STACKED DIAGNOSTICS m = MESSAGE_TEXT, d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT, k = CONSTRAINT_NAME;
		RETURN concat_ws('|', SQLSTATE, m, d, h, k);
	END \$\$;
	-- What an error must leave as it was.
	CREATE FUNCTION sound() RETURNS text LANGUAGE sql AS \$\$
		SELECT concat_ws(' ', CASE WHEN NOT boundary_probes() THEN 'probes' END,
			CASE WHEN boundary_in_flight() THEN 'exception in flight' END, CASE WHEN boundary_holdoff() THEN 'holdoff' END)
	\$\$;
SQL
$node->safe_psql('postgres', $functions);
my $session = session($node);

# ----- each kind of error -----------------------------------------------------------------------------------------

my $bug = 'This is a bug. Please report it with the statement that caused it.';
my %raised = (
	'server'        => '22012|a message of the server|its detail|its hint|its constraint',
	'ours'          => '53000|our message|our detail|our hint|',
	'bare'          => '55P03|only a message|||',
	'bad_alloc'     => '53200|out of memory|Failed while deciding on a rate limit.||',
	'4 TB'          => '53200|out of memory|Failed while deciding on a rate limit.||',
	'9 EB'          => '53200|out of memory|Failed while deciding on a rate limit.||',
	'runtime_error' => "XX000|internal error in ratelimit|what() of the exception|$bug|",
	'int'           => "XX000|internal error in ratelimit|unknown exception|$bug|",
);
for my $kind (sort keys %raised)
{
	is(ask($session, "SELECT caught(\$q\$SELECT boundary_raise('$kind')\$q\$)"), $raised{$kind}, "$kind, in an exception block");
	is(ask($session, 'SELECT sound()'), '', "... leaves nothing behind");
	is(ask($session, "SELECT boundary_raise('$kind')"), substr($raised{$kind}, 0, 5), "$kind, at top level");
	is(ask($session, 'SELECT sound()'), '', "... leaves nothing behind");
}
like(ask($session, "SELECT caught(\$q\$SELECT boundary_raise('4 TB of the server')\$q\$)"),
	qr/^53200\|out of memory\|Failed on request of size 4398046511104/, '4 TB asked of the server');
like(ask($session, "SELECT caught(\$q\$SELECT boundary_raise('assert')\$q\$)"), qr/^XX000\|/, 'an exception of Boost');
is(ask($session, 'SELECT caught($q$SELECT boundary_raise_uncopied()$q$)'), '53200|out of memory|An error could not be copied.||',
	'an error that there is no memory to copy');
is(ask($session, 'SELECT sound()'), '', '... leaves nothing behind');
is(ask($session, "SELECT length(repeat('x', 100000000))"), '100000000', '... and memory can be had again');
is(ask($session, "SELECT boundary_raise('none')"), 'none', 'no error');

# ----- in transactions --------------------------------------------------------------------------------------------

my $states = join ' ', map { substr $raised{$_}, 0, 5 } sort keys %raised;
is( ask($session, join ";\n", 'BEGIN', (map { ("SAVEPOINT s", "SELECT boundary_raise('$_')", "ROLLBACK TO s") } sort keys %raised),
		"SELECT boundary_raise('fine')", 'COMMIT'),
	"fine $states",
	'errors below savepoints, and a call after them in the same transaction');
is(ask($session, 'SELECT sound()'), '', '... leave nothing behind');
is( ask($session, "SELECT boundary_raise('fine') FROM generate_series(1, 3)") =~ s/\n/ /gr, 'fine fine fine', 'the session goes on');

is(ask($session, "SELECT caught('SELECT boundary_returns_set(10, ''server'')')"), $raised{server}, 'an error after some rows of a set');
is( ask($session, "SET work_mem = '64kB'; SELECT caught(\$q\$SELECT count(*) FROM boundary_returns_set(100000, 'ours')\$q\$)"),
	$raised{ours}, 'an error after rows that went to a file');
is(ask($session, 'SELECT count(*) FROM boundary_returns_set(100000, $q$none$q$)'), '100000', 'a set');
is(ask($session, 'SELECT sound()'), '', '... leaves nothing behind');

# ----- nested -----------------------------------------------------------------------------------------------------

is(ask($session, q{SELECT boundary_nest('SELECT boundary_raise(''fine'')', 'none')}), 'done', 'a function calls SPI calls a function');
is(ask($session, q{SELECT boundary_nest('SELECT caught($q$SELECT boundary_raise(''int'')$q$)', 'none')}), 'done',
	'an error of the inner call that is caught in between');
is(ask($session, q{SELECT caught($q$SELECT boundary_nest('SELECT boundary_raise(''ours'')', 'none')$q$)}), $raised{ours},
	'an error of the inner call that is not');
is(ask($session, q{SELECT caught($q$SELECT boundary_nest('SELECT boundary_raise(''server'')', 'none')$q$)}), $raised{server},
	'an error of the server below the inner call');
is(ask($session, q{SELECT caught($q$SELECT boundary_nest('SELECT caught($r$SELECT boundary_raise(''server'')$r$)', 'ours')$q$)}),
	$raised{ours}, 'an error of the outer call after one that was caught');
is(ask($session, q{SELECT caught($q$SELECT boundary_nest('SELECT boundary_nest(''SELECT boundary_nest($r$SELECT 1$r$, $r$server$r$)'', ''none'')', 'none')$q$)}),
	$raised{server}, 'three deep');
# Deeper than the server's stack of errors, which would overflow if each door did not empty it.
my $deep = "SELECT boundary_raise('server')";
$deep = "SELECT boundary_nest(\$n$_\$$deep\$n$_\$, 'none')" for 1 .. 12;
is(ask($session, "SELECT caught(\$q\$$deep\$q\$)"), $raised{server}, 'twelve deep');
is(ask($session, 'SELECT sound()'), '', '... and nothing is left behind');

# ----- interrupts: what a lock released in a destructor, or a lost hold-off count, would break ----------------------

for my $kind (sort keys %raised)
{
	ask($session, "DO \$\$ BEGIN FOR i IN 1..3 LOOP PERFORM caught('SELECT boundary_raise(''$kind'')'); END LOOP; END \$\$");
	my $began = time;
	is(ask($session, "SET statement_timeout = '50ms'; SELECT boundary_wait(60)"), '57014', "statement_timeout works after $kind");
	ask($session, 'SET statement_timeout = 0');
	cmp_ok(time - $began, '<', 30, '... in time');
}
is(ask($session, "SET statement_timeout = '50ms'; SELECT boundary_loop()"), '57014', 'a loop that checks for interrupts is cancelled');
is(ask($session, 'SELECT caught($q$SELECT boundary_loop()$q$)'), '57014|canceling statement due to statement timeout|||',
	'... in an exception block as well');
is(ask($session, 'SET statement_timeout = 0; SELECT sound()'), '', '... and leaves nothing behind');

begin_asking($session, 'SELECT boundary_wait(600)');
$node->poll_query_until('postgres', "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $session->{pid}");
$node->safe_psql('postgres', "SELECT pg_cancel_backend($session->{pid})");
is(answer($session), '57014', 'pg_cancel_backend ends a wait below a guard');
is(ask($session, 'SELECT sound()'), '', '... and leaves nothing behind');

# ----- texts ------------------------------------------------------------------------------------------------------

# What arrives is the text, messages and hints cut to the room there is, in whole characters; details may be for programs, and are whole. The query gives a row for each failure.
ask($session, <<'SQL');
	CREATE FUNCTION cut_badly(piece text, room int, part int) RETURNS SETOF text LANGUAGE plpgsql AS $$
	DECLARE
		given text; found text;
	BEGIN
		FOREACH given IN ARRAY ARRAY(SELECT left(prefix || repeat(piece, 3000), n) FROM
			(VALUES (''), ('a'), ('ab'), ('abc')) p (prefix), unnest(ARRAY[1, 10, room / 4 - 1, room / 4, room / 3, room / 2, room - 2, room - 1, room, room + 1, 2500]) n)
		LOOP
			found := (regexp_split_to_array(caught(format('SELECT boundary_raise_text(%L, %L, %L, %L)', '22023',
				CASE part WHEN 1 THEN given ELSE 'm' END, CASE part WHEN 2 THEN given ELSE 'd' END,
				CASE part WHEN 3 THEN given ELSE 'h' END)), '\|'))[part + 1];
			IF octet_length(given) < room THEN
				CONTINUE WHEN found = given;
			ELSE
				CONTINUE WHEN starts_with(given, found) AND octet_length(found) BETWEEN room - 4 AND room - 1;
			END IF;
			RETURN NEXT format('%s of %s bytes became %s bytes', piece, octet_length(given), octet_length(found));
		END LOOP;
	END $$
SQL
for my $piece ('x', 'ä', '€', '😀', '%s%n')
{
	is(ask($session, "SELECT cut_badly('$piece', 512, 1)"), '', "messages of $piece");
	is(ask($session, "SELECT cut_badly('$piece', 1000000, 2)"), '', "details of $piece, never cut");
	is(ask($session, "SELECT cut_badly('$piece', 512, 3)"), '', "hints of $piece");
}
is(ask($session, 'SELECT sound()'), '', '... leave nothing behind');

$node->safe_psql('postgres', "CREATE DATABASE euc ENCODING 'EUC_JP' LOCALE 'C' TEMPLATE template0");
$node->safe_psql('euc', $functions);
is( $node->safe_psql('euc', q{SET client_encoding = 'UTF8'; SELECT min(octet_length(m)), max(octet_length(m)), bool_and(starts_with(repeat('あ', 400), ltrim(m, 'a')))
		FROM (SELECT split_part(caught(format('SELECT boundary_raise_text(%L, %L, %L, %L)', '22023', repeat('a', n) || repeat('あ', 400), 'd', 'h')), '|', 2) AS m
			FROM generate_series(0, 3) n) s}),
	'510|511|t', 'messages in another multibyte encoding are cut between characters');

# ----- memory: 200,000 errors of every kind -----------------------------------------------------------------------

my $memory = q{SELECT (regexp_match(pg_read_file('/proc/self/smaps_rollup'), 'Anonymous:\s+(\d+)'))[1]::int};
my $loop = <<'SQL';
	DO $$ BEGIN
		FOR i IN 1..%d LOOP
			PERFORM caught(format('SELECT boundary_raise(%%L)', (ARRAY['server', 'ours', 'bad_alloc', 'runtime_error', 'int', '4 TB'])[i %% 6 + 1]));
			PERFORM boundary_nest('SELECT 1', 'none');
			COMMIT;
		END LOOP;
	END $$
SQL
ask($session, sprintf($loop, 2000));
my $before = ask($session, $memory);
ask($session, sprintf($loop, 20000));
my $grown = ask($session, $memory) - $before;
cmp_ok($grown, '<', 512, "20,000 errors of every kind: grown by $grown kB");

$session->{psql}->quit;
unlike(slurp_file($node->logfile), qr/WARNING|terminated by signal|leak/, 'no warning about anything left open, no crash');
$node->stop;
done_testing();
