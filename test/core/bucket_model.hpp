// The adaptive bucket once more, as plainly as the contract words it: long double, vectors, 128-bit sums, no care for
// speed and no code in common with src/core/bucket.cpp. The tests hold one against the other.
#pragma once

#include "core/bucket.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace ratelimit::core::model {

__extension__ using Wide = __int128;

inline std::int64_t saturate(Wide value)
{
	const Wide low = std::numeric_limits<std::int64_t>::min();
	const Wide high = std::numeric_limits<std::int64_t>::max();
	return static_cast<std::int64_t>(std::clamp(value, low, high));
}

struct Config {
	long double capacity, base, min, max;
	bool configures_ceiling;
};

// "Configuration of a rule."
inline Config config_of(const std::string &rule_id, long double requests_per_window, long double window_ms,
	bool adaptive_given, std::optional<double> adaptive_max)
{
	const bool is_default = rule_id.rfind("default:", 0) == 0;
	Config config{};
	config.capacity = std::max(1.0L, requests_per_window);
	config.base = requests_per_window / window_ms * 1000;
	config.min = std::min(config.base, std::max(0.01L, config.base / 8));
	if (adaptive_max && *adaptive_max > config.base)
		config.max = *adaptive_max;
	else if (is_default)
		config.max = config.base * 25;
	else
		config.max = config.base;
	config.configures_ceiling = is_default || adaptive_given;
	return config;
}

struct Row {
	long double capacity, base, min, max, tokens, refill;
	Wide refilled_at, next_dispatch, cool_until, claimed_retry_at, last_ramp;
	bool ceiling_ever_configured, backpressure_seen;
};

struct Answer {
	std::int64_t granted = 0;
	std::int64_t wait_ms = 0;
	long double effective_rps = 0;
	std::int64_t cool_until_ms = 0;
	std::int64_t claimed_retry_at_ms = 0;
	std::vector<std::int64_t> scheduled_at_ms;

	// Some comparison or rounding was so close that long double and double may decide differently.
	bool on_edge = false;
};

class Bucket {
public:
	std::vector<Row> rows;

	Answer acquire(const std::vector<Config> &configs, std::int64_t requested, std::int64_t successes,
		std::optional<std::int64_t> free, std::int64_t clock)
	{
		for (std::size_t i = 0; i < rows.size(); ++i)
			apply(rows[i], configs[i]);

		Wide now = clock;
		for (const Row &row : rows)
			now = std::max(now, row.refilled_at);
		for (Row &row : rows) {
			const auto elapsed = static_cast<long double>(now - row.refilled_at);
			row.tokens = std::min(row.capacity, row.tokens + elapsed / 1000 * row.refill);
			row.refilled_at = now;
		}

		Answer answer;
		const Extremes all = extremes();
		answer.cool_until_ms = saturate(all.cool_until);
		answer.claimed_retry_at_ms = saturate(all.claimed);
		if (all.cool_until <= now)
			answer.granted = grant(all, requested, free, answer);
		const Wide next = schedule(all, now, answer);

		answer.effective_rps = std::numeric_limits<long double>::infinity();
		long double tokens_wait = 0;
		for (Row &row : rows) {
			ramp(row, successes, now, answer);
			answer.effective_rps = std::min(answer.effective_rps, row.refill);
			tokens_wait = std::max(tokens_wait, (1 - row.tokens) / std::max(0.0001L, row.refill) * 1000);
			row.tokens = std::max(0.0L, row.tokens - static_cast<long double>(answer.granted));
			if (answer.granted > 0)
				row.next_dispatch = next;
		}

		if (answer.granted == 0) {
			Wide wait = 10;
			if (all.cool_until > now) {
				wait = all.cool_until - clock;
			} else if (!free || *free > 0) {
				wait = now - clock + round_up(tokens_wait, answer);
			}
			answer.wait_ms = saturate(std::max<Wide>(wait, 1));
		}
		return answer;
	}

	void penalize(std::int64_t cooldown, std::int64_t now)
	{
		if (cooldown <= 0)
			return;
		for (Row &row : rows) {
			const Wide cooled = saturate(Wide{now} + std::min<std::int64_t>(cooldown, 45 * 60 * 1000));
			row.claimed_retry_at = saturate(Wide{now} + cooldown);
			if (row.cool_until <= now)
				row.refill = std::max(row.min, row.refill / 2);
			row.cool_until = std::max(row.cool_until, cooled);
			row.backpressure_seen = true;
			row.tokens = 0;
			row.next_dispatch = std::max(row.next_dispatch, cooled);
		}
	}

private:
	struct Extremes {
		Wide cool_until = 0, next_dispatch = 0, claimed = 0;
		long double tokens = std::numeric_limits<long double>::infinity();
		long double refill = std::numeric_limits<long double>::infinity();
		long double spacing = 0;
	};

