// Settling reservations: what rl_commit, rl_release and the end of a task share.
#pragma once

#include <optional>
#include <string_view>

#include "api/arguments.hpp"
#include "core/window.hpp"
#include "pg/memory.hpp"
#include "store/lease_store.hpp"
#include "store/reservation_store.hpp"
#include "store/window_store.hpp"

namespace ratelimit::api {

// A batch of reservations that are settled alike, with their counters locked.
class Settling {
public:
	// Locks the counters of these, which are open as far as is known.
	explicit Settling(pg::Vector<store::OpenReservation> open, store::Locked others = store::Locked::wait);
	// Whether everything is locked: only with `skip` it may not be.
	[[nodiscard]] bool is_locked() const noexcept { return is_locked_; }
	[[nodiscard]] bool empty() const noexcept { return open_.empty(); }

	// Commits when `actual` is given, else releases. Returns how many were settled now.
	[[nodiscard]] int settle(const pg::Vector<ActualAmount> *actual, std::optional<std::string_view> reason);

private:
	// A counter and what its settled reservations change.
	struct SettledCounter {
		std::optional<store::CounterRow> row;
		core::StoredWindow window;
		bool changed = false;
	};

	pg::Vector<store::OpenReservation> open_; // by counter, then by id
	pg::Vector<SettledCounter> counters_;
	pg::Vector<std::size_t> counter_of_; // per reservation
	bool is_locked_ = true;
};

} // namespace ratelimit::api
