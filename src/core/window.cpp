#include "core/window.hpp"

#include "core/limits.hpp"

namespace ratelimit::core {

Instant window_start(Instant at, std::int32_t window_seconds) noexcept
{
	const std::int64_t length_us = Span::from_seconds(window_seconds).us;
	return {saturating_multiply(floor_divide(at.us, length_us), length_us)};
}

Window current_window(const std::optional<StoredWindow> &stored, Instant now, std::int32_t window_seconds) noexcept
{
	Window window;
	window.start = window_start(now, window_seconds);
	if (stored && stored->start >= window.start) {
		window.start = stored->start;
		window.used = stored->used;
		window.reserved = stored->reserved;
	}
	window.reset_at = window.start + Span::from_seconds(window_seconds);
	return window;
}

Verdict decide_window(const Window &window, double amount, double limit, Instant now) noexcept
{
	// Plain sums: should they overflow to infinity, they do not fit.
	if (fits(window.used + window.reserved + amount, limit))
		return Verdict::pass();
	return Verdict::later(
		Reason::window_exhausted, std::max(limits::window_retry_min, window.reset_at - now).ceil_ms());
}

Window consume(Window window, double amount) noexcept
{
	window.used = add_amounts(window.used, amount);
	return window;
}

Window reserve(Window window, double amount) noexcept
{
	window.reserved = add_amounts(window.reserved, amount);
	return window;
}

std::optional<StoredWindow> settle(
	const StoredWindow &stored, Instant made_in, double reserved, double actual) noexcept
{
	if (stored.start != made_in)
		return std::nullopt;
	return StoredWindow{stored.start, add_amounts(stored.used, actual), subtract_amount(stored.reserved, reserved)};
}

double remaining(const Window &window, double limit) noexcept
{
	return std::max(0.0, limit - window.used - window.reserved);
}

} // namespace ratelimit::core
