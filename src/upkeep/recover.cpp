// Recovery takes rows as it finds them unlocked: tasks, then what each of them holds. It waits for nobody, so it may hold
// locks in any order without being part of a deadlock; a task that cannot be had is left to the next call. As the task's
// row stays locked until the transaction ends, and its state is changed under that lock, each is recovered once however
// many recover at the same time.
#include "upkeep/recover.hpp"

#include <limits>

#include "api/conclude.hpp"
#include "api/task_steps.hpp"
#include "core/task.hpp"
#include "pg/entry.hpp"
#include "pg/settings.hpp"
#include "pg/wait.hpp"
#include "store/cold_start_store.hpp"
#include "store/task_store.hpp"
#include "upkeep/verify.hpp"

namespace ratelimit::upkeep {

namespace {

constexpr std::string_view outcome_lost = "lost";

// Another recovery may hold the scope of the tasks at hand for the time of one call: looking again is better than to say
// that there was nothing to do.
constexpr int looks_again_max = 20;
constexpr std::int64_t look_again_ms = 5;
// So many that somebody else holds are passed in one look, for each that may be done.
constexpr std::int64_t left_per_batch = 4;

std::int32_t as_number(bool yes) noexcept { return yes ? 1 : 0; }

// Ends the execution of a task as the table of the core says. False when somebody else holds something of it.
bool recover_task(store::TaskRow &task, bool cold_start, store::Locked others, Recovery &recovery)
{
	const core::RecoveryVerdict verdict = core::recover({task.mode == core::TaskMode::async, task.execution.at_most_once,
															task.execution.submission, task.execution.remote_id.has_value()},
		cold_start);
	const api::TaskScopes scopes = api::stored_scopes(task.scopes);
	const bool waits_again = verdict.event == core::TaskEvent::recover_requeue;
	api::Holdings holdings(task, waits_again ? scopes.list : api::ScopeList{}, others);
	if (!holdings.is_locked())
		return false;
	api::QueueBook &book = holdings.book();
	recovery.released_leases += holdings.release_leases();
	recovery.released_reservations +=
		holdings.settle(nullptr, cold_start ? core::code_server_restarted : core::reason_recovered);
	recovery.failed_attempts += as_number(task.has_execution());
	api::end_execution(task, {outcome_lost, verdict.attempt_code, verdict.attempt_retryable}, book.now());
	if (waits_again) {
		api::wait_again(book, task, verdict.event, api::Deadline::fresh, scopes.list);
		task.error_code.reset();
		recovery.requeued_tasks++;
	} else {
		api::end_task(task, verdict.event, verdict.task_code, book.now());
		recovery.review_tasks += as_number(task.status == core::TaskStatus::review);
		recovery.failed_tasks += as_number(task.status == core::TaskStatus::failed);
	}
	api::save_task(task, book.now(), cold_start ? api::Cause::cold_start : api::Cause::call);
	holdings.finish();
	return true;
}

// Gives back what a finished task still holds.
bool clean_task(store::TaskRow &task, std::string_view reason, Recovery &recovery)
{
	api::Holdings holdings(task, {}, store::Locked::skip);
	if (!holdings.is_locked())
		return false;
	recovery.released_leases += holdings.release_leases();
	recovery.released_reservations += holdings.settle(nullptr, reason);
	holdings.finish();
	recovery.cleaned_tasks++;
	return true;
}

// Handles what `next` finds locked, at most `batch`, and looks again for those that could not be had.
template <typename Next, typename Handle>
void handle_batch(std::int64_t batch, Next &&next, Handle &&handle)
{
	std::int64_t done = 0;
	for (int look = 0; look < looks_again_max && done < batch; look++) {
		std::int64_t left = 0;
		while (left < left_per_batch * batch) {
			auto tasks = next(batch - done, left);
			for (store::TaskRow &task : tasks) {
				const bool handled = handle(task);
				done += as_number(handled);
				left += as_number(!handled);
				pg::check_for_interrupts();
			}
			if (tasks.empty() || done >= batch)
				break;
		}
		if (left == 0)
			return;
		(void)pg::client_is_there(); // resets the latch
		pg::check_for_interrupts();
		pg::sleep_on_latch(look_again_ms);
	}
}

void recover_tasks(std::int64_t batch, Recovery &recovery)
{
	handle_batch(
		batch,
		[](std::int64_t count, std::int64_t skip) {
			const core::Instant now = api::queue_clock();
			const core::Instant stale_at = now - core::Span::from_seconds(pg::settings::worker_stale_after_seconds());
			return store::lock_overdue(store::Overdue::execution, now, stale_at, count, skip);
		},
		[&](store::TaskRow &task) { return recover_task(task, false, store::Locked::skip, recovery); });
}

void clean_tasks(std::int64_t batch, std::string_view reason, Recovery &recovery)
{
	handle_batch(
		batch,
		[](std::int64_t count, std::int64_t skip) {
			return store::lock_finished_holders(api::queue_clock(), count, skip);
		},
		[&](store::TaskRow &task) { return clean_task(task, reason, recovery); });
}

// An admitted task waits again; one that waits with an execution, since it has moved, loses that.
void restart_task(store::TaskRow &task, Recovery &recovery)
{
	if (task.status == core::TaskStatus::running) {
		(void)recover_task(task, true, store::Locked::wait, recovery);
		return;
	}
	const api::TaskScopes scopes = api::stored_scopes(task.scopes);
	api::Holdings holdings(task, scopes.list);
	api::QueueBook &book = holdings.book();
	recovery.released_leases += holdings.release_leases();
	recovery.released_reservations += holdings.settle(nullptr, core::code_server_restarted);
	recovery.failed_attempts += as_number(task.has_execution());
	api::end_execution(task, {outcome_lost, core::code_server_restarted, true}, book.now());
	if (task.status == core::TaskStatus::admitted) {
		api::wait_again(book, task, core::TaskEvent::cold_start, api::Deadline::fresh, scopes.list);
		api::save_task(task, book.now(), api::Cause::cold_start);
	} else {
		store::write_task(task);
	}
	holdings.finish();
}

} // namespace

// Tasks first: the sums of the scopes follow their rows.
Recovery recover(std::int64_t batch, Round round)
{
	Recovery recovery;
	recover_tasks(batch, recovery);
	clean_tasks(batch, core::reason_recovered, recovery);
	recovery.repaired_aggregates = repair_tasks(2 * batch);
	if (recovery.repaired_aggregates < 2 * batch)
		recovery.repaired_aggregates += repair(2 * batch - recovery.repaired_aggregates, round);
	return recovery;
}

Recovery recover_everything()
{
	constexpr std::int64_t at_once = 1'000;
	Recovery recovery;
	store::lock_tables();
	for (;;) {
		auto tasks = store::lock_started(at_once);
		if (tasks.empty())
			break;
		for (store::TaskRow &task : tasks) {
			restart_task(task, recovery);
			pg::check_for_interrupts();
		}
	}
	constexpr std::int64_t all = std::numeric_limits<std::int32_t>::max();
	clean_tasks(all, core::code_server_restarted, recovery);
	recovery.repaired_aggregates = repair_tasks(all) + repair(all, Round::everything);
	const core::Instant now = api::queue_clock();
	recovery.released_leases += store::release_all_leases(now);
	recovery.released_reservations += store::release_all_reservations(core::code_server_restarted, now);
	return recovery;
}

} // namespace ratelimit::upkeep
