// Random lives of a bucket: rules from one a year to millions a second, clocks that creep, leap and fall back,
// refusals, successes, changed configurations. All of it follows from the seed, which a failing test prints.
#pragma once

#include "core/bucket.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace ratelimit::core {

// Whether a row keeps within its own bounds. Where a stored ceiling is below a new minimum the two are swapped.
inline testing::AssertionResult is_in_bounds(const BucketState &state)
{
	const double low = std::min(state.min_rps, state.max_rps);
	const double high = std::max(state.min_rps, state.max_rps);
	if (!(state.tokens >= 0 && state.tokens <= state.capacity && std::isfinite(state.capacity)))
		return testing::AssertionFailure() << state.tokens << " tokens of " << state.capacity;
	if (!(state.refill_rps >= low && state.refill_rps <= high && std::isfinite(high)))
		return testing::AssertionFailure() << state.refill_rps << " a second, bounds " << low << " and " << high;
	return testing::AssertionSuccess();
}

class Dice {
public:
	explicit Dice(std::uint64_t seed) : random_(seed) {}

	std::int64_t between(std::int64_t low, std::int64_t high)
	{
		return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
	}
	bool one_in(std::int64_t n) { return between(1, n) == 1; }
	std::uint64_t bits() { return random_(); }

	// Every order of magnitude is as likely as any other.
	double scaled(double low, double high)
	{
		return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random_));
	}

	template <typename T, std::size_t n>
	T one_of(const T (&choices)[n])
	{
		return choices[between(0, static_cast<std::int64_t>(n) - 1)];
	}

private:
	std::mt19937_64 random_;
};

inline BucketConfig any_config(Dice &dice)
{
	static constexpr double usual_requests[] = {0.5, 1, 3, 5, 10, 60, 100, 333, 1'000, 14'700, 1'000'000};
	static constexpr std::int64_t usual_windows[] = {1, 100, 1'000, 10'000, 60'000, 3'600'000, 86'400'000};
	BucketRule rule;
	rule.rule_id = dice.one_in(3) ? "default:model" : "model";
	rule.requests_per_window = dice.one_in(4) ? dice.scaled(1e-3, 1e9) : dice.one_of(usual_requests);
	rule.window_ms = dice.one_in(4) ? dice.between(1, 400'000'000) : dice.one_of(usual_windows);
	rule.adaptive_max_rps_given = dice.one_in(3);
	if (rule.adaptive_max_rps_given && !dice.one_in(4))
		rule.adaptive_max_rps = dice.scaled(1e-3, 1e7);
	return configuration_of(rule).config;
}

// What may happen besides acquires in steady time.
struct Weather {
	bool refusals = true;
	bool clock_falls_back = true;
	bool configuration_changes = true;
};

class History {
public:
	Dice dice;
	std::vector<BucketConfig> configs;
	std::vector<BucketState> states;
	std::int64_t clock_ms = 1'700'000'000'000;

	History(std::uint64_t seed, Weather weather) : dice(seed), weather_(weather)
	{
		const std::int64_t rules = dice.one_in(2) ? 1 : dice.between(2, 16);
		for (std::int64_t i = 0; i < rules; ++i) {
			configs.push_back(any_config(dice));
			states.push_back(new_row(configs.back(), clock_ms));
		}
	}

	// Time passes. Calls come in flurries, so most of the time little of it.
	void pass_time()
	{
		static constexpr std::int64_t up_to_ms[] = {
			0, 1, 1, 3, 20, 200, 2'000, 2'000, 60'000, 7'200'000, 31'622'400'000};
		clock_ms += dice.between(0, dice.one_of(up_to_ms));
		if (weather_.clock_falls_back && dice.one_in(50))
			clock_ms -= dice.between(1, 172'800'000);
	}

	BucketDemand any_demand()
	{
		BucketDemand demand;
		demand.requested = static_cast<std::int32_t>(dice.one_in(2) ? dice.between(1, 5) : dice.between(1, 10'000));
		demand.observed_successes = dice.between(0, 2);
		if (dice.one_in(8))
			demand.free_slots = dice.between(-2, 20);
		return demand;
	}

	BucketGrant acquire(const BucketDemand &demand)
	{
		return core::acquire(states.data(), configs.data(), states.size(), demand, clock_ms);
	}

	std::int64_t any_cooldown()
	{
		static constexpr std::int64_t cooldowns[] = {
			-5, 0, 1, 50, 1'000, 30'000, 2'700'000, 2'700'001, 86'400'000, std::numeric_limits<std::int64_t>::max()};
		return dice.one_of(cooldowns);
	}

	// Refusals are rare, and some rules change now and then.
	[[nodiscard]] bool refusal_is_due() { return weather_.refusals && dice.one_in(40); }
	void penalize(std::int64_t cooldown_ms)
	{
		for (BucketState &state : states)
			core::penalize(state, cooldown_ms, clock_ms);
	}
	void maybe_change_configuration()
	{
		if (weather_.configuration_changes && dice.one_in(25))
			configs[static_cast<std::size_t>(dice.between(0, static_cast<std::int64_t>(configs.size()) - 1))] =
				any_config(dice);
	}

private:
	Weather weather_;
};

} // namespace ratelimit::core
