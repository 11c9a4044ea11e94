// Taking back what crashed workers left behind, and repairing sums.
#pragma once

#include <cstdint>

#include "upkeep/verify.hpp"

namespace ratelimit::upkeep {

struct Recovery {
	std::int64_t released_leases = 0;
	std::int64_t released_reservations = 0;
	std::int64_t failed_attempts = 0;
	std::int64_t failed_tasks = 0;
	std::int64_t requeued_tasks = 0;
	std::int64_t cleaned_tasks = 0;
	std::int64_t review_tasks = 0;
	std::int64_t repaired_aggregates = 0;

	[[nodiscard]] std::int64_t rows() const noexcept
	{
		return released_leases + released_reservations + failed_attempts + failed_tasks + requeued_tasks + cleaned_tasks +
			review_tasks + repaired_aggregates;
	}
};

// Within a session of SPI. Never waits for a row that somebody else holds.
[[nodiscard]] Recovery recover(std::int64_t batch, Round round);

// For a cold start, when no client is running: everything that is running or held ends, whatever its leases say. Keeps
// everybody else from writing until the transaction ends.
[[nodiscard]] Recovery recover_everything();

} // namespace ratelimit::upkeep
