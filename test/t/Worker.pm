# Shared by the tests of the background worker: servers with the library preloaded, and what the worker says of itself.
package Worker;

use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();
use Exporter 'import';

our @EXPORT = qw(new_server create_database picked_up took wait_until status let_pass lines_in_log);

# A server that preloads the library, not yet started.
sub new_server {
	my ($name, @settings) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(allows_streaming => 1);
	$node->append_conf('postgresql.conf',
		join "\n", "shared_preload_libraries = 'ratelimit'", 'fsync = off', 'restart_after_crash = on', "log_line_prefix = '%m [%p] %b %q%d '", @settings, '');
	return $node;
}

sub create_database {
	my ($node, $name) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $name");
	$node->safe_psql($name, 'CREATE EXTENSION ratelimit');
}

# How many seconds something takes.
sub took {
	my ($work) = @_;
	my $began = Time::HiRes::time();
	$work->();
	return Time::HiRes::time() - $began;
}

# The query becomes true within so many seconds.
sub wait_until {
	my ($node, $database, $query, $seconds, $name) = @_;
	my $came;
	my $took = took(sub { $came = $node->poll_query_until($database, $query) });
	ok($came && $took < $seconds, $name) or diag sprintf '%s after %.1f s', $came ? 'true' : 'not true', $took;
}

# One column of the worker's status of a database, as another database sees it.
sub status {
	my ($node, $database, $column, $seen_from) = @_;
	return $node->safe_psql($seen_from // $database, "SELECT $column FROM ratelimit.worker_status WHERE database = '$database'");
}

# A worker has been to the database within 10 s.
sub picked_up {
	my ($node, $database, $name, $seen_from) = @_;
	wait_until($node, $seen_from // $database, "SELECT rounds > 0 FROM ratelimit.worker_status WHERE database = '$database'", 10, $name);
}

# Lets the worker's time pass: what should not happen gets its chance.
sub let_pass {
	my ($node, $seconds) = @_;
	my $end = $node->safe_psql('postgres', "SELECT clock_timestamp() + interval '$seconds s'");
	$node->poll_query_until('postgres', "SELECT clock_timestamp() > '$end'");
}

sub lines_in_log {
	my ($node, $pattern, $offset) = @_;
	my $log = substr slurp_file($node->logfile), $offset // 0;
	return grep { /$pattern/ } split /\n/, $log;
}

1;
