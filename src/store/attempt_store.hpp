// Executions of tasks, and the events of their states. Both are written under the lock of the task's row.
#pragma once

#include <optional>
#include <string_view>

#include "core/units.hpp"
#include "pg/memory.hpp"
#include "store/task_store.hpp"

namespace ratelimit::store {

// The attempt that begins, of the task's number and worker.
void insert_attempt(const TaskRow &task, std::optional<std::string_view> attempt_id, core::Instant now);

struct AttemptClosing {
	std::string_view outcome;
	std::optional<std::string_view> code;
	std::optional<bool> retryable;
	core::Instant at;
};

// Does nothing to one that is closed.
void close_attempt(std::string_view task_id, std::int32_t attempt_no, const AttemptClosing &closing);

// Repairs: opens the attempt of the task's execution; closes all but that one.
void reopen_attempt(const TaskRow &task, core::Instant now);
void close_other_attempts(std::string_view task_id, std::optional<std::int32_t> current, core::Instant now);

// The task's last event, as it stands in the row.
void append_event(const TaskRow &task, core::Instant now);

// An event that was taken. Views live until the session ends.
struct TaskEventRow {
	std::string_view task_id;
	std::int64_t seq;
	std::string_view event_type;
	std::string_view status;
	std::optional<std::string_view> error_code;
	core::Instant at;
};

// Deletes the oldest events that nobody else is taking, and returns them in their order.
[[nodiscard]] pg::Vector<TaskEventRow> take_events(std::int64_t count);

} // namespace ratelimit::store
