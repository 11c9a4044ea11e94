// Verdicts and the names of their reasons, which are part of the public interface; and the instants and spans that
// every decision is made of, at the ends of their range.
#include "core/decision.hpp"
#include "core/units.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace ratelimit::core {
namespace {

constexpr std::int64_t int64_min = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();

TEST(Decision, ReasonsHaveTheirPublicNames)
{
	EXPECT_EQ(name_of(Reason::none), "");
	EXPECT_EQ(name_of(Reason::limit_is_zero), "limit_is_zero");
	EXPECT_EQ(name_of(Reason::amount_exceeds_limit), "amount_exceeds_limit");
	EXPECT_EQ(name_of(Reason::window_exhausted), "window_exhausted");
	EXPECT_EQ(name_of(Reason::concurrency_saturated), "concurrency_saturated");
}

TEST(Decision, NoObstacleIsRetryableAtOnce)
{
	for (const Verdict &verdict : {Verdict{}, Verdict::pass()}) {
		EXPECT_TRUE(verdict.passes());
		EXPECT_TRUE(verdict.retryable());
		EXPECT_EQ(verdict.reason, Reason::none);
		EXPECT_EQ(verdict.retry_after_ms, 0);
	}
}

TEST(Decision, WhereWaitingNeverHelpsThereIsNoTimeToRetry)
{
	constexpr Verdict verdict = Verdict::never(Reason::limit_is_zero);
	EXPECT_FALSE(verdict.passes());
	EXPECT_FALSE(verdict.retryable());
	EXPECT_EQ(verdict.reason, Reason::limit_is_zero);
	EXPECT_FALSE(verdict.retry_after_ms.has_value());
}

TEST(Decision, WhereWaitingHelpsItSaysHowLong)
{
	constexpr Verdict verdict = Verdict::later(Reason::window_exhausted, 1234);
	EXPECT_FALSE(verdict.passes());
	EXPECT_TRUE(verdict.retryable());
	EXPECT_EQ(verdict.reason, Reason::window_exhausted);
	EXPECT_EQ(verdict.retry_after_ms, 1234);
}

TEST(Decision, InstantsStopAtTheEndsOfTheirRange)
{
	EXPECT_EQ((Instant{int64_max - 1} + Span{1}).us, int64_max);
	EXPECT_EQ((Instant{int64_max} + Span{1}).us, int64_max);
	EXPECT_EQ((Instant{int64_min} + Span{-1}).us, int64_min);
	EXPECT_EQ((Instant{int64_min} - Span{1}).us, int64_min);
	EXPECT_EQ((Instant{int64_max} - Span{-1}).us, int64_max);
	EXPECT_EQ((Instant{int64_max} - Span{int64_min}).us, int64_max);
	EXPECT_EQ((Instant{int64_min} - Span{int64_max}).us, int64_min);
	EXPECT_EQ((Instant::earliest() - Instant::latest()).us, int64_min);
	EXPECT_EQ((Instant{0} - Instant::earliest()).us, int64_max);
	EXPECT_EQ((Instant{-1} - Instant::earliest()).us, int64_max);
	EXPECT_EQ(Instant::from_ms(int64_max), Instant::latest());
	EXPECT_EQ(Instant::from_ms(int64_min), Instant::earliest());
	EXPECT_EQ(Instant::from_ms(-1).us, -1000);
}

TEST(Decision, SpansStopAtTheEndsOfTheirRange)
{
	EXPECT_EQ(Span::from_ms(int64_max).us, int64_max);
	EXPECT_EQ(Span::from_ms(int64_min).us, int64_min);
	EXPECT_EQ(Span::from_seconds(int64_min).us, int64_min);
	EXPECT_EQ(Span::from_seconds(9'223'372'036'854).us, 9'223'372'036'854'000'000);
	EXPECT_EQ(Span::from_seconds(9'223'372'036'855).us, int64_max);
}

TEST(Decision, MillisecondsRoundTheWayTheirNameSaysUpToTheEnds)
{
	EXPECT_EQ(Span{int64_max}.ceil_ms(), 9'223'372'036'854'776);
	EXPECT_EQ(Span{int64_max}.floor_ms(), 9'223'372'036'854'775);
	EXPECT_EQ(Span{int64_min}.ceil_ms(), -9'223'372'036'854'775);
	EXPECT_EQ(Span{int64_min}.floor_ms(), -9'223'372'036'854'776);
	EXPECT_EQ(Instant::latest().floor_ms(), 9'223'372'036'854'775);
	EXPECT_EQ(Instant::earliest().floor_ms(), -9'223'372'036'854'776);
	EXPECT_EQ(Span{-1001}.floor_ms(), -2);
	EXPECT_EQ(Span{-1001}.ceil_ms(), -1);
	EXPECT_EQ(Span{1001}.floor_ms(), 1);
	EXPECT_EQ(Span{1001}.ceil_ms(), 2);
	EXPECT_EQ(Span{2000}.ceil_ms(), 2);
	EXPECT_EQ(Span{2000}.floor_ms(), 2);
}

template <typename T>
void expect_ordered(T low, T high)
{
	EXPECT_TRUE(low < high && low <= high && low != high);
	EXPECT_FALSE(low > high || low >= high || low == high);
	EXPECT_TRUE(high > low && high >= low && high != low);
	EXPECT_FALSE(high < low || high <= low || high == low);
	EXPECT_TRUE(low == low && low <= low && low >= low);
	EXPECT_FALSE(low != low || low < low || low > low);
}

TEST(Decision, InstantsAndSpansAreOrderedAsTheirMicrosecondsAre)
{
	expect_ordered(Instant{-1}, Instant{0});
	expect_ordered(Instant::earliest(), Instant::latest());
	expect_ordered(Span{-1}, Span{1});
	expect_ordered(Span{int64_min}, Span{int64_max});
}

} // namespace
} // namespace ratelimit::core
