// What a rule asks of its row, how a row takes a changed configuration over, and when it may be forgotten.
#include "core/bucket.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace ratelimit::core {
namespace {

constexpr std::int64_t now_ms = 1'700'000'000'000;
constexpr std::int64_t day_ms = 86'400'000;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

// How a call mentions the ceiling: not at all, as NULL, or as a number.
struct Ceiling {
	bool given = false;
	std::optional<double> rps;
};
constexpr Ceiling silent{};
constexpr Ceiling null{true, {}};
Ceiling at(double rps) { return {true, rps}; }

BucketRule rule(double requests_per_window, std::int64_t window_ms, std::string_view rule_id, Ceiling ceiling = silent)
{
	return {rule_id, requests_per_window, window_ms, {}, ceiling.given, ceiling.rps};
}

// So many a second, with an hour of room so that tokens never matter here.
BucketConfig per_second(double rps, Ceiling ceiling = silent, std::string_view rule_id = "plain")
{
	const BucketConfiguration answer = configuration_of(rule(rps * 3'600, 3'600'000, rule_id, ceiling));
	EXPECT_EQ(answer.problem, BucketRuleProblem::none);
	return answer.config;
}

void take_over(BucketState &state, const BucketConfig &config)
{
	if (needs_configure(state, config))
		configure(state, config);
	EXPECT_FALSE(needs_configure(state, config));
}

TEST(BucketConfiguration, DerivesCapacityBaseMinimumAndMaximum)
{
	struct {
		BucketRule rule;
		double capacity, base, min, max;
		bool configures;
	} const rows[] = {
		// 100 / 60000 * 1000 = 5/3; an eighth of it is 5/24.
		{rule(100, 60'000, "plain"), 100, 5.0 / 3, 5.0 / 24, 5.0 / 3, false},
		{rule(100, 60'000, "default:"), 100, 5.0 / 3, 5.0 / 24, 125.0 / 3, true},
		{rule(100, 60'000, "default"), 100, 5.0 / 3, 5.0 / 24, 5.0 / 3, false},
		{rule(100, 60'000, "Default:x"), 100, 5.0 / 3, 5.0 / 24, 5.0 / 3, false},
		// 0.04 a second: an eighth is 0.005, so at least 0.01. 0.004: not above the base.
		{rule(0.04, 1'000, "plain"), 1, 0.04, 0.01, 0.04, false},
		{rule(0.004, 1'000, "plain"), 1, 0.004, 0.004, 0.004, false},
		// A ceiling counts above the base only.
		{rule(8, 1'000, "plain", at(20)), 8, 8, 1, 20, true},
		{rule(8, 1'000, "plain", at(8)), 8, 8, 1, 8, true},
		{rule(8, 1'000, "plain", at(3)), 8, 8, 1, 8, true},
		{rule(8, 1'000, "plain", null), 8, 8, 1, 8, true},
		{rule(8, 1'000, "default:a", at(20)), 8, 8, 1, 20, true},
		{rule(8, 1'000, "default:a", at(3)), 8, 8, 1, 200, true},
		{rule(8, 1'000, "default:a", null), 8, 8, 1, 200, true},
		// Exactly what was written.
		{rule(1'001, 1'000, "plain"), 1'001, 1'001, 1'001.0 / 8, 1'001, false},
		// Large, but finite: 1e308 / 1e6 * 1000 = 1e305.
		{rule(1e308, 1'000'000, "plain"), 1e308, 1e305, 1.25e304, 1e305, false},
	};
	for (const auto &row : rows) {
		SCOPED_TRACE(testing::Message() << row.rule.rule_id << ' ' << row.rule.requests_per_window);
		const BucketConfiguration answer = configuration_of(row.rule);
		EXPECT_EQ(answer.problem, BucketRuleProblem::none);
		EXPECT_EQ(answer.config.capacity, row.capacity);
		EXPECT_DOUBLE_EQ(answer.config.base_rps, row.base);
		EXPECT_DOUBLE_EQ(answer.config.min_rps, row.min);
		EXPECT_DOUBLE_EQ(answer.config.max_rps, row.max);
		EXPECT_EQ(answer.config.configures_ceiling, row.configures);
	}
	EXPECT_EQ(configuration_of(rule(1'001, 1'000, "plain")).config.base_rps, 1'001);
}

TEST(BucketConfiguration, NamesWhatIsWrong)
{
	using Problem = BucketRuleProblem;
	const auto problem = [](const BucketRule &rule) { return configuration_of(rule).problem; };
	for (const double requests : {0.0, -1.0, not_a_number, -infinity})
		EXPECT_EQ(problem(rule(requests, 1'000, "a")), Problem::requests_per_window_out_of_range) << requests;
	for (const std::int64_t window_ms : {std::int64_t{0}, std::int64_t{-1}})
		EXPECT_EQ(problem(rule(1, window_ms, "a")), Problem::window_ms_out_of_range) << window_ms;
	for (const double ceiling : {0.0, -1.0, not_a_number})
		EXPECT_EQ(problem(rule(1, 1'000, "a", at(ceiling))), Problem::adaptive_max_rps_out_of_range) << ceiling;
	BucketRule capped = rule(1, 1'000, "a");
	capped.max_concurrency = -1;
	EXPECT_EQ(problem(capped), Problem::max_concurrency_out_of_range);
	capped.max_concurrency = 0;
	EXPECT_EQ(problem(capped), Problem::none);

	EXPECT_EQ(problem(rule(infinity, 1'000, "a")), Problem::capacity_not_finite);
	EXPECT_EQ(problem(rule(1e308, 1, "a")), Problem::base_not_finite);
	EXPECT_EQ(problem(rule(1e307, 1'000, "a")), Problem::none);
	EXPECT_EQ(problem(rule(1e307, 1'000, "default:a")), Problem::max_not_finite);
	EXPECT_EQ(problem(rule(1, 1'000, "a", at(infinity))), Problem::max_not_finite);
}

TEST(BucketConfiguration, ANewRowIsFullAndKnowsWhoConfiguredItsCeiling)
{
	const BucketState plain = new_row(per_second(2), now_ms);
	EXPECT_EQ(plain.tokens, 7'200);
	EXPECT_EQ(plain.refill_rps, 2);
	EXPECT_EQ(plain.refilled_at_ms, now_ms);
	EXPECT_EQ(plain.next_dispatch_at_ms, now_ms);
	EXPECT_EQ(plain.cool_until_ms, 0);
	EXPECT_EQ(plain.claimed_retry_at_ms, 0);
	EXPECT_EQ(plain.last_ramp_at_ms, 0);
	EXPECT_EQ(plain.penalized_at_ms, 0);
	EXPECT_EQ(plain.backpressure_seen, 0);
	EXPECT_EQ(plain.ceiling_configured, 0);
	EXPECT_EQ(new_row(per_second(2, null), now_ms).ceiling_configured, 1);
	EXPECT_EQ(new_row(per_second(2, silent, "default:"), now_ms).ceiling_configured, 1);
	EXPECT_EQ(new_row(per_second(2), -5).refilled_at_ms, 0);
}

TEST(BucketConfiguration, WithoutACeilingTheRateFollowsTheBase)
{
	BucketState state = new_row(per_second(8), now_ms);
	take_over(state, per_second(20));
	EXPECT_EQ(state.refill_rps, 20);
	EXPECT_EQ(state.max_rps, 20);
	EXPECT_EQ(state.min_rps, 2.5);
	EXPECT_EQ(state.tokens, 8 * 3'600); // more room, but not more tokens
	take_over(state, per_second(4));
	EXPECT_EQ(state.refill_rps, 4);
	EXPECT_EQ(state.tokens, 4 * 3'600); // min(tokens, capacity)
	state.refill_rps = 3;               // does not stand at the base: only a mix of two states can come to that
	take_over(state, per_second(20));
	EXPECT_EQ(state.refill_rps, 3);
}

TEST(BucketConfiguration, APenaltyRememberedKeepsTheRate)
{
	BucketState state = new_row(per_second(8), now_ms);
	ASSERT_TRUE(penalize(state, 1'000, now_ms)); // 4
	take_over(state, per_second(20));
	EXPECT_EQ(state.refill_rps, 4);
	take_over(state, per_second(80)); // [10, 80]
	EXPECT_EQ(state.refill_rps, 10);
	take_over(state, per_second(2)); // [0.25, 2]
	EXPECT_EQ(state.refill_rps, 2);
	take_over(state, per_second(8)); // stands at the old base, but the penalty is remembered
	EXPECT_EQ(state.refill_rps, 2);
}

TEST(BucketConfiguration, ACeilingThatThisCallConfiguresReplacesTheStoredOne)
{
	BucketState state = new_row(per_second(8, at(100)), now_ms);
	state.refill_rps = 64;
	take_over(state, per_second(8, at(50))); // only the maximum differs
	EXPECT_EQ(state.max_rps, 50);
	EXPECT_EQ(state.refill_rps, 50);
	take_over(state, per_second(8, null)); // NULL configures it as well: no more than the base
	EXPECT_EQ(state.max_rps, 8);
	EXPECT_EQ(state.refill_rps, 8);
}

TEST(BucketConfiguration, ACeilingOfAnEarlierCallOutlivesCallsThatAreSilent)
{
	BucketState state = new_row(per_second(8, at(100)), now_ms);
	EXPECT_FALSE(needs_configure(state, per_second(8)));
	take_over(state, per_second(16));
	EXPECT_EQ(state.max_rps, 100);
	EXPECT_EQ(state.refill_rps, 8); // a ceiling was configured: the rate is learned, not the base
	EXPECT_EQ(state.base_rps, 16);
}

TEST(BucketConfiguration, TheFirstCallThatConfiguresIsRememberedEvenIfNothingElseChanges)
{
	BucketState state = new_row(per_second(8), now_ms);
	EXPECT_FALSE(needs_configure(state, per_second(8)));
	take_over(state, per_second(8, null)); // the same numbers
	EXPECT_EQ(state.ceiling_configured, 1);
	take_over(state, per_second(4));
	EXPECT_EQ(state.max_rps, 8);
	EXPECT_EQ(state.refill_rps, 8);
}

TEST(BucketConfiguration, ACallThatConfiguresTheCeilingAndRaisesTheBaseLeavesTheRateToBeLearned)
{
	BucketState state = new_row(per_second(8), now_ms);
	take_over(state, per_second(16, at(100)));
	EXPECT_EQ(state.refill_rps, 8);
	EXPECT_EQ(state.max_rps, 100);
}

TEST(BucketConfiguration, WhereAStoredCeilingIsBelowTheNewMinimumTheCeilingWins)
{
	BucketState state = new_row(per_second(1, at(2)), now_ms);
	take_over(state, per_second(80)); // minimum 10, stored ceiling 2
	EXPECT_EQ(state.min_rps, 10);
	EXPECT_EQ(state.max_rps, 2);
	EXPECT_EQ(state.refill_rps, 2);
	ASSERT_TRUE(penalize(state, 1, now_ms)); // max(min, 2 / 2), as the contract has it
	EXPECT_EQ(state.refill_rps, 10);
	EXPECT_FALSE(needs_configure(state, per_second(80)));
}

TEST(BucketConfiguration, AppliesBeforeTheRefill)
{
	const BucketConfig before = per_second(1);
	const BucketConfig after = per_second(2);
	BucketState state = new_row(before, now_ms);
	state.tokens = 10;
	const BucketGrant grant = acquire(&state, &after, 1, {1, 0, {}}, now_ms + 5'000);
	EXPECT_EQ(grant.granted, 1);
	EXPECT_DOUBLE_EQ(state.tokens, 10 + 5 * 2 - 1);
}

TEST(BucketIdle, FullNotCoolingAndUntouched)
{
	const BucketConfig config = per_second(1);
	BucketState state = new_row(config, now_ms);
	EXPECT_FALSE(is_idle(state, now_ms + day_ms - 1, day_ms));
	EXPECT_TRUE(is_idle(state, now_ms + day_ms, day_ms));
	EXPECT_FALSE(is_idle(state, now_ms - day_ms, day_ms)); // the clock was set back

	// 3600 spent at 1 a second are back after an hour, whatever the retention.
	state.tokens = 0;
	EXPECT_FALSE(is_idle(state, now_ms + 3'599'999, 1));
	EXPECT_TRUE(is_idle(state, now_ms + 3'600'000, 1));

	// A permit is still to go out: a new row would send the next one earlier.
	state.next_dispatch_at_ms = now_ms + 2 * day_ms + 1;
	EXPECT_FALSE(is_idle(state, now_ms + 2 * day_ms, day_ms));
	EXPECT_TRUE(is_idle(state, now_ms + 2 * day_ms + 1, day_ms));
}

TEST(BucketIdle, APenaltyIsATouch)
{
	BucketState state = new_row(per_second(1), now_ms);
	const std::int64_t refused_ms = now_ms + 2 * day_ms;
	ASSERT_TRUE(penalize(state, 60'000, refused_ms)); // what dripped since the acquire fills it again at once
	EXPECT_EQ(tokens_at(state, refused_ms), 3'600);
	EXPECT_FALSE(is_idle(state, refused_ms + 59'999, 1));          // cooling
	EXPECT_TRUE(is_idle(state, refused_ms + 60'000, 1));           // over at the very instant
	EXPECT_FALSE(is_idle(state, refused_ms + day_ms - 1, day_ms)); // not a day yet since the refusal
	EXPECT_TRUE(is_idle(state, refused_ms + day_ms, day_ms));
	state.next_dispatch_at_ms = 0; // a cooldown holds by itself
	EXPECT_FALSE(is_idle(state, refused_ms + 59'999, 1));
}

TEST(BucketTokens, AreShownAsOfNow)
{
	BucketState state = new_row(per_second(2), now_ms);
	state.tokens = 5;
	EXPECT_EQ(tokens_at(state, now_ms), 5);
	EXPECT_EQ(tokens_at(state, now_ms + 1'500), 8);
	EXPECT_EQ(tokens_at(state, now_ms - 1'500), 5);
	EXPECT_EQ(tokens_at(state, now_ms + day_ms), 7'200);
}

} // namespace
} // namespace ratelimit::core
