// Adaptive buckets, example by example: every expected number is worked out by hand in the comment beside it.
// What holds for all inputs is in bucket_property_test.cpp.
#include "core/bucket.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace ratelimit::core {
namespace {

// They run between lock and unlock of a buffer.
static_assert(noexcept(acquire(nullptr, nullptr, 0, BucketDemand{}, 0)));
static_assert(noexcept(penalize(std::declval<BucketState &>(), 0, 0)));
static_assert(noexcept(configure(std::declval<BucketState &>(), BucketConfig{})));
static_assert(noexcept(is_idle(BucketState{}, 0, 0)));

constexpr std::int64_t now_ms = 1'700'000'000'000;
constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();

BucketRule rule(double requests_per_window, std::int64_t window_ms, std::string_view rule_id = "plain")
{
	return {rule_id, requests_per_window, window_ms, {}, false, {}};
}

BucketConfig config_of(const BucketRule &rule)
{
	const BucketConfiguration answer = configuration_of(rule);
	EXPECT_EQ(answer.problem, BucketRuleProblem::none);
	return answer.config;
}

BucketDemand demand(std::int32_t requested, std::int64_t successes = 0, std::optional<std::int64_t> free_slots = {})
{
	return {requested, successes, free_slots};
}

// One rule, asked once. A rate of 0 stands for the base; `elapsed_ms` is the time since the last call.
struct Before {
	double tokens;
	std::int64_t elapsed_ms;
	double refill_rps = 0;
};
struct After {
	std::int32_t granted;
	double tokens;
	std::int64_t wait_ms;
	std::int32_t burst;
	std::int64_t interval_ms;
	std::int64_t next_dispatch_in_ms;
	double effective_rps;
};
struct Example {
	const char *what;
	BucketRule rule;
	Before before;
	BucketDemand demand;
	After after;
};

const Example examples[] = {
	// 0.3 a second; margin: 1000 / (0.3 * 0.8) = 4166.7; three bursts of one: 3 * 4167 = 12501.
	{"full", rule(3, 10'000), {3, 0}, demand(5), {3, 0, 0, 1, 4'167, 12'501, 0.3}},
	// (1 - 0) / 0.3 * 1000 = 3333.3 ms until the next token.
	{"empty", rule(3, 10'000), {0, 0}, demand(1), {0, 0, 3'334, 1, 4'167, 0, 0.3}},
	// 3.333 * 0.3 = 0.9999; (1 - 0.9999) / 0.3 * 1000 = 0.33 ms.
	{"nearly one", rule(3, 10'000), {0, 3'333}, demand(1), {0, 0.9999, 1, 1, 4'167, 0, 0.3}},
	// 3.334 * 0.3 = 1.0002, and the fraction stays.
	{"just one", rule(3, 10'000), {0, 3'334}, demand(1), {1, 0.0002, 0, 1, 4'167, 4'167, 0.3}},
	// 1 - 5e-10 is one within the tolerance, 1 - 2e-9 is not: ceil(2e-9 / 0.3 * 1000) = 1.
	{"one but for noise", rule(3, 10'000), {1 - 5e-10, 0}, demand(1), {1, 0, 0, 1, 4'167, 4'167, 0.3}},
	{"no longer noise", rule(3, 10'000), {1 - 2e-9, 0}, demand(1), {0, 1 - 2e-9, 1, 1, 4'167, 0, 0.3}},
	// max(1, 0.5) tokens, 0.5 a second: 1000 / 0.4 = 2500; 1 / 0.5 s.
	{"half a request", rule(0.5, 1'000), {1, 9'000}, demand(2), {1, 0, 0, 1, 2'500, 2'500, 0.5}},
	{"half a request, empty", rule(0.5, 1'000), {0, 500}, demand(1), {0, 0.25, 1'500, 1, 2'500, 0, 0.5}},
	// 1 / 3600 s; 1000 / (0.8 / 3600) = 4.5e6.
	{"one an hour", rule(1, 3'600'000), {0, 0}, demand(1), {0, 0, 3'600'000, 1, 4'500'000, 0, 1.0 / 3'600}},
	// 1 / 86400 is below 0.0001, by which one divides instead: 1000 / 0.0001 = 1e7, in both places.
	{"one a day", rule(1, 86'400'000), {0, 0}, demand(1), {0, 0, 10'000'000, 1, 10'000'000, 0, 1.0 / 86'400}},
	// 99 * 0.8 = 79.2, 1000 / 79.2 = 12.6; at 100 the margin ends: 1000 / 100 = 10.
	{"below the bursts", rule(99, 1'000), {99, 0}, demand(2), {2, 97, 0, 1, 13, 26, 99}},
	{"at the bursts", rule(100, 1'000), {100, 0}, demand(2), {2, 98, 0, 1, 10, 20, 100}},
	// floor(250 / 100) = 2; 2 * 1000 / 250 = 8; ceil(3 / 2) = 2 bursts.
	{"bursts of two", rule(250, 1'000), {250, 0}, demand(3), {3, 247, 0, 2, 8, 16, 250}},
	// 3 * 1000 / 333 = 9.009.
	{"bursts of three", rule(333, 1'000), {333, 0}, demand(3), {3, 330, 0, 3, 10, 10, 333}},
	// 147 * 1000 / 14700 = 10, though the doubles say 10.000000000000002.
	{"noise is no millisecond", rule(14'700, 1'000), {14'700, 0}, demand(1), {1, 14'699, 0, 147, 10, 10, 14'700}},
	// A million a second: 10000 together every 10 ms; 3 ms since the last call bring 3000.
	{"a million", rule(1e6, 1'000), {0, 3}, demand(10'000), {3'000, 0, 0, 10'000, 10, 10, 1e6}},
	// 1e9 a second: bursts of 1e7 every 10 ms, of which no call gets more than 10000.
	{"a milliard", rule(1e9, 1'000), {1e9, 0}, demand(10'000), {10'000, 999'990'000, 0, 10'000, 10, 10, 1e9}},
	// Ten years are 3.2e8 s, and one capacity.
	{"ten years", rule(10, 60'000), {0, 315'576'000'000}, demand(100), {10, 0, 0, 1, 7'500, 75'000, 1.0 / 6}},
	// Slots: the smaller of 7 tokens and 2 slots; none or less than none: ask again in 10 ms.
	{"two slots", rule(7, 1'000), {7, 0}, demand(9, 0, 2), {2, 5, 0, 1, 179, 358, 7}},
	{"no slot", rule(7, 1'000), {7, 0}, demand(9, 0, 0), {0, 7, 10, 1, 179, 0, 7}},
	{"fewer than no slots", rule(7, 1'000), {0, 0}, demand(9, 0, -3), {0, 0, 10, 1, 179, 0, 7}},
	{"slots, but no token", rule(7, 1'000), {0, 0}, demand(9, 0, 4), {0, 0, 143, 1, 179, 0, 7}},
	// Ramp, base 1 and ceiling 25, before the first penalty: doubled. 20 < 60 / 2; paced by the rate of before.
	{"climbs", rule(60, 60'000, "default:"), {20, 0}, demand(1, 1), {1, 19, 0, 1, 1'250, 1'250, 2}},
	{"no higher", rule(60, 60'000, "default:"), {0, 0, 24}, demand(1, 1), {0, 0, 40, 1, 53, 0, 25}},
	{"nothing heard", rule(60, 60'000, "default:"), {20, 0}, demand(1, 0), {1, 19, 0, 1, 1'250, 1'250, 1}},
	// 29 + 1 s * 1 = 30 is half of 60, so there is no demand; the grant of one does not make it less.
	{"half full", rule(60, 60'000, "default:"), {29, 1'000}, demand(1, 1), {1, 29, 0, 1, 1'250, 1'250, 1}},
	// The wait is that of the new rate: (1 - 0) / 2 * 1000.
	{"waits less", rule(60, 60'000, "default:"), {0, 0}, demand(1, 1), {0, 0, 500, 1, 1'250, 0, 2}},
};

TEST(Bucket, AnswersAsWorkedOutByHand)
{
	for (const Example &example : examples) {
		SCOPED_TRACE(example.what);
		const BucketConfig config = config_of(example.rule);
		BucketState state = new_row(config, now_ms - example.before.elapsed_ms);
		state.tokens = example.before.tokens;
		if (example.before.refill_rps > 0)
			state.refill_rps = example.before.refill_rps;
		const std::int64_t dispatch_before_ms = state.next_dispatch_at_ms;

		const BucketGrant grant = acquire(&state, &config, 1, example.demand, now_ms);

		const After &after = example.after;
		EXPECT_EQ(grant.granted, after.granted);
		EXPECT_EQ(grant.wait_ms, after.wait_ms);
		EXPECT_EQ(grant.burst, after.burst);
		EXPECT_EQ(grant.interval_ms, after.interval_ms);
		EXPECT_EQ(grant.first_ms, now_ms);
		EXPECT_EQ(grant.server_now_ms, now_ms);
		EXPECT_EQ(grant.cool_until_ms, 0);
		EXPECT_EQ(grant.claimed_retry_at_ms, 0);
		ASSERT_TRUE(grant.effective_rps.has_value());
		EXPECT_NEAR(*grant.effective_rps, after.effective_rps, after.effective_rps * 1e-12);
		EXPECT_EQ(state.refill_rps, *grant.effective_rps);
		EXPECT_NEAR(state.tokens, after.tokens, 1e-12);
		EXPECT_GE(state.tokens, 0);
		EXPECT_EQ(state.refilled_at_ms, now_ms);
		EXPECT_EQ(
			state.next_dispatch_at_ms, after.granted > 0 ? now_ms + after.next_dispatch_in_ms : dispatch_before_ms);
	}
}

TEST(Bucket, SchedulesBurstByBurstAndGoesOnWhereItStopped)
{
	const BucketConfig config = config_of(rule(1'000, 1'000));
	BucketState state = new_row(config, now_ms);

	// floor(1000 / 100) = 10 together, every 10 * 1000 / 1000 = 10 ms.
	const BucketGrant first = acquire(&state, &config, 1, demand(25), now_ms);
	EXPECT_EQ(first.scheduled_at_ms(0), now_ms);
	EXPECT_EQ(first.scheduled_at_ms(9), now_ms);
	EXPECT_EQ(first.scheduled_at_ms(10), now_ms + 10);
	EXPECT_EQ(first.scheduled_at_ms(24), now_ms + 20);

	// ceil(25 / 10) = 3 bursts were used up; 7 ms later the next one still begins at 30.
	const BucketGrant second = acquire(&state, &config, 1, demand(1), now_ms + 7);
	EXPECT_EQ(second.scheduled_at_ms(0), now_ms + 30);

	// Once that time is over, now comes first.
	const BucketGrant third = acquire(&state, &config, 1, demand(1), now_ms + 45);
	EXPECT_EQ(third.scheduled_at_ms(0), now_ms + 45);
}

TEST(Bucket, SeveralRulesAllAgreeAndAllPay)
{
	const BucketConfig configs[] = {
		config_of(rule(100, 1'000)), config_of(rule(5, 10'000)), config_of(rule(500, 1'000))};
	BucketState states[] = {new_row(configs[0], now_ms), new_row(configs[1], now_ms), new_row(configs[2], now_ms)};
	states[1].next_dispatch_at_ms = now_ms + 40;

	// 5 is the fewest; the slowest, 0.5 a second, paces: 1000 / 0.4 = 2500; the latest dispatch is at 40.
	const BucketGrant grant = acquire(states, configs, 3, demand(8), now_ms);
	EXPECT_EQ(grant.granted, 5);
	EXPECT_EQ(grant.burst, 1);
	EXPECT_EQ(grant.scheduled_at_ms(4), now_ms + 40 + 4 * 2'500);
	EXPECT_EQ(grant.effective_rps, 0.5);
	EXPECT_EQ(states[0].tokens, 95);
	EXPECT_EQ(states[1].tokens, 0);
	EXPECT_EQ(states[2].tokens, 495);
	for (const BucketState &state : states)
		EXPECT_EQ(state.next_dispatch_at_ms, now_ms + 40 + 5 * 2'500);

	// All are refilled up to the newest of them, though the clock is 1 s behind: 1 s * 0.5. No token before the clock
	// has caught up: 1000 + (1 - 0.5) / 0.5 * 1000.
	states[2].refilled_at_ms = now_ms + 1'000;
	const BucketGrant denied = acquire(states, configs, 3, demand(1), now_ms);
	EXPECT_EQ(denied.granted, 0);
	EXPECT_EQ(denied.wait_ms, 2'000);
	EXPECT_EQ(denied.server_now_ms, now_ms);
	EXPECT_EQ(states[1].tokens, 0.5);
	EXPECT_EQ(states[0].refilled_at_ms, now_ms + 1'000);
}

TEST(Bucket, WithoutRulesThereIsNothingToGrantAndNothingToWaitFor)
{
	const BucketGrant grant = acquire(nullptr, nullptr, 0, demand(10), now_ms);
	EXPECT_EQ(grant.granted, 0);
	EXPECT_EQ(grant.wait_ms, 0);
	EXPECT_EQ(grant.server_now_ms, now_ms);
	EXPECT_FALSE(grant.effective_rps.has_value());
	EXPECT_EQ(grant.cool_until_ms, 0);
	EXPECT_EQ(grant.claimed_retry_at_ms, 0);
}

TEST(Bucket, APenaltyHalvesOnceEmptiesAndCools)
{
	const BucketConfig config = config_of(rule(600, 60'000, "default:"));
	BucketState state = new_row(config, now_ms);
	ASSERT_TRUE(penalize(state, 5'000, now_ms + 100));
	EXPECT_EQ(state.refill_rps, 5); // 10 / 2
	EXPECT_EQ(state.tokens, 0);
	EXPECT_EQ(state.refilled_at_ms, now_ms);
	EXPECT_EQ(state.cool_until_ms, now_ms + 5'100);
	EXPECT_EQ(state.next_dispatch_at_ms, now_ms + 5'100);
	EXPECT_EQ(state.claimed_retry_at_ms, now_ms + 5'100);
	EXPECT_EQ(state.backpressure_seen, 1);

	// Still cooling: no second cut; a shorter one does not shorten; what it claims is told all the same.
	ASSERT_TRUE(penalize(state, 1'000, now_ms + 200));
	EXPECT_EQ(state.refill_rps, 5);
	EXPECT_EQ(state.cool_until_ms, now_ms + 5'100);
	EXPECT_EQ(state.claimed_retry_at_ms, now_ms + 1'200);

	// Cooling until the very millisecond; what dripped since the acquire at 0 counts: 5.099 * 5.
	const BucketGrant cold = acquire(&state, &config, 1, demand(1), now_ms + 5'099);
	EXPECT_EQ(cold.granted, 0);
	EXPECT_EQ(cold.wait_ms, 1);
	EXPECT_EQ(cold.cool_until_ms, now_ms + 5'100);
	EXPECT_EQ(cold.claimed_retry_at_ms, now_ms + 1'200);
	EXPECT_NEAR(state.tokens, 25.495, 1e-9);

	// Over: 25.495 + 0.001 * 5 = 25.5; 1000 / (5 * 0.8) = 250.
	const BucketGrant warm = acquire(&state, &config, 1, demand(10'000), now_ms + 5'100);
	EXPECT_EQ(warm.granted, 25);
	EXPECT_EQ(warm.first_ms, now_ms + 5'100);
	EXPECT_EQ(warm.interval_ms, 250);

	// At the end of the cooldown the next cut is due, down to 10 / 8 and no further; 5/2, then 5/4, then it stays.
	for (const double expected : {2.5, 1.25, 1.25}) {
		ASSERT_TRUE(penalize(state, 1, state.cool_until_ms));
		EXPECT_EQ(state.refill_rps, expected);
	}
}

TEST(Bucket, APenaltyWithoutCooldownSaysNothing)
{
	const BucketConfig config = config_of(rule(10, 1'000));
	for (const std::int64_t cooldown_ms :
		{std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
		BucketState state = new_row(config, now_ms);
		EXPECT_FALSE(penalize(state, cooldown_ms, now_ms));
		EXPECT_EQ(state.tokens, 10);
		EXPECT_EQ(state.backpressure_seen, 0);
	}
}

TEST(Bucket, AHugeCooldownHoldsFor45MinutesAndIsOnlyTold)
{
	const BucketConfig config = config_of(rule(10, 1'000));
	BucketState state = new_row(config, now_ms);
	ASSERT_TRUE(penalize(state, int64_max, now_ms));
	EXPECT_EQ(state.cool_until_ms, now_ms + 45 * 60 * 1'000);
	EXPECT_EQ(state.next_dispatch_at_ms, now_ms + 45 * 60 * 1'000);
	EXPECT_EQ(state.claimed_retry_at_ms, int64_max);
	const BucketGrant grant = acquire(&state, &config, 1, demand(1), now_ms + 1);
	EXPECT_EQ(grant.wait_ms, 45 * 60 * 1'000 - 1);
	EXPECT_EQ(grant.claimed_retry_at_ms, int64_max);
}

TEST(Bucket, AfterAPenaltyTheRateClimbsByATenthOfTheBaseEachSecond)
{
	// Base 20, ceiling 500: steps of max(1, 20 / 10) = 2. Base 5: steps of max(1, 0.5) = 1.
	for (const auto &[base, step] : {std::pair{20.0, 2.0}, std::pair{5.0, 1.0}}) {
		const BucketConfig config = config_of(rule(base * 60, 60'000, "default:"));
		BucketState state = new_row(config, now_ms);
		ASSERT_TRUE(penalize(state, 1'000, now_ms)); // base / 2, cooling until 1000

		const auto rate_after_ms = [&](std::int64_t at_ms) {
			return acquire(&state, &config, 1, demand(1, 1), now_ms + at_ms).effective_rps;
		};
		EXPECT_EQ(rate_after_ms(999), base / 2); // its own cooldown: no step
		EXPECT_EQ(rate_after_ms(1'000), base / 2 + step);
		EXPECT_EQ(rate_after_ms(1'999), base / 2 + step); // 999 ms after the last step
		EXPECT_EQ(rate_after_ms(2'000), base / 2 + 2 * step);
	}
}

TEST(Bucket, ARuleThatDoesNotCoolClimbsWhileAnotherCools)
{
	const BucketConfig configs[] = {config_of(rule(60, 60'000, "default:a")), config_of(rule(60, 60'000, "default:b"))};
	BucketState states[] = {new_row(configs[0], now_ms), new_row(configs[1], now_ms)};
	ASSERT_TRUE(penalize(states[0], 5'000, now_ms));
	states[1].tokens = 0;
	const BucketGrant grant = acquire(states, configs, 2, demand(1, 1), now_ms + 1'000);
	EXPECT_EQ(grant.granted, 0);
	EXPECT_EQ(grant.wait_ms, 4'000);
	EXPECT_EQ(grant.cool_until_ms, now_ms + 5'000);
	EXPECT_EQ(grant.claimed_retry_at_ms, now_ms + 5'000);
	EXPECT_EQ(states[0].refill_rps, 0.5); // max(min, 1 / 2)
	EXPECT_EQ(states[1].refill_rps, 2);
	EXPECT_EQ(grant.effective_rps, 0.5);
}

TEST(Bucket, SumsOfInstantsSaturate)
{
	const BucketConfig config = config_of(rule(1, 3'600'000));
	BucketState state = new_row(config, int64_max - 1);
	const BucketGrant grant = acquire(&state, &config, 1, demand(1), int64_max - 1);
	EXPECT_EQ(grant.granted, 1);
	EXPECT_EQ(state.next_dispatch_at_ms, int64_max);
	ASSERT_TRUE(penalize(state, 1'000, int64_max - 1));
	EXPECT_EQ(state.cool_until_ms, int64_max);
	const BucketGrant denied = acquire(&state, &config, 1, demand(1), std::numeric_limits<std::int64_t>::min());
	EXPECT_EQ(denied.granted, 0);
	EXPECT_EQ(denied.wait_ms, int64_max);
}

TEST(BucketDeath, TheCallersOwnArgumentsAreChecked)
{
	const BucketConfig config = config_of(rule(1, 1'000));
	BucketState state = new_row(config, now_ms);
	EXPECT_DEATH((void)acquire(&state, &config, 1, demand(0), now_ms), "check failed");
	EXPECT_DEATH((void)acquire(&state, &config, 1, demand(10'001), now_ms), "check failed");
	EXPECT_DEATH((void)acquire(&state, &config, 17, demand(1), now_ms), "check failed");
	EXPECT_DEATH((void)acquire(&state, &config, 1, demand(1, -1), now_ms), "check failed");
}

} // namespace
} // namespace ratelimit::core
