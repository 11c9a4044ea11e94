\echo Use "CREATE EXTENSION ratelimit" to load this file. \quit

-- The callable functions go into the schema that CREATE EXTENSION chose; everything else into schema ratelimit.
DO $check$
BEGIN
	IF pg_catalog.quote_ident('@extschema@') OPERATOR(pg_catalog.=) 'ratelimit' THEN
		RAISE EXCEPTION USING
			ERRCODE = 'invalid_parameter_value',
			MESSAGE = 'extension "ratelimit" cannot be installed into schema "ratelimit"',
			DETAIL = 'The extension creates a schema of that name for its tables, types and views.',
			HINT = 'Drop that schema if it is empty, and choose another one, for example: CREATE EXTENSION ratelimit SCHEMA public.';
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname OPERATOR(pg_catalog.=) 'ratelimit') THEN
		RAISE EXCEPTION USING
			ERRCODE = 'duplicate_schema',
			MESSAGE = 'schema "ratelimit" already exists',
			DETAIL = 'The extension creates and owns this schema, and does not take over one that somebody else made.',
			HINT = 'Rename or drop the existing schema, then run CREATE EXTENSION ratelimit again.';
	END IF;
END
$check$;

CREATE SCHEMA ratelimit;
REVOKE ALL ON SCHEMA ratelimit FROM PUBLIC;
COMMENT ON SCHEMA ratelimit IS 'tables, types and views of the extension ratelimit';

-- Tables -------------------------------------------------------------------------------------------------------------
-- Hot columns first and of fixed width; no column that changes stands in an index of counters, so its updates stay HOT.

