#include "api/settling.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "pg/clock.hpp"
#include "pg/settings.hpp"
#include "pg/spi.hpp"
#include "store/retention_store.hpp"

namespace ratelimit::api {

namespace {

auto counter_order(const store::OpenReservation &open) noexcept
{
	return std::tie(open.scope_type, open.scope_key, open.metric, open.window_seconds);
}

// What a commit counts as spent for a reservation.
double actual_of(const store::OpenReservation &open, const pg::Vector<ActualAmount> &actual) noexcept
{
	for (const ActualAmount &given : actual)
		if (given.metric == open.metric && given.amount > 0)
			return given.amount;
	return open.amount;
}

} // namespace

Settling::Settling(pg::Vector<store::OpenReservation> open, store::Locked others) : open_(std::move(open))
{
	const bool waits = others == store::Locked::wait;
	std::sort(open_.begin(), open_.end(), [](const auto &a, const auto &b) {
		return counter_order(a) != counter_order(b) ? counter_order(a) < counter_order(b) : a.id < b.id;
	});
	for (std::size_t i = 0; i < open_.size(); i++) {
		if (i == 0 || counter_order(open_[i - 1]) != counter_order(open_[i])) {
			const store::CounterKey key(
				open_[i].scope_type, open_[i].scope_key, open_[i].metric, open_[i].window_seconds);
			SettledCounter counter;
			counter.row = waits ? store::lock_counter(key) : store::try_lock_counter(key);
			if (counter.row)
				counter.window = counter.row->window;
			else if (!waits && store::read_counter(key))
				is_locked_ = false;
			counters_.push_back(counter);
		}
		counter_of_.push_back(counters_.size() - 1);
		if (!waits && !store::try_lock_open(open_[i].id))
			is_locked_ = false;
	}
}

int Settling::settle(const pg::Vector<ActualAmount> *actual, std::optional<std::string_view> reason)
{
	const core::Instant now = core::Instant{pg::decision_clock_us()};
	pg::Vector<std::size_t> by_id(open_.size());
	for (std::size_t i = 0; i < by_id.size(); i++)
		by_id[i] = i;
	std::sort(by_id.begin(), by_id.end(), [&](std::size_t a, std::size_t b) { return open_[a].id < open_[b].id; });

	int settled = 0;
	for (const std::size_t i : by_id) {
		const store::OpenReservation &open = open_[i];
		const std::optional<double> spent = actual != nullptr ? std::optional(actual_of(open, *actual)) : std::nullopt;
		if (!store::settle_reservation(open.id, {spent, reason, now, pg::settings::retention_seconds() > 0})) {
			if (pg::writes_see_old_snapshot())
				pg::throw_serialization_failure();
			continue;
		}
		settled++;
		SettledCounter &counter = counters_[counter_of_[i]];
		if (!counter.row)
			continue;
		if (const auto window = core::settle(counter.window, open.window_start, open.amount, spent.value_or(0))) {
			counter.window = *window;
			counter.changed = true;
		}
	}
	for (const SettledCounter &counter : counters_)
		if (counter.changed)
			store::settle_counter(*counter.row, counter.window, now);
	return settled;
}

} // namespace ratelimit::api
