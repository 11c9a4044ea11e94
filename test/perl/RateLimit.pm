# What the TAP tests share: a server with the extension, sessions whose errors come back as SQLSTATEs, and the comparison
# of the aggregates with the rows under them.
package RateLimit;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(start_server drift queue_drift sqlstate session ask begin_asking wait_until_blocked answer);

# A new server with the extension in database postgres. Further settings as one text.
sub start_server
{
	my ($name, $settings, %init) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(%init);
	$node->append_conf('postgresql.conf', $settings) if defined $settings;
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION ratelimit');
	return $node;
}

# Every disagreement between an aggregate and its rows, one a line; empty when all is well.
my $drift_query = <<'SQL';
	SELECT 'counter ' || concat_ws('/', c.scope_type, c.scope_key, c.metric, c.window_seconds) || ': reserved ' || c.reserved
		|| ', rows ' || rows.held || '; used ' || c.used || ', committed ' || rows.spent
	FROM ratelimit.counters c CROSS JOIN LATERAL (
		SELECT coalesce(sum(r.amount) FILTER (WHERE r.status = 'reserved'), 0) AS held,
			coalesce(sum(r.actual_amount) FILTER (WHERE r.status = 'committed'), 0) AS spent
		FROM ratelimit.reservations r WHERE (r.scope_type, r.scope_key, r.metric, r.window_seconds, r.window_start)
			= (c.scope_type, c.scope_key, c.metric, c.window_seconds, c.window_start)) rows
	WHERE abs(c.reserved - rows.held) > 1e-6 OR c.used < rows.spent - 1e-6 OR c.used < 0
	UNION ALL
	SELECT 'scope ' || concat_ws('/', s.scope_type, s.scope_key) || ': leased ' || s.leased || ', rows ' || rows.held
		|| '; count ' || s.lease_count || ', rows ' || rows.count || '; from ' || s.expires_from || ', first ' || rows.first
	FROM ratelimit.scopes s CROSS JOIN LATERAL (
		SELECT coalesce(sum(l.amount), 0) AS held, count(*), coalesce(min(l.expires_at), 'infinity') AS first
		FROM ratelimit.leases l WHERE (l.scope_type, l.scope_key) = (s.scope_type, s.scope_key)) rows
	WHERE abs(s.leased - rows.held) > 1e-6 OR s.lease_count <> rows.count OR s.expires_from > rows.first
	UNION ALL
	SELECT 'reservation without counter ' || r.reservation_id FROM ratelimit.reservations r
	WHERE r.status = 'reserved' AND NOT EXISTS (SELECT FROM ratelimit.counters c
		WHERE (r.scope_type, r.scope_key, r.metric, r.window_seconds) = (c.scope_type, c.scope_key, c.metric, c.window_seconds)
			AND c.window_start >= r.window_start)
	UNION ALL
	SELECT 'lease without scope ' || l.lease_id FROM ratelimit.leases l WHERE NOT EXISTS (
		SELECT FROM ratelimit.scopes s WHERE (l.scope_type, l.scope_key) = (s.scope_type, s.scope_key))
SQL

sub drift
{
	my ($node) = @_;
	return $node->safe_psql('postgres', $drift_query);
}

# The same for the admission queue: its counts, the places of its tasks and the leases of those admitted.
my $queue_drift_query = <<'SQL';
	SELECT 'waiting count of ' || s.scope_key FROM ratelimit.scopes s WHERE s.waiting <> (SELECT count(*)
		FROM ratelimit.waiting w WHERE (w.scope_type, w.scope_key) = (s.scope_type, s.scope_key))
	UNION ALL
	SELECT 'leased sum of ' || s.scope_key FROM ratelimit.scopes s WHERE (s.leased, s.lease_count) <> (
		SELECT coalesce(sum(l.amount), 0), count(*) FROM ratelimit.leases l
		WHERE (l.scope_type, l.scope_key) = (s.scope_type, s.scope_key))
	UNION ALL
	SELECT 'what the dispatcher knows of ' || scope_key FROM ratelimit.scopes s
	FULL JOIN ratelimit.awaited a USING (scope_type, scope_key)
	WHERE (coalesce(s.waiting, 0) > 0) <> (a.ready IS NOT NULL)
		OR (s.ready, s.head_priority, s.head_at) <> (a.ready, a.head_priority, a.head_at)
	UNION ALL
	SELECT 'places of ' || t.task_id FROM ratelimit.tasks t WHERE (SELECT count(*) FROM ratelimit.waiting w
		WHERE (w.task_id, w.priority, w.enqueued_at) = (t.task_id, t.priority, t.enqueued_at))
		<> CASE t.status WHEN 'waiting' THEN greatest(1, jsonb_array_length(t.scopes)) ELSE 0 END
	UNION ALL
	SELECT 'place of nobody, ' || w.task_id FROM ratelimit.waiting w WHERE NOT EXISTS (
		SELECT FROM ratelimit.tasks t WHERE t.task_id = w.task_id)
	UNION ALL
	SELECT 'leases of ' || t.task_id FROM ratelimit.tasks t WHERE t.status = 'waiting' AND cardinality(t.lease_ids) <> 0
	UNION ALL
	SELECT 'lease of ' || l.task_id FROM ratelimit.leases l WHERE NOT EXISTS (
		SELECT FROM ratelimit.tasks t WHERE l.lease_id = ANY (t.lease_ids))
SQL

sub queue_drift
{
	my ($node) = @_;
	return $node->safe_psql('postgres', $queue_drift_query);
}

# The SQLSTATE that the statements end with; empty when they succeed.
sub sqlstate
{
	my ($node, $sql, %parameters) = @_;
	my ($out, $err);
	$node->psql('postgres', $sql, stderr => \$err, stdout => \$out, on_error_stop => 0,
		extra_params => [ '-v', 'VERBOSITY=sqlstate', '-q' ], %parameters);
	return join ' ', $err =~ /(?:ERROR|FATAL):\s+(\w{5})/g;
}

# ----- sessions that stay open ------------------------------------------------------------------------------------

sub session
{
	my ($node, $setup) = @_;
	my $psql = $node->background_psql('postgres', on_error_stop => 0);
	my $session = { psql => $psql, node => $node };
	ask($session, '\\set VERBOSITY sqlstate');
	$session->{pid} = ask($session, 'SELECT pg_backend_pid()');
	ask($session, $setup) if defined $setup;
	return $session;
}

# The output of the statements; an error is shown by its SQLSTATE.
sub ask
{
	my ($session, $sql) = @_;
	my $psql = $session->{psql};
	my $out = $psql->query($sql);
	return with_errors($psql, $out);
}

sub with_errors
{
	my ($psql, $out) = @_;
	my @errors = $psql->{stderr} =~ /(?:ERROR|FATAL):\s+(\w{5})/g;
	$psql->{stderr} = '';
	$out =~ s/\s+\z//;
	$out =~ s/\A\s+//;
	return join ' ', grep { length } $out, @errors;
}

# Sends statements and does not wait for them. answer() gives their output.
sub begin_asking
{
	my ($session, $sql) = @_;
	$session->{psql}->query_until(qr/sent/, "\\echo sent\n$sql;\n");
	return;
}

sub answer
{
	my ($session) = @_;
	return ask($session, '') =~ s/\Asent\s*//r;
}

sub wait_until_blocked
{
	my ($session) = @_;
	return $session->{node}->poll_query_until('postgres',
		"SELECT cardinality(pg_blocking_pids($session->{pid})) > 0 AND wait_event_type = 'Lock'
		 FROM pg_stat_activity WHERE pid = $session->{pid}");
}

1;
