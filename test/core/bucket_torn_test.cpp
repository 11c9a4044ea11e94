// Rows as a reader without the lock may see them, and worse: whatever stands there is a start that breaks nothing.
#include "bucket_history.hpp"
#include "core/bucket.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace ratelimit::core {
namespace {

constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();

// Some fields of one, some of the other.
BucketState mix_of(const BucketState &one, const BucketState &other, Dice &dice)
{
	BucketState mix = one;
	const std::uint64_t choice = dice.bits();
	const auto take = [&](std::size_t field, std::size_t offset, std::size_t size) {
		if ((choice >> field & 1) != 0)
			std::memcpy(reinterpret_cast<char *>(&mix) + offset, reinterpret_cast<const char *>(&other) + offset, size);
	};
	for (std::size_t field = 0; field < 12; ++field)
		take(field, field * 8, 8);
	take(12, offsetof(BucketState, ceiling_configured), 1);
	take(13, offsetof(BucketState, backpressure_seen), 1);
	return mix;
}

TEST(BucketTorn, AnyMixOfTwoNeighbouringStatesIsAStart)
{
	for (std::uint64_t seed = 1; seed <= 200; ++seed) {
		SCOPED_TRACE(testing::Message() << "seed " << seed);
		History history(seed, {true, true, true});
		for (int step = 0; step < 60; ++step) {
			const std::vector<BucketState> before = history.states;
			history.pass_time();
			history.maybe_change_configuration();
			if (history.refusal_is_due())
				history.penalize(history.any_cooldown());
			else
				(void)history.acquire(history.any_demand());

			History restored = history;
			for (std::size_t i = 0; i < before.size(); ++i)
				restored.states[i] = mix_of(before[i], history.states[i], history.dice);
			if (history.dice.one_in(4))
				restored.penalize(restored.any_cooldown());
			std::int64_t granted = 0;
			for (int call = 0; call < 3; ++call) {
				const BucketGrant grant = restored.acquire(restored.any_demand());
				granted += grant.granted;
				ASSERT_EQ(grant.wait_ms == 0, grant.granted > 0);
				for (std::size_t i = 0; i < before.size(); ++i) {
					ASSERT_TRUE(is_in_bounds(restored.states[i]));
					ASSERT_FALSE(needs_configure(restored.states[i], restored.configs[i]));
					ASSERT_EQ(restored.states[i].capacity, restored.configs[i].capacity);
					ASSERT_EQ(restored.states[i].base_rps, restored.configs[i].base_rps);
					ASSERT_EQ(restored.states[i].min_rps, restored.configs[i].min_rps);
				}
			}
			// At one instant there is at most one capacity to be had, whatever was mixed.
			for (const BucketState &state : restored.states)
				ASSERT_LE(static_cast<double>(granted), state.capacity * (1 + 2e-9));
		}
	}
}

TEST(BucketTorn, WhatIsNotANumberGrantsNothing)
{
	const std::int64_t now_ms = 1'700'000'000'000;
	const BucketConfig config = configuration_of({"default:", 10, 1'000, {}, false, {}}).config;
	BucketState state = new_row(config, now_ms);
	state.tokens = std::numeric_limits<double>::quiet_NaN();
	state.refill_rps = std::numeric_limits<double>::quiet_NaN();
	const BucketGrant grant = acquire(&state, &config, 1, {1, 0, {}}, now_ms);
	EXPECT_EQ(grant.granted, 0);
	EXPECT_EQ(grant.wait_ms, 800); // at the minimum, 10 / 8 a second
}

TEST(BucketTorn, AnyBitsAreADefinedStart)
{
	for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
		SCOPED_TRACE(testing::Message() << "seed " << seed);
		Dice dice(seed);
		const BucketConfig config = any_config(dice);
		BucketState state = new_row(config, 1'700'000'000'000);
		BucketState noise;
		for (std::size_t word = 0; word < 12; ++word) {
			const std::uint64_t bits = dice.one_in(4) ? dice.bits() | 0x7ff0'0000'0000'0000 : dice.bits();
			std::memcpy(reinterpret_cast<char *>(&noise) + word * 8, &bits, 8);
		}
		noise.ceiling_configured = static_cast<std::uint8_t>(dice.bits());
		noise.backpressure_seen = static_cast<std::uint8_t>(dice.bits());
		state = mix_of(state, noise, dice);
		if (dice.one_in(4))
			(void)penalize(state, dice.between(1, int64_max), 1'700'000'000'000);
		(void)is_idle(state, 1'700'000'000'000, 1);
		const BucketGrant grant = acquire(&state, &config, 1, {10'000, 1, {}}, 1'700'000'000'000);
		ASSERT_TRUE(is_in_bounds(state));
		ASSERT_GE(grant.granted, 0);
		ASSERT_LE(grant.granted, std::min(10'000.0, config.capacity * (1 + 1e-9)));
		ASSERT_EQ(grant.wait_ms == 0, grant.granted > 0);
	}
}

} // namespace
} // namespace ratelimit::core
