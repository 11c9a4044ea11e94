// The short-lived worker: one round in one database.
#pragma once

#include <cstdint>

#include "worker/rounds.hpp"

namespace ratelimit::worker {

// What the launcher tells the worker, and what the worker has not done to the end, as one number.
[[nodiscard]] constexpr std::uint32_t pack(Chores chores) noexcept
{
	return (chores.reap ? 1U : 0U) | (chores.recover ? 2U : 0U);
}
[[nodiscard]] constexpr Chores unpack(std::uint32_t bits) noexcept { return {(bits & 1U) != 0, (bits & 2U) != 0}; }

} // namespace ratelimit::worker
