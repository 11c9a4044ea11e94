// The verdict on one limit: whether it is an obstacle, why, and when to ask again.
#pragma once

#include "core/units.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit::core {

// Why a limit denies. The names are part of the public interface.
enum class Reason : std::uint8_t {
	none,
	limit_is_zero,
	amount_exceeds_limit,
	window_exhausted,
	concurrency_saturated,
	queue_full,
	disabled,
};

[[nodiscard]] constexpr std::string_view name_of(Reason reason) noexcept
{
	switch (reason) {
	case Reason::none:
		return "";
	case Reason::limit_is_zero:
		return "limit_is_zero";
	case Reason::amount_exceeds_limit:
		return "amount_exceeds_limit";
	case Reason::window_exhausted:
		return "window_exhausted";
	case Reason::concurrency_saturated:
		return "concurrency_saturated";
	case Reason::queue_full:
		return "queue_full";
	case Reason::disabled:
		return "disabled";
	}
	return "";
}

// What one limit says. `retry_after_ms` is 0 where the limit is no obstacle and absent when waiting never helps.
struct [[nodiscard]] Verdict {
	Reason reason = Reason::none;
	std::optional<std::int64_t> retry_after_ms = 0;

	[[nodiscard]] constexpr bool passes() const noexcept { return reason == Reason::none; }
	[[nodiscard]] constexpr bool retryable() const noexcept { return retry_after_ms.has_value(); }

	[[nodiscard]] static constexpr Verdict pass() noexcept { return {}; }
	[[nodiscard]] static constexpr Verdict never(Reason why) noexcept { return {why, std::nullopt}; }
	[[nodiscard]] static constexpr Verdict later(Reason why, std::int64_t after_ms) noexcept { return {why, after_ms}; }
};

} // namespace ratelimit::core
