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
	idle_from timestamptz NOT NULL DEFAULT '-infinity',
	scope_type text COLLATE "C" NOT NULL,
	scope_key text COLLATE "C" NOT NULL,
	CONSTRAINT scopes_pkey PRIMARY KEY (scope_type, scope_key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE ratelimit.scopes IS 'aggregates of each scope over its leases; its row lock orders those who change them';
COMMENT ON COLUMN ratelimit.scopes.leased IS 'sum of the amounts of the lease rows of the scope, over or not';
COMMENT ON COLUMN ratelimit.scopes.lease_count IS 'number of the lease rows of the scope';
COMMENT ON COLUMN ratelimit.scopes.expires_from IS 'no lease of the scope expires earlier than this; infinity without leases';
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

-- Functions: leases --------------------------------------------------------------------------------------------------

CREATE FUNCTION @extschema@.rl_renew(lease_ids uuid[], ttl_seconds int4 DEFAULT NULL, OUT ordinal int4, OUT lease_id uuid,
	OUT renewed bool, OUT expires_at timestamptz)
RETURNS SETOF record LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'rl_renew';
COMMENT ON FUNCTION @extschema@.rl_renew(uuid[], int4) IS
	'extends live leases; one row per id, in the order asked, renewed false for one that is lost';

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
COMMENT ON COLUMN ratelimit.worker_status.state IS
	'working, idle, failing, not seen yet; or why there is no worker: not preloaded, standby, no launcher';
COMMENT ON COLUMN ratelimit.worker_status.rounds IS 'rounds that came to an end, well or not, since the server started';
COMMENT ON COLUMN ratelimit.worker_status.last_rows IS 'rows that the last round changed or deleted';
COMMENT ON COLUMN ratelimit.worker_status.failures IS 'rounds that failed in a row; the pause between them grows to a minute';
COMMENT ON COLUMN ratelimit.worker_status.last_error IS 'the last error, also when the rounds since went well';

SELECT ratelimit.extension_created();

REVOKE ALL ON FUNCTION ratelimit.worker_rows(), ratelimit.extension_created(), @extschema@.rl_reap(int4) FROM PUBLIC;
REVOKE ALL ON FUNCTION
	@extschema@.rl_check(text, text, text, float8, float8, int4),
	@extschema@.rl_check(jsonb),
	@extschema@.rl_consume(text, text, text, float8, float8, int4),
	@extschema@.rl_consume(jsonb),
	@extschema@.rl_reserve(text, text, text, float8, float8, int4, int4, text, text, text),
	@extschema@.rl_reserve(jsonb, text, text),
	@extschema@.rl_commit(uuid[], jsonb),
	@extschema@.rl_release(uuid[], uuid[], text),
	@extschema@.rl_attach(text, uuid[], uuid[]),
	@extschema@.rl_renew(uuid[], int4),
	@extschema@.rl_acquire_bucket(text, jsonb, int4, int4),
	@extschema@.rl_penalize(text, int8),
	ratelimit.reap_buckets(int4, int8),
	ratelimit.bucket_rows(),
	ratelimit.refuse_rewrite()
FROM PUBLIC;
