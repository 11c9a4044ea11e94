// The only reader of the clock. Decisions read it once, after the locks they need were obtained.
#pragma once

#include <cstdint>

#include "pg/postgres.hpp"

namespace ratelimit::pg {

// Microseconds between the Unix epoch and the server's, 2000-01-01.
inline constexpr std::int64_t server_epoch_us =
	static_cast<std::int64_t>(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;

// The instant to decide by, in microseconds since the Unix epoch: clock_timestamp(), or `ratelimit.clock` when set.
[[nodiscard]] std::int64_t decision_clock_us() noexcept;

// The real clock, for identifiers.
[[nodiscard]] std::int64_t real_clock_us() noexcept;

// When this process began, in microseconds since the Unix epoch.
[[nodiscard]] std::int64_t process_start_us() noexcept;

// Milliseconds of a clock that never goes back, from some instant; for intervals within a process.
[[nodiscard]] std::int64_t monotonic_clock_ms() noexcept;

} // namespace ratelimit::pg
