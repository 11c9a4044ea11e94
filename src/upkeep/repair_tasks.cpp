// Repairing tasks: the rows under a task's state are made to be what the state says.
#include <algorithm>

#include "api/ids.hpp"
#include "api/queue_book.hpp"
#include "api/task_steps.hpp"
#include "pg/entry.hpp"
#include "store/attempt_store.hpp"
#include "store/queue_store.hpp"
#include "store/task_store.hpp"
#include "upkeep/verify.hpp"

namespace ratelimit::upkeep {

namespace {

// All places of the task are removed, and if it waits it enters the queues of its scopes anew, with its age.
bool repair_places(std::string_view task_id, const std::optional<store::TaskRow> &task)
{
	const api::TaskScopes scopes = task ? api::stored_scopes(task->scopes) : api::TaskScopes{};
	const auto places = store::read_places(task_id);
	api::QueueBook book(api::queue_clock());
	book.add(scopes.list);
	for (const store::PlaceScope &place : places)
		(void)book.add(place.scope_type, place.scope_key);
	if (!book.try_lock_all())
		return false;
	for (const store::PlaceScope &place : places)
		store::delete_places({place.scope_type, place.scope_key}, task_id);
	if (task && task->status == core::TaskStatus::waiting)
		book.enter(task->turn(), scopes.list);
	book.recount();
	return true;
}

bool repair_task(const store::TaskDifference &difference)
{
	using core::Problem;
	std::optional<store::TaskRow> task = store::try_lock_task(difference.task_id);
	if (!task && store::read_task(difference.task_id))
		return false;
	const core::Instant now = api::queue_clock();
	switch (difference.finding.problem) {
	case Problem::task_places:
		return repair_places(difference.task_id, task);
	case Problem::task_open_attempt:
		if (!task || !task->has_execution())
			return false;
		store::reopen_attempt(*task, now);
		return true;
	case Problem::task_stray_attempts:
		store::close_other_attempts(
			difference.task_id, task && task->has_execution() ? std::optional(task->attempt_no) : std::nullopt, now);
		return true;
	case Problem::task_lease_ids:
		if (!task || task->status != core::TaskStatus::waiting)
			return false;
		task->lease_ids.clear();
		store::write_task(*task);
		return true;
	case Problem::task_token:
		if (!task || task->status != core::TaskStatus::running)
			return false;
		// Nobody knows the token: recovery takes the task next.
		task->execution.token = api::new_id("task", task->task_id);
		task->execution.expires_at = now;
		store::write_task(*task);
		return true;
	default:
		return false;
	}
}

} // namespace

std::int64_t repair_tasks(std::int64_t count)
{
	pg::ReadSnapshot snapshot;
	const auto differences = store::read_task_differences(snapshot);
	snapshot.finish();
	std::int64_t repaired = 0;
	for (const store::TaskDifference &difference : differences) {
		if (repaired == count)
			break;
		repaired += repair_task(difference) ? 1 : 0;
		pg::check_for_interrupts();
	}
	return repaired;
}

} // namespace ratelimit::upkeep
