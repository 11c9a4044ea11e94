// Compares an aggregate with the rows under it, and says what is wrong.
//
// Aggregates are kept by adding and subtracting, the rows are added up anew: the two may differ by rounding, which is
// relative to the amounts that went through the sum, and those are bounded by the limit.
#pragma once

#include "core/lease.hpp"
#include "core/units.hpp"
#include "core/window.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit::core {

enum class Problem : std::uint8_t {
	counter_missing,
	counter_behind,
	counter_reserved,
	counter_used,
	scope_missing,
	scope_leased,
	scope_lease_count,
	scope_expires_from,
	scope_waiting,
	scope_unseen,
	task_places,
	task_open_attempt,
	task_stray_attempts,
	task_lease_ids,
	task_token,
};

// The kind of aggregate, and what is wrong with it. The texts are part of the public interface.
[[nodiscard]] std::string_view object_of(Problem problem) noexcept;
[[nodiscard]] std::string_view text_of(Problem problem) noexcept;

// Instants are in seconds since the Unix epoch.
struct Finding {
	Problem problem = Problem::counter_missing;
	double expected = 0;
	std::optional<double> found; // absent when the aggregate is not there
};

class Findings {
public:
	[[nodiscard]] const Finding *begin() const noexcept { return items_.data(); }
	[[nodiscard]] const Finding *end() const noexcept { return items_.data() + count_; }
	[[nodiscard]] bool empty() const noexcept { return count_ == 0; }
	void add(const Finding &finding) noexcept { items_[count_++] = finding; }

private:
	std::array<Finding, 5> items_;
	std::size_t count_ = 0;
};

// Whether two sums are the same but for rounding, when amounts up to `largest` went through them.
[[nodiscard]] bool same_amount(double a, double b, double largest) noexcept;

// A counter, and the sum of the reservations of its window that are still open.
struct CounterFacts {
	StoredWindow stored;
	double limit = 0;
	double open = 0;
};
[[nodiscard]] Findings verify_counter(const CounterFacts &facts) noexcept;

// Open reservations of one window whose counter is not there, or holds an older window. One that is not there may have
// been deleted as idle once the window was over.
struct UncountedFacts {
	std::optional<Instant> counter_start;
	Instant window_start;
	Instant reset_at;
	double open = 0;
};
[[nodiscard]] Findings verify_uncounted(const UncountedFacts &facts, Instant now) noexcept;

// A scope, its lease rows and its waiting tasks; whether the dispatcher is told of those. `largest` is the largest limit under which one of them was granted.
struct ScopeFacts {
	StoredScope stored;
	double leased = 0;
	std::int64_t lease_count = 0;
	Instant first_expiry = Instant::latest();
	double largest = 0;
	std::int64_t stored_waiting = 0;
	std::int64_t waiting = 0;
	bool is_awaited = false;
};
[[nodiscard]] Findings verify_scope(const ScopeFacts &facts) noexcept;

} // namespace ratelimit::core
