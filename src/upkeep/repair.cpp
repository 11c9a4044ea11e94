// Repairing: a slice of the aggregates is compared with its rows; those that differ are locked, unless somebody else holds
// them; then they are compared again, since only now nobody else changes them or their rows; and what still differs is
// written as the rows say. Two such looks cost less than looking at the rows of one aggregate at a time.
#include <algorithm>

#include "pg/clock.hpp"
#include "pg/entry.hpp"
#include "store/queue_store.hpp"
#include "store/retention_store.hpp"
#include "upkeep/verify.hpp"

namespace ratelimit::upkeep {

namespace {

using store::AggregateKey;
using store::Aggregates;
using store::KeyRange;
using Keys = pg::Vector<AggregateKey>;

core::Instant read_clock() noexcept { return {pg::decision_clock_us()}; }

// What a slice came to: how many were repaired, and the last key when the bound was reached before the end.
struct Slice {
	std::int64_t repaired = 0;
	std::optional<AggregateKey> stopped_at;
};

template <typename Difference>
const Difference *find(const pg::Vector<Difference> &differences, const AggregateKey &key) noexcept
{
	const auto found = std::find_if(differences.begin(), differences.end(), [&](const auto &d) { return d.key == key; });
	return found != differences.end() ? &*found : nullptr;
}

store::CounterKey counter_key(const AggregateKey &key)
{
	return {key.scope_type, key.scope_key, key.metric, key.window_seconds};
}

// --- counters ------------------------------------------------------------------------------------------------------

// The keys that look wrong, in their order, without repetition.
Keys suspect_counters(const KeyRange &range, core::Instant now)
{
	Keys keys;
	pg::ReadSnapshot snapshot;
	for (const auto &counter : store::read_counter_differences(snapshot, range))
		if (!core::verify_counter(counter.facts).empty())
			keys.push_back(counter.key);
	for (const auto &open : store::read_uncounted(snapshot, range))
		if (!core::verify_uncounted(open.facts, now).empty())
			keys.push_back(open.key);
	snapshot.finish();
	std::sort(keys.begin(), keys.end());
	keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
	return keys;
}

// The newest window in which reservations of the key are open and not counted.
const store::UncountedReservations *newest(
	const pg::Vector<store::UncountedReservations> &uncounted, const AggregateKey &key, core::Instant now) noexcept
{
	const store::UncountedReservations *found = nullptr;
	for (const auto &open : uncounted)
		if (open.key == key && !core::verify_uncounted(open.facts, now).empty())
			found = &open; // they come in the order of their windows
	return found;
}

// A counter in an older window moves on to that of its reservations, where nothing is known of what was spent.
bool repair_counter(const std::optional<store::CounterRow> &row, const AggregateKey &key,
	const store::CounterDifference *difference, const store::UncountedReservations *open, core::Instant now)
{
	if (open != nullptr) {
		const store::CounterUpdate update{{open->facts.window_start, 0, open->facts.open}, open->limit, now};
		if (!row)
			return store::insert_counter(counter_key(key), update);
		store::write_counter(*row, update);
		return true;
	}
	if (!row || difference == nullptr)
		return false;
	const core::Findings findings = core::verify_counter(difference->facts);
	if (findings.empty())
		return false;
	const core::StoredWindow &stored = difference->facts.stored;
	const bool used_is_wrong = std::any_of(findings.begin(), findings.end(),
		[](const core::Finding &finding) { return finding.problem == core::Problem::counter_used; });
	store::settle_counter(
		*row, {stored.start, used_is_wrong ? 0 : stored.used, difference->facts.open}, row->touched_at);
	return true;
}

struct LockedCounter {
	AggregateKey key;
	std::optional<store::CounterRow> row;
};

Slice repair_counters(const KeyRange &range, std::int64_t count)
{
	Slice slice;
	const core::Instant now = read_clock();
	pg::Vector<LockedCounter> locked;
	for (const AggregateKey &key : suspect_counters(range, now)) {
		if (static_cast<std::int64_t>(locked.size()) == count) {
			slice.stopped_at = locked.back().key;
			break;
		}
		const store::CounterKey parameters = counter_key(key);
		const auto row = store::try_lock_counter(parameters);
		if (row || !store::read_counter(parameters))
			locked.push_back({key, row});
	}
	if (locked.empty())
		return slice;
	pg::ReadSnapshot snapshot;
	const auto differences = store::read_counter_differences(snapshot, range);
	const auto uncounted = store::read_uncounted(snapshot, range);
	snapshot.finish();
	for (const LockedCounter &counter : locked)
		if (repair_counter(counter.row, counter.key, find(differences, counter.key), newest(uncounted, counter.key, now), now))
			slice.repaired++;
	return slice;
}

// --- scopes --------------------------------------------------------------------------------------------------------

bool is_wrong(const store::ScopeDifference &scope) noexcept
{
	return !scope.exists || !core::verify_scope(scope.facts).empty();
}

bool repair_scope(const store::ScopeDifference &difference, core::Instant now)
{
	const store::ScopeKey key(difference.key.scope_type, difference.key.scope_key);
	core::StoredScope scope;
	scope.leased = difference.facts.leased;
	scope.lease_count = difference.facts.lease_count;
	scope.expires_from = difference.facts.first_expiry;
	if (!difference.exists && !store::insert_scope(key, scope, now))
		return false;
	const auto row = store::read_scope_sums(key);
	if (!row)
		return false;
	core::StoredQueue queue = row->queue;
	queue.waiting = static_cast<std::int32_t>(difference.facts.waiting);
	store::rewrite_scope(*row, scope, queue, row->touched_at);
	return true;
}

Slice repair_scopes(const KeyRange &range, std::int64_t count)
{
	Slice slice;
	Keys locked;
	pg::ReadSnapshot first_look;
	const auto suspects = store::read_scope_differences(first_look, range);
	first_look.finish();
	for (const auto &suspect : suspects) {
		if (!is_wrong(suspect))
			continue;
		if (static_cast<std::int64_t>(locked.size()) == count) {
			slice.stopped_at = locked.back();
			break;
		}
		if (!suspect.exists || store::try_lock_scope({suspect.key.scope_type, suspect.key.scope_key}))
			locked.push_back(suspect.key);
	}
	if (locked.empty())
		return slice;
	pg::ReadSnapshot second_look;
	const auto differences = store::read_scope_differences(second_look, range);
	second_look.finish();
	const core::Instant now = read_clock();
	for (const AggregateKey &key : locked)
		if (const auto *difference = find(differences, key); difference != nullptr && is_wrong(*difference))
			slice.repaired += repair_scope(*difference, now) ? 1 : 0;
	return slice;
}

// --- going round ---------------------------------------------------------------------------------------------------

Slice repair_slice(Aggregates aggregates, const KeyRange &range, std::int64_t count)
{
	pg::check_for_interrupts();
	return aggregates == Aggregates::counters ? repair_counters(range, count) : repair_scopes(range, count);
}

std::optional<AggregateKey> slice_end(Aggregates aggregates, const AggregateKey &after, std::int64_t count)
{
	pg::ReadSnapshot snapshot;
	const auto end = store::key_after(aggregates, snapshot, after, count);
	snapshot.finish();
	return end;
}

Aggregates other(Aggregates aggregates) noexcept
{
	return aggregates == Aggregates::counters ? Aggregates::scopes : Aggregates::counters;
}

// Where the next call begins, after a slice that was gone through to its end or stopped before it.
store::RepairPosition position_after(Aggregates aggregates, const KeyRange &range, const Slice &slice)
{
	if (slice.stopped_at)
		return {aggregates, *slice.stopped_at};
	if (range.until)
		return {aggregates, *range.until};
	return {other(aggregates), {}};
}

} // namespace

std::int64_t repair(std::int64_t count, Round round)
{
	const store::RepairPosition begin = store::read_repair_position();
	const Aggregates first = begin.aggregates;
	const KeyRange slice_range{begin.after, slice_end(first, begin.after, count)};

	// The bounded slice; what follows it; the other kind; and what came before it.
	pg::Vector<std::pair<Aggregates, KeyRange>> parts;
	parts.push_back({first, slice_range});
	if (round == Round::one_slice) {
		// What is left of the kind may be little: then the other one as well, so that few of both end where they began.
		if (!slice_range.until)
			parts.push_back({other(first), {{}, slice_end(other(first), {}, count)}});
	} else {
		if (slice_range.until)
			parts.push_back({first, {*slice_range.until, std::nullopt}});
		parts.push_back({other(first), {}});
		parts.push_back({first, {{}, begin.after}});
	}
	Slice slice;
	store::RepairPosition next = begin;
	std::int64_t repaired = 0;
	for (const auto &[aggregates, range] : parts) {
		slice = repair_slice(aggregates, range, count);
		repaired += slice.repaired;
		next = position_after(aggregates, range, slice);
		if (repaired > 0 && round != Round::everything)
			break;
	}
	const bool has_moved = next.aggregates != begin.aggregates || !(next.after == begin.after);
	if (has_moved)
		store::write_repair_position(next);
	return repaired;
}

} // namespace ratelimit::upkeep
