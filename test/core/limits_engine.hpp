// Calls over limits with the core's functions and rows in memory: the way of src/api/limits_call.cpp and
// src/api/settle.cpp with maps in place of tables. What those files decide, they decide with these functions in this
// order; change both together.
#pragma once

#include "core/lease.hpp"
#include "core/request.hpp"
#include "core/window.hpp"
#include "limits_model.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ratelimit::core {

enum class Mode { check, consume, reserve };

// When a call looks, what happens before it has its locks, and when it has them.
struct Moment {
	Instant looked;
	Instant locked;
	std::function<void()> between = [] {};
};

struct Outcome {
	Verdict verdict;
	bool looked = false;
	double used = 0;
	double reserved = 0;
	double remaining = 0;
	std::optional<Instant> window_start;
	std::optional<Instant> reset_at;
	std::optional<int> reservation_id;
	std::optional<int> lease_id;
	std::optional<Instant> lease_expires_at;
};

// The tables.
struct Rows {
	struct Reservation {
		model::Place counter;
		Instant window_start;
		double amount;
		bool open;
	};
	struct Lease {
		model::Place scope;
		double amount;
		Instant expires_at;
		std::int32_t ttl_seconds;
	};

	std::map<model::Place, StoredWindow> counters;
	std::map<model::Place, StoredScope> scopes;
	std::map<int, Reservation> reservations;
	std::map<int, Lease> leases;
	int next_id = 1;
};

class LimitsEngine {
public:
	LimitsEngine(Rows &rows, Mode mode, const model::Asks &asks) : rows_(rows), mode_(mode)
	{
		for (const model::Ask &ask : asks) {
			Element element;
			element.scope_type = ask.scope_type;
			element.scope_key = ask.scope_key;
			element.metric = ask.metric;
			element.limit = ask.limit;
			element.amount = ask.amount;
			element.window_seconds = ask.window_seconds;
			element.lease_ttl_seconds = ask.lease_ttl_seconds;
			elements_.push_back(element);
		}
		keys_.resize(asks.size());
		keys_.resize(merge_keys({elements_.data(), elements_.size()}, keys_.data()));
		found_.resize(keys_.size());
		outcomes.resize(asks.size());
	}

	bool run(const Moment &moment)
	{
		now_ = moment.looked;
		look();
		const bool allowed = decide();
		if (mode_ == Mode::check || !allowed)
			return allowed;
		moment.between();
		if (!grant_in_one_step(moment.locked) && !grant_under_locks(moment.locked))
			return false;
		insert_ids();
		for (std::size_t i = 0; i < elements_.size(); ++i)
			if (elements_[i].key != no_key)
				outcomes[i].remaining = subtract_amount(outcomes[i].remaining, keys_[elements_[i].key].amount);
		return true;
	}

	std::vector<Outcome> outcomes;
	std::vector<int> removed; // leases that were over and had to make room
	bool has_room = true;     // after making room, what the core allowed fits

private:
	// What is known of a key: the row, if any, and how it stands now.
	struct Found {
		std::optional<StoredWindow> counter;
		Window window;
		std::optional<StoredScope> scope;
		ScopeUsage usage;
	};

	[[nodiscard]] model::Place place_of(const Key &key) const
	{
		return {std::string(key.scope_type), std::string(key.scope_key), std::string(key.metric), key.window_seconds};
	}

	void look()
	{
		for (std::size_t i = 0; i < keys_.size(); ++i) {
			if (keys_[i].is_lease) {
				look_at_scope(keys_[i], found_[i]);
			} else {
				const auto row = rows_.counters.find(place_of(keys_[i]));
				found_[i].counter = row == rows_.counters.end() ? std::nullopt : std::optional(row->second);
			}
		}
	}

	// As the statement does: only what lies at or behind the bound is looked at.
	void look_at_scope(const Key &key, Found &found)
	{
		const auto row = rows_.scopes.find(place_of(key));
		found.scope.reset();
		found.usage = ScopeUsage{};
		if (row == rows_.scopes.end())
			return;
		found.scope = row->second;
		double expired = 0;
		for (const auto &[id, lease] : rows_.leases) {
			if (lease.scope != row->first || lease.expires_at < row->second.expires_from)
				continue;
			if (!lease_is_live(lease.expires_at, now_))
				expired += lease.amount;
			else if (!found.usage.next_expiry || lease.expires_at < *found.usage.next_expiry)
				found.usage.next_expiry = lease.expires_at;
		}
		found.usage.live = subtract_amount(row->second.leased, expired);
	}

