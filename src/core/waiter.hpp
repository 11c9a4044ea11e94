// A session that sleeps until its task's turn: when it has to look again by itself, and when to renew its lease.
//
// It is woken when its turn comes. What nobody wakes it for, a lease elsewhere that runs out or its own deadline, it has to
// notice by looking now and then.
#pragma once

#include "core/units.hpp"

#include <optional>

namespace ratelimit::core {

// Never looks by itself more often than this.
inline constexpr Span waiter_poll = Span::from_seconds(5);
// Never sleeps shorter than this, whatever the clock says.
inline constexpr Span waiter_sleep_min = Span::from_ms(10);

struct Waiter {
	std::optional<Instant> deadline;
	Instant lease_expires_at;
	Span lease_ttl;
};

// Whether the waiter's lease is to be renewed now: it would be in its last third before the next look.
[[nodiscard]] bool renewal_is_due(const Waiter &waiter, Instant now) noexcept;

// How long to sleep at most: until the next look, the deadline, or the last third of the lease.
[[nodiscard]] Span sleep_at_most(const Waiter &waiter, Instant now) noexcept;

} // namespace ratelimit::core
