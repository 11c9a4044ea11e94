#include "core/bucket.hpp"

#include "core/check.hpp"
#include "core/units.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ratelimit::core {

namespace {

// Below this rate permits are spaced wider than the rate alone asks for, so that a jittering network does not push two
// of them together; from it on they go out in bursts of a hundredth of a second.
constexpr double burst_rps_min = 100;
constexpr double spacing_margin = 0.8;

constexpr double min_share_of_base = 1.0 / 8;
constexpr double min_rps_floor = 0.01;
constexpr double default_ceiling_factor = 25;
constexpr double ramp_step_min = 1;
constexpr double ramp_steps_of_base = 10;

// How much of a whole number of milliseconds may be noise of the floating point before the next one is due. It must
// stay below the tolerance of the grant, or the permit for which somebody waited would not be there.
constexpr double rounding_tolerance = 1e-10;
static_assert(rounding_tolerance < amount_tolerance);

bool is_finite_amount(double value) noexcept { return value >= 0 && value <= std::numeric_limits<double>::max(); }

// Into [low, high]; where the two cross, the high end wins. What is not a number becomes the low end.
double clamp_to(double low, double high, double value) noexcept { return std::min(high, std::max(low, value)); }

// The bounds may cross (see configure): then the rate lies between them all the same.
bool is_rate_in_bounds(const BucketState &state) noexcept
{
	return state.refill_rps >= std::min(state.min_rps, state.max_rps) &&
		   state.refill_rps <= std::max(state.min_rps, state.max_rps);
}

// Requests * 1000 is exact for every number that people write, so that 1,001 per 1,000 ms is 1,001 and not a hair less.
double base_rps_of(const BucketRule &rule) noexcept
{
	const double window_ms = static_cast<double>(rule.window_ms);
	const double requests_scaled = rule.requests_per_window * 1000;
	return std::isfinite(requests_scaled) ? requests_scaled / window_ms : rule.requests_per_window / window_ms * 1000;
}

BucketRuleProblem problem_of_values(const BucketRule &rule) noexcept
{
	if (!(rule.requests_per_window > 0))
		return BucketRuleProblem::requests_per_window_out_of_range;
	if (rule.window_ms <= 0)
		return BucketRuleProblem::window_ms_out_of_range;
	if (rule.max_concurrency && *rule.max_concurrency < 0)
		return BucketRuleProblem::max_concurrency_out_of_range;
	if (rule.adaptive_max_rps && !(*rule.adaptive_max_rps > 0))
		return BucketRuleProblem::adaptive_max_rps_out_of_range;
	return BucketRuleProblem::none;
}

BucketRuleProblem problem_of(const BucketConfig &config) noexcept
{
	if (!std::isfinite(config.capacity))
		return BucketRuleProblem::capacity_not_finite;
	if (!std::isfinite(config.base_rps))
		return BucketRuleProblem::base_not_finite;
	if (!std::isfinite(config.max_rps))
		return BucketRuleProblem::max_not_finite;
	return BucketRuleProblem::none;
}

// The ceiling that holds once `config` is applied. A stored one survives calls that say nothing about it.
double ceiling_of(const BucketState &state, const BucketConfig &config) noexcept
{
	if (config.configures_ceiling)
		return config.max_rps;
	if (state.ceiling_configured != 0 && is_finite_amount(state.max_rps))
		return state.max_rps;
	return config.base_rps;
}

std::int64_t no_earlier_than_epoch(std::int64_t clock_ms) noexcept { return std::max<std::int64_t>(clock_ms, 0); }

// Step 1. `now_ms` is not before refilled_at_ms; the product may be infinite, but never "not a number".
double refilled_tokens(const BucketState &state, std::int64_t now_ms) noexcept
{
	const double elapsed_ms = static_cast<double>(saturating_subtract(now_ms, state.refilled_at_ms));
	return std::min(state.capacity, state.tokens + elapsed_ms / 1000 * state.refill_rps);
}

// A whole number of milliseconds, rounded up. The argument is at most 1 / bucket_rate_min seconds.
std::int64_t ceil_whole_ms(double ms) noexcept
{
	return static_cast<std::int64_t>(std::ceil(ms * (1 - rounding_tolerance)));
}

// What all the rules together say.
struct Consensus {
	double tokens = std::numeric_limits<double>::infinity();     // the fewest
	double refill_rps = std::numeric_limits<double>::infinity(); // the slowest
	std::int64_t next_dispatch_at_ms = 0;                        // and the latest instants
	std::int64_t cool_until_ms = 0;
	std::int64_t claimed_retry_at_ms = 0;
};

Consensus consensus_of(const BucketState *states, std::size_t count) noexcept
{
	Consensus all;
	for (std::size_t i = 0; i < count; ++i) {
		all.tokens = std::min(all.tokens, states[i].tokens);
		all.refill_rps = std::min(all.refill_rps, states[i].refill_rps);
		all.next_dispatch_at_ms = std::max(all.next_dispatch_at_ms, states[i].next_dispatch_at_ms);
		all.cool_until_ms = std::max(all.cool_until_ms, states[i].cool_until_ms);
		all.claimed_retry_at_ms = std::max(all.claimed_retry_at_ms, states[i].claimed_retry_at_ms);
	}
	return all;
}

// Step 2, when nobody cools. Compared as doubles: the tokens may be more than any integer holds.
std::int32_t grantable(double tokens, const BucketDemand &demand) noexcept
{
	const double whole_tokens = std::floor(tokens * (1 + amount_tolerance));
	std::int64_t granted = demand.requested;
	if (!(whole_tokens >= static_cast<double>(demand.requested)))
		granted = whole_tokens >= 1 ? static_cast<std::int64_t>(whole_tokens) : 0;
	if (demand.free_slots)
		granted = std::min(granted, std::max<std::int64_t>(*demand.free_slots, 0));
	return static_cast<std::int32_t>(granted);
}

// Step 3, the pace. The widest spacing of all the rules is that of the slowest, since the margin only widens the
// slower.
void set_pace(BucketGrant &grant, double slowest_rps) noexcept
{
	const double burst = std::max(1.0, std::floor(slowest_rps / burst_rps_min));
	const double paced_rps = slowest_rps < burst_rps_min ? slowest_rps * spacing_margin : slowest_rps;
	grant.burst = static_cast<std::int32_t>(std::min<double>(burst, limits::bucket_requested_max));
	grant.interval_ms = ceil_whole_ms(burst * (1000 / std::max(limits::bucket_rate_min, paced_rps)));
}

// Step 5, on the tokens before the grant: a bucket that is still half full has seen no demand worth climbing for.
void ramp(BucketState &state, const BucketDemand &demand, std::int64_t now_ms) noexcept
{
	const bool due = saturating_subtract(now_ms, state.last_ramp_at_ms) >= limits::bucket_ramp_ms_min;
	const bool wanted = demand.observed_successes > 0 && state.tokens < state.capacity / 2;
	if (!due || !wanted || state.cool_until_ms > now_ms)
		return;
	const double step = std::max(ramp_step_min, state.base_rps / ramp_steps_of_base);
	const double climbed = state.backpressure_seen != 0 ? state.refill_rps + step : state.refill_rps * 2;
	state.refill_rps = std::min(state.max_rps, climbed);
	state.last_ramp_at_ms = now_ms;
}

// Until one token is there, at the rate of now. Zero or less when it is.
double token_wait_ms(const BucketState &state) noexcept
{
	return (1 - state.tokens) / std::max(limits::bucket_rate_min, state.refill_rps) * 1000;
}

// Step 6 for a call that was granted nothing. `lag_ms` is how far the clock is behind the rows: no token drips before
// it has caught up, and a cooldown is over when the clock itself has passed it. A slot may become free at any time.
std::int64_t denied_wait_ms(
	const BucketGrant &grant, const BucketDemand &demand, std::int64_t now_ms, double tokens_wait_ms) noexcept
{
	std::int64_t wait_ms = 0;
	if (grant.cool_until_ms > now_ms) {
		wait_ms = saturating_subtract(grant.cool_until_ms, grant.server_now_ms);
	} else if (demand.free_slots && *demand.free_slots <= 0) {
		wait_ms = limits::bucket_slot_retry_ms;
	} else {
		const std::int64_t lag_ms = saturating_subtract(now_ms, grant.server_now_ms);
		wait_ms = saturating_add(lag_ms, ceil_whole_ms(tokens_wait_ms));
	}
	return std::max<std::int64_t>(wait_ms, 1);
}

// Not noexcept itself: a throw that must end the process may not stand directly in a function that is.
void check_arguments(
	const BucketState *states, const BucketConfig *configs, std::size_t count, const BucketDemand &demand)
{
	RATELIMIT_CHECK(count <= limits::bucket_rules_max);
	RATELIMIT_CHECK(count == 0 || (states != nullptr && configs != nullptr));
	RATELIMIT_CHECK(demand.requested >= 1);
	RATELIMIT_CHECK(demand.requested <= limits::bucket_requested_max);
	RATELIMIT_CHECK(demand.observed_successes >= 0);
}

} // namespace

