#include "store/task_store.hpp"

#include "core/check.hpp"
#include "pg/call.hpp"
#include "pg/index_scan.hpp"
#include "pg/spi.hpp"
#include "pg/value.hpp"

namespace ratelimit::store {

namespace {

using pg::Access;
using pg::Parameters;
using pg::Rows;
using pg::Statement;

pg::IndexName tasks_aside{"tasks_aside"};
constexpr int task_id_column = 19; // its place in the table

#define TASK_COLUMNS                                                                                                   \
	"task_id, status, mode, priority, enqueued_at, wait_deadline_at, waiter_expires_at, put_aside_until, admitted_at,"  \
	" finished_at, waiter_id, error_code, defer_count, attempt_no, execution_token, waiter_pid,"                       \
	" waiter_started_at, lease_ids, scopes, execution_expires_at, worker_id, remote_id, submission, at_most_once,"      \
	" event_seq, last_event, last_event_status, check_at"

Statement read_statement{"SELECT " TASK_COLUMNS " FROM ratelimit.tasks WHERE task_id {=} $1", {TEXTOID}};
Statement lock_statement{"SELECT " TASK_COLUMNS " FROM ratelimit.tasks WHERE task_id {=} $1 FOR UPDATE", {TEXTOID}};
Statement try_lock_statement{"SELECT " TASK_COLUMNS
							 " FROM ratelimit.tasks WHERE task_id {=} $1 AND status {=} 'waiting' FOR UPDATE SKIP LOCKED",
	{TEXTOID}};
Statement try_lock_any_statement{
	"SELECT " TASK_COLUMNS " FROM ratelimit.tasks WHERE task_id {=} $1 FOR UPDATE SKIP LOCKED", {TEXTOID}};
// The primary key's index returns the ids of an array in their order.
Statement lock_many_statement{
	"SELECT " TASK_COLUMNS " FROM ratelimit.tasks WHERE task_id {=} ANY ($1) FOR UPDATE", {TEXTARRAYOID}};

Statement insert_statement{
	"INSERT INTO ratelimit.tasks (task_id, mode, priority, status, enqueued_at, wait_deadline_at, waiter_expires_at,"
	" waiter_id, waiter_pid, waiter_started_at, scopes, check_at)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
	" ON CONFLICT DO NOTHING",
	{TEXTOID, TEXTOID, INT4OID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID, INT4OID, TIMESTAMPTZOID,
		JSONBOID, TIMESTAMPTZOID}};

Statement write_statement{
	"UPDATE ratelimit.tasks SET status = $2, enqueued_at = $3, wait_deadline_at = $4, waiter_expires_at = $5,"
	" put_aside_until = $6, admitted_at = $7, finished_at = $8, waiter_id = $9, error_code = $10, defer_count = $11,"
	" waiter_pid = $12, waiter_started_at = $13, lease_ids = $14, scopes = $15, attempt_no = $16, execution_token = $17,"
	" execution_expires_at = $18, worker_id = $19, remote_id = $20, submission = $21, at_most_once = $22, event_seq = $23,"
	" last_event = $24, last_event_status = $25, check_at = $26 WHERE task_id {=} $1",
	{TEXTOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID,
		TEXTOID, TEXTOID, INT4OID, INT4OID, TIMESTAMPTZOID, UUIDARRAYOID, JSONBOID, INT4OID, UUIDOID, TIMESTAMPTZOID, TEXTOID,
		TEXTOID, TEXTOID, BOOLOID, INT8OID, TEXTOID, TEXTOID, TIMESTAMPTZOID}};

Statement delete_statement{"DELETE FROM ratelimit.tasks WHERE task_id {=} $1", {TEXTOID}};
Statement delete_attempts_statement{"DELETE FROM ratelimit.attempts WHERE task_id {=} $1", {TEXTOID}};
Statement delete_events_statement{"DELETE FROM ratelimit.task_events WHERE task_id {=} $1", {TEXTOID}};

Statement renew_statement{
	"UPDATE ratelimit.tasks SET waiter_expires_at = GREATEST(waiter_expires_at, $2), waiter_id = $3, waiter_pid = $4,"
	" waiter_started_at = $5 WHERE task_id {=} $1 AND status {=} 'waiting'",
	{TEXTOID, TIMESTAMPTZOID, TEXTOID, INT4OID, TIMESTAMPTZOID}};

Statement renew_execution_statement{
	"UPDATE ratelimit.tasks SET execution_expires_at = $2 WHERE task_id {=} $1", {TEXTOID, TIMESTAMPTZOID}};

// Each sleeping session runs this rarely, so what costs is what a process does for the first time: no GREATEST here, whose
// comparison would have to be looked up.
Statement keep_statement{"UPDATE ratelimit.tasks SET waiter_expires_at = $3"
						 " WHERE task_id {=} $1 AND waiter_id {=} $2 AND status {=} 'waiting' AND waiter_expires_at {<} $3",
	{TEXTOID, TEXTOID, TIMESTAMPTZOID}};

Statement read_waiting_statement{
	"SELECT " TASK_COLUMNS " FROM ratelimit.tasks WHERE status {=} 'waiting' AND mode {=} $1"
	" AND ROW(priority, enqueued_at, task_id) {>} ROW($2, $3, $4) AND wait_deadline_at {>} $5"
	" ORDER BY mode, priority, enqueued_at, task_id LIMIT $6",
	{TEXTOID, INT4OID, TIMESTAMPTZOID, TEXTOID, TIMESTAMPTZOID, INT8OID}};

Statement clear_put_aside_statement{
	"UPDATE ratelimit.tasks SET put_aside_until = NULL WHERE ctid {=} ANY (ARRAY(SELECT ctid FROM ratelimit.tasks"
	" WHERE task_id {=} $1 AND status {=} 'waiting' AND put_aside_until {<=} $2 FOR UPDATE SKIP LOCKED))",
	{TEXTOID, TIMESTAMPTZOID}};

#define OVERDUE_PAGE " LIMIT $2 OFFSET $3 FOR UPDATE SKIP LOCKED"

Statement overdue_deadlines_statement{
	"SELECT " TASK_COLUMNS " FROM ratelimit.tasks WHERE status {=} 'waiting' AND wait_deadline_at {<=} $1"
	" ORDER BY wait_deadline_at" OVERDUE_PAGE,
	{TIMESTAMPTZOID, INT8OID, INT8OID}};
Statement overdue_checks_statement{
	"SELECT " TASK_COLUMNS " FROM ratelimit.tasks WHERE check_at {<=} $1 ORDER BY check_at" OVERDUE_PAGE,
	{TIMESTAMPTZOID, INT8OID, INT8OID}};
Statement overdue_executions_statement{
	"SELECT " TASK_COLUMNS " FROM ratelimit.tasks t WHERE status {=} 'running' AND execution_expires_at {<=} $1"
	" AND NOT EXISTS (SELECT FROM ratelimit.workers w WHERE w.worker_id {=} t.worker_id AND NOT w.stopped"
	" AND w.heartbeat_at {>} $4) ORDER BY execution_expires_at, task_id LIMIT $2 OFFSET $3 FOR UPDATE OF t SKIP LOCKED",
	{TIMESTAMPTZOID, INT8OID, INT8OID, TIMESTAMPTZOID}};

// What holds something is little beside what is finished, so the search begins there.
Statement finished_holders_statement{
	"SELECT " TASK_COLUMNS " FROM ratelimit.tasks t WHERE (finished_at IS NOT NULL OR status {=} 'review')"
	" AND task_id {=} ANY (ARRAY(SELECT task_id FROM ratelimit.leases WHERE task_id IS NOT NULL AND expires_at {>} $1"
	" UNION SELECT task_id FROM ratelimit.reservations WHERE task_id IS NOT NULL AND status {=} 'reserved'))"
	" ORDER BY finished_at, task_id LIMIT $2 OFFSET $3 FOR UPDATE OF t SKIP LOCKED",
	{TIMESTAMPTZOID, INT8OID, INT8OID}, pg::Scans::whole_tables};

Statement started_statement{
	"SELECT " TASK_COLUMNS " FROM ratelimit.tasks WHERE status {=} 'admitted' OR execution_token IS NOT NULL"
	" ORDER BY task_id LIMIT $1 FOR UPDATE",
	{INT8OID}, pg::Scans::whole_tables};

Statement old_tasks_statement{
	"SELECT task_id FROM ratelimit.tasks WHERE finished_at {<=} $1 ORDER BY finished_at LIMIT $2 FOR UPDATE SKIP LOCKED",
	{TIMESTAMPTZOID, INT8OID}};
Statement delete_old_attempts_statement{
	"DELETE FROM ratelimit.attempts WHERE task_id {=} ANY ($1)", {TEXTARRAYOID}};
// Those that somebody is taking go by that.
Statement delete_old_events_statement{
	"DELETE FROM ratelimit.task_events WHERE ctid {=} ANY (ARRAY(SELECT ctid FROM ratelimit.task_events"
	" WHERE task_id {=} ANY ($1) FOR UPDATE SKIP LOCKED))",
	{TEXTARRAYOID}};
Statement delete_old_tasks_statement{"DELETE FROM ratelimit.tasks WHERE task_id {=} ANY ($1)", {TEXTARRAYOID}};

std::optional<core::Instant> optional_instant(const Rows &rows, std::size_t row, int column)
{
	if (rows.is_null(row, column))
		return std::nullopt;
	return core::Instant{pg::timestamp_us(rows.datum(row, column))};
}

std::optional<std::string_view> optional_kept(const Rows &rows, std::size_t row, int column)
{
	if (rows.is_null(row, column))
		return std::nullopt;
	return pg::text_view(pg::kept_datum(rows.datum(row, column)));
}

TaskRow task_row(const Rows &rows, std::size_t row)
{
	TaskRow task;
	task.task_id = pg::text_view(pg::kept_datum(rows.datum(row, 1)));
	const auto status = core::task_status(pg::text_view(rows.datum(row, 2)));
	const auto mode = core::task_mode(pg::text_view(rows.datum(row, 3)));
	RATELIMIT_CHECK(status.has_value() && mode.has_value());
	task.status = *status;
	task.mode = *mode;
	task.priority = rows.int4(row, 4);
	task.enqueued_at = {pg::timestamp_us(rows.datum(row, 5))};
	task.presence = {optional_instant(rows, row, 6), optional_instant(rows, row, 7), optional_instant(rows, row, 8)};
	task.admitted_at = optional_instant(rows, row, 9);
	task.finished_at = optional_instant(rows, row, 10);
	task.waiter_id = optional_kept(rows, row, 11);
	task.error_code = optional_kept(rows, row, 12);
	task.defer_count = rows.int4(row, 13);
	task.attempt_no = rows.int4(row, 14);
	if (!rows.is_null(row, 15))
		task.execution.token = pg::uuid_bytes(rows.datum(row, 15));
	if (!rows.is_null(row, 16))
		task.sleeping.pid = rows.int4(row, 16);
	task.sleeping.started_at = optional_instant(rows, row, 17);
	for (const auto &id : pg::uuid_array(rows.datum(row, 18)))
		task.lease_ids.push_back(*id);
	task.scopes = pg::kept_datum(rows.datum(row, 19));
	task.execution.expires_at = optional_instant(rows, row, 20);
	task.execution.worker_id = optional_kept(rows, row, 21);
	task.execution.remote_id = optional_kept(rows, row, 22);
	const auto submission = core::submission(pg::text_view(rows.datum(row, 23)));
	RATELIMIT_CHECK(submission.has_value());
	task.execution.submission = *submission;
	task.execution.at_most_once = rows.boolean(row, 24);
	task.last_event = {rows.int8(row, 25), optional_kept(rows, row, 26), optional_kept(rows, row, 27)};
	task.check_at = optional_instant(rows, row, 28);
	return task;
}

pg::Vector<TaskRow> task_rows(Rows rows)
{
	pg::Vector<TaskRow> tasks;
	tasks.reserve(rows.count());
	for (std::size_t i = 0; i < rows.count(); i++)
		tasks.push_back(task_row(rows, i));
	rows.release();
	return tasks;
}

std::optional<TaskRow> one_task(Statement &statement, Access access, std::string_view task_id)
{
	Parameters parameters;
	parameters.add(pg::text_datum(task_id));
	Rows rows = statement.run(access, parameters);
	if (rows.count() == 0)
		return std::nullopt;
	TaskRow task = task_row(rows, 0);
	rows.release();
	return task;
}

Datum text_array(pg::Vector<Datum> &texts)
{
	Datum *const values = texts.data();
	const int count = static_cast<int>(texts.size());
	return pg::call(
		[=] { return PointerGetDatum(construct_array(values, count, TEXTOID, -1, false, TYPALIGN_INT)); });
}

void add_instant(Parameters &parameters, const std::optional<core::Instant> &at)
{
	if (at)
		parameters.add(pg::timestamp_datum(at->us));
	else
		parameters.add_null();
}

void add_sleeping(Parameters &parameters, const Sleeping &sleeping)
{
	if (sleeping.pid)
		parameters.add(Int32GetDatum(*sleeping.pid));
	else
		parameters.add_null();
	add_instant(parameters, sleeping.started_at);
}

void add_execution(Parameters &parameters, const TaskRow &task)
{
	parameters.add(Int32GetDatum(task.attempt_no));
	if (task.execution.token)
		parameters.add(pg::uuid_datum(*task.execution.token));
	else
		parameters.add_null();
	add_instant(parameters, task.execution.expires_at);
	parameters.add_optional_text(task.execution.worker_id);
	parameters.add_optional_text(task.execution.remote_id);
	parameters.add(pg::text_datum(core::name_of(task.execution.submission)))
		.add(BoolGetDatum(task.execution.at_most_once));
}

} // namespace

std::optional<TaskRow> read_task(std::string_view task_id) { return one_task(read_statement, Access::read, task_id); }
std::optional<TaskRow> lock_task(std::string_view task_id) { return one_task(lock_statement, Access::write, task_id); }
std::optional<TaskRow> try_lock_waiting(std::string_view task_id)
{
	return one_task(try_lock_statement, Access::write, task_id);
}

std::optional<TaskRow> try_lock_task(std::string_view task_id)
{
	return one_task(try_lock_any_statement, Access::write, task_id);
}

pg::Vector<TaskRow> lock_tasks(Datum task_ids)
{
	Parameters parameters;
	parameters.add(task_ids);
	return task_rows(lock_many_statement.run(Access::write, parameters));
}

bool insert_task(const TaskRow &task)
{
	Parameters parameters;
	parameters.add(pg::text_datum(task.task_id))
		.add(pg::text_datum(core::name_of(task.mode)))
		.add(Int32GetDatum(task.priority))
		.add(pg::text_datum(core::name_of(task.status)))
		.add(pg::timestamp_datum(task.enqueued_at.us));
	add_instant(parameters, task.presence.deadline);
	add_instant(parameters, task.presence.waiter_expires_at);
	parameters.add_optional_text(task.waiter_id);
	add_sleeping(parameters, task.sleeping);
	parameters.add(task.scopes);
	add_instant(parameters, task.check_at);
	return insert_statement.run(Access::write, parameters).affected() == 1;
}

void write_task(const TaskRow &task)
{
	Parameters parameters;
	parameters.add(pg::text_datum(task.task_id))
		.add(pg::text_datum(core::name_of(task.status)))
		.add(pg::timestamp_datum(task.enqueued_at.us));
	add_instant(parameters, task.presence.deadline);
	add_instant(parameters, task.presence.waiter_expires_at);
	add_instant(parameters, task.presence.put_aside_until);
	add_instant(parameters, task.admitted_at);
	add_instant(parameters, task.finished_at);
	parameters.add_optional_text(task.waiter_id);
	parameters.add_optional_text(task.error_code);
	parameters.add(Int32GetDatum(task.defer_count));
	add_sleeping(parameters, task.sleeping);
	parameters.add(pg::uuid_array_datum(task.lease_ids.data(), task.lease_ids.size())).add(task.scopes);
	add_execution(parameters, task);
	parameters.add(Int64GetDatum(task.last_event.seq));
	parameters.add_optional_text(task.last_event.type);
	parameters.add_optional_text(task.last_event.status);
	add_instant(parameters, task.check_at);
	const std::uint64_t written = write_statement.run(Access::write, parameters).affected();
	RATELIMIT_CHECK(written == 1);
}

void delete_task(std::string_view task_id)
{
	Parameters parameters;
	parameters.add(pg::text_datum(task_id));
	for (Statement *statement : {&delete_attempts_statement, &delete_events_statement, &delete_statement})
		(void)statement->run(Access::write, parameters);
}

void renew_execution(std::string_view task_id, core::Instant expires_at)
{
	Parameters parameters;
	parameters.add(pg::text_datum(task_id)).add(pg::instant_datum(expires_at.us));
	(void)renew_execution_statement.run(Access::write, parameters);
}

bool renew_waiter(const TaskRow &task)
{
	Parameters parameters;
	parameters.add(pg::text_datum(task.task_id));
	add_instant(parameters, task.presence.waiter_expires_at);
	parameters.add_optional_text(task.waiter_id);
	add_sleeping(parameters, task.sleeping);
	return renew_statement.run(Access::write, parameters).affected() == 1;
}

void keep_waiter(std::string_view task_id, std::string_view waiter_id, core::Instant expires_at)
{
	Parameters parameters;
	parameters.add(pg::text_datum(task_id)).add(pg::text_datum(waiter_id)).add(pg::instant_datum(expires_at.us));
	(void)keep_statement.run(Access::write, parameters);
}

pg::Vector<TaskRow> read_waiting(core::TaskMode mode, const core::Turn &after, core::Instant now, std::int64_t count)
{
	Parameters parameters;
	parameters.add(pg::text_datum(core::name_of(mode)))
		.add(Int32GetDatum(after.priority))
		.add(pg::instant_datum(after.enqueued_at.us))
		.add(pg::text_datum(after.task_id))
		.add(pg::timestamp_datum(now.us))
		.add(Int64GetDatum(count));
	return task_rows(read_waiting_statement.run(Access::read, parameters));
}

pg::Vector<TaskRow> lock_overdue(
	Overdue overdue, core::Instant now, core::Instant stale_at, std::int64_t count, std::int64_t skip)
{
	Parameters parameters;
	parameters.add(pg::timestamp_datum(now.us)).add(Int64GetDatum(count)).add(Int64GetDatum(skip));
	if (overdue == Overdue::execution)
		parameters.add(pg::timestamp_datum(stale_at.us));
	Statement &statement = overdue == Overdue::deadline ? overdue_deadlines_statement
	                       : overdue == Overdue::check  ? overdue_checks_statement
	                                                    : overdue_executions_statement;
	return task_rows(statement.run(Access::write, parameters));
}

pg::Vector<TaskRow> lock_finished_holders(core::Instant now, std::int64_t count, std::int64_t skip)
{
	Parameters parameters;
	parameters.add(pg::timestamp_datum(now.us)).add(Int64GetDatum(count)).add(Int64GetDatum(skip));
	return task_rows(finished_holders_statement.run(Access::write, parameters));
}

pg::Vector<TaskRow> lock_started(std::int64_t count)
{
	Parameters parameters;
	parameters.add(Int64GetDatum(count));
	return task_rows(started_statement.run(Access::write, parameters));
}

std::int64_t delete_finished_tasks(core::Instant until, std::int64_t count)
{
	Parameters bounds;
	bounds.add(pg::timestamp_datum(until.us)).add(Int64GetDatum(count));
	Rows rows = old_tasks_statement.run(Access::write, bounds);
	pg::Vector<Datum> ids;
	for (std::size_t i = 0; i < rows.count(); i++)
		ids.push_back(pg::kept_datum(rows.datum(i, 1)));
	rows.release();
	if (ids.empty())
		return 0;
	Parameters parameters;
	parameters.add(text_array(ids));
	for (Statement *statement : {&delete_old_attempts_statement, &delete_old_events_statement})
		(void)statement->run(Access::write, parameters);
	return static_cast<std::int64_t>(delete_old_tasks_statement.run(Access::write, parameters).affected());
}

// By the index and without the planner, which knows too little about the bound to choose it.
pg::Vector<std::string_view> read_returned(core::Instant now, std::size_t count)
{
	pg::ScanKeys keys;
	keys.until(pg::timestamp_datum(now.us));
	pg::Vector<Datum> ids(count);
	Datum *const target = ids.data();
	std::size_t found = 0;
	std::size_t *const target_found = &found;
	const MemoryContext home = pg::call_context;
	pg::Reader reader;
	reader.scan(tasks_aside, keys, [=](TupleTableSlot *slot) {
		const MemoryContext outer = MemoryContextSwitchTo(home);
		target[(*target_found)++] = PointerGetDatum(PG_DETOAST_DATUM_COPY(pg::slot_datum(slot, task_id_column)));
		MemoryContextSwitchTo(outer);
		return *target_found < count;
	});
	reader.finish();
	pg::Vector<std::string_view> names;
	for (std::size_t i = 0; i < found; i++)
		names.push_back(pg::text_view(ids[i]));
	return names;
}

void clear_put_aside(std::string_view task_id, core::Instant now)
{
	Parameters parameters;
	parameters.add(pg::text_datum(task_id)).add(pg::timestamp_datum(now.us));
	(void)clear_put_aside_statement.run(Access::write, parameters);
}

} // namespace ratelimit::store
