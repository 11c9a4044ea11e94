-- What belongs to the extension: membership, schemas, types, comments, privileges, what a dump carries.
BEGIN;
SET LOCAL client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS ratelimit;

CREATE TEMP VIEW members AS
SELECT d.classid, d.objid, (pg_identify_object(d.classid, d.objid, 0)).*
FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid
WHERE e.extname = 'ratelimit' AND d.deptype = 'e';

SELECT plan(26);

SELECT has_extension('ratelimit', 'the extension is there');
SELECT is((SELECT extversion FROM pg_extension WHERE extname = 'ratelimit'), rl_version(), 'the library and the catalog have the same version');
SELECT is((SELECT default_version FROM pg_available_extensions WHERE name = 'ratelimit'), rl_version(), 'it is the default version');
SELECT is((SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'ratelimit'), 'public', 'functions go to public by default');
SELECT is((SELECT extrelocatable FROM pg_extension WHERE extname = 'ratelimit'), false, 'it is not relocatable');
SELECT is((SELECT (superuser, trusted)::text FROM pg_available_extension_versions WHERE name = 'ratelimit' AND installed), '(t,f)', 'only superusers install it');
SELECT isnt((SELECT comment FROM pg_available_extensions WHERE name = 'ratelimit'), NULL, 'the extension has a comment');

SELECT set_eq('SELECT DISTINCT type FROM members', ARRAY['schema', 'table', 'type', 'function', 'procedure', 'view'], 'kinds of objects');
SELECT has_schema('ratelimit');
SELECT ok(EXISTS (SELECT FROM members WHERE type = 'schema' AND name = 'ratelimit'), 'the schema belongs to the extension');
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'ratelimit'::regnamespace AND c.relkind IN ('r', 'v', 'c', 'S', 'm')
	AND NOT EXISTS (SELECT FROM members m WHERE m.objid = CASE WHEN c.relkind = 'c' THEN c.reltype ELSE c.oid END
		AND m.classid = CASE WHEN c.relkind = 'c' THEN 'pg_type'::regclass ELSE 'pg_class'::regclass END)$$, 'and so does everything in it');
SELECT is_empty($$SELECT identity FROM members WHERE schema NOT IN ('public', 'ratelimit')$$, 'nothing is elsewhere');
SELECT is_empty($$SELECT identity FROM members WHERE type IN ('function', 'procedure') AND (schema = 'ratelimit') = (name LIKE 'rl\_%') OR type NOT IN ('function', 'procedure') AND schema = 'public'$$,
	'what callers call in one schema, the rest in the other');

SELECT has_composite('ratelimit', 'decision', 'type decision');
SELECT is((SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum) FROM pg_attribute
	WHERE attrelid = 'ratelimit.decision'::regclass AND attnum > 0),
	'ordinal integer, allowed boolean, reason text, retryable boolean, retry_after_ms bigint, scope_type text, scope_key text, metric text, '
	'limit_value double precision, amount double precision, used double precision, reserved double precision, remaining double precision, '
	'window_start timestamp with time zone, reset_at timestamp with time zone, reservation_id uuid, lease_id uuid, lease_expires_at timestamp with time zone',
	'columns of a decision, in this order');

SELECT has_composite('ratelimit', 'admission', 'type admission');
SELECT is((SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum) FROM pg_attribute
	WHERE attrelid = 'ratelimit.admission'::regclass AND attnum > 0),
	'ordinal integer, task_id text, mode text, status text, admitted boolean, newly_admitted boolean, reason text, retryable boolean, '
	'retry_after_ms bigint, scope_type text, scope_key text, limit_value double precision, amount double precision, used double precision, '
	'reset_at timestamp with time zone, queue_depth integer, queue_limit integer, priority integer, enqueued_at timestamp with time zone, '
	'wait_deadline_at timestamp with time zone, admitted_at timestamp with time zone, waiter_lease_expires_at timestamp with time zone, '
	'lease_ids uuid[], scopes jsonb, blockers jsonb',
	'columns of an admission, in this order');

SELECT is_empty($$SELECT m.type, m.identity FROM members m JOIN pg_class c ON m.classid = 'pg_class'::regclass AND m.objid = c.oid
	WHERE c.relkind IN ('r', 'v', 'm', 'S') AND obj_description(m.objid, 'pg_class') IS NULL$$, 'tables and views have a comment');
SELECT is_empty($$SELECT c.oid::regclass, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
	WHERE c.relnamespace = 'ratelimit'::regnamespace AND c.relkind = 'v' AND col_description(c.oid, a.attnum) IS NULL$$, 'and so has every column of a view');
SELECT views_are('ratelimit', ARRAY['windows', 'live_leases', 'queue', 'queue_metrics', 'bucket_state', 'live_workers', 'worker_status', 'recent_events', 'statistics'],
	'the views of the contract');
SELECT is_empty($$SELECT m.identity FROM members m WHERE m.type IN ('function', 'procedure') AND obj_description(m.objid, 'pg_proc') IS NULL$$, 'functions have a comment');
-- The row type and the array type of a table are described with the table.
SELECT is_empty($$SELECT t.oid::regtype FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid WHERE t.typnamespace = 'ratelimit'::regnamespace
	AND t.typcategory <> 'A' AND (c.relkind IS NULL OR c.relkind = 'c') AND obj_description(t.oid, 'pg_type') IS NULL$$, 'types have a comment');
SELECT isnt(obj_description('ratelimit'::regnamespace, 'pg_namespace'), NULL, 'the schema has a comment');

CREATE ROLE pgtap_ratelimit_anybody;
SELECT ok(NOT has_schema_privilege('pgtap_ratelimit_anybody', 'ratelimit', 'USAGE') AND NOT has_schema_privilege('pgtap_ratelimit_anybody', 'ratelimit', 'CREATE'),
	'PUBLIC has no privilege on the schema');
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'ratelimit'::regnamespace AND c.relkind IN ('r', 'v')
	AND has_table_privilege('pgtap_ratelimit_anybody', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')$$, 'nor on any table');

-- A dump carries the rows of every table, and all of them.
SELECT bag_eq($$SELECT r.oid::text, c.condition FROM pg_extension e, unnest(e.extconfig, e.extcondition) AS c (oid, condition) JOIN pg_class r ON r.oid = c.oid
	WHERE e.extname = 'ratelimit'$$, $$SELECT oid::text, '' FROM pg_class WHERE relnamespace = 'ratelimit'::regnamespace AND relkind IN ('r', 'S') AND relname <> 'repair_position'$$,
	'the rows of all tables are part of a dump');

SELECT * FROM finish();
ROLLBACK;
