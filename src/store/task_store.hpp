// Tasks of the admission queue: one row each, from the first call until retention ends.
//
// The lock on a task's row comes before all locks on counters and scopes. Only the waiter's lease is changed without
// holding scopes, which no aggregate depends on.
#pragma once

#include <optional>
#include <string_view>

#include "core/queue.hpp"
#include "core/uuid7.hpp"
#include "pg/memory.hpp"
#include "pg/postgres.hpp"

namespace ratelimit::store {

// The process that sleeps for a task in rl_admit_wait.
struct Sleeping {
	std::optional<std::int32_t> pid;
	std::optional<core::Instant> started_at;
};

// Who runs a task. Without a token nobody does.
struct Execution {
	std::optional<core::Uuid> token;
	std::optional<core::Instant> expires_at;
	std::optional<std::string_view> worker_id; // stays when it is over
	std::optional<std::string_view> remote_id;
	core::Submission submission = core::Submission::none;
	bool at_most_once = false;
};

// The last event that was appended for a task, taken or not.
struct LastEvent {
	std::int64_t seq = 0;
	std::optional<std::string_view> type;
	std::optional<std::string_view> status;
};

// A task as stored. Views live as long as the call.
struct TaskRow {
	std::string_view task_id;
	core::TaskStatus status = core::TaskStatus::waiting;
	core::TaskMode mode = core::TaskMode::sync;
	std::int32_t priority = 0;
	core::Instant enqueued_at;
	core::Presence presence;
	std::optional<core::Instant> admitted_at;
	std::optional<core::Instant> finished_at;
	std::optional<std::string_view> waiter_id;
	std::optional<std::string_view> error_code;
	std::int32_t defer_count = 0;
	std::int32_t attempt_no = 0;
	Execution execution;
	LastEvent last_event;
	std::optional<core::Instant> check_at; // when the reaper looks at its waiter or leases
	Sleeping sleeping;
	pg::Vector<core::Uuid> lease_ids; // of its admission
	Datum scopes = Datum(0);          // jsonb, as given

	[[nodiscard]] bool has_execution() const noexcept { return execution.token.has_value(); }
	[[nodiscard]] core::Turn turn() const noexcept { return {priority, enqueued_at, task_id}; }
};

// As committed, or as changed by this transaction. Takes no lock.
[[nodiscard]] std::optional<TaskRow> read_task(std::string_view task_id);
// Locks the row, waiting for others, and returns its newest version.
[[nodiscard]] std::optional<TaskRow> lock_task(std::string_view task_id);
// Locks the row if it is waiting and nobody else holds it.
[[nodiscard]] std::optional<TaskRow> try_lock_waiting(std::string_view task_id);
// Locks the row unless somebody else holds it.
[[nodiscard]] std::optional<TaskRow> try_lock_task(std::string_view task_id);
// Locks those that exist, in the order of their ids.
[[nodiscard]] pg::Vector<TaskRow> lock_tasks(Datum task_ids);

// Creates the row. False when the id exists by now; waits for a transaction that is creating it.
[[nodiscard]] bool insert_task(const TaskRow &task);
// Writes all but the id, mode and priority of a row that this transaction has locked or inserted.
void write_task(const TaskRow &task);
// With its attempts and events.
void delete_task(std::string_view task_id);

// Moves the end of a task's execution lease; the row is locked.
void renew_execution(std::string_view task_id, core::Instant expires_at);

// Renews the waiter's lease of a waiting task; false when it does not wait any more. Never shortens it.
[[nodiscard]] bool renew_waiter(const TaskRow &task);
// The same, of a task whose waiter is still the one given; nothing otherwise.
void keep_waiter(std::string_view task_id, std::string_view waiter_id, core::Instant expires_at);

// Waiting tasks of a mode in the order of the queue, after a turn; those past their deadline are left out.
[[nodiscard]] pg::Vector<TaskRow> read_waiting(
	core::TaskMode mode, const core::Turn &after, core::Instant now, std::int64_t count);

// --- for the reaper and for recovery: rows that others hold are left out, the rest are locked -----------------------

enum class Overdue {
	deadline,  // waiting, by their deadline
	check,     // waiting or admitted, by check_at
	execution, // running, by the end of the execution lease; those whose worker is live are left out
};
// Overdue at `now`, the longest first, after the first `skip` of them. A worker is live that was heard of after `stale_at`.
[[nodiscard]] pg::Vector<TaskRow> lock_overdue(
	Overdue overdue, core::Instant now, core::Instant stale_at, std::int64_t count, std::int64_t skip);
// Finished tasks, those in review too, that still have a live lease or an open reservation; the longest finished
// first.
[[nodiscard]] pg::Vector<TaskRow> lock_finished_holders(core::Instant now, std::int64_t count, std::int64_t skip);
// For a cold start: those that are admitted, or have an execution.
[[nodiscard]] pg::Vector<TaskRow> lock_started(std::int64_t count);
// Deletes tasks finished at `until` or before, with their attempts and events. Returns how many tasks.
[[nodiscard]] std::int64_t delete_finished_tasks(core::Instant until, std::int64_t count);

// Waiting tasks whose time aside is over and that nobody has looked at since.
[[nodiscard]] pg::Vector<std::string_view> read_returned(core::Instant now, std::size_t count);
// Forgets that the task was aside, unless somebody holds the row.
void clear_put_aside(std::string_view task_id, core::Instant now);

} // namespace ratelimit::store
