// The end of a task and of everything that carries its id: what rl_cancel, rl_finish and rl_recover share.
#pragma once

#include <optional>
#include <string_view>

#include "api/arguments.hpp"
#include "api/queue_book.hpp"
#include "api/settling.hpp"
#include "api/task_steps.hpp"

namespace ratelimit::api {

// What a task holds: its open reservations, its live leases and, if it waits, its place. Whether its admission made the
// leases and reservations or the caller did, they count when they carry its id. The task's row is locked by the caller.
class Holdings {
public:
	// Locks the counters and scopes concerned, in order. `extra` are scopes to lock as well.
	Holdings(const store::TaskRow &task, const ScopeList &extra, store::Locked others = store::Locked::wait);
	// Whether everything is locked: only with `skip` somebody else may hold some of it. Then nothing may be changed.
	[[nodiscard]] bool is_locked() const noexcept { return is_locked_; }

	[[nodiscard]] QueueBook &book() noexcept { return book_; }
	// Gives the leases back; returns how many.
	[[nodiscard]] int release_leases();
	// Commits the reservations with `actual`, or releases them for the reason; returns how many.
	[[nodiscard]] int settle(const pg::Vector<ActualAmount> *actual, std::optional<std::string_view> reason);
	// Writes the scopes and tells who can go now.
	void finish();

private:
	QueueBook book_;
	Settling settling_;
	pg::Vector<core::Uuid> lease_ids_;
	bool is_locked_ = true;
};

// How a task ends.
struct Conclusion {
	core::TaskEvent event;
	std::optional<std::string_view> code;             // of the task
	std::optional<std::string_view> reason;           // of its reservations, when they are released
	const pg::Vector<ActualAmount> *actual = nullptr; // commits them instead
};

// Ends a task whose row is locked. False for one that waits and is past its deadline: that times out instead.
[[nodiscard]] bool conclude(store::TaskRow &task, const Conclusion &conclusion);

} // namespace ratelimit::api
