// What holds for every life of an adaptive bucket, over random ones. A failure prints the seed that repeats it.
#include "bucket_history.hpp"
#include "core/bucket.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace ratelimit::core {
namespace {

constexpr Weather fair{false, false, false};
constexpr Weather refusals_only{true, false, false};
constexpr Weather foul{true, true, true};

TEST(BucketProperty, TokensAndRatesStayInBoundsAndStoredTimesNeverGoBack)
{
	for (std::uint64_t seed = 1; seed <= 400; ++seed) {
		SCOPED_TRACE(testing::Message() << "seed " << seed);
		History history(seed, foul);
		for (int step = 0; step < 200; ++step) {
			const std::vector<BucketState> before = history.states;
			history.pass_time();
			history.maybe_change_configuration();
			if (history.refusal_is_due()) {
				history.penalize(history.any_cooldown());
			} else {
				const BucketDemand demand = history.any_demand();
				const BucketGrant grant = history.acquire(demand);
				ASSERT_GE(grant.granted, 0);
				ASSERT_LE(grant.granted, demand.requested);
				ASSERT_EQ(grant.wait_ms == 0, grant.granted > 0);
				ASSERT_GE(grant.wait_ms, 0);
			}
			for (std::size_t i = 0; i < before.size(); ++i) {
				const BucketState &now = history.states[i];
				ASSERT_TRUE(is_in_bounds(now));
				ASSERT_GE(now.refilled_at_ms, before[i].refilled_at_ms);
				ASSERT_GE(now.next_dispatch_at_ms, before[i].next_dispatch_at_ms);
				ASSERT_GE(now.cool_until_ms, before[i].cool_until_ms);
				ASSERT_GE(now.last_ramp_at_ms, before[i].last_ramp_at_ms);
				ASSERT_GE(now.penalized_at_ms, before[i].penalized_at_ms);
				ASSERT_GE(now.ceiling_configured, before[i].ceiling_configured);
				ASSERT_GE(now.backpressure_seen, before[i].backpressure_seen);
			}
		}
	}
}

// While nothing changes the configuration, the bounds cannot cross, and the rate is plainly between them.
TEST(BucketProperty, TheRateIsBetweenMinimumAndMaximum)
{
	for (std::uint64_t seed = 1; seed <= 100; ++seed) {
		SCOPED_TRACE(testing::Message() << "seed " << seed);
		History history(seed, {true, true, false});
		for (int step = 0; step < 200; ++step) {
			history.pass_time();
			if (history.refusal_is_due())
				history.penalize(history.any_cooldown());
			(void)history.acquire(history.any_demand());
			for (std::size_t i = 0; i < history.states.size(); ++i) {
				ASSERT_GE(history.states[i].refill_rps, history.configs[i].min_rps);
				ASSERT_LE(history.states[i].refill_rps, history.configs[i].max_rps);
			}
		}
	}
}

TEST(BucketProperty, ScheduledTimesNeverDecreaseAndKeepTheirSpacing)
{
	for (std::uint64_t seed = 1; seed <= 200; ++seed) {
		SCOPED_TRACE(testing::Message() << "seed " << seed);
		History history(seed, foul);
		std::int64_t earliest_ms = 0; // of the next call's first permit
		for (int step = 0; step < 100; ++step) {
			history.pass_time();
			history.maybe_change_configuration();
			if (history.refusal_is_due()) {
				history.penalize(history.any_cooldown());
				earliest_ms = std::max(earliest_ms, history.states[0].cool_until_ms);
			}
			const BucketGrant grant = history.acquire(history.any_demand());
			if (grant.granted == 0)
				continue;
			ASSERT_GE(grant.scheduled_at_ms(0), earliest_ms);
			ASSERT_GE(grant.scheduled_at_ms(0), history.clock_ms);
			ASSERT_GE(grant.interval_ms, 1);
			std::int32_t together = 1;
			for (std::int32_t i = 1; i < grant.granted; ++i) {
				const std::int64_t gap_ms = grant.scheduled_at_ms(i) - grant.scheduled_at_ms(i - 1);
				together = gap_ms == 0 ? together + 1 : 1;
				ASSERT_TRUE(gap_ms == 0 || gap_ms == grant.interval_ms) << gap_ms;
				ASSERT_LE(together, grant.burst);
			}
			earliest_ms = grant.scheduled_at_ms(grant.granted - 1) + grant.interval_ms;
		}
	}
}

// Over any stretch of any life, and for each rule by itself, though calls ask for any of the rules.
TEST(BucketProperty, PermitsNeverExceedOneCapacityAndWhatDripped)
{
	for (std::uint64_t seed = 1; seed <= 400; ++seed) {
		SCOPED_TRACE(testing::Message() << "seed " << seed);
		History history(seed, refusals_only);
		const std::size_t rules = history.states.size();
		std::vector<long double> permits(rules), dripped(rules), least_surplus(rules);
		for (int step = 0; step < 300; ++step) {
			const std::int64_t before_ms = history.clock_ms;
			history.pass_time();
			for (std::size_t i = 0; i < rules; ++i)
				dripped[i] +=
					static_cast<long double>(history.clock_ms - before_ms) / 1000 * history.states[i].refill_rps;
			if (history.refusal_is_due()) {
				history.penalize(history.any_cooldown());
				continue;
			}
			const auto from = static_cast<std::size_t>(history.dice.between(0, static_cast<std::int64_t>(rules) - 1));
			const auto asked =
				static_cast<std::size_t>(history.dice.between(1, static_cast<std::int64_t>(rules - from)));
			const BucketGrant grant =
				acquire(&history.states[from], &history.configs[from], asked, history.any_demand(), history.clock_ms);
			for (std::size_t i = from; i < from + asked; ++i) {
				permits[i] += grant.granted;
				// The tolerance of the grant, and the rounding of a sum of doubles.
				const long double slack = 2e-9L * permits[i] + 1e-12L * (history.states[i].capacity + dripped[i]);
				const long double surplus = permits[i] - dripped[i];
				ASSERT_LE(surplus - least_surplus[i], history.states[i].capacity + slack) << "rule " << i;
				least_surplus[i] = std::min(least_surplus[i], surplus);
			}
		}
	}
}

TEST(BucketProperty, AStreamOfPenaltiesInOneCooldownCutsOnce)
{
	for (std::uint64_t seed = 1; seed <= 300; ++seed) {
		SCOPED_TRACE(testing::Message() << "seed " << seed);
		History history(seed, fair);
		for (BucketState &state : history.states)
			state.refill_rps = history.dice.scaled(state.min_rps, state.max_rps);
		for (int round = 0; round < 5; ++round) {
			const std::vector<BucketState> before = history.states;
			history.penalize(history.dice.between(1'000, 600'000));
			for (int refusal = 0; refusal < 20; ++refusal) {
				const std::int64_t left_ms = history.states[0].cool_until_ms - history.clock_ms;
				history.clock_ms += history.dice.between(0, std::max<std::int64_t>(left_ms / 20 - 1, 0));
				history.penalize(history.any_cooldown());
				ASSERT_EQ(history.acquire({10'000, 1, {}}).granted, 0);
			}
			for (std::size_t i = 0; i < before.size(); ++i)
				ASSERT_EQ(history.states[i].refill_rps, std::max(before[i].min_rps, before[i].refill_rps / 2));
			history.clock_ms = history.states[0].cool_until_ms; // over: the next one cuts again
		}
	}
}

// Asks for all there is, ten times a second, and returns the rate at the end.
double rate_after_demand(BucketState &state, const BucketConfig &config, std::int64_t &clock_ms, int seconds,
	std::int64_t successes, std::int32_t requested = limits::bucket_requested_max)
{
	for (int tick = 0; tick < seconds * 10; ++tick) {
		clock_ms += 100;
		const double before = state.refill_rps;
		(void)acquire(&state, &config, 1, {requested, successes, {}}, clock_ms);
		EXPECT_GE(state.refill_rps, before);
	}
	return state.refill_rps;
}

TEST(BucketProperty, RecoveryClimbsToTheMaximumUnderDemandWithSuccessesAndNeverWithout)
{
	for (std::uint64_t seed = 1; seed <= 100; ++seed) {
		SCOPED_TRACE(testing::Message() << "seed " << seed);
		Dice dice(seed);
		BucketRule rule{"plain", dice.scaled(30, 6'000), 60'000, {}, true, {}};
		rule.adaptive_max_rps = rule.requests_per_window / 60 * dice.scaled(1, 25);
		const BucketConfig config = configuration_of(rule).config;
		std::int64_t clock_ms = 1'700'000'000'000;
		BucketState state = new_row(config, clock_ms);
		ASSERT_TRUE(penalize(state, 1'000, clock_ms));
		clock_ms += 1'000;
		for (int refusal = 0; refusal < 8; ++refusal)
			ASSERT_TRUE(penalize(state, 1, clock_ms++));
		ASSERT_EQ(state.refill_rps, config.min_rps);

		// Demand without successes, and (in a full bucket) successes without demand, teach nothing.
		ASSERT_EQ(rate_after_demand(state, config, clock_ms, 60, 0), config.min_rps);
		state.tokens = config.capacity;
		const int seconds = static_cast<int>(config.capacity / 2 / 10 - 1); // until it would be half empty
		ASSERT_EQ(rate_after_demand(state, config, clock_ms, std::max(seconds, 0), 5, 1), config.min_rps);

		// One step a second once the bucket is empty, and not one second less than that.
		state.tokens = 0;
		const double step = std::max(1.0, config.base_rps / 10);
		const int steps = static_cast<int>(std::ceil((config.max_rps - config.min_rps) / step * (1 - 1e-9)));
		state.last_ramp_at_ms = clock_ms;
		if (steps > 1) {
			ASSERT_LT(rate_after_demand(state, config, clock_ms, steps - 1, 1), config.max_rps);
		}
		ASSERT_EQ(rate_after_demand(state, config, clock_ms, 1, 1), config.max_rps);
		ASSERT_EQ(rate_after_demand(state, config, clock_ms, 10, 1), config.max_rps);
	}
}

TEST(BucketProperty, BeforeTheFirstPenaltyTheRateDoublesEverySecond)
{
	const BucketConfig config = configuration_of({"default:", 600, 60'000, {}, false, {}}).config;
	std::int64_t clock_ms = 1'700'000'000'000;
	BucketState state = new_row(config, clock_ms);
	state.tokens = 0;
	for (const double expected : {20, 40, 80, 160, 250, 250}) { // 10 a second, at most 25 times that
		ASSERT_TRUE(std::isfinite(rate_after_demand(state, config, clock_ms, 1, 1)));
		ASSERT_EQ(state.refill_rps, expected);
	}
}

// Three per ten seconds: three at once, then one each 3,333.3 ms, for 100 s: the last one at the last millisecond.
TEST(BucketProperty, AskingEveryMillisecondLosesNoFraction)
{
	const BucketConfig config = configuration_of({"plain", 3, 10'000, {}, false, {}}).config;
	for (const std::int32_t requested : {1, 10}) {
		const std::int64_t start_ms = 1'700'000'000'000;
		BucketState state = new_row(config, start_ms);
		std::int64_t granted = 0;
		for (std::int64_t ms = 0; ms <= 100'000; ++ms) {
			granted += acquire(&state, &config, 1, {requested, 0, {}}, start_ms + ms).granted;
			ASSERT_EQ(granted, std::min<std::int64_t>(3, requested * (ms + 1)) + ms * 3 / 10'000) << ms;
		}
		ASSERT_EQ(granted, 3 + 30);
	}
}

TEST(BucketProperty, TenYearsOfIdlenessGiveOneCapacity)
{
	for (std::uint64_t seed = 1; seed <= 100; ++seed) {
		SCOPED_TRACE(testing::Message() << "seed " << seed);
		Dice dice(seed);
		BucketRule rule{"default:", dice.scaled(1, 5'000), dice.between(1, 60'000), {}, false, {}};
		const BucketConfig config = configuration_of(rule).config;
		std::int64_t clock_ms = 1'700'000'000'000;
		BucketState state = new_row(config, clock_ms);
		state.tokens = 0;
		clock_ms += 315'576'000'000;
		ASSERT_EQ(acquire(&state, &config, 1, {10'000, 0, {}}, clock_ms).granted, std::floor(config.capacity));
		ASSERT_EQ(acquire(&state, &config, 1, {10'000, 0, {}}, clock_ms).granted, 0);
	}
}

TEST(BucketProperty, AClockSetBackTwoDaysGivesNothingAndBreaksNothing)
{
	constexpr std::int64_t two_days_ms = 172'800'000;
	for (std::uint64_t seed = 1; seed <= 100; ++seed) {
		SCOPED_TRACE(testing::Message() << "seed " << seed);
		History history(seed, fair);
		const std::int64_t noon_ms = history.clock_ms;
		for (BucketState &state : history.states)
			state.tokens = 0;
		history.clock_ms -= two_days_ms;
		while (history.clock_ms < noon_ms) {
			const BucketGrant grant = history.acquire({1, 0, {}});
			ASSERT_EQ(grant.granted, 0);
			ASSERT_GT(grant.wait_ms, noon_ms - history.clock_ms);
			ASSERT_EQ(history.states[0].refilled_at_ms, noon_ms);
			ASSERT_EQ(history.states[0].tokens, 0);
			history.clock_ms += history.dice.between(1, two_days_ms / 10);
		}
		// From noon on as if nothing had been.
		History untouched(seed, fair);
		untouched.clock_ms = history.clock_ms;
		for (BucketState &state : untouched.states)
			state.tokens = 0;
		ASSERT_EQ(history.acquire({5, 0, {}}).granted, untouched.acquire({5, 0, {}}).granted);
		ASSERT_EQ(history.states[0].tokens, untouched.states[0].tokens);
	}
}

TEST(BucketProperty, OneAnHourAndAMillionASecondHoldWithinAThousandth)
{
	struct {
		double requests;
		std::int64_t window_ms, poll_ms, polls;
	} const rates[] = {
		{1, 3'600'000, 10'000, 360'000},    // 1,000 hours
		{1, 3'600'000, 20, 540'000},        // 3 hours
		{1'000'000, 1'000, 1, 100'000},     // 100 s
		{1'000'000, 3'600'000, 1, 100'000}, // 278 a second, for 100 s
	};
	for (const auto &rate : rates) {
		const BucketConfig config = configuration_of({"plain", rate.requests, rate.window_ms, {}, false, {}}).config;
		std::int64_t clock_ms = 1'700'000'000'000;
		BucketState state = new_row(config, clock_ms);
		state.tokens = 0;
		std::int64_t granted = 0;
		for (std::int64_t poll = 0; poll < rate.polls; ++poll) {
			clock_ms += rate.poll_ms;
			granted += acquire(&state, &config, 1, {10'000, 0, {}}, clock_ms).granted;
		}
		const double dripped =
			rate.requests / static_cast<double>(rate.window_ms) * static_cast<double>(rate.polls * rate.poll_ms);
		EXPECT_LE(std::abs(static_cast<double>(granted) - std::floor(dripped * (1 + 1e-9))), dripped * 1e-3);
	}
}

// Nobody waits in vain, and nobody for long: after wait_ms there is a permit, a millisecond earlier there was none.
TEST(BucketProperty, TheWaitIsHonest)
{
	int waits = 0;
	for (std::uint64_t seed = 1; seed <= 400; ++seed) {
		SCOPED_TRACE(testing::Message() << "seed " << seed);
		History history(seed, {false, true, false});
		if (std::any_of(history.configs.begin(), history.configs.end(),
				[](const BucketConfig &config) { return config.base_rps < 0.0001; }))
			continue; // there the contract lets the caller ask sooner
		for (int step = 0; step < 60; ++step) {
			history.pass_time();
			const BucketGrant grant = history.acquire({10'000, history.dice.between(0, 1), {}});
			if (grant.granted > 0)
				continue;
			++waits;
			const std::vector<BucketState> states = history.states;
			history.clock_ms += grant.wait_ms - 1;
			double fewest = std::numeric_limits<double>::infinity();
			for (const BucketState &state : history.states)
				fewest = std::min(fewest, tokens_at(state, history.clock_ms));
			ASSERT_LT(fewest, 1 + 1e-12);
			history.states = states;
			history.clock_ms += 1;
			ASSERT_EQ(history.acquire({1, 0, {}}).granted, 1) << "after " << grant.wait_ms << " ms";
		}
	}
	EXPECT_GT(waits, 1'000);
}

} // namespace
} // namespace ratelimit::core
