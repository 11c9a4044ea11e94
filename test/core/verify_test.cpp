// What counts as a difference between an aggregate and its rows, and what is only rounding.
#include "core/verify.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ratelimit::core {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

Findings counter(double used, double reserved, double limit, double open)
{
	return verify_counter({{Instant{0}, used, reserved}, limit, open});
}

void expect_one(const Findings &findings, Problem problem, double expected, double found)
{
	ASSERT_EQ(findings.end() - findings.begin(), 1);
	EXPECT_EQ(findings.begin()->problem, problem);
	EXPECT_EQ(findings.begin()->expected, expected);
	if (std::isnan(found))
		EXPECT_TRUE(std::isnan(findings.begin()->found.value()));
	else
		EXPECT_EQ(findings.begin()->found, found);
}

std::ptrdiff_t count(const Findings &findings) { return findings.end() - findings.begin(); }

TEST(Verify, ACounterIsTheSumOfItsOpenReservations)
{
	EXPECT_TRUE(counter(3, 5, 10, 5).empty());
	EXPECT_TRUE(counter(0, 0, 10, 0).empty());
	expect_one(counter(3, 5, 10, 4), Problem::counter_reserved, 4, 5);
	expect_one(counter(3, 0, 10, 4), Problem::counter_reserved, 4, 0);
	expect_one(counter(3, 5, 10, 0), Problem::counter_reserved, 0, 5);
	expect_one(counter(3, nan, 10, 0), Problem::counter_reserved, 0, nan);
	expect_one(counter(3, infinity, 10, 1), Problem::counter_reserved, 1, infinity);
	expect_one(counter(-1, 5, 10, 5), Problem::counter_used, 0, -1);
	expect_one(counter(nan, 5, 10, 5), Problem::counter_used, 0, nan);
	EXPECT_EQ(count(counter(-1, 5, 10, 4)), 2);
}

TEST(Verify, RoundingIsRelativeToWhatWentThroughTheSum)
{
	EXPECT_TRUE(counter(0, 0.1 + 0.2, 1, 0.3).empty());
	EXPECT_TRUE(counter(0, 1e15 + 0.125, 1e16, 1e15).empty());
	EXPECT_TRUE(counter(0, 1e-7, 1000, 0).empty()) << "what is left of taking 1000 and giving it back";
	EXPECT_FALSE(counter(0, 1e-7, 1, 0).empty());
	EXPECT_FALSE(counter(0, 1.00001, 1000, 1).empty());
	EXPECT_TRUE(counter(0, 1e308, infinity, 1e308).empty());
	EXPECT_FALSE(counter(0, 1, infinity, 2).empty()) << "a limit that is not finite bounds nothing";
}

TEST(Verify, AnOpenReservationHasACounterWhileItsWindowLasts)
{
	const Instant start{60'000'000};
	const Instant end{120'000'000};
	EXPECT_TRUE(verify_uncounted({std::nullopt, start, end, 5}, end).empty());
	const Findings missing = verify_uncounted({std::nullopt, start, end, 5}, Instant{end.us - 1});
	ASSERT_FALSE(missing.empty());
	EXPECT_EQ(missing.begin()->problem, Problem::counter_missing);
	EXPECT_EQ(missing.begin()->expected, 5);
	EXPECT_FALSE(missing.begin()->found.has_value());
	EXPECT_TRUE(verify_uncounted({end, start, end, 5}, start).empty()) << "a newer window has taken its place";
	expect_one(verify_uncounted({Instant{0}, start, end, 5}, Instant{end.us * 2}), Problem::counter_behind, 60, 0);
}

ScopeFacts scope(double leased, std::int64_t count, Instant from, double sum, std::int64_t rows, Instant first)
{
	ScopeFacts facts;
	facts.stored = {leased, count, from};
	facts.leased = sum;
	facts.lease_count = rows;
	facts.first_expiry = first;
	facts.largest = 10;
	return facts;
}

TEST(Verify, AScopeIsTheSumOfItsLeases)
{
	const Instant at{1'000'000};
	EXPECT_TRUE(verify_scope(scope(3, 2, at, 3, 2, at)).empty());
	EXPECT_TRUE(verify_scope(scope(0, 0, Instant::latest(), 0, 0, Instant::latest())).empty());
	EXPECT_TRUE(verify_scope(scope(0.1 + 0.2, 2, at, 0.3, 2, at)).empty());
	EXPECT_TRUE(verify_scope(scope(3, 2, Instant{0}, 3, 2, at)).empty()) << "the bound may be earlier";
	EXPECT_TRUE(verify_scope(scope(0, 0, at, 0, 0, Instant::latest())).empty());
	expect_one(verify_scope(scope(4, 2, at, 3, 2, at)), Problem::scope_leased, 3, 4);
	expect_one(verify_scope(scope(-3, 2, at, 3, 2, at)), Problem::scope_leased, 3, -3);
	expect_one(verify_scope(scope(3, 1, at, 3, 2, at)), Problem::scope_lease_count, 2, 1);
	expect_one(verify_scope(scope(3, 2, Instant{at.us + 1}, 3, 2, at)), Problem::scope_expires_from, 1, 1.000001);
	expect_one(verify_scope(scope(3, 2, Instant::latest(), 3, 2, at)), Problem::scope_expires_from, 1, infinity);
	const Findings all = verify_scope(scope(0, 0, Instant::latest(), 3, 2, at));
	EXPECT_EQ(all.end() - all.begin(), 3);
}

TEST(Verify, EveryProblemHasAName)
{
	for (int i = 0; i <= static_cast<int>(Problem::scope_expires_from); i++) {
		EXPECT_FALSE(object_of(static_cast<Problem>(i)).empty());
		EXPECT_FALSE(text_of(static_cast<Problem>(i)).empty());
	}
}

} // namespace
} // namespace ratelimit::core
