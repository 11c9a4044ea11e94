// Random lives of a bucket, each step held against the plain model.
#include "bucket_history.hpp"
#include "bucket_model.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace ratelimit::core {
namespace {

testing::AssertionResult is_near(double actual, long double expected, long double scale)
{
	if (std::abs(actual - expected) <= 1e-12L * std::max(scale, std::abs(expected)))
		return testing::AssertionSuccess();
	return testing::AssertionFailure() << actual << ", but the model says " << static_cast<double>(expected);
}

model::Row row_of(const BucketState &state)
{
	return {state.capacity, state.base_rps, state.min_rps, state.max_rps, state.tokens, state.refill_rps,
		state.refilled_at_ms, state.next_dispatch_at_ms, state.cool_until_ms, state.claimed_retry_at_ms,
		state.last_ramp_at_ms, state.ceiling_configured != 0, state.backpressure_seen != 0};
}

model::Bucket bucket_of(const std::vector<BucketState> &states)
{
	model::Bucket bucket;
	for (const BucketState &state : states)
		bucket.rows.push_back(row_of(state));
	return bucket;
}

std::vector<model::Config> configs_of(const std::vector<BucketConfig> &configs)
{
	std::vector<model::Config> copies;
	for (const BucketConfig &config : configs)
		copies.push_back({config.capacity, config.base_rps, config.min_rps, config.max_rps, config.configures_ceiling});
	return copies;
}

void expect_same_rows(const std::vector<BucketState> &states, const model::Bucket &bucket)
{
	for (std::size_t i = 0; i < states.size(); ++i) {
		const BucketState &state = states[i];
		const model::Row &row = bucket.rows[i];
		EXPECT_TRUE(is_near(state.capacity, row.capacity, 0));
		EXPECT_TRUE(is_near(state.base_rps, row.base, 0));
		EXPECT_TRUE(is_near(state.min_rps, row.min, 0));
		EXPECT_TRUE(is_near(state.max_rps, row.max, 0));
		EXPECT_TRUE(is_near(state.tokens, row.tokens, row.capacity));
		EXPECT_TRUE(is_near(state.refill_rps, row.refill, 0));
		EXPECT_EQ(state.refilled_at_ms, model::saturate(row.refilled_at));
		EXPECT_EQ(state.next_dispatch_at_ms, model::saturate(row.next_dispatch));
		EXPECT_EQ(state.cool_until_ms, model::saturate(row.cool_until));
		EXPECT_EQ(state.claimed_retry_at_ms, model::saturate(row.claimed_retry_at));
		EXPECT_EQ(state.last_ramp_at_ms, model::saturate(row.last_ramp));
		EXPECT_EQ(state.ceiling_configured != 0, row.ceiling_ever_configured);
		EXPECT_EQ(state.backpressure_seen != 0, row.backpressure_seen);
	}
}

void expect_same_answer(const BucketGrant &grant, const model::Answer &answer)
{
	EXPECT_EQ(grant.granted, answer.granted);
	EXPECT_EQ(grant.wait_ms, answer.wait_ms);
	EXPECT_TRUE(is_near(grant.effective_rps.value_or(-1), answer.effective_rps, 0));
	EXPECT_EQ(grant.cool_until_ms, answer.cool_until_ms);
	EXPECT_EQ(grant.claimed_retry_at_ms, answer.claimed_retry_at_ms);
	for (std::size_t i = 0; i < answer.scheduled_at_ms.size(); ++i) {
		if (grant.scheduled_at_ms(static_cast<std::int32_t>(i)) != answer.scheduled_at_ms[i])
			FAIL() << "permit " << i << " is scheduled at "
				   << grant.scheduled_at_ms(static_cast<std::int32_t>(i)) - answer.scheduled_at_ms[i]
				   << " ms from the model's";
	}
}

// The model starts each step from the core's own rows, so that rounding does not add up between the two. Steps on an
// edge, where long double and double may rightly differ by one, are left out; they must stay the exception.
TEST(BucketAudit, TheModelAgreesWithEveryStep)
{
	int steps = 0;
	int on_edge = 0;
	for (std::uint64_t seed = 1; seed <= 150; ++seed) {
		SCOPED_TRACE(testing::Message() << "seed " << seed);
		History history(seed, {true, true, true});
		for (int step = 0; step < 200; ++step) {
			history.pass_time();
			history.maybe_change_configuration();
			model::Bucket bucket = bucket_of(history.states);
			++steps;
			if (history.refusal_is_due()) {
				const std::int64_t cooldown_ms = history.any_cooldown();
				history.penalize(cooldown_ms);
				bucket.penalize(cooldown_ms, history.clock_ms);
				expect_same_rows(history.states, bucket);
			} else {
				const BucketDemand demand = history.any_demand();
				const model::Answer answer = bucket.acquire(configs_of(history.configs), demand.requested,
					demand.observed_successes, demand.free_slots, history.clock_ms);
				const BucketGrant grant = history.acquire(demand);
				on_edge += answer.on_edge ? 1 : 0;
				if (answer.on_edge)
					continue;
				expect_same_answer(grant, answer);
				expect_same_rows(history.states, bucket);
			}
			ASSERT_FALSE(HasFailure()) << "step " << step;
		}
	}
	EXPECT_LT(on_edge, steps / 100);
}

TEST(BucketAudit, TheModelDerivesTheSameConfiguration)
{
	Dice dice(20260417);
	for (int round = 0; round < 20'000; ++round) {
		BucketRule rule{dice.one_in(2) ? "default:" : "plain", dice.scaled(1e-6, 1e12), dice.between(1, 1'000'000'000),
			{}, dice.one_in(2), {}};
		if (rule.adaptive_max_rps_given && dice.one_in(2))
			rule.adaptive_max_rps = dice.scaled(1e-6, 1e12);
		const BucketConfiguration answer = configuration_of(rule);
		const model::Config config = model::config_of(std::string(rule.rule_id), rule.requests_per_window,
			static_cast<long double>(rule.window_ms), rule.adaptive_max_rps_given, rule.adaptive_max_rps);
		ASSERT_EQ(answer.problem, BucketRuleProblem::none);
		ASSERT_TRUE(is_near(answer.config.capacity, config.capacity, 0));
		ASSERT_TRUE(is_near(answer.config.base_rps, config.base, 0));
		ASSERT_TRUE(is_near(answer.config.min_rps, config.min, 0));
		ASSERT_TRUE(is_near(answer.config.max_rps, config.max, 0));
		ASSERT_EQ(answer.config.configures_ceiling, config.configures_ceiling);
	}
}

} // namespace
} // namespace ratelimit::core
