// Instants, spans and amounts: the strong types that every decision is made of.
//
// The core never reads a clock: each decision receives its instant as an argument. Arithmetic saturates instead of
// overflowing, so that no input, however odd, can turn "far in the future" into "long ago".
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace ratelimit::core {

[[nodiscard]] constexpr std::int64_t saturating_add(std::int64_t a, std::int64_t b) noexcept
{
	std::int64_t sum = 0;
	if (!__builtin_add_overflow(a, b, &sum))
		return sum;
	return b > 0 ? std::numeric_limits<std::int64_t>::max() : std::numeric_limits<std::int64_t>::min();
}

[[nodiscard]] constexpr std::int64_t saturating_subtract(std::int64_t a, std::int64_t b) noexcept
{
	std::int64_t difference = 0;
	if (!__builtin_sub_overflow(a, b, &difference))
		return difference;
	return b < 0 ? std::numeric_limits<std::int64_t>::max() : std::numeric_limits<std::int64_t>::min();
}

[[nodiscard]] constexpr std::int64_t saturating_multiply(std::int64_t a, std::int64_t b) noexcept
{
	std::int64_t product = 0;
	if (!__builtin_mul_overflow(a, b, &product))
		return product;
	return (a < 0) == (b < 0) ? std::numeric_limits<std::int64_t>::max() : std::numeric_limits<std::int64_t>::min();
}

// Division that rounds towards minus infinity; the divisor is positive.
[[nodiscard]] constexpr std::int64_t floor_divide(std::int64_t dividend, std::int64_t divisor) noexcept
{
	const std::int64_t quotient = dividend / divisor;
	return (dividend % divisor < 0) ? quotient - 1 : quotient;
}

// Division that rounds towards plus infinity; the divisor is positive.
[[nodiscard]] constexpr std::int64_t ceil_divide(std::int64_t dividend, std::int64_t divisor) noexcept
{
	const std::int64_t quotient = dividend / divisor;
	return (dividend % divisor > 0) ? quotient + 1 : quotient;
}

// A length of time in microseconds, the resolution of PostgreSQL's timestamptz. May be negative.
struct Span {
	std::int64_t us = 0;

	[[nodiscard]] static constexpr Span from_ms(std::int64_t ms) noexcept { return {saturating_multiply(ms, 1000)}; }
	[[nodiscard]] static constexpr Span from_seconds(std::int64_t seconds) noexcept
	{
		return {saturating_multiply(seconds, 1'000'000)};
	}
	[[nodiscard]] constexpr std::int64_t floor_ms() const noexcept { return floor_divide(us, 1000); }
	[[nodiscard]] constexpr std::int64_t ceil_ms() const noexcept { return ceil_divide(us, 1000); }

	friend constexpr bool operator==(Span a, Span b) noexcept { return a.us == b.us; }
	friend constexpr bool operator!=(Span a, Span b) noexcept { return a.us != b.us; }
	friend constexpr bool operator<(Span a, Span b) noexcept { return a.us < b.us; }
	friend constexpr bool operator<=(Span a, Span b) noexcept { return a.us <= b.us; }
	friend constexpr bool operator>(Span a, Span b) noexcept { return a.us > b.us; }
	friend constexpr bool operator>=(Span a, Span b) noexcept { return a.us >= b.us; }
};

// A point in time, in microseconds since the Unix epoch. The smallest and the largest value serve as "never" and
// "for ever".
struct Instant {
	std::int64_t us = 0;

	[[nodiscard]] static constexpr Instant from_ms(std::int64_t ms) noexcept { return {saturating_multiply(ms, 1000)}; }
	[[nodiscard]] constexpr std::int64_t floor_ms() const noexcept { return floor_divide(us, 1000); }
	[[nodiscard]] static constexpr Instant earliest() noexcept { return {std::numeric_limits<std::int64_t>::min()}; }
	[[nodiscard]] static constexpr Instant latest() noexcept { return {std::numeric_limits<std::int64_t>::max()}; }

	friend constexpr bool operator==(Instant a, Instant b) noexcept { return a.us == b.us; }
	friend constexpr bool operator!=(Instant a, Instant b) noexcept { return a.us != b.us; }
	friend constexpr bool operator<(Instant a, Instant b) noexcept { return a.us < b.us; }
	friend constexpr bool operator<=(Instant a, Instant b) noexcept { return a.us <= b.us; }
	friend constexpr bool operator>(Instant a, Instant b) noexcept { return a.us > b.us; }
	friend constexpr bool operator>=(Instant a, Instant b) noexcept { return a.us >= b.us; }
	friend constexpr Span operator-(Instant a, Instant b) noexcept { return {saturating_subtract(a.us, b.us)}; }
	friend constexpr Instant operator+(Instant at, Span span) noexcept { return {saturating_add(at.us, span.us)}; }
	friend constexpr Instant operator-(Instant at, Span span) noexcept { return {saturating_subtract(at.us, span.us)}; }
};

// Amounts are finite, non-negative doubles. Sums saturate at the largest finite value, so that a stored amount is
// always finite; a double that counts down never passes zero.
[[nodiscard]] inline double add_amounts(double a, double b) noexcept
{
	return std::min(a + b, std::numeric_limits<double>::max());
}

[[nodiscard]] inline double subtract_amount(double from, double amount) noexcept
{
	return std::max(0.0, from - amount);
}

// How far a sum may pass its limit, relative to the limit: three times 0.1 fits 0.3.
inline constexpr double amount_tolerance = 1e-9;

// Whether a total is within a limit, up to the tolerance. Written as a difference, since limit * (1 + tolerance)
// could overflow and let everything through.
[[nodiscard]] inline bool fits(double total, double limit) noexcept
{
	return total - limit <= limit * amount_tolerance;
}

} // namespace ratelimit::core