	bool decide()
	{
		for (std::size_t i = 0; i < keys_.size(); ++i)
			if (!keys_[i].is_lease)
				found_[i].window = current_window(found_[i].counter, now_, keys_[i].window_seconds);
		bool allowed = true;
		for (std::size_t i = 0; i < elements_.size(); ++i) {
			const Element &element = elements_[i];
			Outcome &outcome = outcomes[i];
			outcome = Outcome{};
			if (element.key == no_key)
				outcome.verdict = verdict_without_looking(element.kind);
			else if (element.kind == ElementKind::window)
				decide_counter(outcome, element);
			else
				decide_scope(outcome, element);
			allowed = allowed && outcome.verdict.passes();
		}
		return allowed;
	}

	void decide_counter(Outcome &outcome, const Element &element)
	{
		const Window &window = found_[element.key].window;
		outcome.verdict = decide_window(window, keys_[element.key].amount, *element.limit, now_);
		outcome.looked = true;
		outcome.used = window.used;
		outcome.reserved = window.reserved;
		outcome.remaining = remaining(window, *element.limit);
		outcome.window_start = window.start;
		outcome.reset_at = window.reset_at;
	}

	void decide_scope(Outcome &outcome, const Element &element)
	{
		const ScopeUsage &usage = found_[element.key].usage;
		outcome.verdict = decide_lease(usage, keys_[element.key].amount, *element.limit, now_);
		outcome.looked = true;
		outcome.used = usage.live;
		outcome.remaining = subtract_amount(*element.limit, usage.live);
		outcome.reset_at = usage.next_expiry;
	}

	[[nodiscard]] StoredWindow counter_after(std::size_t key) const
	{
		const Window &window = found_[key].window;
		return (mode_ == Mode::consume ? consume(window, keys_[key].amount) : reserve(window, keys_[key].amount))
			.stored();
	}

	bool grant_in_one_step(Instant locked)
	{
		if (keys_.empty())
			return true;
		if (keys_.size() > 1)
			return false;
		return keys_[0].is_lease ? grant_lease_in_one_step(locked) : grant_counter_in_one_step(locked);
	}

	bool grant_counter_in_one_step(Instant locked)
	{
		const model::Place place = place_of(keys_[0]);
		const auto row = rows_.counters.find(place);
		const std::optional<StoredWindow> &found = found_[0].counter;
		if ((row != rows_.counters.end()) != found.has_value())
			return false;
		if (found && (row->second.start != found->start || row->second.used != found->used ||
						 row->second.reserved != found->reserved))
			return false;
		const StoredWindow after = counter_after(0);
		now_ = locked;
		if (current_window(after, now_, keys_[0].window_seconds).start != after.start) {
			found_[0].counter = current_window(after, now_, keys_[0].window_seconds).stored();
			has_room = decide();
		}
		rows_.counters[place] = counter_after(0);
		return true;
	}

	bool grant_lease_in_one_step(Instant locked)
	{
		const model::Place place = place_of(keys_[0]);
		const auto row = rows_.scopes.find(place);
		const std::optional<StoredScope> &found = found_[0].scope;
		if (found && !lease_is_live(found->expires_from, now_))
			return false;
		if ((row != rows_.scopes.end()) != found.has_value())
			return false;
		if (found && (row->second.leased != found->leased || row->second.lease_count != found->lease_count ||
						 row->second.expires_from != found->expires_from))
			return false;
		StoredScope after = found.value_or(StoredScope{});
		for (const Element &element : elements_)
			if (element.key != no_key)
				after = add_lease(after, element.amount, now_ + Span::from_seconds(element.lease_ttl_seconds));
		rows_.scopes[place] = after;
		now_ = locked;
		return true;
	}

	bool grant_under_locks(Instant locked)
	{
		now_ = locked;
		look();
		if (!decide())
			return false;
		for (std::size_t i = 0; i < keys_.size(); ++i) {
			if (keys_[i].is_lease)
				make_room(i);
			else
				rows_.counters[place_of(keys_[i])] = counter_after(i);
		}
		for (const Element &element : elements_)
			if (element.kind == ElementKind::lease) {
				StoredScope &scope = rows_.scopes[place_of(keys_[element.key])];
				scope = add_lease(scope, element.amount, now_ + Span::from_seconds(element.lease_ttl_seconds));
			}
		return true;
	}

