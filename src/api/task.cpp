// rl_start, rl_heartbeat, rl_submission, rl_finish and rl_resolve: the life of a task from its start to its end.
//
// Each begins by locking the task's row, so the calls for one task come one after the other; the token is compared under
// that lock, and whoever takes a task away (recovery, rl_cancel, rl_finish) removes the token under it. That is the fence:
// a worker that has lost its task finds another token or none, and changes nothing.
#include <algorithm>

#include "api/arguments.hpp"
#include "api/conclude.hpp"
#include "api/ids.hpp"
#include "api/task_steps.hpp"
#include "core/task.hpp"
#include "pg/entry.hpp"
#include "pg/error.hpp"
#include "pg/spi.hpp"
#include "pg/value.hpp"
#include "store/attempt_store.hpp"

namespace ratelimit::api {

namespace {

constexpr std::int32_t execution_ttl_default = 120;

std::string_view task_argument(FunctionCallInfo fcinfo)
{
	return check_name({"task_id", {}, 0}, required_text(fcinfo, 0, "task_id"));
}

core::Span ttl_argument(FunctionCallInfo fcinfo, int index)
{
	const std::int32_t seconds = PG_ARGISNULL(index) ? execution_ttl_default : PG_GETARG_INT32(index);
	return core::Span::from_seconds(check_seconds({"execution_ttl_seconds", {}, 0}, seconds));
}

// The task, locked, if the token is the one that was given out for it.
std::optional<store::TaskRow> lock_executed(std::string_view task_id, const core::Uuid &token)
{
	std::optional<store::TaskRow> task = lock_known_task(task_id);
	if (task && task->execution.token != token)
		task.reset();
	return task;
}

// --- rl_start ------------------------------------------------------------------------------------------------------

struct StartRequest {
	std::string_view task_id;
	std::string_view worker_id;
	core::Span ttl;
	std::optional<std::string_view> attempt_id;
	bool at_most_once;
};

void begin_execution(store::TaskRow &task, const StartRequest &request, core::Instant now)
{
	task.attempt_no++;
	task.execution.token = new_id("task", task.task_id);
	task.execution.expires_at = now + request.ttl;
	task.execution.worker_id = request.worker_id;
	task.execution.submission = core::Submission::none;
	task.execution.at_most_once = request.at_most_once;
	task.status = core::step(task.status, core::TaskEvent::start).next;
	task.check_at.reset();
	store::insert_attempt(task, request.attempt_id, now);
	save_task(task, now);
}

// A task that nobody has admitted: the caller runs it by itself.
bool start_unknown(const StartRequest &request, store::TaskRow &task)
{
	task.task_id = request.task_id;
	task.status = core::step(core::TaskStatus::none, core::TaskEvent::start).next;
	task.enqueued_at = queue_clock();
	task.scopes = pg::json_array_datum(nullptr, 0);
	if (!store::insert_task(task))
		return false;
	task.status = core::TaskStatus::none;
	begin_execution(task, request, queue_clock());
	return true;
}

// A lease of its admission is over: it gives back what is left and waits again, with its age.
void lose_admission(store::TaskRow &task)
{
	const TaskScopes scopes = stored_scopes(task.scopes);
	QueueBook book(queue_clock());
	book.add(scopes.list);
	book.lock_all();
	(void)book.release(task.lease_ids);
	back_to_waiting(task, core::TaskEvent::lose_lease, Deadline::earlier, scopes.list, book.now());
	if (core::is_timed_out(task.presence, book.now()))
		end_task(task, core::TaskEvent::time_out, core::code_queue_timeout, book.now());
	else
		book.enter(task.turn(), scopes.list);
	save_task(task, book.now());
	book.write();
	book.wake_next();
}

// The task as started, or as it is when it cannot be; absent when the call has to look again.
std::optional<store::TaskRow> try_start(const StartRequest &request)
{
	std::optional<store::TaskRow> task = lock_known_task(request.task_id);
	if (task && is_forgotten(*task, queue_clock())) {
		store::delete_task(task->task_id);
		task.reset();
	}
	if (!task) {
		store::TaskRow started;
		return start_unknown(request, started) ? std::optional(started) : std::nullopt;
	}
	const core::TaskStep step = core::step(task->status, core::TaskEvent::start);
	if (step.effect == core::TaskEffect::error)
		throw pg::SqlError{ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "task is over",
			"The task \"" + pg::excerpt(task->task_id) + "\" ended as " + std::string(core::name_of(task->status)) + ".",
			task->status == core::TaskStatus::review
				? "Decide what becomes of it with rl_resolve."
				: "Use a new task_id, or wait until its record is no longer kept (ratelimit.retention)."};
	const core::Instant now = queue_clock();
	if (!step.allowed())
		task->execution = {}; // another's token is not for this caller
	else if (admission_is_live(*task, now))
		begin_execution(*task, request, now);
	else
		lose_admission(*task);
	return task;
}

Datum start(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_start");
	StartRequest request;
	request.task_id = task_argument(fcinfo);
	request.worker_id = check_name({"worker_id", {}, 0}, required_text(fcinfo, 1, "worker_id"));
	request.ttl = ttl_argument(fcinfo, 2);
	request.attempt_id = check_optional_name({"attempt_id", {}, 0}, optional_text(fcinfo, 3));
	request.at_most_once = !PG_ARGISNULL(4) && PG_GETARG_BOOL(4);
	std::optional<store::TaskRow> task;
	pg::Session session;
	session.connect();
	while (!(task = try_start(request)))
		pg::check_for_interrupts();
	session.finish();
	pg::Columns<4> row;
	if (task->has_execution()) {
		row.set(0, pg::uuid_datum(*task->execution.token));
		row.set(1, Int32GetDatum(task->attempt_no));
		row.set(2, pg::timestamp_datum(task->execution.expires_at->us));
		if (task->execution.remote_id)
			row.set(3, pg::text_datum(*task->execution.remote_id));
	}
	return pg::composite_result(fcinfo, row);
}

// --- rl_heartbeat --------------------------------------------------------------------------------------------------

// Renews the leases that carry the task's id, unless one of its admission was lost.
bool renew_leases_of(const store::TaskRow &task)
{
	pg::Vector<core::Uuid> ids = task.lease_ids;
	for (const store::LeaseRow &lease : store::read_leases_of_task(task.task_id, queue_clock()))
		ids.push_back(lease.id);
	std::sort(ids.begin(), ids.end());
	ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
	if (ids.empty())
		return true;
	const auto locked = store::lock_leases({ids.data(), ids.size()});
	const core::Instant now = queue_clock();
	pg::Vector<core::Uuid> live;
	for (const store::LeaseRow &lease : locked)
		if (core::lease_is_live(lease.expires_at, now))
			live.push_back(lease.id);
	std::sort(live.begin(), live.end());
	for (const core::Uuid &id : task.lease_ids)
		if (!std::binary_search(live.begin(), live.end(), id))
			return false;
	if (!live.empty())
		(void)store::renew_leases({live.data(), live.size()}, now, std::nullopt);
	return true;
}

Datum heartbeat(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_heartbeat");
	const std::string_view task_id = task_argument(fcinfo);
	const core::Uuid token = pg::uuid_bytes(required_datum(fcinfo, 1, "execution_token"));
	const core::Span ttl = ttl_argument(fcinfo, 2);
	std::optional<core::Instant> expires_at;
	pg::Session session;
	session.connect();
	if (std::optional<store::TaskRow> task = lock_executed(task_id, token); task && renew_leases_of(*task)) {
		expires_at = std::max(task->execution.expires_at.value_or(core::Instant::earliest()), queue_clock() + ttl);
		store::renew_execution(task_id, *expires_at);
	}
	session.finish();
	if (!expires_at) {
		fcinfo->isnull = true;
		return Datum(0);
	}
	return pg::timestamp_datum(expires_at->us);
}

// --- rl_submission -------------------------------------------------------------------------------------------------

Datum submission(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_submission");
	const std::string_view task_id = task_argument(fcinfo);
	const core::Uuid token = pg::uuid_bytes(required_datum(fcinfo, 1, "execution_token"));
	const std::string_view name = required_text(fcinfo, 2, "state");
	const std::optional<core::Submission> state = core::submission(name);
	if (!state)
		reject({"state", {}, 0}, "The value is \"" + pg::excerpt(name) + "\".",
			"It must be \"submitting\", \"response_received\" or \"none\".");
	const std::optional<std::string_view> remote_id = optional_text(fcinfo, 3);
	pg::Session session;
	session.connect();
	std::optional<store::TaskRow> task = lock_executed(task_id, token);
	if (task) {
		task->execution.submission = *state;
		if (*state == core::Submission::none)
			task->execution.remote_id.reset();
		else if (remote_id)
			task->execution.remote_id = remote_id;
		save_task(*task, queue_clock());
	}
	session.finish();
	return BoolGetDatum(task.has_value());
}

// --- rl_finish and rl_resolve --------------------------------------------------------------------------------------

struct NamedEvent {
	std::string_view name;
	core::TaskEvent event;
};

template <std::size_t count>
core::TaskEvent outcome_argument(FunctionCallInfo fcinfo, int index, const NamedEvent (&events)[count], const char *accepted)
{
	const std::string_view name = required_text(fcinfo, index, "outcome");
	for (const NamedEvent &event : events)
		if (event.name == name)
			return event.event;
	reject({"outcome", {}, 0}, "The value is \"" + pg::excerpt(name) + "\".", accepted);
}

constexpr NamedEvent finish_events[] = {{"succeeded", core::TaskEvent::succeed}, {"failed", core::TaskEvent::fail},
	{"cancelled", core::TaskEvent::cancel_running}};

constexpr NamedEvent resolve_events[] = {{"succeeded", core::TaskEvent::resolve_succeed},
	{"failed", core::TaskEvent::resolve_fail}, {"cancelled", core::TaskEvent::resolve_cancel},
	{"waiting", core::TaskEvent::resolve_wait}};

Datum finish(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_finish");
	const std::string_view task_id = task_argument(fcinfo);
	const core::Uuid token = pg::uuid_bytes(required_datum(fcinfo, 1, "execution_token"));
	const core::TaskEvent event =
		outcome_argument(fcinfo, 2, finish_events, "It must be \"succeeded\", \"failed\" or \"cancelled\".");
	const pg::Vector<ActualAmount> actual = actual_argument(fcinfo, 3);
	const std::optional<std::string_view> code = optional_text(fcinfo, 4);
	const bool succeeds = event == core::TaskEvent::succeed;
	bool finished = false;
	pg::Session session;
	session.connect();
	if (std::optional<store::TaskRow> task = lock_executed(task_id, token)) {
		const core::TaskStep step = core::step(task->status, event);
		finished = step.allowed() && conclude(*task, {event, code,
			succeeds ? std::string_view("success") : core::name_of(step.next), succeeds ? &actual : nullptr});
	}
	session.finish();
	return BoolGetDatum(finished);
}

void resolve_task(store::TaskRow &task, core::TaskEvent event)
{
	const TaskScopes scopes = stored_scopes(task.scopes);
	const bool waits = event == core::TaskEvent::resolve_wait;
	const bool succeeds = event == core::TaskEvent::resolve_succeed;
	QueueBook book(queue_clock());
	if (waits) {
		book.add(scopes.list);
		book.lock_all();
		wait_again(book, task, event, Deadline::fresh, scopes.list);
		task.error_code.reset();
	} else {
		end_task(task, event, succeeds ? std::nullopt : task.error_code, book.now());
	}
	save_task(task, book.now());
	book.write();
	book.wake_next();
}

Datum resolve(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_resolve");
	const std::string_view task_id = task_argument(fcinfo);
	const core::TaskEvent event = outcome_argument(
		fcinfo, 1, resolve_events, "It must be \"succeeded\", \"failed\", \"cancelled\" or \"waiting\".");
	pg::Session session;
	session.connect();
	std::optional<store::TaskRow> task = lock_known_task(task_id);
	const bool in_review = task && core::step(task->status, event).allowed();
	if (in_review)
		resolve_task(*task, event);
	session.finish();
	return BoolGetDatum(in_review);
}

// --- rl_take_events ------------------------------------------------------------------------------------------------

constexpr std::int32_t events_default = 100;

Datum take_events(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_take_events");
	const std::int32_t events_max = batch_argument(fcinfo, 0, "max_events", events_default);
	pg::SetResult result(fcinfo);
	pg::Session session;
	session.connect();
	for (const store::TaskEventRow &event : store::take_events(events_max)) {
		pg::Columns<6> row;
		row.set(0, pg::text_datum(event.task_id));
		row.set(1, Int64GetDatum(event.seq));
		row.set(2, pg::text_datum(event.event_type));
		row.set(3, pg::text_datum(event.status));
		if (event.error_code)
			row.set(4, pg::text_datum(*event.error_code));
		row.set(5, pg::timestamp_datum(event.at.us));
		result.add(row);
	}
	session.finish();
	return Datum(0);
}

} // namespace

} // namespace ratelimit::api

RATELIMIT_FUNCTION(rl_start) { return ratelimit::api::start(fcinfo); }
RATELIMIT_FUNCTION(rl_heartbeat) { return ratelimit::api::heartbeat(fcinfo); }
RATELIMIT_FUNCTION(rl_submission) { return ratelimit::api::submission(fcinfo); }
RATELIMIT_FUNCTION(rl_finish) { return ratelimit::api::finish(fcinfo); }
RATELIMIT_FUNCTION(rl_resolve) { return ratelimit::api::resolve(fcinfo); }
RATELIMIT_FUNCTION(rl_take_events) { return ratelimit::api::take_events(fcinfo); }
