// Steps in a task's life that several calls share. The task's row and its scopes are locked by the caller.
#pragma once

#include <optional>
#include <string_view>

#include "api/admission.hpp"
#include "api/queue_book.hpp"
#include "store/task_store.hpp"

namespace ratelimit::api {

// Marks in the book that the task itself is counted among the waiting of its scopes.
void mark_entered(QueueBook &book, const ScopeList &list, bool entered);
// Who comes back before the place where the search for the head begins moves it back.
void reopen(QueueBook &book, const store::TaskRow &task, const ScopeList &list);
// Admits the task if it is its turn and there is room. The caller takes it out of the queue and writes it.
[[nodiscard]] bool try_to_go(QueueBook &book, store::TaskRow &task, const ScopeList &list, Standings &standings);
// Admits the task: its leases and its state.
void go(QueueBook &book, store::TaskRow &task, const ScopeList &list);
// Whoever sleeps for the task in rl_admit_wait looks again once this transaction has committed.
void tell_sleeper(const store::TaskRow &task);
// Writes a task that this transaction has locked or inserted, and appends the event when its state is not what the last
// event said. Every change of a task goes through here.
enum class Cause { call, cold_start };
void save_task(store::TaskRow &task, core::Instant now, Cause cause = Cause::call);
// The row of a new task was inserted: its first event.
void note_created(store::TaskRow &task, core::Instant now);
// Ends a task, its execution if it has one, and tells whoever sleeps for it. The event leads to a finished state or to
// review. The caller takes it out of the queue, if it waits, and writes the book.
void end_task(store::TaskRow &task, core::TaskEvent event, const std::optional<std::string_view> &code, core::Instant now);
// Puts a task that holds nothing any more back to waiting. The caller has it enter the queue and writes it.
enum class Deadline { fresh, earlier };
void back_to_waiting(store::TaskRow &task, core::TaskEvent event, Deadline deadline, const ScopeList &list, core::Instant now);
// The same, and it enters the queue; who may go there is told. Its scopes are locked.
void wait_again(QueueBook &book, store::TaskRow &task, core::TaskEvent event, Deadline deadline, const ScopeList &list);
// A sync task has a waiter whose lease begins now.
void renew_waiter_lease(store::TaskRow &task, core::Instant now);
// Whether the leases of its admission are all live.
[[nodiscard]] bool admission_is_live(const store::TaskRow &task, core::Instant now);
[[nodiscard]] bool leases_are_live(
	const pg::Vector<store::LeaseRow> &leases, std::size_t expected, core::Instant now) noexcept;
// Takes the token away and closes the attempt.
struct AttemptEnd {
	std::string_view outcome;
	std::optional<std::string_view> code;
	std::optional<bool> retryable;
};
void end_execution(store::TaskRow &task, const AttemptEnd &end, core::Instant now);
// From when on a task with these scopes may wait, when it begins now.
[[nodiscard]] core::Instant deadline_of(const ScopeList &list, core::Instant now);
// Ends a waiting task whose deadline has passed, with everything written.
[[nodiscard]] Admission time_out(QueueBook &book, store::TaskRow &task, const ScopeList &list, std::string_view code);
// Whether retention is over for the task, so that its id is free.
[[nodiscard]] bool is_forgotten(const store::TaskRow &task, core::Instant now) noexcept;
// Locks a task that was read. Absent when it is gone; an error where the transaction's snapshot cannot see it.
[[nodiscard]] std::optional<store::TaskRow> lock_known_task(std::string_view task_id);

} // namespace ratelimit::api
