#include "upkeep/reap.hpp"

#include <algorithm>
#include <tuple>

#include "api/queue_book.hpp"
#include "core/retention.hpp"
#include "core/window.hpp"
#include "pg/clock.hpp"
#include "pg/entry.hpp"
#include "pg/settings.hpp"
#include "pg/statistics.hpp"
#include "store/bucket_store.hpp"
#include "store/retention_store.hpp"
#include "store/task_store.hpp"
#include "upkeep/task_upkeep.hpp"

namespace ratelimit::upkeep {

namespace {

namespace settings = pg::settings;

// So many batches may be looked at for one batch that is done: what others hold, or what was touched since, is passed.
constexpr std::int64_t looks_per_batch = 20;

core::Instant read_clock() noexcept { return {pg::decision_clock_us()}; }

core::Span idle_retention() noexcept { return core::Span::from_seconds(settings::idle_retention_seconds()); }
core::Span retention() noexcept { return core::Span::from_seconds(settings::retention_seconds()); }

// --- leases --------------------------------------------------------------------------------------------------------

auto scope_order(const store::LeaseRow &lease) noexcept { return std::tie(lease.scope_type, lease.scope_key); }

// Takes removed leases off the sums of their scope, whose row is locked.
void subtract_leases(const store::ScopeKey &key, const pg::Vector<store::RemovedLease> &removed, core::Instant now)
{
	if (removed.empty())
		return;
	const std::string_view scope_type = removed.front().scope_type;
	const std::string_view scope_key = removed.front().scope_key;
	const auto row = store::read_scope_sums(key);
	if (!row)
		return;
	core::StoredScope scope = row->scope;
	for (const store::RemovedLease &lease : removed)
		scope = core::remove_leases(scope, lease.amount, 1);
	if (core::sum_is_doubtful(row->scope, scope))
		scope.leased = store::sum_leases(key);
	if (scope.lease_count > 0)
		scope.expires_from = store::expiry_from(key, scope.expires_from);
	store::write_scope(*row, scope, now);
	if (row->queue.waiting > 0)
		api::Waker(now).wake_head_of(scope_type, scope_key);
}

// Returns how many of [begin, end), which are of one scope, were removed.
std::int64_t reap_leases_of_scope(const store::LeaseRow *begin, const store::LeaseRow *end, core::Instant now)
{
	const store::ScopeKey key(begin->scope_type, begin->scope_key);
	if (!store::try_lock_scope(key))
		return 0;
	pg::Vector<core::Uuid> ids;
	for (const store::LeaseRow *lease = begin; lease != end; lease++)
		ids.push_back(lease->id);
	std::sort(ids.begin(), ids.end());
	const auto removed = store::remove_expired({ids.data(), ids.size()}, now, store::Locked::skip);
	subtract_leases(key, removed, now);
	return static_cast<std::int64_t>(removed.size());
}

std::int64_t reap_leases(std::int64_t batch)
{
	const core::Instant now = read_clock();
	std::int64_t reaped = 0;
	std::int64_t passed = 0;
	while (reaped < batch && passed < batch * looks_per_batch) {
		auto leases = store::read_expired_leases(now, batch - reaped, passed);
		if (leases.empty())
			break;
		std::sort(leases.begin(), leases.end(), [](const auto &a, const auto &b) { return scope_order(a) < scope_order(b); });
		std::int64_t reaped_here = 0;
		for (std::size_t begin = 0, end = 0; begin < leases.size(); begin = end) {
			while (end < leases.size() && scope_order(leases[end]) == scope_order(leases[begin]))
				end++;
			reaped_here += reap_leases_of_scope(&leases[begin], &leases[begin] + (end - begin), now);
			pg::check_for_interrupts();
		}
		reaped += reaped_here;
		passed += static_cast<std::int64_t>(leases.size()) - reaped_here;
	}
	return reaped;
}

// --- reservations that nobody settled ------------------------------------------------------------------------------

auto counter_order(const store::OpenReservation &open) noexcept
{
	return std::tie(open.scope_type, open.scope_key, open.metric, open.window_seconds);
}

// Whether any of them still counts in the counter: it is the row's window, and windows never go back.
bool any_counts(const std::optional<store::CounterRow> &row, const store::OpenReservation *begin,
	const store::OpenReservation *end) noexcept
{
	return row && std::any_of(begin, end, [&](const auto &open) { return open.window_start == row->window.start; });
}

// Returns how many of [begin, end), which are of one counter, were released.
std::int64_t expire_reservations_of_counter(
	const store::OpenReservation *begin, const store::OpenReservation *end, core::Instant now)
{
	const store::CounterKey key(begin->scope_type, begin->scope_key, begin->metric, begin->window_seconds);
	std::optional<store::CounterRow> locked;
	if (any_counts(store::read_counter(key), begin, end)) {
		locked = store::try_lock_counter(key);
		if (!locked)
			return 0;
	}
	std::int64_t released = 0;
	bool changed = false;
	core::StoredWindow window = locked ? locked->window : core::StoredWindow{};
	for (const store::OpenReservation *open = begin; open != end; open++) {
		if (!store::try_lock_open(open->id))
			continue;
		if (!store::settle_reservation(open->id, {std::nullopt, "expired", now, settings::retention_seconds() > 0}))
			continue;
		released++;
		if (!locked)
			continue;
		if (const auto after = core::settle(window, open->window_start, open->amount, 0)) {
			window = *after;
			changed = true;
		}
	}
	if (changed)
		store::settle_counter(*locked, window, now);
	return released;
}

std::int64_t expire_reservations(std::int64_t batch)
{
	const core::Instant now = read_clock();
	const core::Instant until = now - core::Span::from_seconds(settings::reservation_grace_seconds());
	std::int64_t released = 0;
	std::int64_t passed = 0;
	while (released < batch && passed < batch * looks_per_batch) {
		auto due = store::read_due_reservations(until, batch - released, passed);
		if (due.empty())
			break;
		std::sort(due.begin(), due.end(), [](const auto &a, const auto &b) {
			return counter_order(a) != counter_order(b) ? counter_order(a) < counter_order(b) : a.id < b.id;
		});
		std::int64_t released_here = 0;
		for (std::size_t begin = 0, end = 0; begin < due.size(); begin = end) {
			while (end < due.size() && counter_order(due[end]) == counter_order(due[begin]))
				end++;
			released_here += expire_reservations_of_counter(&due[begin], &due[begin] + (end - begin), now);
			pg::check_for_interrupts();
		}
		released += released_here;
		passed += static_cast<std::int64_t>(due.size()) - released_here;
	}
	return released;
}

// --- finished rows -------------------------------------------------------------------------------------------------

// A request goes once its reservations and leases are gone.
std::int64_t delete_old_requests(std::int64_t batch)
{
	const core::Instant now = read_clock();
	const core::Instant until = now - retention();
	for (std::int64_t i = 0; i < looks_per_batch && store::keep_open_requests(until, now, batch) > 0; i++)
		pg::check_for_interrupts();
	return store::delete_requests(until, batch);
}

// --- what is idle --------------------------------------------------------------------------------------------------

std::int64_t delete_idle_rows(store::IdleTable table, std::int64_t batch)
{
	const core::Instant now = read_clock();
	const core::Span idle = idle_retention();
	std::int64_t deleted = 0;
	for (std::int64_t i = 0; i < looks_per_batch && deleted < batch; i++) {
		const auto candidates = store::lock_idle_candidates(table, now - idle, batch - deleted);
		if (candidates.empty())
			break;
		pg::Vector<ItemPointerData> places;
		for (const store::IdleCandidate &candidate : candidates) {
			const auto later = candidate.in_use
				? std::optional(core::idle_from_use(now, idle))
				: core::idle_from(candidate.touched_at, candidate.over_at, idle, now);
			if (later)
				store::move_idle_from(table, candidate.place, *later);
			else
				places.push_back(candidate.place);
		}
		store::delete_idle(table, places);
		deleted += static_cast<std::int64_t>(places.size());
		pg::check_for_interrupts();
	}
	return deleted;
}

} // namespace

Reaped reap(std::int64_t batch)
{
	Reaped reaped;
	const auto note = [&](std::int64_t count) {
		reaped.more = reaped.more || count >= batch;
		return count;
	};
	reaped.expired_deadlines = note(reap_deadlines(batch));
	reaped.expired_waiters = note(reap_waiters(batch));
	reaped.expired_leases = note(reap_leases(batch));
	reaped.expired_reservations = note(expire_reservations(batch));
	reaped.deleted += note(store::delete_finished_reservations(read_clock() - retention(), batch));
	reaped.deleted += note(delete_old_requests(batch));
	reaped.deleted += note(store::delete_finished_tasks(read_clock() - retention(), batch));
	reaped.deleted += note(store::delete_workers(read_clock() - idle_retention(), batch));
	reaped.deleted += note(delete_idle_rows(store::IdleTable::counters, batch));
	reaped.deleted += note(delete_idle_rows(store::IdleTable::scopes, batch));
	reaped.deleted += note(store::delete_idle_buckets(
		static_cast<std::int32_t>(batch), std::int64_t{settings::idle_retention_seconds()} * 1'000));
	namespace statistics = pg::statistics;
	statistics::add(statistics::Source::rl_reap, {}, {}, statistics::reaped, static_cast<std::uint64_t>(reaped.rows()));
	return reaped;
}

} // namespace ratelimit::upkeep
