# The background worker finds databases by itself, and keeps nobody from dropping or copying them.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Worker;
use Test::More;

my $node = new_server('databases', 'ratelimit.reap_interval = 1', 'ratelimit.recover_interval = 1',
	'max_prepared_transactions = 2');
$node->start;

create_database($node, 'app');
picked_up($node, 'app', 'a database with a new extension is picked up within 10 s');
is(status($node, 'app', q{state IN ('idle', 'working') AND failures = 0 AND launcher_pid IS NOT NULL}), 't', 'and is looked after');
is($node->safe_psql('app', 'SELECT count(*) FROM ratelimit.worker_status'), 1, 'the others are not');
is($node->safe_psql('postgres', q{SELECT string_agg(backend_type || ': ' || state, ', ') FROM pg_stat_activity WHERE backend_type = 'ratelimit launcher' AND datname IS NULL}),
	'ratelimit launcher: idle', 'the launcher is connected to no database and says what it does');

# A copy has the extension without anybody creating it.
my $copied = took(sub { $node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE app') });
cmp_ok($copied, '<', 5, 'a database can be copied');
picked_up($node, 'copy', 'the copy is picked up within 10 s', 'app');

# Created where the launcher is not told: the first call of a session tells it.
$node->safe_psql('postgres', 'CREATE DATABASE called');
$node->safe_psql('called', q{BEGIN; CREATE EXTENSION ratelimit; PREPARE TRANSACTION 'creation'});
let_pass($node, 5);
$node->safe_psql('called', q{COMMIT PREPARED 'creation'});
is(status($node, 'called', 'rounds', 'app'), '', 'an extension that nobody has announced or used is not known yet');
$node->safe_psql('called', 'SELECT rl_version()');
picked_up($node, 'called', 'after the first call it is picked up within 10 s', 'app');

# A creation that is rolled back leaves nothing.
$node->safe_psql('postgres', 'CREATE EXTENSION ratelimit; DROP EXTENSION ratelimit');
$node->safe_psql('postgres', 'BEGIN; CREATE EXTENSION ratelimit; ROLLBACK');

# While rounds go on every second, over and over.
my ($failed, $slowest) = (0, 0);
for my $i (1 .. 6) {
	my $took = took(sub {
		$failed++ if $node->psql('postgres', "CREATE DATABASE again TEMPLATE app") != 0;
		$failed++ if $node->psql('again', 'DROP EXTENSION ratelimit; CREATE EXTENSION ratelimit') != 0;
		$failed++ if $node->psql('postgres', 'DROP DATABASE again') != 0;
	});
	$slowest = $took if $took > $slowest;
}
is($failed, 0, 'databases are copied, extensions dropped and created, databases dropped: never refused');
cmp_ok($slowest, '<', 10, 'nor delayed');

is($node->psql('postgres', 'DROP DATABASE copy'), 0, 'a database that is looked after can be dropped');
wait_until($node, 'app', q{SELECT count(*) = 0 FROM ratelimit.worker_status WHERE database IS NULL OR database = 'copy'}, 10,
	'and is forgotten');
$node->safe_psql('called', 'DROP EXTENSION ratelimit');
wait_until($node, 'app', q{SELECT count(*) = 0 FROM ratelimit.worker_status WHERE database = 'called'}, 10,
	'so is one whose extension was dropped');
$node->safe_psql('called', 'CREATE EXTENSION ratelimit');
picked_up($node, 'called', 'and noticed again when it comes back', 'app');
$node->safe_psql('postgres', 'ALTER DATABASE called RENAME TO renamed');
my $before = status($node, 'renamed', 'rounds', 'app');
wait_until($node, 'app', "SELECT rounds > $before FROM ratelimit.worker_status WHERE database = 'renamed'", 10, 'a renamed database is looked after');

is(join("\n", lines_in_log($node, qr/ratelimit could not|does not exist/)), '', 'none of this was an error for the worker');
$node->stop('fast');

done_testing();
