# Crashes under load: workers take tasks, work and finish them, the server is stopped at once ten times at random moments.
# After each restart and rl_recover everything agrees; at the end no task is lost, none ran twice at the same time, and no
# reservation was counted twice.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use RateLimit;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $rounds = $ENV{LONG} ? 50 : 10;
my $tasks = 40;
my $node = start_server('main', "ratelimit.waiter_ttl = 1\nratelimit.worker_stale_after = 1\nsynchronous_commit = on\n");

# What a worker has begun and ended, written in the transaction that did it.
$node->safe_psql('postgres', <<'SQL');
	CREATE TABLE begun (task_id text, token uuid);
	CREATE TABLE ended (task_id text PRIMARY KEY, token uuid);
	CREATE PROCEDURE work(worker text) LANGUAGE plpgsql AS $$
	DECLARE
		a ratelimit.admission;
		s record;
	BEGIN
		LOOP
			PERFORM rl_worker_heartbeat(worker, 1);
			COMMIT;
			FOR a IN SELECT * FROM rl_dispatch(2) LOOP
				INSERT INTO begun VALUES (a.task_id, NULL);
			END LOOP;
			COMMIT;
			FOR a IN SELECT d.* FROM ratelimit.tasks t, rl_status(t.task_id) d WHERE t.status = 'admitted' ORDER BY random() LIMIT 1 LOOP
				s := rl_start(a.task_id, worker, 1);
				COMMIT;
				CONTINUE WHEN s.execution_token IS NULL;
				PERFORM rl_reserve('user', 'u', 'tpm', NULL, 1, task_id => a.task_id);
				PERFORM rl_reserve('user', 'v', 'tpm', 1e9, 1, task_id => a.task_id);
				COMMIT;
				IF rl_finish(a.task_id, s.execution_token, 'succeeded') THEN
					INSERT INTO ended VALUES (a.task_id, s.execution_token);
				END IF;
				COMMIT;
			END LOOP;
		END LOOP;
	END $$;
SQL
$node->safe_psql('postgres', "SELECT count(rl_enqueue('task ' || n, '[{\"scope_type\": \"m\", \"scope_key\": \"k\", \"limit\": 4,"
	  . " \"queue_limit\": null, \"max_wait_seconds\": 86400, \"lease_ttl_seconds\": 1}]')) FROM generate_series(1, $tasks * $rounds) n");

my ($bad, $waits) = (0, 0);
for my $round (1 .. $rounds)
{
	my @workers = map { IPC::Run::start([ $node->installed_command('psql'), '-X', '-q', '-d', $node->connstr('postgres'), '-c', "CALL work('worker $round $_')" ],
		'>', \my $out, '2>', \my $err) } 1 .. 8;
	sleep(0.3 + rand(0.5));
	$node->stop('immediate');
	$_->finish for @workers;
	$node->start;
	my $found = $node->safe_psql('postgres', 'SELECT * FROM rl_verify()');
	diag("round $round: $found"), $bad++ if $found ne '';
}
is($bad, 0, "nothing disagrees after $rounds crashes");

# Whatever was left behind is taken back and done.
sleep(2.1);
$node->safe_psql('postgres', 'DO $$ BEGIN LOOP EXIT WHEN (SELECT r.failed_attempts = 0 AND r.cleaned_task_admissions = 0 FROM rl_recover(1000) r); COMMIT; END LOOP; END $$');
$node->safe_psql('postgres', 'SELECT * FROM rl_reap(10000)');
is($node->safe_psql('postgres', 'SELECT count(*) FROM ratelimit.tasks WHERE status = \'running\''), '0', 'nothing is left running');
is($node->safe_psql('postgres', 'SELECT * FROM rl_verify()'), '', 'everything agrees');
is($node->safe_psql('postgres', "SELECT count(*) FROM ratelimit.tasks"), $tasks * $rounds, 'no task is lost');
is($node->safe_psql('postgres', "SELECT count(*) FROM ended FULL JOIN (SELECT task_id FROM ratelimit.tasks WHERE status = 'succeeded') t USING (task_id)
	WHERE token IS NULL OR t.task_id IS NULL"), '0', 'what has succeeded is what a worker was told to have finished');
is($node->safe_psql('postgres', "SELECT (SELECT sum(used) FROM ratelimit.counters WHERE scope_key = 'v' AND window_start = (SELECT max(window_start)
	FROM ratelimit.counters)) = (SELECT count(*) FROM ratelimit.reservations r WHERE scope_key = 'v' AND status = 'committed'
	AND window_start = (SELECT max(window_start) FROM ratelimit.counters))"), 't', 'each reservation is counted once');
is($node->safe_psql('postgres', "SELECT count(*) FROM ratelimit.attempts WHERE finished_at IS NULL"), '0', 'no attempt is open');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM ended'), '>', 0, 'and work was done');
is($node->safe_psql('postgres', "SELECT leased || '/' || lease_count FROM ratelimit.scopes WHERE scope_key = 'k'"), '0/0', 'no slot is lost');
$node->stop('fast');
done_testing();
