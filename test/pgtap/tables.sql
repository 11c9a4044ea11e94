-- The tables: columns, defaults, keys, indexes, checks and storage.
BEGIN;
SET LOCAL client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS ratelimit;

CREATE TEMP TABLE expected (tab text, col text, type text, nullable bool, fallback text);
INSERT INTO expected VALUES
	('buckets', 'capacity', 'double precision', false, NULL),
	('buckets', 'base_rps', 'double precision', false, NULL),
	('buckets', 'min_rps', 'double precision', false, NULL),
	('buckets', 'max_rps', 'double precision', false, NULL),
	('buckets', 'tokens', 'double precision', false, NULL),
	('buckets', 'refill_rps', 'double precision', false, NULL),
	('buckets', 'refilled_at_ms', 'bigint', false, NULL),
	('buckets', 'next_dispatch_at_ms', 'bigint', false, NULL),
	('buckets', 'cool_until_ms', 'bigint', false, NULL),
	('buckets', 'claimed_retry_at_ms', 'bigint', false, NULL),
	('buckets', 'last_ramp_at_ms', 'bigint', false, NULL),
	('buckets', 'penalized_at_ms', 'bigint', false, NULL),
	('buckets', 'ceiling_configured', 'boolean', false, NULL),
	('buckets', 'backpressure_seen', 'boolean', false, NULL),
	('buckets', 'retired', 'boolean', false, NULL),
	('buckets', 'bucket_id', 'text', false, NULL),
	('buckets', 'rule_id', 'text', false, NULL),
	('counters', 'window_start', 'timestamp with time zone', false, NULL),
	('counters', 'used', 'double precision', false, NULL),
	('counters', 'reserved', 'double precision', false, NULL),
	('counters', 'limit_value', 'double precision', false, NULL),
	('counters', 'touched_at', 'timestamp with time zone', false, NULL),
	('counters', 'idle_from', 'timestamp with time zone', false, '''-infinity''::timestamp with time zone'),
	('counters', 'window_seconds', 'integer', false, NULL),
	('counters', 'scope_type', 'text', false, NULL),
	('counters', 'scope_key', 'text', false, NULL),
	('counters', 'metric', 'text', false, NULL),
	('reservations', 'reservation_id', 'uuid', false, NULL),
	('reservations', 'created_at', 'timestamp with time zone', false, NULL),
	('reservations', 'window_start', 'timestamp with time zone', false, NULL),
	('reservations', 'due_at', 'timestamp with time zone', false, NULL),
	('reservations', 'amount', 'double precision', false, NULL),
	('reservations', 'limit_value', 'double precision', false, NULL),
	('reservations', 'window_seconds', 'integer', false, NULL),
	('reservations', 'status', 'text', false, '''reserved''::text'),
	('reservations', 'scope_type', 'text', false, NULL),
	('reservations', 'scope_key', 'text', false, NULL),
	('reservations', 'metric', 'text', false, NULL),
	('reservations', 'task_id', 'text', true, NULL),
	('reservations', 'attempt_id', 'text', true, NULL),
	('reservations', 'actual_amount', 'double precision', true, NULL),
	('reservations', 'finalized_at', 'timestamp with time zone', true, NULL),
	('reservations', 'reason', 'text', true, NULL),
	('requests', 'request_id', 'text', false, NULL),
	('requests', 'created_at', 'timestamp with time zone', false, NULL),
	('requests', 'kept_from', 'timestamp with time zone', false, '''-infinity''::timestamp with time zone'),
	('requests', 'scope_types', 'text[]', false, NULL),
	('requests', 'scope_keys', 'text[]', false, NULL),
	('requests', 'metrics', 'text[]', false, NULL),
	('requests', 'window_seconds', 'integer[]', false, NULL),
	('requests', 'amounts', 'double precision[]', false, NULL),
	('requests', 'reservation_ids', 'uuid[]', false, NULL),
	('requests', 'lease_ids', 'uuid[]', false, NULL),
	('scopes', 'leased', 'double precision', false, NULL),
	('scopes', 'lease_count', 'bigint', false, NULL),
	('scopes', 'expires_from', 'timestamp with time zone', false, NULL),
	('scopes', 'touched_at', 'timestamp with time zone', false, NULL),
	('scopes', 'idle_from', 'timestamp with time zone', false, '''-infinity''::timestamp with time zone'),
	('scopes', 'scope_type', 'text', false, NULL),
	('scopes', 'scope_key', 'text', false, NULL),
	('awaited', 'head_at', 'timestamp with time zone', false, NULL),
	('awaited', 'look_at', 'timestamp with time zone', false, NULL),
	('awaited', 'head_priority', 'integer', false, NULL),
	('awaited', 'ready', 'boolean', false, NULL),
	('awaited', 'scope_type', 'text', false, NULL),
	('awaited', 'scope_key', 'text', false, NULL),
	('scopes', 'head_at', 'timestamp with time zone', false, '''infinity''::timestamp with time zone'),
	('scopes', 'head_priority', 'integer', false, '2147483647'),
	('scopes', 'waiting', 'integer', false, '0'),
	('scopes', 'ready', 'boolean', false, 'true'),
	('tasks', 'enqueued_at', 'timestamp with time zone', false, NULL),
	('tasks', 'wait_deadline_at', 'timestamp with time zone', true, NULL),
	('tasks', 'waiter_expires_at', 'timestamp with time zone', true, NULL),
	('tasks', 'put_aside_until', 'timestamp with time zone', true, NULL),
	('tasks', 'admitted_at', 'timestamp with time zone', true, NULL),
	('tasks', 'finished_at', 'timestamp with time zone', true, NULL),
	('tasks', 'waiter_started_at', 'timestamp with time zone', true, NULL),
	('tasks', 'execution_expires_at', 'timestamp with time zone', true, NULL),
	('tasks', 'execution_token', 'uuid', true, NULL),
	('tasks', 'waiter_pid', 'integer', true, NULL),
	('tasks', 'priority', 'integer', false, NULL),
	('tasks', 'defer_count', 'integer', false, '0'),
	('tasks', 'attempt_no', 'integer', false, '0'),
	('tasks', 'at_most_once', 'boolean', false, 'false'),
	('tasks', 'status', 'text', false, NULL),
	('tasks', 'mode', 'text', false, NULL),
	('tasks', 'task_id', 'text', false, NULL),
	('tasks', 'waiter_id', 'text', true, NULL),
	('tasks', 'error_code', 'text', true, NULL),
	('tasks', 'worker_id', 'text', true, NULL),
	('tasks', 'remote_id', 'text', true, NULL),
	('tasks', 'check_at', 'timestamp with time zone', true, NULL),
	('tasks', 'event_seq', 'bigint', false, '0'),
	('tasks', 'submission', 'text', false, '''none''::text'),
	('tasks', 'last_event', 'text', true, NULL),
	('tasks', 'last_event_status', 'text', true, NULL),
	('attempts', 'started_at', 'timestamp with time zone', false, NULL),
	('attempts', 'finished_at', 'timestamp with time zone', true, NULL),
	('attempts', 'attempt_no', 'integer', false, NULL),
	('attempts', 'retryable', 'boolean', true, NULL),
	('attempts', 'task_id', 'text', false, NULL),
	('attempts', 'attempt_id', 'text', true, NULL),
	('attempts', 'worker_id', 'text', false, NULL),
	('attempts', 'outcome', 'text', false, NULL),
	('attempts', 'error_code', 'text', true, NULL),
	('task_events', 'at', 'timestamp with time zone', false, NULL),
	('task_events', 'seq', 'bigint', false, NULL),
	('task_events', 'task_id', 'text', false, NULL),
	('task_events', 'event_type', 'text', false, NULL),
	('task_events', 'status', 'text', false, NULL),
	('task_events', 'error_code', 'text', true, NULL),
	('repair_position', 'window_seconds', 'integer', false, NULL),
	('repair_position', 'aggregates', 'text', false, NULL),
	('repair_position', 'scope_type', 'text', false, NULL),
	('repair_position', 'scope_key', 'text', false, NULL),
	('repair_position', 'metric', 'text', false, NULL),
	('tasks', 'lease_ids', 'uuid[]', false, '''{}''::uuid[]'),
	('tasks', 'scopes', 'jsonb', false, NULL),
	('waiting', 'enqueued_at', 'timestamp with time zone', false, NULL),
	('waiting', 'priority', 'integer', false, NULL),
	('waiting', 'kind', '"char"', false, NULL),
	('waiting', 'scope_type', 'text', false, NULL),
	('waiting', 'scope_key', 'text', false, NULL),
	('waiting', 'task_id', 'text', false, NULL),
	('leases', 'lease_id', 'uuid', false, NULL),
	('leases', 'expires_at', 'timestamp with time zone', false, NULL),
	('leases', 'created_at', 'timestamp with time zone', false, NULL),
	('leases', 'amount', 'double precision', false, NULL),
	('leases', 'limit_value', 'double precision', false, NULL),
	('leases', 'ttl_seconds', 'integer', false, NULL),
	('leases', 'scope_type', 'text', false, NULL),
	('leases', 'scope_key', 'text', false, NULL),
	('leases', 'task_id', 'text', true, NULL),
	('leases', 'attempt_id', 'text', true, NULL),
	('workers', 'heartbeat_at', 'timestamp with time zone', false, NULL),
	('workers', 'capacity', 'integer', false, NULL),
	('workers', 'stopped', 'boolean', false, NULL),
	('workers', 'worker_id', 'text', false, NULL);

CREATE TEMP VIEW found AS
SELECT c.oid, c.relname::text AS tab, a.attname::text AS col, format_type(a.atttypid, a.atttypmod) AS type, NOT a.attnotnull AS nullable,
	pg_get_expr(d.adbin, d.adrelid) AS fallback, a.attcollation
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'ratelimit'::regnamespace AND c.relkind = 'r';

SELECT plan(34);

SELECT tables_are('ratelimit', ARRAY['buckets', 'counters', 'reservations', 'requests', 'scopes', 'leases', 'tasks', 'waiting', 'awaited', 'workers', 'attempts', 'task_events', 'repair_position'], 'tables');
SELECT bag_eq('SELECT tab, col, type FROM found', 'SELECT tab, col, type FROM expected', 'columns and their types');
SELECT bag_eq('SELECT tab, col, nullable FROM found', 'SELECT tab, col, nullable FROM expected', 'columns that may be NULL');
SELECT bag_eq('SELECT tab, col, fallback FROM found', 'SELECT tab, col, fallback FROM expected', 'defaults');
SELECT is_empty($$SELECT tab, col FROM found WHERE type LIKE 'text%' AND attcollation <> '"C"'::regcollation$$, 'text is compared by its bytes');

SELECT col_is_pk('ratelimit', 'buckets', ARRAY['bucket_id', 'rule_id'], 'a rule of a bucket is identified by its key');
SELECT indexes_are('ratelimit', 'buckets', ARRAY['buckets_pkey'], 'no index on what changes in place');
SELECT is((SELECT string_agg(attname || ' ' || attlen, ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'ratelimit.buckets'::regclass AND attnum > 0),
	'capacity 8, base_rps 8, min_rps 8, max_rps 8, tokens 8, refill_rps 8, refilled_at_ms 8, next_dispatch_at_ms 8, cool_until_ms 8, '
	'claimed_retry_at_ms 8, last_ramp_at_ms 8, penalized_at_ms 8, ceiling_configured 1, backpressure_seen 1, retired 1, bucket_id -1, rule_id -1',
	'the columns that the library overwrites, in their order');
SELECT col_is_pk('ratelimit', 'counters', ARRAY['scope_type', 'scope_key', 'metric', 'window_seconds'], 'a counter is identified by its key');
SELECT col_is_pk('ratelimit', 'reservations', 'reservation_id', 'a reservation is identified by its id');
SELECT col_is_pk('ratelimit', 'requests', 'request_id', 'a request_id is unique in the database');
SELECT col_is_pk('ratelimit', 'scopes', ARRAY['scope_type', 'scope_key'], 'a scope is identified by its key');
SELECT col_is_pk('ratelimit', 'leases', 'lease_id', 'a lease is identified by its id');
SELECT indexes_are('ratelimit', 'counters', ARRAY['counters_pkey', 'counters_idle'], 'no index on what calls change, so that updates of counters stay HOT');
SELECT indexes_are('ratelimit', 'reservations', ARRAY['reservations_pkey', 'reservations_open', 'reservations_finished', 'reservations_task'], 'indexes of reservations');
SELECT indexes_are('ratelimit', 'requests', ARRAY['requests_pkey', 'requests_kept'], 'indexes of requests');
SELECT indexes_are('ratelimit', 'scopes', ARRAY['scopes_pkey', 'scopes_idle'], 'no index on what calls change, so that updates of scopes stay HOT');
SELECT col_is_pk('ratelimit', 'awaited', ARRAY['scope_type', 'scope_key'], 'an awaited scope is identified by its key');
SELECT indexes_are('ratelimit', 'awaited', ARRAY['awaited_pkey', 'awaited_ready', 'awaited_look'], 'indexes of awaited scopes');
SELECT col_is_pk('ratelimit', 'workers', 'worker_id', 'a worker is identified by its id');
SELECT indexes_are('ratelimit', 'workers', ARRAY['workers_pkey'], 'no index on what changes, so that heartbeats stay HOT');
SELECT col_is_pk('ratelimit', 'tasks', 'task_id', 'a task is identified by its id');
SELECT col_is_pk('ratelimit', 'waiting', ARRAY['scope_type', 'scope_key', 'kind', 'priority', 'enqueued_at', 'task_id'], 'the waiting stand in the order of their scope');
SELECT indexes_are('ratelimit', 'tasks', ARRAY['tasks_pkey', 'tasks_waiting', 'tasks_deadline', 'tasks_aside', 'tasks_finished', 'tasks_check', 'tasks_execution'], 'indexes of tasks: none on the waiter''s lease');
SELECT indexes_are('ratelimit', 'waiting', ARRAY['waiting_pkey'], 'indexes of the waiting');
SELECT indexes_are('ratelimit', 'leases', ARRAY['leases_pkey', 'leases_scope', 'leases_expiry', 'leases_task'], 'indexes of leases');
SELECT index_is_type('ratelimit', 'leases', 'leases_scope', 'btree', 'expired leases are found by scope and time');
SELECT bag_eq($$SELECT i.indexrelid::regclass::text, pg_get_expr(i.indpred, i.indrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
	WHERE c.relnamespace = 'ratelimit'::regnamespace AND i.indpred IS NOT NULL$$, $$VALUES
	('ratelimit.awaited_ready', 'ready'), ('ratelimit.awaited_look', '(NOT ready)'), ('ratelimit.tasks_waiting', '(status = ''waiting''::text)'), ('ratelimit.tasks_deadline', '(status = ''waiting''::text)'), ('ratelimit.tasks_aside', '((status = ''waiting''::text) AND (put_aside_until IS NOT NULL))'), ('ratelimit.tasks_finished', '(finished_at IS NOT NULL)'), ('ratelimit.tasks_check', '(check_at IS NOT NULL)'), ('ratelimit.tasks_execution', '(status = ''running''::text)'), ('ratelimit.attempts_open', '(finished_at IS NULL)'),
	('ratelimit.reservations_open', '(status = ''reserved''::text)'), ('ratelimit.reservations_finished', '(status <> ''reserved''::text)'),
	('ratelimit.reservations_task', '(task_id IS NOT NULL)'), ('ratelimit.leases_task', '(task_id IS NOT NULL)')$$, 'partial indexes');
SELECT bag_eq($$SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid, n, true) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid,
	generate_series(1, i.indnkeyatts) n WHERE c.relnamespace = 'ratelimit'::regnamespace AND NOT i.indisprimary$$, $$VALUES
	('ratelimit.awaited_ready', 'head_priority'), ('ratelimit.awaited_ready', 'head_at'), ('ratelimit.awaited_ready', 'scope_type'), ('ratelimit.awaited_ready', 'scope_key'), ('ratelimit.awaited_look', 'look_at'), ('ratelimit.tasks_waiting', 'mode'), ('ratelimit.tasks_waiting', 'priority'), ('ratelimit.tasks_waiting', 'enqueued_at'), ('ratelimit.tasks_waiting', 'task_id'), ('ratelimit.tasks_deadline', 'wait_deadline_at'), ('ratelimit.tasks_aside', 'put_aside_until'), ('ratelimit.tasks_finished', 'finished_at'), ('ratelimit.tasks_check', 'check_at'), ('ratelimit.tasks_execution', 'execution_expires_at'), ('ratelimit.tasks_execution', 'task_id'), ('ratelimit.attempts_open', 'task_id'), ('ratelimit.task_events_order', 'at'), ('ratelimit.task_events_order', 'task_id'), ('ratelimit.task_events_order', 'seq'),
	('ratelimit.counters_idle', 'idle_from'), ('ratelimit.scopes_idle', 'idle_from'), ('ratelimit.leases_expiry', 'expires_at'),
	('ratelimit.reservations_open', 'due_at'), ('ratelimit.reservations_finished', 'due_at'), ('ratelimit.reservations_task', 'task_id'),
	('ratelimit.requests_kept', 'kept_from'), ('ratelimit.leases_scope', 'scope_type'), ('ratelimit.leases_scope', 'scope_key'),
	('ratelimit.leases_scope', 'expires_at'), ('ratelimit.leases_task', 'task_id')$$, 'columns of the other indexes');

SELECT is_empty($$SELECT relname FROM pg_class WHERE relnamespace = 'ratelimit'::regnamespace AND relpersistence <> 'p'$$, 'everything survives a crash');
SELECT set_has($$SELECT relname::text FROM pg_class WHERE relnamespace = 'ratelimit'::regnamespace AND 'fillfactor=50' = ANY (reloptions)$$,
	$$VALUES ('counters'), ('scopes')$$, 'rows that are updated in place have room beside them');
SELECT is_empty($$SELECT t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = 'ratelimit'::regnamespace AND c.relname <> 'buckets'$$, 'no triggers, so no foreign keys');
SELECT bag_eq($$SELECT tgname::text, tgenabled::text FROM pg_trigger WHERE tgrelid = 'ratelimit.buckets'::regclass$$,
	$$VALUES ('buckets_refuse_statement', 'A'), ('buckets_refuse_row', 'A')$$, 'buckets refuse to be rewritten, always');
SELECT is_empty($$SELECT relname FROM pg_class WHERE relnamespace = 'ratelimit'::regnamespace AND (relrowsecurity OR relhasrules AND relkind = 'r')$$, 'no row security and no rules');

SELECT * FROM finish();
ROLLBACK;
