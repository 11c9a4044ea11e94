// Removing what is over. Every part is bounded by a batch of its own, and leaves what somebody else holds to the next
// call, so reaping never waits and never deadlocks.
#pragma once

#include <cstdint>

namespace ratelimit::upkeep {

struct Reaped {
	std::int64_t expired_waiters = 0;
	std::int64_t expired_deadlines = 0;
	std::int64_t expired_leases = 0;
	std::int64_t expired_reservations = 0;
	std::int64_t deleted = 0;
	bool more = false; // some part came to the end of its batch

	[[nodiscard]] std::int64_t rows() const noexcept
	{
		return expired_waiters + expired_deadlines + expired_leases + expired_reservations + deleted;
	}
};

// Within a session of SPI.
[[nodiscard]] Reaped reap(std::int64_t batch);

} // namespace ratelimit::upkeep
