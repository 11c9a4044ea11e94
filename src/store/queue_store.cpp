#include "store/queue_store.hpp"

#include <limits>

#include "core/check.hpp"
#include "pg/index_scan.hpp"
#include "pg/spi.hpp"
#include "pg/value.hpp"
#include "store/scope_places.hpp"

namespace ratelimit::store {

namespace {

using pg::Access;
using pg::Parameters;
using pg::Rows;
using pg::Statement;

pg::IndexName awaited_look{"awaited_look"};
// Places of the columns in the table.
enum AwaitedColumn : int {
	awaited_head_at_column = 1,
	awaited_priority_column = 3,
	awaited_type_column = 5,
	awaited_key_column = 6,
};

#define ENTRY_IS                                                                                                       \
	"scope_type {=} $1 AND scope_key {=} $2 AND kind {=} $3 AND priority {=} $4 AND enqueued_at {=} $5 AND task_id {=} $6"

Statement insert_statement{"INSERT INTO ratelimit.waiting (scope_type, scope_key, kind, priority, enqueued_at, task_id)"
						   " VALUES ($1, $2, $3, $4, $5, $6)",
	{TEXTOID, TEXTOID, CHAROID, INT4OID, TIMESTAMPTZOID, TEXTOID}};

Statement delete_statement{"DELETE FROM ratelimit.waiting WHERE " ENTRY_IS,
	{TEXTOID, TEXTOID, CHAROID, INT4OID, TIMESTAMPTZOID, TEXTOID}};

// One task after the other in the order of the index; OFFSET 0 keeps the planner from turning this into a join of all.
Statement next_statement{
	"SELECT w.priority, w.enqueued_at, w.task_id, t.mode, t.wait_deadline_at, t.waiter_expires_at, t.put_aside_until"
	" FROM ratelimit.waiting w, LATERAL (SELECT x.mode, x.wait_deadline_at, x.waiter_expires_at, x.put_aside_until"
	" FROM ratelimit.tasks x WHERE x.task_id {=} w.task_id OFFSET 0) t"
	" WHERE w.scope_type {=} $1 AND w.scope_key {=} $2 AND w.kind {=} $3"
	" AND ROW(w.priority, w.enqueued_at, w.task_id) {>} ROW($4, $5, $6)"
	" AND t.wait_deadline_at {>} $7 AND (t.waiter_expires_at IS NULL OR t.waiter_expires_at {>} $7)"
	" AND ($8 OR t.put_aside_until IS NULL OR t.put_aside_until {<=} $7)"
	" ORDER BY w.priority, w.enqueued_at, w.task_id LIMIT 1",
	{TEXTOID, TEXTOID, CHAROID, INT4OID, TIMESTAMPTZOID, TEXTOID, TIMESTAMPTZOID, BOOLOID}};

Statement write_scope_statement{
	"UPDATE ratelimit.scopes SET leased = $3, lease_count = $4, expires_from = $5, touched_at = $6, waiting = $7,"
	" head_priority = $8, head_at = $9, ready = true WHERE ctid {=} $1 AND xmin {=} $2 RETURNING ctid",
	{TIDOID, XIDOID, FLOAT8OID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT4OID, INT4OID, TIMESTAMPTZOID}};

#define SCOPE_IS "scope_type {=} $1 AND scope_key {=} $2"

Statement insert_awaited_statement{
	"INSERT INTO ratelimit.awaited (scope_type, scope_key, head_priority, head_at, ready, look_at)"
	" VALUES ($1, $2, $3, $4, true, '-infinity')"
	" ON CONFLICT (scope_type, scope_key) DO UPDATE SET head_priority = $3, head_at = $4, ready = true, look_at = '-infinity'",
	{TEXTOID, TEXTOID, INT4OID, TIMESTAMPTZOID}};

Statement update_awaited_statement{
	"UPDATE ratelimit.awaited SET head_priority = $3, head_at = $4, ready = true WHERE " SCOPE_IS,
	{TEXTOID, TEXTOID, INT4OID, TIMESTAMPTZOID}};

Statement delete_places_statement{
	"DELETE FROM ratelimit.waiting WHERE " SCOPE_IS " AND task_id {=} $3", {TEXTOID, TEXTOID, TEXTOID}};
Statement read_places_statement{"SELECT DISTINCT scope_type, scope_key FROM ratelimit.waiting WHERE task_id {=} $1",
	{TEXTOID}, pg::Scans::whole_tables};
Statement count_places_statement{
	"SELECT pg_catalog.count(*) FROM ratelimit.waiting WHERE " SCOPE_IS, {TEXTOID, TEXTOID}};

Statement delete_awaited_statement{"DELETE FROM ratelimit.awaited WHERE " SCOPE_IS, {TEXTOID, TEXTOID}};

Statement read_ready_statement{
	"SELECT scope_type, scope_key, head_priority, head_at FROM ratelimit.awaited"
	" WHERE ready AND ROW(head_priority, head_at, scope_type, scope_key) {>} ROW($1, $2, $3, $4)"
	" ORDER BY head_priority, head_at, scope_type, scope_key LIMIT 16",
	{INT4OID, TIMESTAMPTZOID, TEXTOID, TEXTOID}};

Statement mark_scope_statement{
	"UPDATE ratelimit.scopes SET ready = $3 WHERE ctid {=} ANY (ARRAY(SELECT ctid FROM ratelimit.scopes"
	" WHERE ctid {=} $1 AND xmin {=} $2 FOR UPDATE SKIP LOCKED)) RETURNING ctid",
	{TIDOID, XIDOID, BOOLOID}};

Statement mark_awaited_statement{"UPDATE ratelimit.awaited SET ready = $3, look_at = $4 WHERE " SCOPE_IS,
	{TEXTOID, TEXTOID, BOOLOID, TIMESTAMPTZOID}};

Parameters entry_parameters(const ScopeKey &key, WaitKind kind, const core::Turn &turn)
{
	Parameters parameters;
	parameters.add(key.scope_type)
		.add(key.scope_key)
		.add(CharGetDatum(static_cast<char>(kind)))
		.add(Int32GetDatum(turn.priority))
		.add(pg::instant_datum(turn.enqueued_at.us))
		.add(pg::text_datum(turn.task_id));
	return parameters;
}

std::optional<core::Instant> optional_instant(const Rows &rows, int column)
{
	if (rows.is_null(0, column))
		return std::nullopt;
	return core::Instant{pg::timestamp_us(rows.datum(0, column))};
}

} // namespace

void insert_waiting(const ScopeKey &key, WaitKind kind, const core::Turn &turn)
{
	Parameters parameters = entry_parameters(key, kind, turn);
	(void)insert_statement.run(Access::write, parameters);
}

void delete_waiting(const ScopeKey &key, WaitKind kind, const core::Turn &turn)
{
	Parameters parameters = entry_parameters(key, kind, turn);
	const std::uint64_t deleted = delete_statement.run(Access::write, parameters).affected();
	RATELIMIT_CHECK(deleted == 1);
}

// No id is empty, so all ids of that instant come after the empty one.
core::Turn first_turn(const core::StoredQueue &queue) noexcept { return {queue.head_priority, queue.head_at, {}}; }

std::optional<Candidate> next_waiting(
	const ScopeKey &key, WaitKind kind, const core::Turn &after, core::Instant now, Aside aside)
{
	Parameters parameters = entry_parameters(key, kind, after);
	parameters.add(pg::timestamp_datum(now.us)).add(BoolGetDatum(aside == Aside::take));
	Rows rows = next_statement.run(Access::read, parameters);
	if (rows.count() == 0)
		return std::nullopt;
	Candidate candidate;
	candidate.turn = {rows.int4(0, 1), {pg::timestamp_us(rows.datum(0, 2))}, pg::text_view(pg::kept_datum(rows.datum(0, 3)))};
	candidate.mode = core::task_mode(pg::text_view(rows.datum(0, 4))).value_or(core::TaskMode::sync);
	candidate.presence = {optional_instant(rows, 5), optional_instant(rows, 6), optional_instant(rows, 7)};
	rows.release();
	return candidate;
}

namespace {

// The scope's row in `awaited` follows what the dispatcher searches by; in a deep queue that seldom changes.
void follow(const ScopeRow &found, const core::StoredQueue &queue)
{
	const bool was_awaited = found.stored.waiting > 0;
	const bool is_awaited = queue.waiting > 0;
	Parameters parameters;
	parameters.add(found.key.scope_type).add(found.key.scope_key);
	if (!is_awaited) {
		if (was_awaited)
			(void)delete_awaited_statement.run(Access::write, parameters);
		return;
	}
	parameters.add(Int32GetDatum(queue.head_priority)).add(pg::instant_datum(queue.head_at.us));
	if (!was_awaited)
		(void)insert_awaited_statement.run(Access::write, parameters);
	else if (!found.ready || queue.head_priority != found.stored.head_priority || queue.head_at != found.stored.head_at)
		(void)update_awaited_statement.run(Access::write, parameters);
}

} // namespace

void write_scope(const ScopeRow &locked, const core::StoredScope &scope, const core::StoredQueue &queue, core::Instant at)
{
	Parameters parameters;
	parameters.add(PointerGetDatum(&locked.version.place))
		.add(TransactionIdGetDatum(locked.version.made_by))
		.add(Float8GetDatum(scope.leased))
		.add(Int64GetDatum(scope.lease_count))
		.add(pg::instant_datum(scope.expires_from.us))
		.add(pg::timestamp_datum(std::max(locked.touched_at, at).us))
		.add(Int32GetDatum(queue.waiting))
		.add(Int32GetDatum(queue.head_priority))
		.add(pg::instant_datum(queue.head_at.us));
	Rows rows = write_scope_statement.run(Access::write, parameters);
	RATELIMIT_CHECK(rows.count() == 1);
	remember_place(locked.key, rows.place(0, 1));
	rows.release();
	follow(locked, queue);
}

void rewrite_scope(const ScopeRow &locked, const core::StoredScope &scope, core::StoredQueue queue, core::Instant at)
{
	Parameters parameters;
	parameters.add(locked.key.scope_type).add(locked.key.scope_key);
	(void)delete_awaited_statement.run(Access::write, parameters);
	queue.head_priority = queue.waiting > 0 ? std::numeric_limits<std::int32_t>::min() : core::StoredQueue{}.head_priority;
	queue.head_at = queue.waiting > 0 ? core::Instant::earliest() : core::StoredQueue{}.head_at;
	ScopeRow row = locked;
	row.stored.waiting = 0;
	write_scope(row, scope, queue, at);
}

void delete_places(const ScopeKey &key, std::string_view task_id)
{
	Parameters parameters;
	parameters.add(key.scope_type).add(key.scope_key).add(pg::text_datum(task_id));
	(void)delete_places_statement.run(Access::write, parameters);
}

pg::Vector<PlaceScope> read_places(std::string_view task_id)
{
	Parameters parameters;
	parameters.add(pg::text_datum(task_id));
	const Rows rows = read_places_statement.run(Access::read, parameters);
	pg::Vector<PlaceScope> places;
	for (std::size_t i = 0; i < rows.count(); i++)
		places.push_back(
			{pg::text_view(pg::kept_datum(rows.datum(i, 1))), pg::text_view(pg::kept_datum(rows.datum(i, 2)))});
	return places;
}

std::int64_t count_places(const ScopeKey &key)
{
	Parameters parameters;
	parameters.add(key.scope_type).add(key.scope_key);
	return count_places_statement.run(Access::read, parameters).int8(0, 1);
}

pg::Vector<ReadyScope> read_ready(const std::optional<ReadyScope> &after)
{
	const core::Turn begin = after ? after->begins : core::Turn{INT32_MIN, core::Instant::earliest(), {}};
	Parameters parameters;
	parameters.add(Int32GetDatum(begin.priority))
		.add(pg::instant_datum(begin.enqueued_at.us))
		.add(pg::text_datum(after ? after->scope_type : std::string_view()))
		.add(pg::text_datum(after ? after->scope_key : std::string_view()));
	Rows rows = read_ready_statement.run(Access::read, parameters);
	pg::Vector<ReadyScope> scopes;
	for (std::size_t i = 0; i < rows.count(); i++) {
		ReadyScope scope;
		scope.scope_type = pg::text_view(pg::kept_datum(rows.datum(i, 1)));
		scope.scope_key = pg::text_view(pg::kept_datum(rows.datum(i, 2)));
		scope.begins = {rows.int4(i, 3), {pg::instant_us(rows.datum(i, 4))}, {}};
		scopes.push_back(scope);
	}
	rows.release();
	return scopes;
}

// By the index and without the planner, which knows too little about the bound to choose it.
pg::Vector<ReadyScope> read_due(core::Instant now, std::size_t count)
{
	struct Found {
		Datum scope_type;
		Datum scope_key;
		Datum head_at;
		std::int32_t head_priority;
	};
	pg::ScanKeys keys;
	keys.until(pg::timestamp_datum(now.us));
	pg::Vector<Found> due(count);
	Found *const target = due.data();
	std::size_t found = 0;
	std::size_t *const target_found = &found;
	const MemoryContext home = pg::call_context;
	pg::Reader reader;
	reader.scan(awaited_look, keys, [=](TupleTableSlot *slot) {
		const MemoryContext outer = MemoryContextSwitchTo(home);
		target[(*target_found)++] = {PointerGetDatum(PG_DETOAST_DATUM_COPY(pg::slot_datum(slot, awaited_type_column))),
			PointerGetDatum(PG_DETOAST_DATUM_COPY(pg::slot_datum(slot, awaited_key_column))),
			pg::slot_datum(slot, awaited_head_at_column), DatumGetInt32(pg::slot_datum(slot, awaited_priority_column))};
		MemoryContextSwitchTo(outer);
		return *target_found < count;
	});
	reader.finish();
	pg::Vector<ReadyScope> scopes;
	for (std::size_t i = 0; i < found; i++)
		scopes.push_back({pg::text_view(due[i].scope_type), pg::text_view(due[i].scope_key),
			{due[i].head_priority, {pg::instant_us(due[i].head_at)}, {}}});
	return scopes;
}

namespace {

bool mark(const ScopeRow &found, bool ready, core::Instant look_at)
{
	Parameters parameters;
	parameters.add(PointerGetDatum(&found.version.place))
		.add(TransactionIdGetDatum(found.version.made_by))
		.add(BoolGetDatum(ready));
	Rows rows = mark_scope_statement.run(Access::write, parameters);
	if (rows.count() == 0)
		return false;
	remember_place(found.key, rows.place(0, 1));
	rows.release();
	Parameters awaited;
	awaited.add(found.key.scope_type)
		.add(found.key.scope_key)
		.add(BoolGetDatum(ready))
		.add(pg::instant_datum(look_at.us));
	(void)mark_awaited_statement.run(Access::write, awaited);
	return true;
}

} // namespace

bool mark_idle(const ScopeRow &found, core::Instant look_at) { return mark(found, false, look_at); }
bool mark_ready(const ScopeRow &found) { return mark(found, true, core::Instant::earliest()); }

} // namespace ratelimit::store
