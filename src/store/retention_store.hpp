// What the reaper finds by its time, and deletes.
//
// Nothing here waits for a row that somebody else holds: such rows are passed over, and the next call finds them again. So
// whoever reaps can hold locks in any order without ever being part of a deadlock.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/units.hpp"
#include "core/uuid7.hpp"
#include "pg/memory.hpp"
#include "store/lease_store.hpp"
#include "store/reservation_store.hpp"
#include "store/window_store.hpp"

namespace ratelimit::store {

// --- leases that are over ------------------------------------------------------------------------------------------

// Leases over at `now`, oldest first, after the first `skip` of them. Takes no lock; views live until the session ends.
[[nodiscard]] pg::Vector<LeaseRow> read_expired_leases(core::Instant now, std::int64_t count, std::int64_t skip);
// Locks the scope's row unless somebody else holds it; false then, or when there is none.
[[nodiscard]] bool try_lock_scope(const ScopeKey &key);

// Locks the leases unless somebody else holds one of them; false then. Those that are gone do not matter.
[[nodiscard]] bool try_lock_leases(core::View<core::Uuid> ids);

// --- reservations that nobody settled ------------------------------------------------------------------------------

// Those still reserved whose window was over at `until`, oldest first, after the first `skip` of them. Takes no lock.
[[nodiscard]] pg::Vector<OpenReservation> read_due_reservations(core::Instant until, std::int64_t count, std::int64_t skip);
// Locks the counter's row unless somebody else holds it.
[[nodiscard]] std::optional<CounterRow> try_lock_counter(const CounterKey &key);
// Locks the reservation if it is still reserved and nobody else holds it.
[[nodiscard]] bool try_lock_open(const core::Uuid &id);

// --- finished rows -------------------------------------------------------------------------------------------------

// Settled or released at `until` or before, oldest first. Returns how many were deleted.
[[nodiscard]] std::int64_t delete_finished_reservations(core::Instant until, std::int64_t count);

// Among the first `count` requests that may go: has those that still have a reservation or lease looked at later. Returns
// how many.
[[nodiscard]] std::int64_t keep_open_requests(core::Instant until, core::Instant now, std::int64_t count);
// The first `count` requests that may go, but for those that still have something.
[[nodiscard]] std::int64_t delete_requests(core::Instant until, std::int64_t count);

// Workers that nobody has heard of since `until`.
[[nodiscard]] std::int64_t delete_workers(core::Instant until, std::int64_t count);

// --- what is idle --------------------------------------------------------------------------------------------------

// A row that may be idle, locked.
struct IdleCandidate {
	ItemPointerData place;
	core::Instant touched_at;
	core::Instant over_at; // counters: the end of the window
	bool in_use = false;   // scopes: something depends on it
};

enum class IdleTable { counters, scopes };

// Those whose bound is at `until` or before, oldest first, and that nobody else holds.
[[nodiscard]] pg::Vector<IdleCandidate> lock_idle_candidates(IdleTable table, core::Instant until, std::int64_t count);
void delete_idle(IdleTable table, const pg::Vector<ItemPointerData> &places);
void move_idle_from(IdleTable table, const ItemPointerData &place, core::Instant idle_from);

} // namespace ratelimit::store
