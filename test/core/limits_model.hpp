// Windows, leases and requests once more, as plainly as the contract words them: a ledger of everything that was ever
// granted, summed up anew for every question, in long double and 128-bit integers. It keeps no aggregates and shares no
// arithmetic with src/core, so that the tests can hold one against the other.
#pragma once

#include "core/decision.hpp"
#include "core/request.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace ratelimit::core::model {

__extension__ using Wide = __int128;

// floor(epoch / window_seconds) × window_seconds, in microseconds.
inline Wide window_start_us(std::int64_t at_us, std::int32_t window_seconds)
{
	const Wide length = Wide{window_seconds} * 1'000'000;
	Wide since_start = Wide{at_us} % length;
	if (since_start < 0)
		since_start += length;
	return at_us - since_start;
}

// A wait in whole milliseconds, never too short.
inline std::int64_t wait_ms(Wide us)
{
	Wide ms = us / 1000;
	if (ms * 1000 < us)
		ms += 1;
	return static_cast<std::int64_t>(ms);
}

// "Comparisons against a limit tolerate a relative error of 1e-9." A long double neither overflows nor rounds here.
inline bool is_within(long double total, long double limit) { return total <= limit * (1 + 1e-9L); }

// One element of a call.
struct Ask {
	std::string scope_type;
	std::string scope_key;
	std::string metric;
	std::optional<double> limit;
	double amount = 1;
	std::int32_t window_seconds = 60;
	std::int32_t lease_ttl_seconds = 120;

	[[nodiscard]] bool is_lease() const { return metric == "concurrent"; }
};

using Asks = std::vector<Ask>;

// Counters by (scope_type, scope_key, metric, window_seconds), scopes by (scope_type, scope_key).
using Place = std::tuple<std::string, std::string, std::string, std::int32_t>;

inline Place place_of(const Ask &ask)
{
	if (ask.is_lease())
		return {ask.scope_type, ask.scope_key, "", 0};
	return {ask.scope_type, ask.scope_key, ask.metric, ask.window_seconds};
}

// The rows of the decision table that look at one element alone.
inline std::optional<ElementKind> case_alone(const Ask &ask)
{
	if (!ask.limit.has_value())
		return ElementKind::unlimited;
	if (ask.metric == "queue_size")
		return ElementKind::queue_size;
	if (ask.amount == 0)
		return ElementKind::nothing;
	if (*ask.limit == 0)
		return ElementKind::blocked;
	return std::nullopt;
}

// What all elements of the call that name this element's key ask for together.
inline long double sum_of_key(const Asks &asks, const Ask &of)
{
	const Place place = place_of(of);
	long double sum = 0;
	for (const Ask &ask : asks)
		if (!case_alone(ask) && ask.is_lease() == of.is_lease() && place_of(ask) == place)
			sum += ask.amount;
	return sum;
}

// The first row of the decision table that applies.
inline ElementKind case_of(const Asks &asks, const Ask &ask)
{
	if (const auto alone = case_alone(ask))
		return *alone;
	if (!is_within(sum_of_key(asks, ask), *ask.limit))
		return ElementKind::oversized;
	return ask.is_lease() ? ElementKind::lease : ElementKind::window;
}

struct Answer {
	ElementKind kind = ElementKind::unlimited;
	Reason reason = Reason::none;
	std::optional<std::int64_t> retry_after_ms = 0;
	long double used = 0;
	long double reserved = 0;
	long double remaining = 0; // as found
	std::optional<Wide> window_start;
	std::optional<Wide> reset_at;
};

inline bool all_pass(const std::vector<Answer> &answers)
{
	return std::all_of(
		answers.begin(), answers.end(), [](const Answer &answer) { return answer.reason == Reason::none; });
}

class Ledger {
public:
	enum class State { reserved, spent, released };

	// Something granted by a counter; what is consumed is spent at once.
	struct Entry {
		Place place;
		Wide window;
		long double promised;
		long double spent;
		State state;
	};

	struct Lease {
		Place place;
		long double amount;
		std::int64_t expires_at_us;
		std::int32_t ttl_seconds;
	};

	[[nodiscard]] std::vector<Answer> answer(const Asks &asks, std::int64_t now_us) const
	{
		std::vector<Answer> answers;
		for (const Ask &ask : asks) {
			Answer answer;
			answer.kind = case_of(asks, ask);
			if (answer.kind == ElementKind::blocked)
				deny(answer, Reason::limit_is_zero, std::nullopt);
			else if (answer.kind == ElementKind::oversized)
				deny(answer, Reason::amount_exceeds_limit, std::nullopt);
			else if (answer.kind == ElementKind::window)
				look_at_window(answer, ask, sum_of_key(asks, ask), now_us);
			else if (answer.kind == ElementKind::lease)
				look_at_leases(answer, ask, sum_of_key(asks, ask), now_us);
			answers.push_back(answer);
		}
		return answers;
	}