	// Removes leases that are over, oldest first, until the call fits, and at most one more.
	void make_room(std::size_t key)
	{
		const model::Place place = place_of(keys_[key]);
		StoredScope &scope = rows_.scopes[place];
		const auto fits_now = [&] { return fits(scope.leased + keys_[key].amount, keys_[key].limit); };
		if (!lease_is_live(scope.expires_from, now_)) {
			std::vector<std::pair<Instant, int>> expired;
			for (const auto &[id, lease] : rows_.leases)
				if (lease.scope == place && lease.expires_at >= scope.expires_from &&
					!lease_is_live(lease.expires_at, now_))
					expired.emplace_back(lease.expires_at, id);
			std::sort(expired.begin(), expired.end());
			int more = 1;
			for (const auto &[expires_at, id] : expired) {
				if (fits_now() && more-- == 0)
					break;
				scope = remove_leases(scope, rows_.leases.at(id).amount, 1);
				rows_.leases.erase(id);
				removed.push_back(id);
			}
			if (!lease_is_live(scope.expires_from, now_))
				scope.expires_from = earliest_expiry(place);
		}
		has_room = has_room && fits_now();
	}

	[[nodiscard]] Instant earliest_expiry(const model::Place &place) const
	{
		Instant earliest = Instant::latest();
		for (const auto &[id, lease] : rows_.leases)
			if (lease.scope == place)
				earliest = std::min(earliest, lease.expires_at);
		return earliest;
	}

	void insert_ids()
	{
		if (mode_ != Mode::reserve)
			return;
		for (std::size_t i = 0; i < elements_.size(); ++i) {
			const Element &element = elements_[i];
			if (element.key == no_key)
				continue;
			const model::Place place = place_of(keys_[element.key]);
			const int id = rows_.next_id++;
			if (element.kind == ElementKind::window) {
				rows_.reservations[id] = {place, found_[element.key].window.start, element.amount, true};
				outcomes[i].reservation_id = id;
			} else {
				const Instant expires_at = now_ + Span::from_seconds(element.lease_ttl_seconds);
				rows_.leases[id] = {place, element.amount, expires_at, element.lease_ttl_seconds};
				outcomes[i].lease_id = id;
				outcomes[i].lease_expires_at = expires_at;
			}
		}
	}

	Rows &rows_;
	Mode mode_;
	Instant now_;
	std::vector<Element> elements_;
	std::vector<Key> keys_;
	std::vector<Found> found_; // one per key
};

// Settles one reservation with what was spent, 0 for a release. Whether it was open.
inline bool settle_reservation(Rows &rows, int id, double spent)
{
	const auto found = rows.reservations.find(id);
	if (found == rows.reservations.end() || !found->second.open)
		return false;
	found->second.open = false;
	StoredWindow &counter = rows.counters.at(found->second.counter);
	if (const auto after = settle(counter, found->second.window_start, found->second.amount, spent))
		counter = *after;
	return true;
}

// Releases the live ones among the leases and returns them.
inline std::vector<int> release_leases(Rows &rows, const std::vector<int> &ids, Instant now)
{
	std::vector<int> released;
	std::map<model::Place, std::pair<double, std::int64_t>> gone;
	for (const int id : ids) {
		const auto lease = rows.leases.find(id);
		if (lease == rows.leases.end() || !lease_is_live(lease->second.expires_at, now))
			continue;
		auto &[amount, count] = gone[lease->second.scope];
		amount = add_amounts(amount, lease->second.amount);
		count++;
		rows.leases.erase(lease);
		released.push_back(id);
	}
	for (const auto &[scope, what] : gone)
		rows.scopes.at(scope) = remove_leases(rows.scopes.at(scope), what.first, what.second);
	return released;
}

inline bool renew_lease(Rows &rows, int id, Instant now)
{
	const auto lease = rows.leases.find(id);
	if (lease == rows.leases.end() || !lease_is_live(lease->second.expires_at, now))
		return false;
	const Instant renewed = now + Span::from_seconds(lease->second.ttl_seconds);
	lease->second.expires_at = std::max(lease->second.expires_at, renewed);
	return true;
}

} // namespace ratelimit::core