BucketConfiguration configuration_of(const BucketRule &rule) noexcept
{
	BucketConfiguration answer;
	answer.problem = problem_of_values(rule);
	if (answer.problem != BucketRuleProblem::none)
		return answer;

	const bool is_default = rule.rule_id.substr(0, bucket_default_prefix.size()) == bucket_default_prefix;
	BucketConfig &config = answer.config;
	config.capacity = std::max(1.0, rule.requests_per_window);
	config.base_rps = base_rps_of(rule);
	config.min_rps = std::min(config.base_rps, std::max(min_rps_floor, config.base_rps * min_share_of_base));
	if (rule.adaptive_max_rps && *rule.adaptive_max_rps > config.base_rps)
		config.max_rps = *rule.adaptive_max_rps;
	else
		config.max_rps = is_default ? config.base_rps * default_ceiling_factor : config.base_rps;
	config.configures_ceiling = is_default || rule.adaptive_max_rps_given;
	answer.problem = problem_of(config);
	return answer;
}

BucketState new_row(const BucketConfig &config, std::int64_t clock_ms) noexcept
{
	BucketState state;
	state.capacity = config.capacity;
	state.base_rps = config.base_rps;
	state.min_rps = config.min_rps;
	state.max_rps = config.max_rps;
	state.tokens = config.capacity;
	state.refill_rps = config.base_rps;
	state.refilled_at_ms = no_earlier_than_epoch(clock_ms);
	state.next_dispatch_at_ms = state.refilled_at_ms;
	state.ceiling_configured = config.configures_ceiling ? 1 : 0;
	return state;
}

