// Fixed windows: alignment, rollover, what fits and for how long it does not, late settlement. Hand-worked tables
// first, then random windows held against the plain model.
#include "core/window.hpp"
#include "limits_model.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>

namespace ratelimit::core {
namespace {

constexpr double double_max = std::numeric_limits<double>::max();
constexpr std::int64_t second = 1'000'000;

Window window_of(double used, double reserved) { return current_window(StoredWindow{{0}, used, reserved}, {0}, 60); }

TEST(Window, BeginsAtAMultipleOfItsLengthAlsoBeforeTheEpoch)
{
	const struct {
		std::int64_t at_us;
		std::int32_t window_seconds;
		std::int64_t start_us;
	} cases[] = {
		{0, 60, 0},
		{1, 60, 0},
		{60 * second - 1, 60, 0},
		{60 * second, 60, 60 * second},
		{-1, 60, -60 * second},
		{-60 * second, 60, -60 * second},
		{-60 * second - 1, 60, -120 * second},
		{-60 * second + 1, 60, -60 * second},
		{1'709'210'096 * second + 5, 1, 1'709'210'096 * second},
		{1'709'210'096 * second, 7, 1'709'210'090 * second},
		{1'709'210'096 * second, 3600, 1'709'208'000 * second},
		{1'709'210'096 * second, 86'400, 1'709'164'800 * second},
		{1'709'210'096 * second, 31'622'400, 1'707'609'600 * second},
		{-1, 31'622'400, -31'622'400 * second},
	};
	for (const auto &row : cases)
		EXPECT_EQ(window_start({row.at_us}, row.window_seconds).us, row.start_us)
			<< row.at_us << " us, " << row.window_seconds << " s";
}

TEST(Window, StartIsWithinTheLengthBeforeTheInstantForRandomInstants)
{
	constexpr std::uint64_t seed = 20'240'229;
	SCOPED_TRACE(testing::Message() << "seed " << seed);
	std::mt19937_64 random{seed};
	for (int round = 0; round < 100'000; ++round) {
		const std::int64_t at_us = static_cast<std::int64_t>(random()) >> (random() % 64);
		const auto seconds = static_cast<std::int32_t>(1 + random() % 31'622'400) >> (random() % 24);
		if (seconds == 0)
			continue;
		const model::Wide expected = model::window_start_us(at_us, seconds);
		if (expected >= std::numeric_limits<std::int64_t>::min()) {
			ASSERT_TRUE(window_start({at_us}, seconds).us == expected) << at_us << " us, " << seconds << " s";
		}
	}
}

TEST(Window, AtTheEndsOfTimeNothingWrapsAround)
{
	EXPECT_EQ(window_start(Instant::earliest(), 60), Instant::earliest());
	EXPECT_LE(window_start(Instant::latest(), 60), Instant::latest());
	const Window last = current_window(std::nullopt, Instant::latest(), 60);
	EXPECT_EQ(last.reset_at, Instant::latest());
	EXPECT_GT(last.start, Instant{0});
	const Window kept = current_window(StoredWindow{Instant::latest(), 1, 0}, Instant::earliest(), 60);
	EXPECT_EQ(kept.start, Instant::latest());
	EXPECT_EQ(decide_window(kept, 1, 1, Instant::earliest()).retry_after_ms, 9'223'372'036'854'776);
}

TEST(Window, AnOlderStoredWindowCountsAsEmptyAndANewerOneStays)
{
	const StoredWindow stored{{60 * second}, 3, 4};
	const struct {
		const char *what;
		std::int64_t now_us;
		std::int64_t start_us;
		bool kept;
	} cases[] = {
		{"at its start", 60 * second, 60 * second, true},
		{"in its last microsecond", 120 * second - 1, 60 * second, true},
		{"at its reset", 120 * second, 120 * second, false},
		{"long after", 600 * second + 1, 600 * second, false},
		{"a microsecond before it", 60 * second - 1, 60 * second, true},
		{"before the epoch", -1, 60 * second, true},
	};
	for (const auto &row : cases) {
		SCOPED_TRACE(row.what);
		const Window window = current_window(stored, {row.now_us}, 60);
		EXPECT_EQ(window.start.us, row.start_us);
		EXPECT_EQ(window.reset_at.us, row.start_us + 60 * second);
		EXPECT_EQ(window.used, row.kept ? 3 : 0);
		EXPECT_EQ(window.reserved, row.kept ? 4 : 0);
	}
}

TEST(Window, NothingStoredIsAnEmptyWindow)
{
	const Window window = current_window(std::nullopt, {61 * second}, 60);
	EXPECT_EQ(window.start.us, 60 * second);
	EXPECT_EQ(window.reset_at.us, 120 * second);
	EXPECT_EQ(window.used, 0);
	EXPECT_EQ(window.reserved, 0);
}

TEST(Window, FitsWhenUsedAndReservedAndAmountStayWithinTheLimit)
{
	const struct {
		double used, reserved, amount, limit;
		bool fits;
	} cases[] = {
		{0, 0, 5, 5, true},
		{0, 0, 5.01, 5, false},
		{4, 0, 1, 5, true},
		{0, 4, 1, 5, true},
		{2, 2, 1, 5, true},
		{2, 3, 1, 5, false},
		{5, 0, 1, 5, false},
		{7, 0, 1, 5, false}, // the limit was lowered below what was used
		{0.1, 0.1, 0.1, 0.3, true},
		{0.2, 0.1, 0.1, 0.3, false},
		{1e9, 0, 1, 1e9, true}, // the tolerance is 1 here
		{1e9, 0, std::nextafter(1.0, 2.0) + 1e-6, 1e9, false},
		{1e9, 1, 1, 1e9, false},
		{double_max / 2, double_max / 2, 1, double_max, true},
		{double_max, double_max, 1, double_max, false},
		{double_max, 0, double_max, double_max, false},
		{0, double_max, double_max, double_max, false},
		{5e-324, 0, 5e-324, 5e-324, false},
		{0, 0, 5e-324, 5e-324, true},
	};
	for (const auto &row : cases) {
		const Verdict verdict = decide_window(window_of(row.used, row.reserved), row.amount, row.limit, {0});
		EXPECT_EQ(verdict.passes(), row.fits)
			<< row.used << " + " << row.reserved << " + " << row.amount << " of " << row.limit;
		EXPECT_EQ(verdict.reason, row.fits ? Reason::none : Reason::window_exhausted);
		EXPECT_EQ(verdict.retry_after_ms, row.fits ? 0 : 60'000);
	}
}

TEST(Window, ToleratesOneInABillionAndNoMore)
{
	for (const double limit : {1e-300, 1e-9, 0.3, 1.0, 1e3, 1e15, 1e300}) {
		const double part = limit / 4;
		const double last_fitting = limit - part - part + limit * 0.999e-9;
		const double first_not_fitting = limit - part - part + limit * 1.001e-9;
		EXPECT_TRUE(decide_window(window_of(part, part), last_fitting, limit, {0}).passes()) << limit;
		EXPECT_FALSE(decide_window(window_of(part, part), first_not_fitting, limit, {0}).passes()) << limit;
	}
	// Where every step is exact: the very boundary and the next number.
	const double boundary = 1e9 + 1;
	EXPECT_TRUE(decide_window(window_of(0, 0), boundary, 1e9, {0}).passes());
	EXPECT_FALSE(decide_window(window_of(0, 0), std::nextafter(boundary, 2e9), 1e9, {0}).passes());
}

TEST(Window, TellsToComeBackInWholeMillisecondsRoundedUpAndNotWithinASecond)
{
	const struct {
		std::int64_t now_us;
		std::int64_t retry_ms;
	} cases[] = {
		{0, 60'000}, {1, 60'000}, {999, 60'000}, {1000, 59'999}, {1001, 59'999}, {60 * second - 1'001'000, 1001},
		{60 * second - 1'000'001, 1001}, {60 * second - 1'000'000, 1000}, {60 * second - 999'999, 1000},
		{60 * second - 1, 1000}, {-1, 60'001}, {-60 * second, 120'000}, // the clock went back a whole window
	};
	for (const auto &row : cases) {
		const Window full = current_window(StoredWindow{{0}, 5, 0}, {row.now_us}, 60);
		const Verdict verdict = decide_window(full, 1, 5, {row.now_us});
		EXPECT_EQ(verdict.reason, Reason::window_exhausted);
		EXPECT_EQ(verdict.retry_after_ms, row.retry_ms) << "at " << row.now_us << " us";
	}
}

TEST(Window, SleepingExactlyAsLongAsToldSucceedsAndAnyLessDoesNot)
{
	constexpr std::uint64_t seed = 59'999;
	SCOPED_TRACE(testing::Message() << "seed " << seed);
	std::mt19937_64 random{seed};
	for (int round = 0; round < 20'000; ++round) {
		const auto seconds = static_cast<std::int32_t>(1 + random() % 120);
		const std::int64_t now_us = static_cast<std::int64_t>(random() % 4'000'000'000'000'000) - 2'000'000'000'000'000;
		const std::int64_t skew_us = random() % 4 == 0 ? static_cast<std::int64_t>(random() % 300) * second : 0;
		const StoredWindow full{window_start({now_us + skew_us}, seconds), 3, 2};
		const Verdict verdict = decide_window(current_window(full, {now_us}, seconds), 5, 5, {now_us});
		ASSERT_EQ(verdict.reason, Reason::window_exhausted);
		const std::int64_t retry_ms = *verdict.retry_after_ms;
		const auto passes_after = [&](std::int64_t ms) {
			const Instant later = Instant{now_us} + Span::from_ms(ms);
			return decide_window(current_window(full, later, seconds), 5, 5, later).passes();
		};
		ASSERT_GE(retry_ms, 1000);
		ASSERT_TRUE(passes_after(retry_ms)) << now_us << " us, " << seconds << " s, " << retry_ms << " ms";
		if (retry_ms > 1000) {
			ASSERT_FALSE(passes_after(retry_ms - 1)) << now_us << " us, " << seconds << " s, " << retry_ms << " ms";
		}
	}
}

TEST(Window, ConsumingAddsToUsedAndReservingToReserved)
{
	const Window before = current_window(StoredWindow{{60 * second}, 2, 3}, {70 * second}, 60);
	const Window spent = consume(before, 0.5);
	EXPECT_EQ(spent.stored().start.us, 60 * second);
	EXPECT_EQ(spent.stored().used, 2.5);
	EXPECT_EQ(spent.stored().reserved, 3);
	const Window promised = reserve(before, 0.5);
	EXPECT_EQ(promised.stored().start.us, 60 * second);
	EXPECT_EQ(promised.stored().used, 2);
	EXPECT_EQ(promised.stored().reserved, 3.5);
	EXPECT_EQ(promised.reset_at, before.reset_at);
}

TEST(Window, AmountsSaturateAndStayFinite)
{
	EXPECT_EQ(consume(window_of(double_max, 0), double_max).used, double_max);
	EXPECT_EQ(consume(window_of(double_max / 2, 0), double_max).used, double_max);
	EXPECT_EQ(reserve(window_of(0, double_max), double_max).reserved, double_max);
	const auto settled = settle({{0}, double_max, double_max}, {0}, 1, double_max);
	ASSERT_TRUE(settled.has_value());
	EXPECT_EQ(settled->used, double_max);
	EXPECT_LE(settled->reserved, double_max);
	EXPECT_EQ(remaining(window_of(double_max, double_max), double_max), 0);
}

TEST(Window, SettlesInTheWindowOfTheReservationAndInNoOther)
{
	const StoredWindow stored{{60 * second}, 2, 3};
	const struct {
		const char *what;
		std::int64_t made_in_us;
		double reserved, actual;
		std::optional<StoredWindow> after;
	} cases[] = {
		{"commit as reserved", 60 * second, 1, 1, StoredWindow{{60 * second}, 3, 2}},
		{"commit less", 60 * second, 3, 0.5, StoredWindow{{60 * second}, 2.5, 0}},
		{"commit far more", 60 * second, 1, 1000, StoredWindow{{60 * second}, 1002, 2}},
		{"release", 60 * second, 2, 0, StoredWindow{{60 * second}, 2, 1}},
		{"more than is reserved", 60 * second, 4, 1, StoredWindow{{60 * second}, 3, 0}},
		{"made in an older window", 0, 1, 1, std::nullopt},
		{"made in a newer window", 120 * second, 1, 1, std::nullopt},
		{"a microsecond off", 60 * second + 1, 1, 1, std::nullopt},
	};
	for (const auto &row : cases) {
		SCOPED_TRACE(row.what);
		const auto after = settle(stored, {row.made_in_us}, row.reserved, row.actual);
		ASSERT_EQ(after.has_value(), row.after.has_value());
		if (!after)
			continue;
		EXPECT_EQ(after->start, row.after->start);
		EXPECT_EQ(after->used, row.after->used);
		EXPECT_EQ(after->reserved, row.after->reserved);
	}
}

TEST(Window, TenTenthsSettledNeverGoBelowZero)
{
	StoredWindow stored{{0}, 0, 0};
	for (int i = 0; i < 10; ++i)
		stored = reserve(current_window(stored, {0}, 60), 0.1).stored();
	for (int i = 0; i < 10; ++i) {
		stored = settle(stored, {0}, 0.1, 0).value();
		ASSERT_GE(stored.reserved, 0);
		ASSERT_FALSE(std::signbit(stored.reserved));
	}
	EXPECT_NEAR(stored.reserved, 0, 1e-15);
	EXPECT_EQ(stored.used, 0);
}

TEST(Window, WhatRemainsIsNeverBelowZero)
{
	EXPECT_EQ(remaining(window_of(0, 0), 5), 5);
	EXPECT_EQ(remaining(window_of(1, 2), 5), 2);
	EXPECT_EQ(remaining(window_of(2, 3), 5), 0);
	EXPECT_EQ(remaining(window_of(9, 0), 5), 0);
	EXPECT_EQ(remaining(window_of(0, 9), 5), 0);
	EXPECT_FALSE(std::signbit(remaining(window_of(9, 9), 0)));
}

} // namespace
} // namespace ratelimit::core
