// rl_dispatch and rl_defer: what a job runner calls for the tasks that wait without a client.
#include "api/arguments.hpp"
#include "api/dispatch_call.hpp"
#include "api/task_steps.hpp"
#include "core/limits.hpp"
#include "pg/entry.hpp"
#include "pg/spi.hpp"
#include "pg/statistics.hpp"
#include "pg/value.hpp"

namespace ratelimit::api {

namespace {

Datum dispatch(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_dispatch");
	const std::int32_t tasks_max = batch_argument(fcinfo, 0, "max_tasks", core::limits::dispatch_tasks_default);
	pg::SetResult result(fcinfo);
	pg::Session session;
	session.connect();
	const pg::Vector<Admission> admitted = DispatchCall(static_cast<std::size_t>(tasks_max)).run();
	session.finish();
	pg::statistics::add(pg::statistics::Source::rl_dispatch, {}, {}, pg::statistics::allowed, admitted.size());
	for (std::size_t i = 0; i < admitted.size(); i++) {
		AdmissionRow row = admission_row(i + 1, admitted[i]);
		result.add(row);
	}
	return Datum(0);
}

std::optional<core::Instant> put_aside(std::string_view task_id, std::optional<std::string_view> error_code,
	const std::optional<std::int64_t> &retry_after_ms)
{
	std::optional<store::TaskRow> task = lock_known_task(task_id);
	if (!task || task->status != core::TaskStatus::waiting)
		return std::nullopt;
	const TaskScopes scopes = stored_scopes(task->scopes);
	QueueBook book(queue_clock());
	book.add(scopes.list);
	book.lock_all();
	if (core::is_timed_out(task->presence, book.now())) {
		(void)time_out(book, *task, scopes.list, core::code_dispatch_failed);
		return std::nullopt;
	}
	const core::Instant until =
		book.now() + core::defer_pause(pg::to_utf8(task->task_id), task->defer_count, retry_after_ms);
	task->presence.put_aside_until = until;
	task->defer_count++;
	task->error_code = error_code;
	save_task(*task, book.now());
	// While it is away the next are the heads.
	for (const TaskScope &scope : scopes.list)
		book.changed(scope, true);
	book.write();
	book.wake_next();
	return until;
}

Datum defer(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_defer");
	const std::string_view task_id = check_name({"task_id", {}, 0}, required_text(fcinfo, 0, "task_id"));
	std::optional<std::int64_t> retry_after_ms;
	if (!PG_ARGISNULL(2))
		retry_after_ms = PG_GETARG_INT64(2);
	const std::optional<std::string_view> error_code = optional_text(fcinfo, 1);
	pg::Session session;
	session.connect();
	const std::optional<core::Instant> until = put_aside(task_id, error_code, retry_after_ms);
	session.finish();
	if (!until) {
		fcinfo->isnull = true;
		return Datum(0);
	}
	return pg::timestamp_datum(until->us);
}

} // namespace

} // namespace ratelimit::api

RATELIMIT_FUNCTION(rl_dispatch) { return ratelimit::api::dispatch(fcinfo); }
RATELIMIT_FUNCTION(rl_defer) { return ratelimit::api::defer(fcinfo); }