bool needs_configure(const BucketState &state, const BucketConfig &config) noexcept
{
	if (state.capacity != config.capacity || state.base_rps != config.base_rps || state.min_rps != config.min_rps)
		return true;
	if (state.max_rps != ceiling_of(state, config))
		return true;
	if (config.configures_ceiling && state.ceiling_configured == 0)
		return true;
	return !(state.tokens >= 0 && state.tokens <= state.capacity) || !is_rate_in_bounds(state);
}

void configure(BucketState &state, const BucketConfig &config) noexcept
{
	// Without a ceiling there is nothing to learn upwards: a rate that no penalty has lowered follows the base.
	const bool ceiling_known = config.configures_ceiling || state.ceiling_configured != 0;
	const bool follows_base = !ceiling_known && state.backpressure_seen == 0 && state.refill_rps == state.base_rps;

	state.max_rps = ceiling_of(state, config);
	state.capacity = config.capacity;
	state.base_rps = config.base_rps;
	state.min_rps = config.min_rps;
	state.ceiling_configured = ceiling_known ? 1 : 0;
	state.tokens = clamp_to(0, state.capacity, state.tokens);
	state.refill_rps = follows_base ? state.base_rps : clamp_to(state.min_rps, state.max_rps, state.refill_rps);
}

std::int64_t BucketGrant::scheduled_at_ms(std::int32_t index) const noexcept
{
	return saturating_add(first_ms, saturating_multiply(index / burst, interval_ms));
}

