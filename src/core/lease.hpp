// Concurrency leases: how much of a scope's limit is held by live leases, and when to ask again.
//
// A lease is live until it is released or its expiry comes; at the very instant of the expiry it is over. A scope keeps
// the sum of its lease rows, over or not, and a lower bound of their expiries: while the bound lies ahead nothing can have
// expired, and nobody has to look.
#pragma once

#include "core/decision.hpp"
#include "core/units.hpp"

#include <cstdint>
#include <optional>

namespace ratelimit::core {

// A scope's aggregates over its lease rows, as stored. Kept under the scope's row lock.
struct StoredScope {
	double leased = 0;                         // sum of the amounts of all lease rows
	std::int64_t lease_count = 0;              // their number
	Instant expires_from = Instant::latest();  // no lease row expires earlier than this
};

// A scope as of an instant.
struct ScopeUsage {
	double live = 0;                      // sum of the live leases
	std::optional<Instant> next_expiry;   // the earliest expiry of a live lease
	std::int64_t expired_count = 0;       // lease rows that are over and have not been removed
};

[[nodiscard]] constexpr bool lease_is_live(Instant expires_at, Instant now) noexcept { return now < expires_at; }

// The scope after a lease was added, or after `count` leases worth `amount` were removed. When none is left the sum is
// exactly 0: rounding errors of many additions end there.
[[nodiscard]] StoredScope add_lease(StoredScope scope, double amount, Instant expires_at) noexcept;
[[nodiscard]] StoredScope remove_leases(StoredScope scope, double amount, std::int64_t count) noexcept;

// Whether so little of a sum is left after a removal that rounding may have swallowed small amounts beside large ones: then
// the sum has to be taken anew from the rows.
[[nodiscard]] constexpr bool sum_is_doubtful(const StoredScope &before, const StoredScope &after) noexcept
{
	return after.lease_count > 0 && after.leased < before.leased * 1e-6;
}

// Whether a lease of `amount` fits beside the live ones. A saturated scope says when its next lease ends, kept within
// [1 s, 5 s], since a holder may release sooner.
[[nodiscard]] Verdict decide_lease(const ScopeUsage &usage, double amount, double limit, Instant now) noexcept;

} // namespace ratelimit::core
