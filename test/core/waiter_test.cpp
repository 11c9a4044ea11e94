// A sleeping waiter: the table of cases, and simulated sleeps that keep every promise at once.
#include "core/waiter.hpp"

#include <gtest/gtest.h>

#include <random>

namespace ratelimit::core {
namespace {

constexpr Instant at(std::int64_t ms) { return Instant::from_ms(ms); }
constexpr Span ms(std::int64_t count) { return Span::from_ms(count); }

TEST(Waiter, LooksEveryFiveSecondsByItself)
{
	const Waiter waiter{std::nullopt, at(15'000), ms(15'000)};
	EXPECT_EQ(sleep_at_most(waiter, at(0)), ms(5'000));
	EXPECT_EQ(sleep_at_most(waiter, at(4'000)), ms(5'000));
}

TEST(Waiter, WakesForItsDeadline)
{
	const Waiter waiter{at(3'000), at(15'000), ms(15'000)};
	EXPECT_EQ(sleep_at_most(waiter, at(0)), ms(3'000));
	EXPECT_EQ(sleep_at_most(waiter, at(2'900)), ms(100));
	EXPECT_EQ(sleep_at_most(waiter, at(2'999)), waiter_sleep_min);
	EXPECT_EQ(sleep_at_most(waiter, at(9'000)), waiter_sleep_min);
}

TEST(Waiter, RenewsBeforeTheLastThird)
{
	const Waiter waiter{std::nullopt, at(15'000), ms(15'000)};
	EXPECT_FALSE(renewal_is_due(waiter, at(0)));
	EXPECT_FALSE(renewal_is_due(waiter, at(5'000)));
	EXPECT_TRUE(renewal_is_due(waiter, at(5'001)));
	EXPECT_TRUE(renewal_is_due(waiter, at(10'000)));
	EXPECT_TRUE(renewal_is_due(waiter, at(20'000)));
	// A lease that is shorter than the time between two looks.
	const Waiter hasty{std::nullopt, at(1'500), ms(1'500)};
	EXPECT_TRUE(renewal_is_due(hasty, at(0)));
	EXPECT_EQ(sleep_at_most(hasty, at(0)), ms(1'000));
}

TEST(Waiter, ExtremesDoNotOverflow)
{
	const Waiter never{Instant::latest(), Instant::latest(), ms(15'000)};
	EXPECT_EQ(sleep_at_most(never, Instant::earliest()), waiter_poll);
	EXPECT_FALSE(renewal_is_due(never, at(0)));
	const Waiter over{Instant::earliest(), Instant::earliest(), ms(15'000)};
	EXPECT_EQ(sleep_at_most(over, Instant::latest()), waiter_sleep_min);
	EXPECT_TRUE(renewal_is_due(over, at(0)));
}

// Sleeps as told and renews as told: never late for the deadline, never without a lease, and rarely awake.
TEST(Waiter, SimulatedSleeps)
{
	std::mt19937_64 random{7};
	for (int round = 0; round < 10'000; round++) {
		Waiter waiter;
		waiter.lease_ttl = Span::from_seconds(1 + static_cast<std::int64_t>(random() % 60));
		Instant now = at(static_cast<std::int64_t>(random() % 1'000'000));
		waiter.lease_expires_at = now + waiter.lease_ttl;
		waiter.deadline = now + ms(static_cast<std::int64_t>(random() % 120'000));
		int wakes = 0;
		for (const Instant begin = now; now < *waiter.deadline; wakes++) {
			if (renewal_is_due(waiter, now))
				waiter.lease_expires_at = now + waiter.lease_ttl;
			now = now + sleep_at_most(waiter, now);
			ASSERT_LT(now, waiter.lease_expires_at);
			ASSERT_LE(now - *waiter.deadline, waiter_sleep_min);
			const std::int64_t shortest = std::min<std::int64_t>(5'000, waiter.lease_ttl.floor_ms() * 2 / 3);
			ASSERT_LE(wakes, (now - begin).floor_ms() / (shortest / 2) + 1);
		}
	}
}

} // namespace
} // namespace ratelimit::core
