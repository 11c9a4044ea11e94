#include "store/attempt_store.hpp"

#include <algorithm>
#include <tuple>

#include "pg/spi.hpp"
#include "pg/value.hpp"

namespace ratelimit::store {

namespace {

using pg::Access;
using pg::Parameters;
using pg::Rows;
using pg::Statement;

Statement insert_attempt_statement{
	"INSERT INTO ratelimit.attempts (task_id, attempt_no, attempt_id, worker_id, started_at, outcome)"
	" VALUES ($1, $2, $3, $4, $5, 'running') ON CONFLICT DO NOTHING",
	{TEXTOID, INT4OID, TEXTOID, TEXTOID, TIMESTAMPTZOID}};

Statement close_attempt_statement{
	"UPDATE ratelimit.attempts SET outcome = $3, error_code = $4, retryable = $5, finished_at = $6"
	" WHERE task_id {=} $1 AND attempt_no {=} $2 AND finished_at IS NULL",
	{TEXTOID, INT4OID, TEXTOID, TEXTOID, BOOLOID, TIMESTAMPTZOID}};

Statement reopen_statement{
	"INSERT INTO ratelimit.attempts (task_id, attempt_no, worker_id, started_at, outcome) VALUES ($1, $2, $3, $4, 'running')"
	" ON CONFLICT (task_id, attempt_no) DO UPDATE SET outcome = 'running', finished_at = NULL, error_code = NULL,"
	" retryable = NULL",
	{TEXTOID, INT4OID, TEXTOID, TIMESTAMPTZOID}};
Statement close_others_statement{
	"UPDATE ratelimit.attempts SET outcome = 'lost', error_code = 'execution_lease_expired', retryable = true,"
	" finished_at = $3 WHERE task_id {=} $1 AND finished_at IS NULL AND attempt_no IS DISTINCT FROM $2",
	{TEXTOID, INT4OID, TIMESTAMPTZOID}};

// An event of an earlier task of the same id may be left, when somebody was taking it while that was deleted.
Statement append_event_statement{
	"INSERT INTO ratelimit.task_events (task_id, seq, event_type, status, error_code, at) VALUES ($1, $2, $3, $4, $5, $6)"
	" ON CONFLICT (task_id, seq) DO UPDATE SET event_type = $3, status = $4, error_code = $5, at = $6",
	{TEXTOID, INT8OID, TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID}};

Statement take_events_statement{
	"DELETE FROM ratelimit.task_events WHERE ctid {=} ANY (ARRAY(SELECT ctid FROM ratelimit.task_events"
	" ORDER BY at, task_id, seq LIMIT $1 FOR UPDATE SKIP LOCKED))"
	" RETURNING task_id, seq, event_type, status, error_code, at",
	{INT8OID}};

} // namespace

void insert_attempt(const TaskRow &task, std::optional<std::string_view> attempt_id, core::Instant now)
{
	Parameters parameters;
	parameters.add(pg::text_datum(task.task_id)).add(Int32GetDatum(task.attempt_no));
	parameters.add_optional_text(attempt_id);
	parameters.add_optional_text(task.execution.worker_id);
	parameters.add(pg::timestamp_datum(now.us));
	(void)insert_attempt_statement.run(Access::write, parameters);
}

void close_attempt(std::string_view task_id, std::int32_t attempt_no, const AttemptClosing &closing)
{
	Parameters parameters;
	parameters.add(pg::text_datum(task_id)).add(Int32GetDatum(attempt_no)).add(pg::text_datum(closing.outcome));
	parameters.add_optional_text(closing.code);
	if (closing.retryable)
		parameters.add(BoolGetDatum(*closing.retryable));
	else
		parameters.add_null();
	parameters.add(pg::timestamp_datum(closing.at.us));
	(void)close_attempt_statement.run(Access::write, parameters);
}

void reopen_attempt(const TaskRow &task, core::Instant now)
{
	Parameters parameters;
	parameters.add(pg::text_datum(task.task_id)).add(Int32GetDatum(task.attempt_no));
	parameters.add(pg::text_datum(task.execution.worker_id.value_or("unknown"))).add(pg::timestamp_datum(now.us));
	(void)reopen_statement.run(Access::write, parameters);
}

void close_other_attempts(std::string_view task_id, std::optional<std::int32_t> current, core::Instant now)
{
	Parameters parameters;
	parameters.add(pg::text_datum(task_id));
	if (current)
		parameters.add(Int32GetDatum(*current));
	else
		parameters.add_null();
	parameters.add(pg::timestamp_datum(now.us));
	(void)close_others_statement.run(Access::write, parameters);
}

void append_event(const TaskRow &task, core::Instant now)
{
	Parameters parameters;
	parameters.add(pg::text_datum(task.task_id)).add(Int64GetDatum(task.last_event.seq));
	parameters.add_optional_text(task.last_event.type);
	parameters.add_optional_text(task.last_event.status);
	parameters.add_optional_text(task.error_code);
	parameters.add(pg::timestamp_datum(now.us));
	(void)append_event_statement.run(Access::write, parameters);
}

pg::Vector<TaskEventRow> take_events(std::int64_t count)
{
	Parameters parameters;
	parameters.add(Int64GetDatum(count));
	const Rows rows = take_events_statement.run(Access::write, parameters);
	pg::Vector<TaskEventRow> events;
	events.reserve(rows.count());
	for (std::size_t i = 0; i < rows.count(); i++) {
		TaskEventRow event;
		event.task_id = pg::text_view(rows.datum(i, 1));
		event.seq = rows.int8(i, 2);
		event.event_type = pg::text_view(rows.datum(i, 3));
		event.status = pg::text_view(rows.datum(i, 4));
		if (!rows.is_null(i, 5))
			event.error_code = pg::text_view(rows.datum(i, 5));
		event.at = {pg::timestamp_us(rows.datum(i, 6))};
		events.push_back(event);
	}
	std::sort(events.begin(), events.end(), [](const auto &a, const auto &b) {
		return std::tie(a.at.us, a.task_id, a.seq) < std::tie(b.at.us, b.task_id, b.seq);
	});
	return events;
}

} // namespace ratelimit::store
