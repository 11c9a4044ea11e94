# The off switch works in sessions that are there already, and is read from the server's file before the library is loaded.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use Test::More;
use RateLimit;

my $node = start_server('main', "ratelimit.when_disabled = 'deny'\n");
my $session = session($node);
my $ask = "SELECT concat_ws(' ', allowed, reason) FROM rl_consume('key', 'a', 'requests', 1000000)";
is(ask($session, $ask), 't', 'a session that decides');

# A session reads the server's file before its next statement, once it was told.
sub ask_until
{
	my ($expected, $name) = @_;
	my $answer = '';
	for (1 .. 100_000) {
		$answer = ask($session, $ask);
		last if $answer eq $expected;
	}
	is($answer, $expected, $name);
	return;
}

sub set_for_all
{
	my ($assignment) = @_;
	$node->safe_psql('postgres', "SELECT rl_version(); ALTER SYSTEM $assignment");
	$node->reload;
	return;
}

set_for_all('SET ratelimit.enabled = off');
ask_until('f disabled', 'is told to deny by a reload');
is($node->safe_psql('postgres', $ask), 'f disabled', 'and so is a new one');
my $spent = $node->safe_psql('postgres', 'SELECT used FROM ratelimit.counters');
set_for_all("SET ratelimit.when_disabled = 'error'");
ask_until('55000', 'to raise an error');
set_for_all("SET ratelimit.when_disabled = 'allow'");
ask_until('t', 'to allow');
is($node->safe_psql('postgres', 'SELECT used FROM ratelimit.counters'), $spent, 'and nothing was spent meanwhile');
set_for_all('RESET ratelimit.enabled');
set_for_all("SET ratelimit.when_disabled = 'deny'");
ask_until('t', 'and to decide again');
is(ask($session, 'SELECT used > ' . $spent . ' FROM ratelimit.counters'), 't', 'which spends');

# A role's own setting is for a superuser to give, and what is no answer is refused.
$node->safe_psql('postgres', 'CREATE ROLE app');
$node->safe_psql('postgres', q(SELECT rl_version(); ALTER ROLE app SET ratelimit.enabled = off));
is($node->safe_psql('postgres', "SELECT setconfig FROM pg_db_role_setting"), '{ratelimit.enabled=off}', 'for one role');
is(sqlstate($node, q(SET ROLE app; SELECT rl_version(); ALTER ROLE app SET ratelimit.enabled = on)), '42501', 'which may not switch it back');
$node->stop;
done_testing();