BucketGrant acquire(BucketState *states, const BucketConfig *configs, std::size_t count, const BucketDemand &demand,
	std::int64_t clock_ms) noexcept
{
	check_arguments(states, configs, count, demand);
	BucketGrant grant;
	grant.server_now_ms = clock_ms;
	if (count == 0)
		return grant;

	std::int64_t now_ms = no_earlier_than_epoch(clock_ms);
	for (std::size_t i = 0; i < count; ++i)
		now_ms = std::max(now_ms, states[i].refilled_at_ms);

	for (std::size_t i = 0; i < count; ++i) {
		if (needs_configure(states[i], configs[i]))
			configure(states[i], configs[i]);
		states[i].tokens = refilled_tokens(states[i], now_ms);
		states[i].refilled_at_ms = now_ms;
	}

	const Consensus all = consensus_of(states, count);
	grant.cool_until_ms = all.cool_until_ms;
	grant.claimed_retry_at_ms = all.claimed_retry_at_ms;
	grant.granted = all.cool_until_ms > now_ms ? 0 : grantable(all.tokens, demand);
	grant.first_ms = std::max({now_ms, all.cool_until_ms, all.next_dispatch_at_ms});
	set_pace(grant, all.refill_rps);

	const std::int64_t bursts = ceil_divide(grant.granted, grant.burst);
	const std::int64_t next_dispatch_at_ms =
		saturating_add(grant.first_ms, saturating_multiply(bursts, grant.interval_ms));
	double effective_rps = std::numeric_limits<double>::infinity();
	double tokens_wait_ms = 0;
	for (std::size_t i = 0; i < count; ++i) {
		ramp(states[i], demand, now_ms);
		effective_rps = std::min(effective_rps, states[i].refill_rps);
		tokens_wait_ms = std::max(tokens_wait_ms, token_wait_ms(states[i]));
		states[i].tokens = subtract_amount(states[i].tokens, grant.granted);
		if (grant.granted > 0)
			states[i].next_dispatch_at_ms = next_dispatch_at_ms;
	}
	grant.effective_rps = effective_rps;
	if (grant.granted == 0)
		grant.wait_ms = denied_wait_ms(grant, demand, now_ms, tokens_wait_ms);
	return grant;
}

bool penalize(BucketState &state, std::int64_t cooldown_ms, std::int64_t clock_ms) noexcept
{
	if (cooldown_ms <= 0)
		return false;
	const std::int64_t now_ms = no_earlier_than_epoch(clock_ms);
	const std::int64_t cooled_at_ms = saturating_add(now_ms, std::min(cooldown_ms, limits::bucket_cooldown_ms_max));

	// One cut per cooldown: the refusals that were already under way when the first came back say nothing new.
	if (state.cool_until_ms <= now_ms)
		state.refill_rps = std::max(state.min_rps, state.refill_rps / 2);
	state.claimed_retry_at_ms = saturating_add(now_ms, cooldown_ms);
	state.cool_until_ms = std::max(state.cool_until_ms, cooled_at_ms);
	state.next_dispatch_at_ms = std::max(state.next_dispatch_at_ms, cooled_at_ms);
	state.penalized_at_ms = std::max(state.penalized_at_ms, now_ms);
	state.backpressure_seen = 1;
	state.tokens = 0;
	return true;
}

double tokens_at(const BucketState &state, std::int64_t clock_ms) noexcept
{
	return refilled_tokens(state, std::max(no_earlier_than_epoch(clock_ms), state.refilled_at_ms));
}

bool is_idle(const BucketState &state, std::int64_t clock_ms, std::int64_t retention_ms) noexcept
{
	const std::int64_t now_ms = no_earlier_than_epoch(clock_ms);
	const std::int64_t touched_at_ms = std::max(state.refilled_at_ms, state.penalized_at_ms);
	return tokens_at(state, now_ms) >= state.capacity && state.cool_until_ms <= now_ms &&
		   state.next_dispatch_at_ms <= now_ms && saturating_subtract(now_ms, touched_at_ms) >= retention_ms;
}

} // namespace ratelimit::core