CREATE TABLE ratelimit.counters (
	window_start timestamptz NOT NULL,
	used float8 NOT NULL,
	reserved float8 NOT NULL,
	limit_value float8 NOT NULL,
	touched_at timestamptz NOT NULL,
	idle_from timestamptz NOT NULL DEFAULT '-infinity',
	window_seconds int4 NOT NULL,
	scope_type text COLLATE "C" NOT NULL,
	scope_key text COLLATE "C" NOT NULL,
	metric text COLLATE "C" NOT NULL,
	CONSTRAINT counters_pkey PRIMARY KEY (scope_type, scope_key, metric, window_seconds)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE ratelimit.counters IS 'fixed-window counters, one row per key, which holds its newest window';
COMMENT ON COLUMN ratelimit.counters.window_start IS 'start of the newest window';
COMMENT ON COLUMN ratelimit.counters.used IS 'amount spent in that window';
COMMENT ON COLUMN ratelimit.counters.reserved IS 'amount promised in that window and not yet settled: the sum of its reservations';
COMMENT ON COLUMN ratelimit.counters.limit_value IS 'limit of the last grant; the smallest one when one call named several';
COMMENT ON COLUMN ratelimit.counters.touched_at IS 'when the counter last changed';
COMMENT ON COLUMN ratelimit.counters.idle_from IS 'not later than touched_at; only the reaper changes it, which finds idle rows by it';
COMMENT ON COLUMN ratelimit.counters.window_seconds IS 'length of the window';
CREATE INDEX counters_idle ON ratelimit.counters (idle_from);

CREATE TABLE ratelimit.reservations (
	reservation_id uuid NOT NULL,
	created_at timestamptz NOT NULL,
	window_start timestamptz NOT NULL,
	due_at timestamptz NOT NULL,
	amount float8 NOT NULL,
	limit_value float8 NOT NULL,
	window_seconds int4 NOT NULL,
	status text COLLATE "C" NOT NULL DEFAULT 'reserved',
	scope_type text COLLATE "C" NOT NULL,
	scope_key text COLLATE "C" NOT NULL,
	metric text COLLATE "C" NOT NULL,
	task_id text COLLATE "C",
	attempt_id text COLLATE "C",
	actual_amount float8,
	finalized_at timestamptz,
	reason text COLLATE "C",
	CONSTRAINT reservations_pkey PRIMARY KEY (reservation_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE ratelimit.reservations IS 'amounts promised by rl_reserve, until they are settled and for a while after';
COMMENT ON COLUMN ratelimit.reservations.window_start IS 'start of the window in which the amount was reserved';
COMMENT ON COLUMN ratelimit.reservations.due_at IS 'what the reaper goes by: the end of that window while reserved, finalized_at after';
COMMENT ON COLUMN ratelimit.reservations.status IS 'reserved, committed or released';
COMMENT ON COLUMN ratelimit.reservations.actual_amount IS 'what was spent, once committed';
COMMENT ON COLUMN ratelimit.reservations.reason IS 'why it was settled: success, the reason given to rl_release, or expired';
CREATE INDEX reservations_open ON ratelimit.reservations (due_at) WHERE status OPERATOR(pg_catalog.=) 'reserved';
CREATE INDEX reservations_finished ON ratelimit.reservations (due_at) WHERE status OPERATOR(pg_catalog.<>) 'reserved';
CREATE INDEX reservations_task ON ratelimit.reservations (task_id) WHERE task_id IS NOT NULL;

CREATE TABLE ratelimit.requests (
	request_id text COLLATE "C" NOT NULL,
	created_at timestamptz NOT NULL,
	kept_from timestamptz NOT NULL DEFAULT '-infinity',
	scope_types text[] COLLATE "C" NOT NULL,
	scope_keys text[] COLLATE "C" NOT NULL,
	metrics text[] COLLATE "C" NOT NULL,
	window_seconds int4[] NOT NULL,
	amounts float8[] NOT NULL,
	reservation_ids uuid[] NOT NULL,
	lease_ids uuid[] NOT NULL,
	CONSTRAINT requests_pkey PRIMARY KEY (request_id)
);
COMMENT ON TABLE ratelimit.requests IS 'granted calls of rl_reserve that carried a request_id: what was asked, and the ids that were given';
COMMENT ON COLUMN ratelimit.requests.kept_from IS 'what the reaper goes by: created_at, and later the last time at which it found something of it left';
COMMENT ON COLUMN ratelimit.requests.reservation_ids IS 'one element per limit of the call, NULL where it made no reservation';
COMMENT ON COLUMN ratelimit.requests.lease_ids IS 'one element per limit of the call, NULL where it made no lease';
CREATE INDEX requests_kept ON ratelimit.requests (kept_from);

CREATE TABLE ratelimit.scopes (
	leased float8 NOT NULL,
	lease_count int8 NOT NULL,
	expires_from timestamptz NOT NULL,
	touched_at timestamptz NOT NULL,
	head_at timestamptz NOT NULL DEFAULT 'infinity',
	head_priority int4 NOT NULL DEFAULT 2147483647,
	waiting int4 NOT NULL DEFAULT 0,
	ready bool NOT NULL DEFAULT true,
	idle_from timestamptz NOT NULL DEFAULT '-infinity',
	scope_type text COLLATE "C" NOT NULL,
	scope_key text COLLATE "C" NOT NULL,
	CONSTRAINT scopes_pkey PRIMARY KEY (scope_type, scope_key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE ratelimit.scopes IS 'aggregates of each scope over its leases and its waiting tasks; its row lock orders those who change them';
COMMENT ON COLUMN ratelimit.scopes.leased IS 'sum of the amounts of the lease rows of the scope, over or not';
COMMENT ON COLUMN ratelimit.scopes.lease_count IS 'number of the lease rows of the scope';
COMMENT ON COLUMN ratelimit.scopes.expires_from IS 'no lease of the scope expires earlier than this; infinity without leases';
COMMENT ON COLUMN ratelimit.scopes.waiting IS 'number of the rows of the scope in ratelimit.waiting';
COMMENT ON COLUMN ratelimit.scopes.head_priority IS 'with head_at: no waiting task before this place in the order can be the head';
COMMENT ON COLUMN ratelimit.scopes.head_at IS 'with head_priority: where to begin looking for the head';
COMMENT ON COLUMN ratelimit.scopes.ready IS 'false when the dispatcher found that nothing in this scope can go; every change sets it again';

-- What the dispatcher searches stands beside the scopes: their own rows have no index on anything that changes.
CREATE TABLE ratelimit.awaited (
	head_at timestamptz NOT NULL,
	look_at timestamptz NOT NULL,
	head_priority int4 NOT NULL,
	ready bool NOT NULL,
	scope_type text COLLATE "C" NOT NULL,
	scope_key text COLLATE "C" NOT NULL,
	CONSTRAINT awaited_pkey PRIMARY KEY (scope_type, scope_key)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE ratelimit.awaited IS 'scopes with waiting tasks, for the dispatcher; changed under the lock of the scope''s row';
COMMENT ON COLUMN ratelimit.awaited.ready IS 'as in ratelimit.scopes';
COMMENT ON COLUMN ratelimit.awaited.look_at IS 'when the passing of time alone may let something go in a scope that is not ready';
CREATE INDEX awaited_ready ON ratelimit.awaited (head_priority, head_at, scope_type, scope_key) WHERE ready;
CREATE INDEX awaited_look ON ratelimit.awaited (look_at) WHERE NOT ready;
COMMENT ON COLUMN ratelimit.scopes.idle_from IS 'not later than touched_at; only the reaper changes it, which finds idle rows by it';
CREATE INDEX scopes_idle ON ratelimit.scopes (idle_from);

CREATE TABLE ratelimit.leases (
	lease_id uuid NOT NULL,
	expires_at timestamptz NOT NULL,
	created_at timestamptz NOT NULL,
	amount float8 NOT NULL,
	limit_value float8 NOT NULL,
	ttl_seconds int4 NOT NULL,
	scope_type text COLLATE "C" NOT NULL,
	scope_key text COLLATE "C" NOT NULL,
	task_id text COLLATE "C",
	attempt_id text COLLATE "C",
	CONSTRAINT leases_pkey PRIMARY KEY (lease_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE ratelimit.leases IS 'slots of concurrency limits that somebody holds; a lease that is over is deleted';
COMMENT ON COLUMN ratelimit.leases.expires_at IS 'the lease is live before this instant';
COMMENT ON COLUMN ratelimit.leases.ttl_seconds IS 'what a renewal adds to the present';
CREATE INDEX leases_scope ON ratelimit.leases (scope_type, scope_key, expires_at);
CREATE INDEX leases_expiry ON ratelimit.leases (expires_at);
CREATE INDEX leases_task ON ratelimit.leases (task_id) WHERE task_id IS NOT NULL;

CREATE TABLE ratelimit.workers (
	heartbeat_at timestamptz NOT NULL,
	capacity int4 NOT NULL,
	stopped bool NOT NULL,
	worker_id text COLLATE "C" NOT NULL,
	CONSTRAINT workers_pkey PRIMARY KEY (worker_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE ratelimit.workers IS 'workers of the application that have sent a heartbeat';
COMMENT ON COLUMN ratelimit.workers.heartbeat_at IS 'the last heartbeat; the worker is live for ratelimit.worker_stale_after from then';
COMMENT ON COLUMN ratelimit.workers.capacity IS 'how much the worker takes on at once; the sum over live workers is the limit of scopes that say so';
COMMENT ON COLUMN ratelimit.workers.stopped IS 'whether rl_worker_stop was called since the last heartbeat';

CREATE TABLE ratelimit.tasks (
	enqueued_at timestamptz NOT NULL,
	wait_deadline_at timestamptz,
	waiter_expires_at timestamptz,
	put_aside_until timestamptz,
	admitted_at timestamptz,
	finished_at timestamptz,
	waiter_started_at timestamptz,
	execution_expires_at timestamptz,
	check_at timestamptz,
	event_seq int8 NOT NULL DEFAULT 0,
	execution_token uuid,
	waiter_pid int4,
	priority int4 NOT NULL,
	defer_count int4 NOT NULL DEFAULT 0,
	attempt_no int4 NOT NULL DEFAULT 0,
	at_most_once bool NOT NULL DEFAULT false,
	status text COLLATE "C" NOT NULL,
	mode text COLLATE "C" NOT NULL,
	task_id text COLLATE "C" NOT NULL,
	waiter_id text COLLATE "C",
	error_code text COLLATE "C",
	worker_id text COLLATE "C",
	remote_id text COLLATE "C",
	submission text COLLATE "C" NOT NULL DEFAULT 'none',
	last_event text COLLATE "C",
	last_event_status text COLLATE "C",
	lease_ids uuid[] NOT NULL DEFAULT '{}',
	scopes jsonb NOT NULL,
	CONSTRAINT tasks_pkey PRIMARY KEY (task_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE ratelimit.tasks IS 'tasks of the admission queue, from their first call until retention ends';
COMMENT ON COLUMN ratelimit.tasks.status IS 'waiting, admitted, running, succeeded, failed, cancelled or review';
COMMENT ON COLUMN ratelimit.tasks.mode IS 'sync: a client waits for it; async: rl_dispatch admits it';
COMMENT ON COLUMN ratelimit.tasks.enqueued_at IS 'when the task began to wait: its age, which it keeps';
COMMENT ON COLUMN ratelimit.tasks.wait_deadline_at IS 'until when it may wait';
COMMENT ON COLUMN ratelimit.tasks.waiter_expires_at IS 'until when the waiter of a sync task counts as present';
COMMENT ON COLUMN ratelimit.tasks.put_aside_until IS 'until when rl_defer has put the task aside';
COMMENT ON COLUMN ratelimit.tasks.finished_at IS 'when it succeeded, failed or was cancelled';
COMMENT ON COLUMN ratelimit.tasks.waiter_pid IS 'process that sleeps in rl_admit_wait for the task';
COMMENT ON COLUMN ratelimit.tasks.waiter_started_at IS 'start of that process, since process numbers come again';
COMMENT ON COLUMN ratelimit.tasks.defer_count IS 'failures since the last admission or rebind, for the growing pause of rl_defer';
COMMENT ON COLUMN ratelimit.tasks.attempt_no IS 'number of the latest attempt; 0 for a task that never ran';
COMMENT ON COLUMN ratelimit.tasks.error_code IS 'why it ended, or the last failure given to rl_defer';
COMMENT ON COLUMN ratelimit.tasks.execution_token IS 'fencing token of the worker that runs it; absent when nobody does';
COMMENT ON COLUMN ratelimit.tasks.execution_expires_at IS 'from when on the task may be recovered, unless its worker is live';
COMMENT ON COLUMN ratelimit.tasks.check_at IS
	'when the reaper looks at the waiter of a waiting task, or at the leases of an admitted one: not later than they run out';
COMMENT ON COLUMN ratelimit.tasks.worker_id IS 'who runs it, or ran it last';
COMMENT ON COLUMN ratelimit.tasks.remote_id IS 'what the service that it calls knows it by, as told by rl_submission';
COMMENT ON COLUMN ratelimit.tasks.submission IS 'how far its latest attempt has come with that service: none, submitting or response_received';
COMMENT ON COLUMN ratelimit.tasks.at_most_once IS 'it must not run again when nobody knows what a lost worker has done';
COMMENT ON COLUMN ratelimit.tasks.event_seq IS 'number of its last event';
COMMENT ON COLUMN ratelimit.tasks.last_event IS 'type of its last event, taken or not';
COMMENT ON COLUMN ratelimit.tasks.lease_ids IS 'leases of its admission';
COMMENT ON COLUMN ratelimit.tasks.scopes IS 'what it asks for, as given';
CREATE INDEX tasks_waiting ON ratelimit.tasks (mode, priority, enqueued_at, task_id) WHERE status OPERATOR(pg_catalog.=) 'waiting';
CREATE INDEX tasks_deadline ON ratelimit.tasks (wait_deadline_at) WHERE status OPERATOR(pg_catalog.=) 'waiting';
CREATE INDEX tasks_aside ON ratelimit.tasks (put_aside_until)
	WHERE status OPERATOR(pg_catalog.=) 'waiting' AND put_aside_until IS NOT NULL;
CREATE INDEX tasks_finished ON ratelimit.tasks (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX tasks_check ON ratelimit.tasks (check_at) WHERE check_at IS NOT NULL;
CREATE INDEX tasks_execution ON ratelimit.tasks (execution_expires_at, task_id) WHERE status OPERATOR(pg_catalog.=) 'running';

CREATE TABLE ratelimit.attempts (
	started_at timestamptz NOT NULL,
	finished_at timestamptz,
	attempt_no int4 NOT NULL,
	retryable bool,
	task_id text COLLATE "C" NOT NULL,
	attempt_id text COLLATE "C",
	worker_id text COLLATE "C" NOT NULL,
	outcome text COLLATE "C" NOT NULL,
	error_code text COLLATE "C",
	CONSTRAINT attempts_pkey PRIMARY KEY (task_id, attempt_no)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE ratelimit.attempts IS 'executions of tasks: one row for each rl_start that gave a token; they go with their task';
COMMENT ON COLUMN ratelimit.attempts.outcome IS 'running, succeeded, failed, cancelled, or lost when the worker was';
COMMENT ON COLUMN ratelimit.attempts.retryable IS 'whether the task could be tried again after it; NULL while it runs and when it ended by itself';
CREATE INDEX attempts_open ON ratelimit.attempts (task_id) WHERE finished_at IS NULL;

CREATE TABLE ratelimit.task_events (
	at timestamptz NOT NULL,
	seq int8 NOT NULL,
	task_id text COLLATE "C" NOT NULL,
	event_type text COLLATE "C" NOT NULL,
	status text COLLATE "C" NOT NULL,
	error_code text COLLATE "C",
	CONSTRAINT task_events_pkey PRIMARY KEY (task_id, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE ratelimit.task_events IS 'changes of the states of tasks that nobody has taken yet; rl_take_events deletes them';
CREATE INDEX task_events_order ON ratelimit.task_events (at, task_id, seq);

-- Where rl_recover goes on checking; one row.
CREATE TABLE ratelimit.repair_position (
	window_seconds int4 NOT NULL,
	aggregates text COLLATE "C" NOT NULL,
	scope_type text COLLATE "C" NOT NULL,
	scope_key text COLLATE "C" NOT NULL,
	metric text COLLATE "C" NOT NULL
);
COMMENT ON TABLE ratelimit.repair_position IS 'where the next rl_recover goes on checking aggregates: after this key';
INSERT INTO ratelimit.repair_position VALUES (0, 'counters', '', '', '');

CREATE TABLE ratelimit.waiting (
	enqueued_at timestamptz NOT NULL,
	priority int4 NOT NULL,
	kind "char" NOT NULL,
	scope_type text COLLATE "C" NOT NULL,
	scope_key text COLLATE "C" NOT NULL,
	task_id text COLLATE "C" NOT NULL,
	CONSTRAINT waiting_pkey PRIMARY KEY (scope_type, scope_key, kind, priority, enqueued_at, task_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE ratelimit.waiting IS 'which task waits in which scope, in the order of the queue; changed under the lock of the scope''s row';
COMMENT ON COLUMN ratelimit.waiting.kind IS
	'o: takes part in the order of the scope; c: is only counted (fifo false); f: only counted, of a task that is ordered nowhere, in its first scope';

-- The columns before bucket_id are fixed in number, order and type, and never NULL: the library overwrites them in place
-- (src/pg/inplace.hpp). No index may hold one of them. An UPDATE would leave what is spent meanwhile in the dead version,
-- so it is refused, for the owner and for replication too.
CREATE TABLE ratelimit.buckets (
	capacity float8 NOT NULL,
	base_rps float8 NOT NULL,
	min_rps float8 NOT NULL,
	max_rps float8 NOT NULL,
	tokens float8 NOT NULL,
	refill_rps float8 NOT NULL,
	refilled_at_ms int8 NOT NULL,
	next_dispatch_at_ms int8 NOT NULL,
	cool_until_ms int8 NOT NULL,
	claimed_retry_at_ms int8 NOT NULL,
	last_ramp_at_ms int8 NOT NULL,
	penalized_at_ms int8 NOT NULL,
	ceiling_configured bool NOT NULL,
	backpressure_seen bool NOT NULL,
	retired bool NOT NULL,
	bucket_id text COLLATE "C" NOT NULL,
	rule_id text COLLATE "C" NOT NULL,
	CONSTRAINT buckets_pkey PRIMARY KEY (bucket_id, rule_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE ratelimit.buckets IS 'adaptive token buckets, one row per rule; spent in place: at once, and not undone by ROLLBACK';
COMMENT ON COLUMN ratelimit.buckets.capacity IS 'tokens that the bucket can hold';
COMMENT ON COLUMN ratelimit.buckets.base_rps IS 'configured rate, tokens per second';
COMMENT ON COLUMN ratelimit.buckets.min_rps IS 'the rate never falls below this';
COMMENT ON COLUMN ratelimit.buckets.max_rps IS 'the rate never climbs above this';
COMMENT ON COLUMN ratelimit.buckets.tokens IS 'tokens as of refilled_at_ms';
COMMENT ON COLUMN ratelimit.buckets.refill_rps IS 'rate learned so far, tokens per second';
COMMENT ON COLUMN ratelimit.buckets.refilled_at_ms IS 'when tokens were last counted; this and the other instants in milliseconds since 1970, 0 = never';
COMMENT ON COLUMN ratelimit.buckets.next_dispatch_at_ms IS 'no permit is scheduled before this';
COMMENT ON COLUMN ratelimit.buckets.cool_until_ms IS 'nothing is granted before this';
COMMENT ON COLUMN ratelimit.buckets.claimed_retry_at_ms IS 'when the last refusal said to ask again';
COMMENT ON COLUMN ratelimit.buckets.last_ramp_at_ms IS 'when the rate last climbed';
COMMENT ON COLUMN ratelimit.buckets.penalized_at_ms IS 'when the bucket was last penalized';
COMMENT ON COLUMN ratelimit.buckets.ceiling_configured IS 'whether some call has configured max_rps';
COMMENT ON COLUMN ratelimit.buckets.backpressure_seen IS 'whether the bucket was ever penalized';
COMMENT ON COLUMN ratelimit.buckets.retired IS 'whether the reaper is about to delete the row';

SELECT pg_catalog.pg_extension_config_dump('ratelimit.buckets', '');
SELECT pg_catalog.pg_extension_config_dump('ratelimit.counters', '');
SELECT pg_catalog.pg_extension_config_dump('ratelimit.scopes', '');
SELECT pg_catalog.pg_extension_config_dump('ratelimit.leases', '');
SELECT pg_catalog.pg_extension_config_dump('ratelimit.reservations', '');
SELECT pg_catalog.pg_extension_config_dump('ratelimit.requests', '');
SELECT pg_catalog.pg_extension_config_dump('ratelimit.workers', '');
SELECT pg_catalog.pg_extension_config_dump('ratelimit.tasks', '');
SELECT pg_catalog.pg_extension_config_dump('ratelimit.waiting', '');
SELECT pg_catalog.pg_extension_config_dump('ratelimit.awaited', '');
SELECT pg_catalog.pg_extension_config_dump('ratelimit.attempts', '');
SELECT pg_catalog.pg_extension_config_dump('ratelimit.task_events', '');

-- Types --------------------------------------------------------------------------------------------------------------

CREATE TYPE ratelimit.decision AS (
	ordinal int4,
	allowed bool,
	reason text,
	retryable bool,
	retry_after_ms int8,
	scope_type text,
	scope_key text,
	metric text,
	limit_value float8,
	amount float8,
	used float8,
	reserved float8,
	remaining float8,
	window_start timestamptz,
	reset_at timestamptz,
	reservation_id uuid,
	lease_id uuid,
	lease_expires_at timestamptz
);
COMMENT ON TYPE ratelimit.decision IS 'the decision on one limit of a call';
COMMENT ON COLUMN ratelimit.decision.ordinal IS 'place of the limit in the request, from 1';
COMMENT ON COLUMN ratelimit.decision.allowed IS 'whether the whole call was granted; the same on every row';
COMMENT ON COLUMN ratelimit.decision.reason IS 'why this limit denies; NULL where it was no obstacle';
COMMENT ON COLUMN ratelimit.decision.retryable IS 'whether waiting can help with this limit';
COMMENT ON COLUMN ratelimit.decision.retry_after_ms IS 'when to ask again, in milliseconds; 0 where the limit was no obstacle, NULL when waiting never helps';
COMMENT ON COLUMN ratelimit.decision.used IS 'amount spent in the window, or held by live leases, before this call';
COMMENT ON COLUMN ratelimit.decision.reserved IS 'amount promised in the window and not yet settled, before this call';
COMMENT ON COLUMN ratelimit.decision.remaining IS 'what is left of the limit: after the call when it was granted, else as found';
COMMENT ON COLUMN ratelimit.decision.reset_at IS 'end of the window, or the earliest expiry of a live lease';

CREATE TYPE ratelimit.admission AS (
	ordinal int4,
	task_id text,
	mode text,
	status text,
	admitted bool,
	newly_admitted bool,
	reason text,
	retryable bool,
	retry_after_ms int8,
	scope_type text,
	scope_key text,
	limit_value float8,
	amount float8,
	used float8,
	reset_at timestamptz,
	queue_depth int4,
	queue_limit int4,
	priority int4,
	enqueued_at timestamptz,
	wait_deadline_at timestamptz,
	admitted_at timestamptz,
	waiter_lease_expires_at timestamptz,
	lease_ids uuid[],
	scopes jsonb,
	blockers jsonb
);
COMMENT ON TYPE ratelimit.admission IS 'where a task stands in the admission queue';
COMMENT ON COLUMN ratelimit.admission.ordinal IS 'place in the result, from 1';
COMMENT ON COLUMN ratelimit.admission.status IS 'waiting, admitted, denied, timed_out, running, succeeded, failed, cancelled or review';
COMMENT ON COLUMN ratelimit.admission.admitted IS 'whether the task may proceed: it is admitted or running';
COMMENT ON COLUMN ratelimit.admission.newly_admitted IS 'whether this very call admitted it';
COMMENT ON COLUMN ratelimit.admission.reason IS 'why it was denied, or how it ended';
COMMENT ON COLUMN ratelimit.admission.retryable IS 'whether asking again can help';
COMMENT ON COLUMN ratelimit.admission.retry_after_ms IS 'when to ask again, in milliseconds; 0 when admitted, NULL when asking again never helps';
COMMENT ON COLUMN ratelimit.admission.scope_type IS 'with the columns up to queue_limit: the scope that denies';
COMMENT ON COLUMN ratelimit.admission.used IS 'amount that live leases hold in that scope';
COMMENT ON COLUMN ratelimit.admission.reset_at IS 'earliest expiry of a live lease in that scope';
COMMENT ON COLUMN ratelimit.admission.queue_depth IS 'tasks waiting in that scope; in rl_enqueue the depth that the task would have had';
COMMENT ON COLUMN ratelimit.admission.blockers IS 'what a waiting task waits for: a list of scope_type, scope_key and reason, saturated or not_head';

-- Views --------------------------------------------------------------------------------------------------------------
-- The clock is read once per query, as the functions read it.

CREATE FUNCTION ratelimit.decision_clock()
RETURNS timestamptz LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_decision_clock';
COMMENT ON FUNCTION ratelimit.decision_clock() IS 'the clock of decisions: clock_timestamp(), or ratelimit.clock';

-- In numeric, since float8 raises an error where a quotient is too large or too small, and any client may name any limit.
CREATE VIEW ratelimit.windows AS
SELECT c.scope_type, c.scope_key, c.metric, c.window_seconds, c.window_start, reset.at AS reset_at, c.limit_value, c.used, c.reserved,
	GREATEST(0, GREATEST(0, c.limit_value OPERATOR(pg_catalog.-) c.used) OPERATOR(pg_catalog.-) c.reserved) AS remaining,
	LEAST(1e308, pg_catalog.round(100 OPERATOR(pg_catalog.*) (c.used::pg_catalog.numeric OPERATOR(pg_catalog.+)
		c.reserved::pg_catalog.numeric) OPERATOR(pg_catalog./) c.limit_value::pg_catalog.numeric, 9))::pg_catalog.float8 AS percent_used
FROM (SELECT ratelimit.decision_clock() AS now) clock, ratelimit.counters c,
	LATERAL (SELECT c.window_start OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => c.window_seconds) AS at) reset
WHERE reset.at OPERATOR(pg_catalog.>) clock.now AND c.limit_value OPERATOR(pg_catalog.>) 0;
COMMENT ON VIEW ratelimit.windows IS 'counters whose window is not over, with what is left of it';
COMMENT ON COLUMN ratelimit.windows.scope_type IS 'with scope_key, metric and window_seconds: the counter';
COMMENT ON COLUMN ratelimit.windows.scope_key IS 'with scope_type, metric and window_seconds: the counter';
COMMENT ON COLUMN ratelimit.windows.metric IS 'what is counted';
COMMENT ON COLUMN ratelimit.windows.window_seconds IS 'length of the window';
COMMENT ON COLUMN ratelimit.windows.window_start IS 'start of the window';
COMMENT ON COLUMN ratelimit.windows.reset_at IS 'end of the window';
COMMENT ON COLUMN ratelimit.windows.limit_value IS 'limit of the last grant; later calls may bring another one';
COMMENT ON COLUMN ratelimit.windows.used IS 'amount spent';
COMMENT ON COLUMN ratelimit.windows.reserved IS 'amount promised and not yet settled';
COMMENT ON COLUMN ratelimit.windows.remaining IS 'what is left of that limit';
COMMENT ON COLUMN ratelimit.windows.percent_used IS '100 * (used + reserved) / limit_value';

CREATE VIEW ratelimit.live_leases AS
SELECT l.lease_id, l.scope_type, l.scope_key, l.amount, l.limit_value, l.ttl_seconds, l.created_at, l.expires_at, l.task_id, l.attempt_id
FROM (SELECT ratelimit.decision_clock() AS now) clock, ratelimit.leases l
WHERE l.expires_at OPERATOR(pg_catalog.>) clock.now;
COMMENT ON VIEW ratelimit.live_leases IS 'slots of concurrency limits that somebody holds now';
COMMENT ON COLUMN ratelimit.live_leases.lease_id IS 'the lease';
COMMENT ON COLUMN ratelimit.live_leases.scope_type IS 'with scope_key: the scope of the slot; ratelimit.bucket for permits of a bucket';
COMMENT ON COLUMN ratelimit.live_leases.scope_key IS 'with scope_type: the scope of the slot';
COMMENT ON COLUMN ratelimit.live_leases.amount IS 'how much it holds';
COMMENT ON COLUMN ratelimit.live_leases.limit_value IS 'the limit that it was granted under';
COMMENT ON COLUMN ratelimit.live_leases.ttl_seconds IS 'what a renewal adds to the present';
COMMENT ON COLUMN ratelimit.live_leases.created_at IS 'when it was granted';
COMMENT ON COLUMN ratelimit.live_leases.expires_at IS 'when it is over, unless it is renewed';
COMMENT ON COLUMN ratelimit.live_leases.task_id IS 'the task that holds it';
COMMENT ON COLUMN ratelimit.live_leases.attempt_id IS 'the attempt that holds it';

CREATE VIEW ratelimit.queue_metrics AS
SELECT pg_catalog.count(*) AS waiting,
	pg_catalog.count(*) FILTER (WHERE t.mode OPERATOR(pg_catalog.=) 'sync') AS waiting_sync,
	pg_catalog.count(*) FILTER (WHERE t.mode OPERATOR(pg_catalog.=) 'async') AS waiting_async,
	EXTRACT(epoch FROM pg_catalog.min(clock.now) OPERATOR(pg_catalog.-) pg_catalog.min(t.enqueued_at))::pg_catalog.float8
		AS oldest_wait_seconds,
	pg_catalog.count(*) FILTER (WHERE t.waiter_expires_at OPERATOR(pg_catalog.<=) clock.now
		AND t.wait_deadline_at OPERATOR(pg_catalog.>) clock.now) AS expired_waiters,
	pg_catalog.count(*) FILTER (WHERE t.wait_deadline_at OPERATOR(pg_catalog.<=) clock.now) AS expired_deadlines
FROM ratelimit.tasks t, LATERAL (SELECT ratelimit.decision_clock() AS now) clock
WHERE t.status OPERATOR(pg_catalog.=) 'waiting';
COMMENT ON VIEW ratelimit.queue_metrics IS 'one row: how many tasks wait and for how long, and how many are only there until they are reaped';

COMMENT ON COLUMN ratelimit.queue_metrics.waiting IS 'tasks that wait, over or not';
COMMENT ON COLUMN ratelimit.queue_metrics.waiting_sync IS 'those of mode sync';
COMMENT ON COLUMN ratelimit.queue_metrics.waiting_async IS 'those of mode async';
COMMENT ON COLUMN ratelimit.queue_metrics.oldest_wait_seconds IS 'how long the oldest of them has waited; NULL when none does';
COMMENT ON COLUMN ratelimit.queue_metrics.expired_waiters IS 'those whose waiter is gone, to be reaped';
COMMENT ON COLUMN ratelimit.queue_metrics.expired_deadlines IS 'those past their deadline, to be reaped';

CREATE TYPE ratelimit.bucket_grant AS (
	granted int4,
	wait_ms int8,
	server_now_ms int8,
	lease_ids uuid[],
	scheduled_at_ms int8[],
	effective_rps float8,
	cool_until_ms int8,
	claimed_retry_at_ms int8
);
COMMENT ON TYPE ratelimit.bucket_grant IS 'the permits that a call of rl_acquire_bucket was granted';
COMMENT ON COLUMN ratelimit.bucket_grant.granted IS 'number of permits';
COMMENT ON COLUMN ratelimit.bucket_grant.wait_ms IS 'when to ask again if none was granted, in milliseconds from server_now_ms; else 0';
COMMENT ON COLUMN ratelimit.bucket_grant.server_now_ms IS 'the clock of the decision, in milliseconds since 1970';
COMMENT ON COLUMN ratelimit.bucket_grant.lease_ids IS 'one lease per permit where a rule has max_concurrency, to be renewed and released; else empty';
COMMENT ON COLUMN ratelimit.bucket_grant.scheduled_at_ms IS 'when each permit may be used';
COMMENT ON COLUMN ratelimit.bucket_grant.effective_rps IS 'rate of the slowest rule, permits per second; NULL without rules';
COMMENT ON COLUMN ratelimit.bucket_grant.cool_until_ms IS 'nothing is granted before this; 0 when there was no refusal';
COMMENT ON COLUMN ratelimit.bucket_grant.claimed_retry_at_ms IS 'when the last refusal said to ask again; 0 when there was none';

-- Functions: seeing ---------------------------------------------------------------------------------------------------

CREATE FUNCTION @extschema@.rl_top(max_keys int4 DEFAULT 20, OUT scope_type text, OUT scope_key text, OUT metric text,
	OUT window_seconds int4, OUT limit_value float8, OUT used float8, OUT reserved float8, OUT percent_used float8)
RETURNS SETOF record LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_top';
COMMENT ON FUNCTION @extschema@.rl_top(int4) IS
	'the counters nearest to or over their limit in their current window, the fullest first; writes nothing';

-- Functions: counters ------------------------------------------------------------------------------------------------

CREATE FUNCTION @extschema@.rl_check(scope_type text, scope_key text, metric text, limit_value float8, amount float8 DEFAULT 1,
	window_seconds int4 DEFAULT 60)
RETURNS ratelimit.decision LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_check';
COMMENT ON FUNCTION @extschema@.rl_check(text, text, text, float8, float8, int4) IS
	'tells whether an amount would be granted now; writes nothing';

CREATE FUNCTION @extschema@.rl_check(limits jsonb)
RETURNS SETOF ratelimit.decision LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_check_list';
COMMENT ON FUNCTION @extschema@.rl_check(jsonb) IS
	'tells whether all of several limits would be granted now; writes nothing';

CREATE FUNCTION @extschema@.rl_consume(scope_type text, scope_key text, metric text, limit_value float8, amount float8 DEFAULT 1,
	window_seconds int4 DEFAULT 60)
RETURNS ratelimit.decision LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_consume';
COMMENT ON FUNCTION @extschema@.rl_consume(text, text, text, float8, float8, int4) IS
	'spends an amount of a fixed-window limit, or says when to ask again';

CREATE FUNCTION @extschema@.rl_consume(limits jsonb)
RETURNS SETOF ratelimit.decision LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_consume_list';
COMMENT ON FUNCTION @extschema@.rl_consume(jsonb) IS
	'spends amounts of several fixed-window limits, all or nothing';

CREATE FUNCTION @extschema@.rl_reserve(scope_type text, scope_key text, metric text, limit_value float8, amount float8 DEFAULT 1,
	window_seconds int4 DEFAULT 60, lease_ttl_seconds int4 DEFAULT 120, task_id text DEFAULT NULL, attempt_id text DEFAULT NULL,
	request_id text DEFAULT NULL)
RETURNS ratelimit.decision LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_reserve';
COMMENT ON FUNCTION @extschema@.rl_reserve(text, text, text, float8, float8, int4, int4, text, text, text) IS
	'reserves an amount of a fixed-window limit, to be settled by rl_commit or given back by rl_release';

CREATE FUNCTION @extschema@.rl_reserve(limits jsonb, task_id text DEFAULT NULL, request_id text DEFAULT NULL)
RETURNS SETOF ratelimit.decision LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_reserve_list';
COMMENT ON FUNCTION @extschema@.rl_reserve(jsonb, text, text) IS
	'reserves amounts of several limits, all or nothing';

CREATE FUNCTION @extschema@.rl_commit(reservation_ids uuid[], actual jsonb DEFAULT NULL)
RETURNS int4 LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_commit';
COMMENT ON FUNCTION @extschema@.rl_commit(uuid[], jsonb) IS
	'settles reservations with the amounts that were really spent; returns how many were settled now';

CREATE FUNCTION @extschema@.rl_release(reservation_ids uuid[] DEFAULT '{}', lease_ids uuid[] DEFAULT '{}',
	reason text DEFAULT 'released', OUT reservations int4, OUT leases int4)
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_release';
COMMENT ON FUNCTION @extschema@.rl_release(uuid[], uuid[], text) IS
	'gives reservations and leases back; returns how many of each were given back now';

CREATE FUNCTION @extschema@.rl_attach(attempt_id text, reservation_ids uuid[] DEFAULT '{}', lease_ids uuid[] DEFAULT '{}',
	OUT reservations int4, OUT leases int4)
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_attach';
COMMENT ON FUNCTION @extschema@.rl_attach(text, uuid[], uuid[]) IS
	'names the attempt that reservations and live leases belong to; returns how many of each were found';

CREATE FUNCTION @extschema@.rl_enforce(scope_type text, scope_key text, metric text, limit_value float8, amount float8 DEFAULT 1,
	window_seconds int4 DEFAULT 60)
RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_enforce';
COMMENT ON FUNCTION @extschema@.rl_enforce(text, text, text, float8, float8, int4) IS
	'spends an amount of a fixed-window limit, or raises an error';

CREATE FUNCTION @extschema@.rl_enforce(limits jsonb)
RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_enforce_list';
COMMENT ON FUNCTION @extschema@.rl_enforce(jsonb) IS
	'spends amounts of several fixed-window limits, all or nothing, or raises an error';

CREATE FUNCTION @extschema@.rl_headers(decisions ratelimit.decision[])
RETURNS jsonb LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_headers';
COMMENT ON FUNCTION @extschema@.rl_headers(ratelimit.decision[]) IS
	'HTTP header fields that tell a client about the decisions: RateLimit-Policy, RateLimit, Retry-After';

-- Functions: leases --------------------------------------------------------------------------------------------------

CREATE FUNCTION @extschema@.rl_renew(lease_ids uuid[], ttl_seconds int4 DEFAULT NULL, OUT ordinal int4, OUT lease_id uuid,
	OUT renewed bool, OUT expires_at timestamptz)
RETURNS SETOF record LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_renew';
COMMENT ON FUNCTION @extschema@.rl_renew(uuid[], int4) IS
	'extends live leases; one row per id, in the order asked, renewed false for one that is lost';

-- Functions: admission queue -----------------------------------------------------------------------------------------

CREATE FUNCTION @extschema@.rl_admit(task_id text, scopes jsonb, mode text DEFAULT NULL, priority int4 DEFAULT 0,
	waiter_id text DEFAULT NULL)
RETURNS ratelimit.admission LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_admit';
COMMENT ON FUNCTION @extschema@.rl_admit(text, jsonb, text, int4, text) IS
	'asks for a slot in all of the scopes: admits the task when it is its turn, else lets it wait; ask again until it is admitted';

CREATE FUNCTION @extschema@.rl_enqueue(task_id text, scopes jsonb, priority int4 DEFAULT 0)
RETURNS ratelimit.admission LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_enqueue';
COMMENT ON FUNCTION @extschema@.rl_enqueue(text, jsonb, int4) IS
	'lets a task wait for rl_dispatch, or says that the queue is full';

CREATE FUNCTION @extschema@.rl_rebind(task_id text, scopes jsonb)
RETURNS ratelimit.admission LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_rebind';
COMMENT ON FUNCTION @extschema@.rl_rebind(text, jsonb) IS
	'moves a waiting task to other scopes; it keeps its age. NULL for an unknown task';

CREATE FUNCTION @extschema@.rl_dispatch(max_tasks int4 DEFAULT 64)
RETURNS SETOF ratelimit.admission LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_dispatch';
COMMENT ON FUNCTION @extschema@.rl_dispatch(int4) IS
	'admits waiting async tasks whose turn it is, in order, and returns them';

CREATE FUNCTION @extschema@.rl_status(task_id text)
RETURNS SETOF ratelimit.admission LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_status';
COMMENT ON FUNCTION @extschema@.rl_status(text) IS
	'tells where a task stands; no row when it is unknown; writes nothing';

CREATE FUNCTION @extschema@.rl_waiting(max_tasks int4 DEFAULT 64, mode text DEFAULT NULL)
RETURNS SETOF ratelimit.admission LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_waiting';
COMMENT ON FUNCTION @extschema@.rl_waiting(int4, text) IS
	'the first waiting tasks in order, with what blocks them now; writes nothing';

CREATE FUNCTION @extschema@.rl_defer(task_id text, error_code text DEFAULT NULL, retry_after_ms int8 DEFAULT NULL)
RETURNS timestamptz LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_defer';
COMMENT ON FUNCTION @extschema@.rl_defer(text, text, int8) IS
	'puts a waiting task aside after a failure of its own, so that others pass it; returns until when';

CREATE FUNCTION ratelimit.queue_rows()
RETURNS SETOF ratelimit.admission LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_queue_rows';
COMMENT ON FUNCTION ratelimit.queue_rows() IS 'rl_waiting without a bound';

CREATE VIEW ratelimit.queue AS
SELECT ordinal AS position, task_id, mode, priority, enqueued_at, wait_deadline_at, waiter_lease_expires_at, scopes, blockers
FROM ratelimit.queue_rows();
COMMENT ON VIEW ratelimit.queue IS
	'every task that waits, with what blocks it now; rl_waiting gives the first ones and costs less';
COMMENT ON COLUMN ratelimit.queue.position IS 'place in the order over all scopes, from 1';
COMMENT ON COLUMN ratelimit.queue.task_id IS 'the task';
COMMENT ON COLUMN ratelimit.queue.mode IS 'sync or async';
COMMENT ON COLUMN ratelimit.queue.priority IS 'smaller ones come first';
COMMENT ON COLUMN ratelimit.queue.enqueued_at IS 'since when it waits';
COMMENT ON COLUMN ratelimit.queue.wait_deadline_at IS 'when it times out';
COMMENT ON COLUMN ratelimit.queue.waiter_lease_expires_at IS 'when the waiter of a sync task counts as gone';
COMMENT ON COLUMN ratelimit.queue.scopes IS 'what it asks for, as given';
COMMENT ON COLUMN ratelimit.queue.blockers IS 'what it waits for: a list of scope_type, scope_key and reason, saturated or not_head';

CREATE FUNCTION @extschema@.rl_renew_waiters(task_ids text[], waiter_ids text[])
RETURNS int4 LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_renew_waiters';
COMMENT ON FUNCTION @extschema@.rl_renew_waiters(text[], text[]) IS
	'renews the waiter leases of waiting sync tasks; returns how many still belong to the waiters given';

CREATE FUNCTION @extschema@.rl_cancel(task_id text, reason text DEFAULT 'cancelled', outcome text DEFAULT 'cancelled')
RETURNS bool LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_cancel';
COMMENT ON FUNCTION @extschema@.rl_cancel(text, text, text) IS
	'ends a task that has not finished, and gives back what it holds; false for an unknown or finished one';

CREATE PROCEDURE @extschema@.rl_admit_wait(task_id text, scopes jsonb, max_wait interval DEFAULT NULL, priority int4 DEFAULT 0,
	INOUT result ratelimit.admission DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'rl_admit_wait';
COMMENT ON PROCEDURE @extschema@.rl_admit_wait(text, jsonb, interval, int4, ratelimit.admission) IS
	'asks for a slot in all of the scopes and sleeps until it is the task''s turn; commits, so not inside a transaction block';

CREATE FUNCTION @extschema@.rl_route(candidates jsonb, pinned text DEFAULT NULL, OUT ordinal int4, OUT candidate text,
	OUT chosen bool, OUT reason text, OUT retry_after_ms int8)
RETURNS SETOF record LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_route';
COMMENT ON FUNCTION @extschema@.rl_route(jsonb, text) IS
	'chooses the first candidate whose windows are not full, or the pinned one; writes nothing';

-- Functions: workers -------------------------------------------------------------------------------------------------

CREATE FUNCTION @extschema@.rl_worker_heartbeat(worker_id text, capacity int4 DEFAULT NULL)
RETURNS timestamptz LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_worker_heartbeat';
COMMENT ON FUNCTION @extschema@.rl_worker_heartbeat(text, int4) IS
	'reports that a worker of the application is alive; returns when it becomes stale without another heartbeat';

CREATE FUNCTION @extschema@.rl_worker_stop(worker_id text)
RETURNS bool LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_worker_stop';
COMMENT ON FUNCTION @extschema@.rl_worker_stop(text) IS
	'reports that a worker of the application has stopped; returns whether it was live';

CREATE FUNCTION ratelimit.worker_stale_at(heartbeat_at timestamptz)
RETURNS timestamptz LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_worker_stale_at';
COMMENT ON FUNCTION ratelimit.worker_stale_at(timestamptz) IS 'when a worker becomes stale that has sent no other heartbeat';

CREATE VIEW ratelimit.live_workers AS
SELECT w.worker_id, w.capacity, w.heartbeat_at, stale.at AS stale_at
FROM (SELECT ratelimit.decision_clock() AS now) clock, ratelimit.workers w,
	LATERAL (SELECT ratelimit.worker_stale_at(w.heartbeat_at) AS at) stale
WHERE NOT w.stopped AND stale.at OPERATOR(pg_catalog.>) clock.now;
COMMENT ON VIEW ratelimit.live_workers IS 'workers of the application that are live now';
COMMENT ON COLUMN ratelimit.live_workers.worker_id IS 'the worker';
COMMENT ON COLUMN ratelimit.live_workers.capacity IS 'how much it takes on at once';
COMMENT ON COLUMN ratelimit.live_workers.heartbeat_at IS 'its last heartbeat';
COMMENT ON COLUMN ratelimit.live_workers.stale_at IS 'until when it counts as live without another';

-- Functions: tasks ---------------------------------------------------------------------------------------------------

CREATE TYPE ratelimit.task_event AS (
	task_id text,
	seq int8,
	event_type text,
	status text,
	error_code text,
	at timestamptz
);
COMMENT ON TYPE ratelimit.task_event IS 'a change of the state of a task';
COMMENT ON COLUMN ratelimit.task_event.seq IS 'counts the events of the task';
COMMENT ON COLUMN ratelimit.task_event.event_type IS 'task. and the new state, or task.recovered after a cold start';

CREATE TYPE ratelimit.recovery AS (
	released_concurrency_leases int4,
	released_rate_reservations int4,
	failed_attempts int4,
	failed_tasks int4,
	requeued_async_tasks int4,
	cleaned_task_admissions int4,
	review_tasks int4,
	repaired_aggregates int4
);
COMMENT ON TYPE ratelimit.recovery IS 'what rl_recover has done';
COMMENT ON COLUMN ratelimit.recovery.failed_attempts IS 'executions that were closed because their worker was lost';
COMMENT ON COLUMN ratelimit.recovery.failed_tasks IS 'tasks that ended as failed, without those in review';
COMMENT ON COLUMN ratelimit.recovery.requeued_async_tasks IS 'tasks that wait again';
COMMENT ON COLUMN ratelimit.recovery.cleaned_task_admissions IS 'finished tasks that still held something';
COMMENT ON COLUMN ratelimit.recovery.review_tasks IS 'tasks for which somebody has to decide, with rl_resolve';
COMMENT ON COLUMN ratelimit.recovery.repaired_aggregates IS 'sums and counts that did not agree with their rows';

CREATE FUNCTION @extschema@.rl_start(task_id text, worker_id text, execution_ttl_seconds int4 DEFAULT 120,
	attempt_id text DEFAULT NULL, at_most_once bool DEFAULT false,
	OUT execution_token uuid, OUT attempt_no int4, OUT expires_at timestamptz, OUT remote_id text)
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_start';
COMMENT ON FUNCTION @extschema@.rl_start(text, text, int4, text, bool) IS
	'starts an admitted or a new task; gives a fencing token, or NULL when it may not run now. 55000 for one that is over';

CREATE FUNCTION @extschema@.rl_heartbeat(task_id text, execution_token uuid, execution_ttl_seconds int4 DEFAULT 120)
RETURNS timestamptz LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_heartbeat';
COMMENT ON FUNCTION @extschema@.rl_heartbeat(text, uuid, int4) IS
	'renews the execution of a task and its leases; returns until when, or NULL when the task or one of its leases was lost';

CREATE FUNCTION @extschema@.rl_submission(task_id text, execution_token uuid, state text, remote_id text DEFAULT NULL)
RETURNS bool LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_submission';
COMMENT ON FUNCTION @extschema@.rl_submission(text, uuid, text, text) IS
	'notes how far a task has come with the service that it calls: submitting, response_received or none; false when it was lost';

CREATE FUNCTION @extschema@.rl_finish(task_id text, execution_token uuid, outcome text, actual jsonb DEFAULT NULL,
	error_code text DEFAULT NULL)
RETURNS bool LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_finish';
COMMENT ON FUNCTION @extschema@.rl_finish(text, uuid, text, jsonb, text) IS
	'ends a running task as succeeded, failed or cancelled, settles its reservations and releases its leases; false when it was lost';

CREATE FUNCTION @extschema@.rl_resolve(task_id text, outcome text)
RETURNS bool LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_resolve';
COMMENT ON FUNCTION @extschema@.rl_resolve(text, text) IS
	'decides what becomes of a task in review: succeeded, failed, cancelled or waiting; false when it is not in review';

CREATE FUNCTION @extschema@.rl_take_events(max_events int4 DEFAULT 100)
RETURNS SETOF ratelimit.task_event LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_take_events';
COMMENT ON FUNCTION @extschema@.rl_take_events(int4) IS
	'deletes and returns the oldest events of tasks that nobody else is taking';

CREATE VIEW ratelimit.recent_events AS
SELECT task_id, seq, event_type, status, error_code, at FROM ratelimit.task_events ORDER BY at DESC, task_id DESC, seq DESC;
COMMENT ON VIEW ratelimit.recent_events IS 'events of tasks that nobody has taken yet, the newest first';
COMMENT ON COLUMN ratelimit.recent_events.task_id IS 'the task';
COMMENT ON COLUMN ratelimit.recent_events.seq IS 'counts the events of the task';
COMMENT ON COLUMN ratelimit.recent_events.event_type IS 'task. and the new state, or task.recovered after a cold start';
COMMENT ON COLUMN ratelimit.recent_events.status IS 'the state that the task came to';
COMMENT ON COLUMN ratelimit.recent_events.error_code IS 'why, when it failed or was cancelled';
COMMENT ON COLUMN ratelimit.recent_events.at IS 'when';

-- Functions: buckets -------------------------------------------------------------------------------------------------

CREATE FUNCTION @extschema@.rl_acquire_bucket(bucket_id text, rules jsonb, requested int4 DEFAULT 1,
	observed_successes int4 DEFAULT 0)
RETURNS ratelimit.bucket_grant LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_acquire_bucket';
COMMENT ON FUNCTION @extschema@.rl_acquire_bucket(text, jsonb, int4, int4) IS
	'takes permits from an adaptive token bucket, or says when to ask again; spent at once, not undone by ROLLBACK';

CREATE FUNCTION @extschema@.rl_penalize(bucket_id text, cooldown_ms int8)
RETURNS int4 LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_penalize';
COMMENT ON FUNCTION @extschema@.rl_penalize(text, int8) IS
	'tells a bucket that a request was refused: its rate is halved and it cools down; returns the number of rules changed';

CREATE FUNCTION ratelimit.reap_buckets(batch int4 DEFAULT 500, retention_ms int8 DEFAULT 86400000)
RETURNS int4 LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_reap_buckets';
COMMENT ON FUNCTION ratelimit.reap_buckets(int4, int8) IS
	'deletes rules of buckets that are full and were not used for a time; returns how many';

CREATE FUNCTION ratelimit.bucket_rows(OUT bucket_id text, OUT rule_id text, OUT tokens float8, OUT capacity float8,
	OUT refill_rps float8, OUT base_rps float8, OUT min_rps float8, OUT max_rps float8, OUT ceiling_configured bool,
	OUT backpressure_seen bool, OUT refilled_at timestamptz, OUT next_dispatch_at timestamptz, OUT cool_until timestamptz,
	OUT claimed_retry_at timestamptz, OUT last_ramp_at timestamptz)
RETURNS SETOF record LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_bucket_rows';
COMMENT ON FUNCTION ratelimit.bucket_rows() IS
	'the rows of ratelimit.buckets with their tokens as of now, each copied whole';

CREATE FUNCTION ratelimit.refuse_rewrite()
RETURNS trigger LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_refuse_rewrite';
COMMENT ON FUNCTION ratelimit.refuse_rewrite() IS 'refuses UPDATE and TRUNCATE of ratelimit.buckets';

-- One for statements, one for rows: replication applies changes row by row and fires no triggers of statements.
CREATE TRIGGER buckets_refuse_statement BEFORE UPDATE OR TRUNCATE ON ratelimit.buckets
	FOR EACH STATEMENT EXECUTE FUNCTION ratelimit.refuse_rewrite();
CREATE TRIGGER buckets_refuse_row BEFORE UPDATE ON ratelimit.buckets
	FOR EACH ROW EXECUTE FUNCTION ratelimit.refuse_rewrite();
ALTER TABLE ratelimit.buckets ENABLE ALWAYS TRIGGER buckets_refuse_statement;
ALTER TABLE ratelimit.buckets ENABLE ALWAYS TRIGGER buckets_refuse_row;

CREATE VIEW ratelimit.bucket_state AS
	SELECT bucket_id, rule_id, tokens, capacity, refill_rps, base_rps, min_rps, max_rps, ceiling_configured,
		backpressure_seen, refilled_at, next_dispatch_at, cool_until, claimed_retry_at, last_ramp_at
	FROM ratelimit.bucket_rows();
COMMENT ON VIEW ratelimit.bucket_state IS 'every rule of every bucket, with its tokens as of now';
COMMENT ON COLUMN ratelimit.bucket_state.bucket_id IS 'the bucket';
COMMENT ON COLUMN ratelimit.bucket_state.rule_id IS 'its rule';
COMMENT ON COLUMN ratelimit.bucket_state.capacity IS 'permits that it can hold';
COMMENT ON COLUMN ratelimit.bucket_state.base_rps IS 'configured rate, permits per second';
COMMENT ON COLUMN ratelimit.bucket_state.min_rps IS 'the rate never falls below this';
COMMENT ON COLUMN ratelimit.bucket_state.max_rps IS 'the rate never climbs above this';
COMMENT ON COLUMN ratelimit.bucket_state.ceiling_configured IS 'whether some call has configured max_rps';
COMMENT ON COLUMN ratelimit.bucket_state.backpressure_seen IS 'whether the bucket was ever penalized';
COMMENT ON COLUMN ratelimit.bucket_state.refilled_at IS 'when its tokens were last counted';
COMMENT ON COLUMN ratelimit.bucket_state.next_dispatch_at IS 'no permit is scheduled before this';
COMMENT ON COLUMN ratelimit.bucket_state.claimed_retry_at IS 'when the last refusal said to ask again';
COMMENT ON COLUMN ratelimit.bucket_state.last_ramp_at IS 'when the rate last climbed';
COMMENT ON COLUMN ratelimit.bucket_state.tokens IS 'permits that could be granted now, not looking at the cooldown';
COMMENT ON COLUMN ratelimit.bucket_state.refill_rps IS 'rate learned so far, permits per second';
COMMENT ON COLUMN ratelimit.bucket_state.cool_until IS 'nothing is granted before this; NULL when the bucket was never penalized';

-- Functions: identity ------------------------------------------------------------------------------------------------

CREATE FUNCTION @extschema@.rl_shard(scope_type text, scope_key text)
RETURNS int4 LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'rl_shard_of_scope';
COMMENT ON FUNCTION @extschema@.rl_shard(text, text) IS 'shard number of a scope, 0 to 4095';

CREATE FUNCTION @extschema@.rl_shard(id uuid)
RETURNS int4 LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'rl_shard_of_id';
COMMENT ON FUNCTION @extschema@.rl_shard(uuid) IS 'shard number that an id made by this extension carries, 0 to 4095';

CREATE FUNCTION @extschema@.rl_version()
RETURNS text LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'rl_version';
COMMENT ON FUNCTION @extschema@.rl_version() IS 'version of the loaded library';

-- Functions: upkeep --------------------------------------------------------------------------------------------------

CREATE FUNCTION @extschema@.rl_reap(batch int4 DEFAULT 500, OUT expired_waiters int4, OUT expired_deadlines int4,
	OUT expired_leases int4, OUT expired_reservations int4, OUT deleted int4)
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_reap';
COMMENT ON FUNCTION @extschema@.rl_reap(int4) IS
	'removes what is over, at most so much of each kind; returns how much. The background worker does it by itself';

CREATE FUNCTION @extschema@.rl_recover(batch int4 DEFAULT 50, everything bool DEFAULT false)
RETURNS ratelimit.recovery LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_recover';
COMMENT ON FUNCTION @extschema@.rl_recover(int4, bool) IS
	'takes tasks back from workers that are gone and repairs sums; call it until all counts are 0. Everything: for a cold start only';

CREATE FUNCTION @extschema@.rl_verify(OUT object text, OUT key text, OUT problem text, OUT expected float8, OUT found float8)
RETURNS SETOF record LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_verify';
COMMENT ON FUNCTION @extschema@.rl_verify() IS
	'sums and counts that do not agree with the rows under them; no row means that everything is consistent';

-- The background worker ----------------------------------------------------------------------------------------------

CREATE FUNCTION ratelimit.worker_rows(OUT database oid, OUT state text, OUT launcher_pid int4, OUT worker_pid int4, OUT rounds int8,
	OUT last_round_at timestamptz, OUT last_round_ms float8, OUT last_rows int8, OUT total_rows int8, OUT failures int4,
	OUT last_error_at timestamptz, OUT last_sqlstate text, OUT last_error text)
RETURNS SETOF record LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_worker_rows';
COMMENT ON FUNCTION ratelimit.worker_rows() IS 'what the view ratelimit.worker_status shows';

CREATE FUNCTION ratelimit.extension_created()
RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_extension_created';
COMMENT ON FUNCTION ratelimit.extension_created() IS 'tells the background worker, once committed, that this database has the extension';

CREATE VIEW ratelimit.worker_status AS
SELECT d.datname AS database, w.state, w.launcher_pid, w.worker_pid, w.rounds, w.last_round_at, w.last_round_ms, w.last_rows,
	w.total_rows, w.failures, w.last_error_at, w.last_sqlstate, w.last_error
FROM ratelimit.worker_rows() w JOIN pg_catalog.pg_database d ON d.oid OPERATOR(pg_catalog.=) w.database;
COMMENT ON VIEW ratelimit.worker_status IS
	'the background worker: one row for each database that it looks after, and one for this database in any case';
COMMENT ON COLUMN ratelimit.worker_status.database IS 'the database';
COMMENT ON COLUMN ratelimit.worker_status.launcher_pid IS 'process that starts the workers';
COMMENT ON COLUMN ratelimit.worker_status.worker_pid IS 'process that is at work now';
COMMENT ON COLUMN ratelimit.worker_status.last_round_at IS 'when the last round began';
COMMENT ON COLUMN ratelimit.worker_status.last_round_ms IS 'how long it took';
COMMENT ON COLUMN ratelimit.worker_status.total_rows IS 'rows of all rounds since the server started';
COMMENT ON COLUMN ratelimit.worker_status.last_error_at IS 'when the last error happened';
COMMENT ON COLUMN ratelimit.worker_status.last_sqlstate IS 'its SQLSTATE';
COMMENT ON COLUMN ratelimit.worker_status.state IS
	'working, idle, failing, not seen yet; or why there is no worker: not preloaded, standby, no launcher';
COMMENT ON COLUMN ratelimit.worker_status.rounds IS 'rounds that came to an end, well or not, since the server started';
COMMENT ON COLUMN ratelimit.worker_status.last_rows IS 'rows that the last round changed or deleted';
COMMENT ON COLUMN ratelimit.worker_status.failures IS 'rounds that failed in a row; the pause between them grows to a minute';
COMMENT ON COLUMN ratelimit.worker_status.last_error IS 'the last error, also when the rounds since went well';

SELECT ratelimit.extension_created();

-- Statistics ---------------------------------------------------------------------------------------------------------

CREATE FUNCTION ratelimit.statistics_rows(OUT function text, OUT scope_type text, OUT metric text, OUT allowed int8, OUT denied int8,
	OUT waits int8, OUT wake_ups int8, OUT reaped int8, OUT recovered int8, OUT since timestamptz)
RETURNS SETOF record LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_statistics_rows';
COMMENT ON FUNCTION ratelimit.statistics_rows() IS 'what the view ratelimit.statistics shows';

CREATE FUNCTION @extschema@.rl_reset_statistics()
RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_reset_statistics';
COMMENT ON FUNCTION @extschema@.rl_reset_statistics() IS 'sets the counts of ratelimit.statistics for this database to 0';

CREATE VIEW ratelimit.statistics AS
SELECT function, scope_type, metric, allowed, denied, waits, wake_ups, reaped, recovered, since FROM ratelimit.statistics_rows();
COMMENT ON VIEW ratelimit.statistics IS
	'what was decided and done in this database since the last reset, rolled back or not; empty without shared_preload_libraries';
COMMENT ON COLUMN ratelimit.statistics.function IS 'the function that was called; rl_reap and rl_recover also for the background worker';
COMMENT ON COLUMN ratelimit.statistics.scope_type IS 'of the limit or scope; NULL where a whole call is counted, (other) beyond the first thousand';
COMMENT ON COLUMN ratelimit.statistics.metric IS 'of the limit; concurrent for scopes of tasks';
COMMENT ON COLUMN ratelimit.statistics.allowed IS 'limits of granted calls, scopes of tasks newly admitted, tasks dispatched, acquires that gave a permit';
COMMENT ON COLUMN ratelimit.statistics.denied IS 'limits and scopes that denied a call, acquires that gave nothing';
COMMENT ON COLUMN ratelimit.statistics.waits IS 'calls of rl_admit_wait that had to wait';
COMMENT ON COLUMN ratelimit.statistics.wake_ups IS 'times that a waiting task was told that its turn may have come';
COMMENT ON COLUMN ratelimit.statistics.reaped IS 'rows that rl_reap removed or ended';
COMMENT ON COLUMN ratelimit.statistics.recovered IS 'rows that rl_recover took back, ended or repaired';
COMMENT ON COLUMN ratelimit.statistics.since IS 'when counting began: the last reset, or the start of the server';

-- Levels -------------------------------------------------------------------------------------------------------------

CREATE FUNCTION @extschema@.rl_grant(role name, level text)
RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_grant';
COMMENT ON FUNCTION @extschema@.rl_grant(name, text) IS
	'gives a role what a client, worker, operator or monitor needs, in place of the level that it had; for the owner of the extension';

CREATE FUNCTION @extschema@.rl_revoke(role name)
RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_revoke';
COMMENT ON FUNCTION @extschema@.rl_revoke(name) IS
	'takes back what rl_grant has given to a role; for the owner of the extension';

CREATE FUNCTION ratelimit.level_rows(OUT level text, OUT routine text)
RETURNS SETOF record LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_level_rows';
COMMENT ON FUNCTION ratelimit.level_rows() IS 'what each level of rl_grant may call, by name, and what is for public and for the owner';

-- PUBLIC may call rl_shard and rl_version only; whatever else there is, and will be, is for rl_grant.
DO $revoke$
DECLARE
	routine pg_catalog.regprocedure;
BEGIN
	FOR routine IN
		SELECT d.objid FROM pg_catalog.pg_depend d
		JOIN pg_catalog.pg_extension e ON e.oid OPERATOR(pg_catalog.=) d.refobjid AND e.extname OPERATOR(pg_catalog.=) 'ratelimit'
		JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) d.objid
		WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass
			AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass
			AND d.deptype OPERATOR(pg_catalog.=) 'e'
			AND NOT EXISTS (SELECT FROM ratelimit.level_rows() l
				WHERE l.level OPERATOR(pg_catalog.=) 'public' AND l.routine OPERATOR(pg_catalog.=) p.proname::pg_catalog.text)
	LOOP
		EXECUTE pg_catalog.format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', routine);
	END LOOP;
END
$revoke$;
