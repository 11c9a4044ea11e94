#include "api/conclude.hpp"

#include <algorithm>

#include "store/retention_store.hpp"

namespace ratelimit::api {

Holdings::Holdings(const store::TaskRow &task, const ScopeList &extra, store::Locked others)
	: book_(queue_clock()), settling_(store::read_open_reservations_of_task(task.task_id), others)
{
	book_.add(extra);
	for (const store::LeaseRow &lease : store::read_leases_of_task(task.task_id, book_.now())) {
		(void)book_.add(lease.scope_type, lease.scope_key);
		lease_ids_.push_back(lease.id);
	}
	if (others == store::Locked::wait) {
		book_.lock_all();
		return;
	}
	std::sort(lease_ids_.begin(), lease_ids_.end());
	is_locked_ = settling_.is_locked() && book_.try_lock_all() &&
		(lease_ids_.empty() || store::try_lock_leases({lease_ids_.data(), lease_ids_.size()}));
}

int Holdings::release_leases() { return book_.release(lease_ids_); }

int Holdings::settle(const pg::Vector<ActualAmount> *actual, std::optional<std::string_view> reason)
{
	return settling_.empty() ? 0 : settling_.settle(actual, reason);
}

void Holdings::finish()
{
	book_.write();
	book_.wake_next();
}

bool conclude(store::TaskRow &task, const Conclusion &conclusion)
{
	const bool waits = task.status == core::TaskStatus::waiting;
	const TaskScopes scopes = stored_scopes(task.scopes);
	Holdings holdings(task, waits ? scopes.list : ScopeList{});
	QueueBook &book = holdings.book();
	if (waits && !task.has_execution() && core::is_timed_out(task.presence, book.now())) {
		(void)time_out(book, task, scopes.list, core::code_queue_timeout);
		return false;
	}
	if (waits)
		book.leave(task.turn(), scopes.list);
	(void)holdings.release_leases();
	(void)holdings.settle(conclusion.actual, conclusion.reason);
	end_task(task, conclusion.event, conclusion.code, book.now());
	save_task(task, book.now());
	holdings.finish();
	return true;
}

} // namespace ratelimit::api
