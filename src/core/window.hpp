// Fixed-window counters, aligned to the epoch: which window is it, does an amount fit, what is stored afterwards.
//
// A counter's row holds its newest window only. That window stays the current one when the clock goes backwards; an older
// one never opens again, and what settles late into an older one no longer counts.
#pragma once

#include "core/decision.hpp"
#include "core/units.hpp"

#include <cstdint>
#include <optional>

namespace ratelimit::core {

// A counter as it is stored.
struct StoredWindow {
	Instant start;
	double used = 0;
	double reserved = 0;
};

// A counter as of an instant: an older stored window counts as empty.
struct Window {
	Instant start;
	Instant reset_at;
	double used = 0;
	double reserved = 0;

	[[nodiscard]] StoredWindow stored() const noexcept { return {start, used, reserved}; }
};

// The start of the window that contains the instant: floor(epoch / window) * window.
[[nodiscard]] Instant window_start(Instant at, std::int32_t window_seconds) noexcept;

// The current window at `now`, given what is stored, if anything.
[[nodiscard]] Window current_window(
	const std::optional<StoredWindow> &stored, Instant now, std::int32_t window_seconds) noexcept;

// Whether `amount` fits: used + reserved + amount <= limit. A full window says how long it lasts, rounded up to whole
// milliseconds so that sleeping exactly that long is enough, and at least a second.
[[nodiscard]] Verdict decide_window(const Window &window, double amount, double limit, Instant now) noexcept;

// What the window holds after `amount` was spent, or promised.
[[nodiscard]] Window consume(Window window, double amount) noexcept;
[[nodiscard]] Window reserve(Window window, double amount) noexcept;

// Settles a reservation of `reserved` that was made in the window starting at `made_in`: it is no longer promised, and
// `actual` (0 for a release) counts as spent. Absent when the counter has moved on to a newer window: nothing to write.
[[nodiscard]] std::optional<StoredWindow> settle(
	const StoredWindow &stored, Instant made_in, double reserved, double actual) noexcept;

// What is left of the limit, never below 0.
[[nodiscard]] double remaining(const Window &window, double limit) noexcept;

} // namespace ratelimit::core
