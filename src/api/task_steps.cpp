#include "api/task_steps.hpp"

#include "pg/notify.hpp"
#include "pg/settings.hpp"
#include "pg/spi.hpp"

namespace ratelimit::api {

void mark_entered(QueueBook &book, const ScopeList &list, bool entered)
{
	for (const TaskScope &scope : list)
		book.add(scope.scope_type, scope.scope_key).entered = entered;
}

void reopen(QueueBook &book, const store::TaskRow &task, const ScopeList &list)
{
	for (const TaskScope &wanted : list) {
		QueueScope &scope = book.look(wanted);
		if (!core::begins_after(scope.queue(), task.turn()))
			continue;
		scope.lease.row->queue = core::begin_at(scope.queue(), task.turn());
		book.changed(wanted, false);
	}
}

bool try_to_go(QueueBook &book, store::TaskRow &task, const ScopeList &list, Standings &standings)
{
	standings = book.standings(task.turn(), list);
	if (!blockers_of(task, list, standings, book.now()).empty())
		return false;
	// What has expired must be removed before it counts as free; somebody may be renewing it.
	book.make_room(list);
	standings = book.standings(task.turn(), list);
	if (!blockers_of(task, list, standings, book.now()).empty())
		return false;
	go(book, task, list);
	return true;
}

void go(QueueBook &book, store::TaskRow &task, const ScopeList &list)
{
	task.lease_ids = book.grant(task.task_id, list);
	task.status = task.has_execution ? core::TaskStatus::running : core::TaskStatus::admitted;
	task.admitted_at = book.now();
	task.presence.put_aside_until.reset();
	task.defer_count = 0;
	task.error_code.reset();
	task.sleeping = {};
}

void tell_sleeper(const store::TaskRow &task)
{
	if (task.sleeping.pid)
		pg::wake_at_commit(*task.sleeping.pid);
}

void end_task(store::TaskRow &task, core::TaskStatus status, const std::optional<std::string_view> &code,
	core::Instant now)
{
	tell_sleeper(task);
	task.status = status;
	task.error_code = code;
	task.finished_at = now;
	task.presence.put_aside_until.reset();
	task.sleeping = {};
	task.lease_ids.clear();
}

Admission time_out(QueueBook &book, store::TaskRow &task, const ScopeList &list, std::string_view code)
{
	book.leave(task.turn(), list);
	end_task(task, core::TaskStatus::failed, code, book.now());
	store::write_task(task);
	book.write();
	book.wake_next();
	return admission_of(task, book.now());
}

bool is_forgotten(const store::TaskRow &task, core::Instant now) noexcept
{
	return core::is_finished(task.status) && task.finished_at &&
		   now >= *task.finished_at + core::Span::from_seconds(pg::settings::retention_seconds());
}

std::optional<store::TaskRow> lock_known_task(std::string_view task_id)
{
	std::optional<store::TaskRow> task = store::lock_task(task_id);
	if (!task && pg::writes_see_old_snapshot() && store::read_task(task_id))
		pg::throw_serialization_failure();
	return task;
}

} // namespace ratelimit::api
