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
// Ends a task, and tells whoever sleeps for it. The caller takes it out of the queue, if it waits, and writes the book.
void end_task(store::TaskRow &task, core::TaskStatus status, const std::optional<std::string_view> &code,
	core::Instant now);
// Ends a waiting task whose deadline has passed, with everything written.
[[nodiscard]] Admission time_out(QueueBook &book, store::TaskRow &task, const ScopeList &list, std::string_view code);
// Whether retention is over for the task, so that its id is free.
[[nodiscard]] bool is_forgotten(const store::TaskRow &task, core::Instant now) noexcept;
// Locks a task that was read. Absent when it is gone; an error where the transaction's snapshot cannot see it.
[[nodiscard]] std::optional<store::TaskRow> lock_known_task(std::string_view task_id);

} // namespace ratelimit::api
