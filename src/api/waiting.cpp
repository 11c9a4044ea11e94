// rl_status, rl_waiting, rl_renew_waiters and rl_cancel.
#include <algorithm>

#include "api/arguments.hpp"
#include "api/conclude.hpp"
#include "api/task_steps.hpp"
#include "core/limits.hpp"
#include "pg/entry.hpp"
#include "pg/error.hpp"
#include "pg/settings.hpp"
#include "pg/spi.hpp"
#include "pg/value.hpp"

namespace ratelimit::api {

namespace {

// A task and, if it waits, what for.
Admission look(QueueBook &book, const store::TaskRow &task)
{
	if (task.status != core::TaskStatus::waiting)
		return admission_of(task, book.now());
	TaskScopes scopes = stored_scopes(task.scopes);
	book.resolve(scopes.list);
	return waiting_admission(task, scopes.list, book.standings(task.turn(), scopes.list), book.now());
}

Datum status(FunctionCallInfo fcinfo)
{
	const std::string_view task_id = check_name({"task_id", {}, 0}, required_text(fcinfo, 0, "task_id"));
	pg::SetResult result(fcinfo);
	std::optional<Admission> admission;
	pg::Session session;
	session.connect();
	if (const std::optional<store::TaskRow> task = store::read_task(task_id)) {
		QueueBook book(queue_clock());
		if (!is_forgotten(*task, book.now()))
			admission = look(book, *task);
	}
	session.finish();
	if (admission) {
		AdmissionRow row = admission_row(1, *admission);
		result.add(row);
	}
	return Datum(0);
}

// The first waiting tasks of one mode or, merged, of both.
pg::Vector<store::TaskRow> first_waiting(
	const std::optional<core::TaskMode> &mode, core::Instant now, std::int32_t tasks_max)
{
	const core::Turn before_all{INT32_MIN, core::Instant::earliest(), {}};
	pg::Vector<store::TaskRow> tasks;
	for (const core::TaskMode each : {core::TaskMode::sync, core::TaskMode::async})
		if (!mode || *mode == each)
			for (store::TaskRow &task : store::read_waiting(each, before_all, now, tasks_max))
				tasks.push_back(std::move(task));
	std::sort(tasks.begin(), tasks.end(),
		[](const store::TaskRow &a, const store::TaskRow &b) { return a.turn() < b.turn(); });
	if (tasks.size() > static_cast<std::size_t>(tasks_max))
		tasks.erase(tasks.begin() + tasks_max, tasks.end());
	return tasks;
}

Datum list_waiting(FunctionCallInfo fcinfo, std::int32_t tasks_max, const std::optional<core::TaskMode> &mode)
{
	pg::SetResult result(fcinfo);
	pg::Vector<Admission> admissions;
	pg::Session session;
	session.connect();
	{
		QueueBook book(queue_clock());
		for (const store::TaskRow &task : first_waiting(mode, book.now(), tasks_max))
			admissions.push_back(look(book, task));
	}
	session.finish();
	for (std::size_t i = 0; i < admissions.size(); i++) {
		AdmissionRow row = admission_row(i + 1, admissions[i]);
		result.add(row);
	}
	return Datum(0);
}

Datum waiting(FunctionCallInfo fcinfo)
{
	const std::int32_t tasks_max = batch_argument(fcinfo, 0, "max_tasks", core::limits::dispatch_tasks_default);
	return list_waiting(fcinfo, tasks_max, mode_argument(fcinfo, 1));
}

// --- rl_renew_waiters ----------------------------------------------------------------------------------------------

using Texts = pg::Vector<std::string_view>;

bool is_waiter(const store::TaskRow &task, const Texts &task_ids, const Texts &waiter_ids)
{
	for (std::size_t i = 0; i < task_ids.size(); i++)
		if (task_ids[i] == task.task_id && task.waiter_id == waiter_ids[i])
			return true;
	return false;
}

// Those who come back after their lease had run out may be heads again, so the search for the head begins before them.
void reopen_scopes(const pg::Vector<store::TaskRow> &revived)
{
	if (revived.empty())
		return;
	QueueBook book(queue_clock());
	pg::Vector<TaskScopes> scopes;
	for (const store::TaskRow &task : revived)
		scopes.push_back(stored_scopes(task.scopes));
	for (const TaskScopes &each : scopes)
		book.add(each.list);
	book.lock_all();
	for (std::size_t i = 0; i < revived.size(); i++)
		reopen(book, revived[i], scopes[i].list);
	book.write();
}

std::int32_t renew(Datum ids, const Texts &task_ids, const Texts &waiter_ids)
{
	pg::Vector<store::TaskRow> tasks = store::lock_tasks(ids);
	const core::Instant now = queue_clock();
	const core::Instant expires_at = now + core::Span::from_seconds(pg::settings::waiter_ttl_seconds());
	pg::Vector<store::TaskRow> revived;
	std::int32_t renewed = 0;
	for (store::TaskRow &task : tasks) {
		if (task.status != core::TaskStatus::waiting || task.mode != core::TaskMode::sync ||
			core::is_timed_out(task.presence, now) || !is_waiter(task, task_ids, waiter_ids))
			continue;
		if (core::is_abandoned(task.presence, now))
			revived.push_back(task);
		task.presence.waiter_expires_at = expires_at;
		renewed += store::renew_waiter(task) ? 1 : 0;
	}
	reopen_scopes(revived);
	return renewed;
}

Datum renew_waiters(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_renew_waiters");
	const Texts task_ids = names_argument(fcinfo, 0, "task_ids");
	const Texts waiter_ids = names_argument(fcinfo, 1, "waiter_ids");
	if (task_ids.size() != waiter_ids.size())
		reject({"waiter_ids", {}, 0},
			"There are " + std::to_string(task_ids.size()) + " task_ids and " + std::to_string(waiter_ids.size()) + " waiter_ids.",
			"Give one waiter_id for each task_id.");
	pg::Session session;
	session.connect();
	const std::int32_t renewed = renew(PG_GETARG_DATUM(0), task_ids, waiter_ids);
	session.finish();
	return Int32GetDatum(renewed);
}

// --- rl_cancel -----------------------------------------------------------------------------------------------------

bool cancel_task(std::string_view task_id, const std::optional<std::string_view> &reason, core::TaskEvent event)
{
	std::optional<store::TaskRow> task = lock_known_task(task_id);
	return task && core::step(task->status, event).allowed() && conclude(*task, {event, reason, reason});
}

Datum cancel(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_cancel");
	const std::string_view task_id = check_name({"task_id", {}, 0}, required_text(fcinfo, 0, "task_id"));
	const std::string_view given = optional_text(fcinfo, 1).value_or("cancelled");
	const std::optional<std::string_view> reason = given.empty() ? std::nullopt : std::optional(given);
	const std::string_view name = optional_text(fcinfo, 2).value_or("cancelled");
	const std::optional<core::TaskStatus> outcome = core::task_status(name);
	if (outcome != core::TaskStatus::cancelled && outcome != core::TaskStatus::failed)
		reject({"outcome", {}, 0}, "The value is \"" + pg::excerpt(name) + "\".", "It must be \"cancelled\" or \"failed\".");
	pg::Session session;
	session.connect();
	const bool cancelled = cancel_task(task_id, reason,
		outcome == core::TaskStatus::failed ? core::TaskEvent::give_up : core::TaskEvent::cancel);
	session.finish();
	return BoolGetDatum(cancelled);
}

} // namespace

} // namespace ratelimit::api

RATELIMIT_FUNCTION(rl_status) { return ratelimit::api::status(fcinfo); }
RATELIMIT_FUNCTION(rl_waiting) { return ratelimit::api::waiting(fcinfo); }
RATELIMIT_FUNCTION(rl_queue_rows) { return ratelimit::api::list_waiting(fcinfo, INT32_MAX, std::nullopt); }
RATELIMIT_FUNCTION(rl_renew_waiters) { return ratelimit::api::renew_waiters(fcinfo); }
RATELIMIT_FUNCTION(rl_cancel) { return ratelimit::api::cancel(fcinfo); }