	void spend(const Ask &ask, std::int64_t now_us)
	{
		entries_.push_back({place_of(ask), current_window(ask, now_us), 0, ask.amount, State::spent});
	}

	void promise(int id, const Ask &ask, std::int64_t now_us)
	{
		by_id_[id] = entries_.size();
		entries_.push_back({place_of(ask), current_window(ask, now_us), ask.amount, 0, State::reserved});
	}

	// Whether the reservation was open until now.
	bool commit(int id, const std::map<std::string, double> &actual)
	{
		Entry *entry = open(id);
		if (entry == nullptr)
			return false;
		const auto given = actual.find(std::get<2>(entry->place));
		entry->spent = given != actual.end() && given->second > 0 ? given->second : entry->promised;
		entry->state = State::spent;
		return true;
	}

	bool release(int id)
	{
		Entry *entry = open(id);
		if (entry == nullptr)
			return false;
		entry->state = State::released;
		return true;
	}

	void lease(int id, const Ask &ask, std::int64_t now_us)
	{
		const std::int64_t expires_at_us = now_us + std::int64_t{ask.lease_ttl_seconds} * 1'000'000;
		leases_[id] = {place_of(ask), ask.amount, expires_at_us, ask.lease_ttl_seconds};
	}

	[[nodiscard]] bool is_live(int id, std::int64_t now_us) const
	{
		const auto lease = leases_.find(id);
		return lease != leases_.end() && now_us < lease->second.expires_at_us;
	}

	bool renew(int id, std::int64_t now_us)
	{
		if (!is_live(id, now_us))
			return false;
		Lease &lease = leases_.at(id);
		lease.expires_at_us = std::max(lease.expires_at_us, now_us + std::int64_t{lease.ttl_seconds} * 1'000'000);
		return true;
	}

	void forget_lease(int id) { leases_.erase(id); }

	[[nodiscard]] long double spent_in(const Place &place, Wide window) const
	{
		long double sum = 0;
		for (const Entry &entry : entries_)
			if (entry.window == window && entry.place == place && entry.state == State::spent)
				sum += entry.spent;
		return sum;
	}

	[[nodiscard]] long double promised_in(const Place &place, Wide window) const
	{
		long double sum = 0;
		for (const Entry &entry : entries_)
			if (entry.window == window && entry.place == place && entry.state == State::reserved)
				sum += entry.promised;
		return sum;
	}

	[[nodiscard]] const std::map<int, Lease> &leases() const { return leases_; }

private:
	static void deny(Answer &answer, Reason reason, std::optional<std::int64_t> retry_after_ms)
	{
		answer.reason = reason;
		answer.retry_after_ms = retry_after_ms;
	}

	Entry *open(int id)
	{
		const auto found = by_id_.find(id);
		if (found == by_id_.end() || entries_[found->second].state != State::reserved)
			return nullptr;
		return &entries_[found->second];
	}

	// The window of the clock, or the newest one that was ever granted from, whichever is later.
	[[nodiscard]] Wide current_window(const Ask &ask, std::int64_t now_us) const
	{
		const Place place = place_of(ask);
		Wide newest = window_start_us(now_us, ask.window_seconds);
		for (const Entry &entry : entries_)
			if (entry.place == place)
				newest = std::max(newest, entry.window);
		return newest;
	}

	void look_at_window(Answer &answer, const Ask &ask, long double sum, std::int64_t now_us) const
	{
		const Wide start = current_window(ask, now_us);
		const Wide reset_at = start + Wide{ask.window_seconds} * 1'000'000;
		answer.window_start = start;
		answer.reset_at = reset_at;
		answer.used = spent_in(place_of(ask), start);
		answer.reserved = promised_in(place_of(ask), start);
		answer.remaining = std::max(0.0L, *ask.limit - answer.used - answer.reserved);
		if (!is_within(answer.used + answer.reserved + sum, *ask.limit))
			deny(answer, Reason::window_exhausted, std::max<std::int64_t>(1000, wait_ms(reset_at - now_us)));
	}

	void look_at_leases(Answer &answer, const Ask &ask, long double sum, std::int64_t now_us) const
	{
		const Place place = place_of(ask);
		for (const auto &[id, lease] : leases_) {
			if (lease.place != place || !is_live(id, now_us))
				continue;
			answer.used += lease.amount;
			answer.reset_at = std::min(answer.reset_at.value_or(lease.expires_at_us), Wide{lease.expires_at_us});
		}
		answer.remaining = std::max(0.0L, *ask.limit - answer.used);
		if (!is_within(answer.used + sum, *ask.limit)) {
			const std::int64_t wait = wait_ms(answer.reset_at.value_or(now_us) - now_us);
			deny(answer, Reason::concurrency_saturated, std::clamp<std::int64_t>(wait, 1000, 5000));
		}
	}

	std::vector<Entry> entries_;
	std::map<int, std::size_t> by_id_;
	std::map<int, Lease> leases_;
};

} // namespace ratelimit::core::model
