-- The tables: columns, defaults, keys, indexes, checks and storage.
BEGIN;
SET LOCAL client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS ratelimit;

CREATE TEMP TABLE expected (tab text, col text, type text, nullable bool, fallback text);
INSERT INTO expected VALUES
	('counters', 'window_start', 'timestamp with time zone', false, NULL),
	('counters', 'used', 'double precision', false, NULL),
	('counters', 'reserved', 'double precision', false, NULL),
	('counters', 'limit_value', 'double precision', false, NULL),
	('counters', 'touched_at', 'timestamp with time zone', false, NULL),
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
	('scopes', 'scope_type', 'text', false, NULL),
	('scopes', 'scope_key', 'text', false, NULL),
	('scopes', 'head_at', 'timestamp with time zone', false, '''infinity''::timestamp with time zone'),
	('scopes', 'look_at', 'timestamp with time zone', false, '''-infinity''::timestamp with time zone'),
	('scopes', 'waiting', 'integer', false, '0'),
	('scopes', 'head_priority', 'integer', false, '2147483647'),
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
	('leases', 'attempt_id', 'text', true, NULL);

CREATE TEMP VIEW found AS
SELECT c.oid, c.relname::text AS tab, a.attname::text AS col, format_type(a.atttypid, a.atttypmod) AS type, NOT a.attnotnull AS nullable,
	pg_get_expr(d.adbin, d.adrelid) AS fallback, a.attcollation
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'ratelimit'::regnamespace AND c.relkind = 'r';

SELECT plan(26);

SELECT tables_are('ratelimit', ARRAY['counters', 'reservations', 'requests', 'scopes', 'leases', 'tasks', 'waiting'], 'tables');
SELECT bag_eq('SELECT tab, col, type FROM found', 'SELECT tab, col, type FROM expected', 'columns and their types');
SELECT bag_eq('SELECT tab, col, nullable FROM found', 'SELECT tab, col, nullable FROM expected', 'columns that may be NULL');
SELECT bag_eq('SELECT tab, col, fallback FROM found', 'SELECT tab, col, fallback FROM expected', 'defaults');
SELECT is_empty($$SELECT tab, col FROM found WHERE type LIKE 'text%' AND attcollation <> '"C"'::regcollation$$, 'text is compared by its bytes');

SELECT col_is_pk('ratelimit', 'counters', ARRAY['scope_type', 'scope_key', 'metric', 'window_seconds'], 'a counter is identified by its key');
SELECT col_is_pk('ratelimit', 'reservations', 'reservation_id', 'a reservation is identified by its id');
SELECT col_is_pk('ratelimit', 'requests', 'request_id', 'a request_id is unique in the database');
SELECT col_is_pk('ratelimit', 'scopes', ARRAY['scope_type', 'scope_key'], 'a scope is identified by its key');
SELECT col_is_pk('ratelimit', 'leases', 'lease_id', 'a lease is identified by its id');
SELECT indexes_are('ratelimit', 'counters', ARRAY['counters_pkey'], 'no index on what changes, so that updates of counters stay HOT');
SELECT indexes_are('ratelimit', 'reservations', ARRAY['reservations_pkey', 'reservations_due', 'reservations_task'], 'indexes of reservations');
SELECT indexes_are('ratelimit', 'requests', ARRAY['requests_pkey', 'requests_created'], 'indexes of requests');
SELECT indexes_are('ratelimit', 'scopes', ARRAY['scopes_pkey', 'scopes_ready', 'scopes_look'], 'no index on what leases change, so that such updates of scopes stay HOT');
SELECT col_is_pk('ratelimit', 'tasks', 'task_id', 'a task is identified by its id');
SELECT col_is_pk('ratelimit', 'waiting', ARRAY['scope_type', 'scope_key', 'kind', 'priority', 'enqueued_at', 'task_id'], 'the waiting stand in the order of their scope');
SELECT indexes_are('ratelimit', 'tasks', ARRAY['tasks_pkey', 'tasks_waiting', 'tasks_deadline', 'tasks_aside', 'tasks_finished'], 'indexes of tasks: none on the waiter''s lease');
SELECT indexes_are('ratelimit', 'waiting', ARRAY['waiting_pkey'], 'indexes of the waiting');
SELECT indexes_are('ratelimit', 'leases', ARRAY['leases_pkey', 'leases_scope', 'leases_task'], 'indexes of leases');
SELECT index_is_type('ratelimit', 'leases', 'leases_scope', 'btree', 'expired leases are found by scope and time');
SELECT bag_eq($$SELECT i.indexrelid::regclass::text, pg_get_expr(i.indpred, i.indrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
	WHERE c.relnamespace = 'ratelimit'::regnamespace AND i.indpred IS NOT NULL$$, $$VALUES
	('ratelimit.scopes_ready', '((waiting > 0) AND ready)'), ('ratelimit.scopes_look', '((waiting > 0) AND (NOT ready))'), ('ratelimit.tasks_waiting', '(status = ''waiting''::text)'), ('ratelimit.tasks_deadline', '(status = ''waiting''::text)'), ('ratelimit.tasks_aside', '((status = ''waiting''::text) AND (put_aside_until IS NOT NULL))'), ('ratelimit.tasks_finished', '(finished_at IS NOT NULL)'),
	('ratelimit.reservations_task', '(task_id IS NOT NULL)'), ('ratelimit.leases_task', '(task_id IS NOT NULL)')$$, 'partial indexes');
SELECT bag_eq($$SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid, n, true) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid,
	generate_series(1, i.indnkeyatts) n WHERE c.relnamespace = 'ratelimit'::regnamespace AND NOT i.indisprimary$$, $$VALUES
	('ratelimit.scopes_ready', 'head_priority'), ('ratelimit.scopes_ready', 'head_at'), ('ratelimit.scopes_ready', 'scope_type'), ('ratelimit.scopes_ready', 'scope_key'), ('ratelimit.scopes_look', 'look_at'), ('ratelimit.tasks_waiting', 'mode'), ('ratelimit.tasks_waiting', 'priority'), ('ratelimit.tasks_waiting', 'enqueued_at'), ('ratelimit.tasks_waiting', 'task_id'), ('ratelimit.tasks_deadline', 'wait_deadline_at'), ('ratelimit.tasks_aside', 'put_aside_until'), ('ratelimit.tasks_finished', 'finished_at'),
	('ratelimit.reservations_due', 'status'), ('ratelimit.reservations_due', 'due_at'), ('ratelimit.reservations_task', 'task_id'),
	('ratelimit.requests_created', 'created_at'), ('ratelimit.leases_scope', 'scope_type'), ('ratelimit.leases_scope', 'scope_key'),
	('ratelimit.leases_scope', 'expires_at'), ('ratelimit.leases_task', 'task_id')$$, 'columns of the other indexes');

SELECT is_empty($$SELECT relname FROM pg_class WHERE relnamespace = 'ratelimit'::regnamespace AND relpersistence <> 'p'$$, 'everything survives a crash');
SELECT set_has($$SELECT relname::text FROM pg_class WHERE relnamespace = 'ratelimit'::regnamespace AND 'fillfactor=50' = ANY (reloptions)$$,
	$$VALUES ('counters'), ('scopes')$$, 'rows that are updated in place have room beside them');
SELECT is_empty($$SELECT t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = 'ratelimit'::regnamespace$$, 'no triggers, so no foreign keys');
SELECT is_empty($$SELECT relname FROM pg_class WHERE relnamespace = 'ratelimit'::regnamespace AND (relrowsecurity OR relhasrules AND relkind = 'r')$$, 'no row security and no rules');

SELECT * FROM finish();
ROLLBACK;
