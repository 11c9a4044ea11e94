// The life of a task: which state follows from which event, and what becomes of a task whose execution was lost.
//
// One table says both: for every state and every event whether the event is allowed, and to which state it leads. The
// functions of the tasks ask it, a test goes through all of it, and docs/tasks.md draws it.
//
//     waiting -> admitted -> running -> succeeded / failed / cancelled / review
//
// Pure, noexcept, no clock: whether something has run out is the caller's question, and an event of its own here.
#pragma once

#include "core/view.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit::core {

// `none` is a task that does not exist: not yet, or not any more.
enum class TaskStatus : std::uint8_t { none, waiting, admitted, running, succeeded, failed, cancelled, review };

inline constexpr std::size_t task_status_count = 8;

[[nodiscard]] std::string_view name_of(TaskStatus state) noexcept;
[[nodiscard]] std::optional<TaskStatus> task_status(std::string_view name) noexcept;

enum class TaskEvent : std::uint8_t {
	enqueue,          // rl_admit, rl_enqueue: a new task waits
	admit,            // its turn has come in all of its scopes
	readmit,          // the same for a running task that moved to other scopes
	start,            // rl_start: with all its leases live, or a task that nobody has admitted
	lose_lease,       // a lease of its admission is gone, as rl_admit or rl_start finds
	move,             // rl_admit with other scopes, which are not refused: it waits there
	submit,           // rl_submission
	heartbeat,        // rl_heartbeat
	succeed,          // rl_finish
	fail,             // rl_finish
	cancel_running,   // rl_finish
	cancel,           // rl_cancel, outcome cancelled
	give_up,          // rl_cancel, outcome failed
	defer_too_late,   // rl_defer past the deadline
	time_out,         // past its deadline: the reaper, or whoever looks
	abandon,          // the waiter is gone, or nobody has started a sync task that was admitted: the reaper
	reclaim,          // nobody has started an async task that was admitted: the reaper
	recover_requeue,  // its worker is lost: it waits again
	recover_fail,     // its worker is lost: it cannot be repeated
	recover_review,   // its worker is lost, and what it did is not known
	cold_start,       // rl_recover(everything): an admitted task whose leases are gone
	resolve_succeed,  // rl_resolve
	resolve_fail,     // rl_resolve
	resolve_cancel,   // rl_resolve
	resolve_wait,     // rl_resolve
	forget,           // past ratelimit.retention
};

inline constexpr std::size_t task_event_count = 26;

[[nodiscard]] std::string_view name_of(TaskEvent event) noexcept;

// What an event does in a state.
enum class TaskEffect : std::uint8_t {
	refused, // the call changes nothing and says so: NULL, false, or the task as it is
	error,   // the call raises 55000: the task ran, or is over
	stays,   // allowed, and the state stays
	moves,   // allowed, and leads to another state
};

struct TaskStep {
	TaskEffect effect = TaskEffect::refused;
	TaskStatus next = TaskStatus::none; // of a step that is refused or an error: where the task is

	[[nodiscard]] constexpr bool allowed() const noexcept
	{
		return effect == TaskEffect::stays || effect == TaskEffect::moves;
	}
	friend constexpr bool operator==(const TaskStep &a, const TaskStep &b) noexcept
	{
		return a.effect == b.effect && a.next == b.next;
	}
};

[[nodiscard]] TaskStep step(TaskStatus state, TaskEvent event) noexcept;

// The moves of the table, for the diagram.
struct TaskMove {
	TaskStatus from;
	TaskEvent event;
	TaskStatus to;
};
[[nodiscard]] View<const TaskMove> task_moves() noexcept;

// --- recovery ------------------------------------------------------------------------------------------------------

// How far the latest attempt of a task has come with the service that it calls, as rl_submission said.
enum class Submission : std::uint8_t { none, submitting, response_received };

[[nodiscard]] std::string_view name_of(Submission submission) noexcept;
[[nodiscard]] std::optional<Submission> submission(std::string_view name) noexcept;

inline constexpr std::string_view code_server_restarted = "server_restarted";
inline constexpr std::string_view code_submission_unknown = "upstream_submission_unknown";
inline constexpr std::string_view code_lease_expired = "execution_lease_expired";
inline constexpr std::string_view reason_recovered = "runtime_state_recovered";

// A running task whose execution was lost.
struct LostExecution {
	bool async = false;
	bool at_most_once = false;
	Submission submission = Submission::none;
	bool remote_id_known = false;
};

// What becomes of it. Codes are empty where there is none.
struct RecoveryVerdict {
	TaskEvent event = TaskEvent::recover_fail;
	std::string_view task_code;
	std::string_view attempt_code;
	bool attempt_retryable = false;
};

// `cold_start`: rl_recover(everything), when no client is running.
[[nodiscard]] RecoveryVerdict recover(const LostExecution &lost, bool cold_start) noexcept;

} // namespace ratelimit::core