	[[nodiscard]] Extremes extremes() const
	{
		Extremes all;
		for (const Row &row : rows) {
			all.cool_until = std::max(all.cool_until, row.cool_until);
			all.next_dispatch = std::max(all.next_dispatch, row.next_dispatch);
			all.claimed = std::max(all.claimed, row.claimed_retry_at);
			all.tokens = std::min(all.tokens, row.tokens);
			all.refill = std::min(all.refill, row.refill);
			const long double margin = row.refill < 100 ? 0.8L : 1.0L;
			all.spacing = std::max(all.spacing, 1000 / std::max(0.0001L, row.refill * margin));
		}
		return all;
	}

	static std::int64_t grant(
		const Extremes &all, std::int64_t requested, std::optional<std::int64_t> free, Answer &answer)
	{
		const long double tolerated = all.tokens * (1 + 1e-9L);
		answer.on_edge |= tolerated > 0.5L && is_close(tolerated, std::round(tolerated), 1e-13L);
		long double most = std::min(std::floor(tolerated), static_cast<long double>(requested));
		if (free)
			most = std::min(most, static_cast<long double>(*free));
		return static_cast<std::int64_t>(std::max(0.0L, most));
	}

	// Fills in the scheduled times; returns the next dispatch after them.
	static Wide schedule(const Extremes &all, Wide now, Answer &answer)
	{
		const Wide first = std::max({now, all.cool_until, all.next_dispatch});
		const long double burst = std::max(1.0L, std::floor(all.refill / 100));
		const Wide interval = round_up(burst * all.spacing, answer);
		for (std::int64_t i = 0; i < answer.granted; ++i) {
			const auto bursts_before = static_cast<Wide>(std::floor(static_cast<long double>(i) / burst));
			answer.scheduled_at_ms.push_back(saturate(first + bursts_before * interval));
		}
		const auto bursts = static_cast<Wide>(std::ceil(static_cast<long double>(answer.granted) / burst));
		return saturate(first + bursts * interval);
	}

	static void ramp(Row &row, std::int64_t successes, Wide now, Answer &answer)
	{
		answer.on_edge |= successes > 0 && is_close(row.tokens, row.capacity / 2, 1e-12L);
		if (successes <= 0 || now - row.last_ramp < 1000 || row.cool_until > now || row.tokens >= row.capacity / 2)
			return;
		const long double climbed = row.backpressure_seen ? row.refill + std::max(1.0L, row.base / 10) : row.refill * 2;
		row.refill = std::min(row.max, climbed);
		row.last_ramp = now;
	}

	static bool is_close(long double a, long double b, long double relative)
	{
		return std::abs(a - b) <= relative * std::max({1.0L, std::abs(a), std::abs(b)});
	}

	// Rounds up to whole milliseconds. By ground rule 6 a hair above a whole number is the number itself: 10 ms
	// computed as 10.000000000000002 are not 11.
	static Wide round_up(long double ms, Answer &answer)
	{
		const long double above = ms - std::floor(ms);
		answer.on_edge |= above > 1e-11L * ms && above <= 1e-9L * ms;
		return static_cast<Wide>(above <= 1e-10L * ms ? std::floor(ms) : std::ceil(ms));
	}

	// "A changed configuration is applied before step 1 and keeps what was learned."
	static void apply(Row &row, const Config &config)
	{
		const bool changed = config.capacity != row.capacity || config.base != row.base || config.min != row.min ||
							 (config.configures_ceiling && config.max != row.max);
		const bool ever_before = row.ceiling_ever_configured;
		row.ceiling_ever_configured = ever_before || config.configures_ceiling;
		if (!changed)
			return;
		const bool stood_at_base = row.refill == row.base;
		if (config.configures_ceiling)
			row.max = config.max;
		else if (!ever_before)
			row.max = config.base;
		row.capacity = config.capacity;
		row.base = config.base;
		row.min = config.min;
		row.tokens = std::min(row.tokens, row.capacity);
		row.refill = std::min(row.max, std::max(row.min, row.refill));
		if (!row.ceiling_ever_configured && !row.backpressure_seen && stood_at_base)
			row.refill = row.base;
	}
};

} // namespace ratelimit::core::model
