#include "upkeep/task_upkeep.hpp"

#include "api/conclude.hpp"
#include "api/task_steps.hpp"
#include "pg/entry.hpp"
#include "store/task_store.hpp"

namespace ratelimit::upkeep {

namespace {

using store::Overdue;

// So many tasks may be looked at for one batch that is done: what others hold is passed.
constexpr std::int64_t looks_per_batch = 20;

// What came of one overdue task.
enum class Reaped { done, left, moved };

// Ends the task, and gives back what it holds.
Reaped end_overdue(store::TaskRow &task, core::TaskEvent event, std::string_view code)
{
	const api::TaskScopes scopes = api::stored_scopes(task.scopes);
	const bool waits = task.status == core::TaskStatus::waiting;
	api::Holdings holdings(task, waits ? scopes.list : api::ScopeList{}, store::Locked::skip);
	if (!holdings.is_locked())
		return Reaped::left;
	if (waits)
		holdings.book().leave(task.turn(), scopes.list);
	(void)holdings.release_leases();
	(void)holdings.settle(nullptr, code);
	api::end_task(task, event, code, holdings.book().now());
	api::save_task(task, holdings.book().now());
	holdings.finish();
	return Reaped::done;
}

// Nobody has started it, and a lease of its admission is over: it waits again, with its age.
Reaped reclaim(store::TaskRow &task)
{
	const api::TaskScopes scopes = api::stored_scopes(task.scopes);
	api::Holdings holdings(task, scopes.list, store::Locked::skip);
	if (!holdings.is_locked())
		return Reaped::left;
	api::QueueBook &book = holdings.book();
	(void)holdings.release_leases();
	api::wait_again(book, task, core::TaskEvent::reclaim, api::Deadline::fresh, scopes.list);
	api::save_task(task, book.now());
	holdings.finish();
	return Reaped::done;
}

Reaped look_later(store::TaskRow &task, const std::optional<core::Instant> &check_at)
{
	task.check_at = check_at;
	store::write_task(task);
	return Reaped::moved;
}

Reaped check_admitted(store::TaskRow &task, core::Instant now)
{
	// One without leases was given as long as what is idle is kept.
	if (!task.lease_ids.empty() && api::admission_is_live(task, now)) {
		core::Instant first = core::Instant::latest();
		for (const store::LeaseRow &lease : store::read_leases({task.lease_ids.data(), task.lease_ids.size()}))
			first = std::min(first, lease.expires_at);
		return look_later(task, first);
	}
	if (task.mode == core::TaskMode::async)
		return reclaim(task);
	return end_overdue(task, core::TaskEvent::abandon, core::code_client_disconnected);
}

Reaped check(store::TaskRow &task, core::Instant now)
{
	if (task.status == core::TaskStatus::admitted)
		return check_admitted(task, now);
	if (task.status != core::TaskStatus::waiting || !task.presence.waiter_expires_at)
		return look_later(task, std::nullopt);
	if (!core::is_abandoned(task.presence, now))
		return look_later(task, task.presence.waiter_expires_at);
	if (core::is_timed_out(task.presence, now))
		return Reaped::left; // its deadline counts
	return end_overdue(task, core::TaskEvent::abandon, core::code_client_disconnected);
}

template <typename Handle>
std::int64_t reap_overdue(Overdue overdue, std::int64_t batch, Handle &&handle)
{
	std::int64_t done = 0;
	std::int64_t left = 0;
	std::int64_t looked = 0;
	while (done < batch && looked < batch * looks_per_batch) {
		const core::Instant now = api::queue_clock();
		auto tasks = store::lock_overdue(overdue, now, now, batch - done, left);
		if (tasks.empty())
			break;
		for (store::TaskRow &task : tasks) {
			const Reaped reaped = handle(task, now);
			done += reaped == Reaped::done ? 1 : 0;
			left += reaped == Reaped::left ? 1 : 0;
			looked++;
			pg::check_for_interrupts();
		}
	}
	return done;
}

} // namespace

std::int64_t reap_deadlines(std::int64_t batch)
{
	return reap_overdue(Overdue::deadline, batch, [](store::TaskRow &task, core::Instant) {
		return end_overdue(task, core::TaskEvent::time_out, core::code_queue_timeout);
	});
}

std::int64_t reap_waiters(std::int64_t batch) { return reap_overdue(Overdue::check, batch, check); }

} // namespace ratelimit::upkeep
