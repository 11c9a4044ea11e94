// The admission queue: which task may go, which must wait and for what, and which is turned away at once.
//
// A task asks for a slot in several scopes at once. It goes when it is the head of every scope in whose order it takes part
// and none of its scopes is saturated. The functions here see one task and its scopes as of one instant; finding the head
// of a scope is the caller's work, by the order and the rules given here.
#pragma once

#include "core/decision.hpp"
#include "core/lease.hpp"
#include "core/limits.hpp"
#include "core/task.hpp"
#include "core/units.hpp"
#include "core/view.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>

namespace ratelimit::core {

// --- states --------------------------------------------------------------------------------------------------------

enum class TaskMode : std::uint8_t { sync, async };

[[nodiscard]] std::string_view name_of(TaskMode mode) noexcept;
[[nodiscard]] std::optional<TaskMode> task_mode(std::string_view name) noexcept;

[[nodiscard]] constexpr bool is_finished(TaskStatus status) noexcept
{
	return status == TaskStatus::succeeded || status == TaskStatus::failed || status == TaskStatus::cancelled;
}

inline constexpr std::string_view code_queue_timeout = "queue_timeout";
inline constexpr std::string_view code_client_disconnected = "client_disconnected";
inline constexpr std::string_view code_dispatch_failed = "admission_dispatch_failed";

// --- order ---------------------------------------------------------------------------------------------------------

// A task's place in the queue: a smaller priority goes first, then the older task, then the smaller id by its bytes.
struct Turn {
	std::int32_t priority = 0;
	Instant enqueued_at;
	std::string_view task_id;

	friend bool operator<(const Turn &a, const Turn &b) noexcept
	{
		return std::tie(a.priority, a.enqueued_at.us, a.task_id) < std::tie(b.priority, b.enqueued_at.us, b.task_id);
	}
	friend bool operator==(const Turn &a, const Turn &b) noexcept
	{
		return std::tie(a.priority, a.enqueued_at.us, a.task_id) == std::tie(b.priority, b.enqueued_at.us, b.task_id);
	}
};

// What decides whether a waiting task takes part at an instant.
struct Presence {
	std::optional<Instant> deadline;
	std::optional<Instant> waiter_expires_at; // absent for a task without a waiter
	std::optional<Instant> put_aside_until;
};

[[nodiscard]] bool is_timed_out(const Presence &presence, Instant now) noexcept;
// The waiter of a sync task is gone; it may come back.
[[nodiscard]] bool is_abandoned(const Presence &presence, Instant now) noexcept;
[[nodiscard]] bool is_put_aside(const Presence &presence, Instant now) noexcept;
// A task that is put aside, past its deadline or abandoned is no head, and holds nobody up.
[[nodiscard]] bool may_be_head(const Presence &presence, Instant now) noexcept;

// What a scope keeps about its queue, under the scope's row lock. `head_priority` and `head_at` are where to begin looking
// for the head: those before it are over, or were abandoned. Who comes in, or back, before it moves it back.
struct StoredQueue {
	std::int32_t waiting = 0; // its waiting tasks, whether they may be head or not
	std::int32_t head_priority = std::numeric_limits<std::int32_t>::max();
	Instant head_at = Instant::latest();
};

[[nodiscard]] bool begins_after(const StoredQueue &queue, const Turn &turn) noexcept;
[[nodiscard]] StoredQueue begin_at(StoredQueue queue, const Turn &turn) noexcept;
[[nodiscard]] StoredQueue enter(StoredQueue queue, const Turn &turn) noexcept;
[[nodiscard]] StoredQueue leave(StoredQueue queue) noexcept;

// --- one task and its scopes ---------------------------------------------------------------------------------------

// What a task asks of one scope.
struct Demand {
	std::optional<double> limit;                        // absent: not limited
	double amount = limits::amount_default;
	std::int32_t lease_ttl_seconds = limits::lease_ttl_seconds_default;
	std::optional<std::int32_t> queue_limit = 0;        // absent: any number may wait
	std::int32_t max_wait_seconds = limits::max_wait_seconds_default;
	bool fifo = true;
	bool from_workers = false;                          // `limit` is the capacity of the live workers, as of now
};

// One scope as a task finds it. What the task itself holds or counts there is left out by the caller.
struct Standing {
	double active = 0;                  // sum of the live leases
	std::optional<Instant> next_expiry; // of a live lease
	std::int64_t waiting = 0;
	bool is_head = true;                // no task that may be head comes before it
};

// Why a task does not go, by scope. A saturated scope is not asked for its head.
enum class Obstacle : std::uint8_t { none, saturated, not_head };

[[nodiscard]] std::string_view name_of(Obstacle obstacle) noexcept;
[[nodiscard]] bool is_saturated(const Demand &demand, double active) noexcept;
[[nodiscard]] Obstacle obstacle_in(const Demand &demand, const Standing &standing) noexcept;

// Why a task is not let in.
struct Refusal {
	std::size_t scope = 0; // the first that refuses, in the order given
	Verdict verdict;
	std::int64_t queue_depth = 0;
};

// A new task that asks for its turn itself, or one that moves to other scopes. Whether it may wait, not whether it goes.
[[nodiscard]] std::optional<Refusal> refuse_new(
	View<const Demand> demands, View<const Standing> standings, Instant now) noexcept;

// A new task that leaves its turn to the dispatcher. Those that wait count as load.
[[nodiscard]] std::optional<Refusal> refuse_enqueued(
	View<const Demand> demands, View<const Standing> standings, Instant now) noexcept;

// Until when a task with these demands may wait when it begins now: the shortest wait among the scopes where it may wait.
[[nodiscard]] Instant fresh_deadline(View<const Demand> demands, Instant now) noexcept;
// A task that goes on waiting never gains time by it.
[[nodiscard]] Instant earlier_deadline(const std::optional<Instant> &old, Instant fresh) noexcept;

// When a waiting task asks again: when its saturated scopes may have room, but soon enough to keep its waiter lease.
[[nodiscard]] std::int64_t poll_after_ms(
	View<const Demand> demands, View<const Standing> standings, Instant now) noexcept;

// How long a task is put aside after a failure of its own: as asked, or doubling with `failures` (those before this one)
// and spread by the id, so that tasks which failed together do not come back together.
[[nodiscard]] Span defer_pause(
	std::string_view task_id_utf8, std::int32_t failures, const std::optional<std::int64_t> &retry_after_ms) noexcept;

[[nodiscard]] std::uint32_t fnv1a_32(std::string_view bytes) noexcept;

} // namespace ratelimit::core
