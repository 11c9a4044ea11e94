// rl_commit, rl_release, rl_attach and rl_renew: what becomes of reservations and leases.
//
// Lock order: counters, scopes, then leases and reservations, each by the bytes of the key or id. A reservation or lease
// never changes its key, so the keys to lock can be read before anything is locked; whether it is still open is seen
// again under the lock of its own row.
#include <algorithm>
#include <tuple>

#include "api/arguments.hpp"
#include "api/queue_book.hpp"
#include "api/settling.hpp"
#include "pg/clock.hpp"
#include "pg/entry.hpp"
#include "pg/spi.hpp"
#include "pg/value.hpp"
#include "store/lease_store.hpp"
#include "store/reservation_store.hpp"

namespace ratelimit::api {

namespace {

using Ids = pg::Vector<core::Uuid>;

core::View<core::Uuid> view(Ids &ids) noexcept { return {ids.data(), ids.size()}; }

core::Instant read_clock() noexcept { return {pg::decision_clock_us()}; }

// The open ones among the ids, with their counters locked.
Settling settling_of(Ids &ids)
{
	if (ids.empty())
		return Settling({});
	return Settling(store::read_open_reservations(pg::uuid_array_datum(ids.data(), ids.size())));
}

// --- leases --------------------------------------------------------------------------------------------------------

struct LockedScope {
	std::string_view scope_type;
	std::string_view scope_key;
	store::ScopeKey key;
};

struct LockedScopes {
	pg::Vector<LockedScope> scopes;
	Ids lease_ids; // in those scopes
};

// Locks the scopes of those of the leases that are known. A lease that becomes known while this waits for locks stays
// unknown: its scope is not locked, so its removal could not be taken off the sums.
LockedScopes lock_scopes_of(Ids &lease_ids)
{
	LockedScopes locked;
	if (lease_ids.empty())
		return locked;
	auto leases = store::read_leases(view(lease_ids));
	const auto order = [](const store::LeaseRow &lease) { return std::tie(lease.scope_type, lease.scope_key); };
	std::sort(leases.begin(), leases.end(), [&](const auto &a, const auto &b) { return order(a) < order(b); });
	bool has_scope = false;
	for (std::size_t i = 0; i < leases.size(); i++) {
		if (i == 0 || order(leases[i - 1]) != order(leases[i])) {
			LockedScope scope{leases[i].scope_type, leases[i].scope_key, {leases[i].scope_type, leases[i].scope_key}};
			has_scope = store::lock_scope(scope.key);
			if (has_scope)
				locked.scopes.push_back(scope);
		}
		if (has_scope)
			locked.lease_ids.push_back(leases[i].id);
	}
	std::sort(locked.lease_ids.begin(), locked.lease_ids.end());
	return locked;
}

// Under an old snapshot, statements that write do not see leases that were made since: a live one that was not handled
// must not be taken for lost.
void require_all_live(Ids &ids, core::Instant now, const pg::Vector<store::LeaseRow> &handled)
{
	if (!pg::writes_see_old_snapshot())
		return;
	for (const store::LeaseRow &lease : store::read_leases(view(ids)))
		if (core::lease_is_live(lease.expires_at, now) &&
			std::none_of(handled.begin(), handled.end(), [&](const auto &other) { return other.id == lease.id; }))
			pg::throw_serialization_failure();
}

// Removes the live leases among the ids, whose scopes are locked, and takes them off the sums.
int release_leases(Ids &lease_ids, LockedScopes &locked)
{
	if (lease_ids.empty())
		return 0;
	const core::Instant now = read_clock();
	const auto removed = store::remove_live(view(locked.lease_ids), now);
	require_all_live(lease_ids, now, {});
	pg::SmallVector<const LockedScope *, 4> awaited;
	for (const LockedScope &scope : locked.scopes) {
		double amount = 0;
		std::int64_t count = 0;
		for (const store::RemovedLease &lease : removed) {
			if (lease.scope_type == scope.scope_type && lease.scope_key == scope.scope_key) {
				amount = core::add_amounts(amount, lease.amount);
				count++;
			}
		}
		if (count == 0)
			continue;
		if (const auto row = store::read_scope_sums(scope.key)) {
			core::StoredScope after = core::remove_leases(row->scope, amount, count);
			if (core::sum_is_doubtful(row->scope, after))
				after.leased = store::sum_leases(scope.key);
			store::write_scope(*row, after, now);
			if (row->queue.waiting > 0)
				awaited.push_back(&scope);
		}
	}
	if (!awaited.empty()) {
		Waker waker(now);
		for (const LockedScope *scope : awaited)
			waker.wake_head_of(scope->scope_type, scope->scope_key);
	}
	return static_cast<int>(removed.size());
}

Datum two_counts(FunctionCallInfo fcinfo, int reservations, int leases)
{
	pg::Columns<2> row;
	row.set(0, Int32GetDatum(reservations));
	row.set(1, Int32GetDatum(leases));
	return pg::composite_result(fcinfo, row);
}

Datum commit(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_commit");
	Ids ids = sorted_ids(fcinfo, 0, "reservation_ids", Presence::required);
	const pg::Vector<ActualAmount> actual = actual_argument(fcinfo, 1);
	pg::Session session;
	session.connect();
	int settled = 0;
	if (Settling settling = settling_of(ids); !settling.empty())
		settled = settling.settle(&actual, "success");
	session.finish();
	return Int32GetDatum(settled);
}

Datum release(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_release");
	Ids reservation_ids = sorted_ids(fcinfo, 0, "reservation_ids", Presence::optional);
	Ids lease_ids = sorted_ids(fcinfo, 1, "lease_ids", Presence::optional);
	std::optional<std::string_view> reason = optional_text(fcinfo, 2);
	if (reason && reason->empty())
		reason.reset();
	pg::Session session;
	session.connect();
	int reservations = 0;
	int leases = 0;
	{
		Settling settling = settling_of(reservation_ids);
		LockedScopes locked = lock_scopes_of(lease_ids);
		leases = release_leases(lease_ids, locked);
		if (!settling.empty())
			reservations = settling.settle(nullptr, reason);
	}
	session.finish();
	return two_counts(fcinfo, reservations, leases);
}

Datum attach(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_attach");
	check_name({"attempt_id", {}, 0}, required_text(fcinfo, 0, "attempt_id"));
	const Datum attempt_id = PG_GETARG_DATUM(0);
	Ids reservation_ids = sorted_ids(fcinfo, 1, "reservation_ids", Presence::optional);
	Ids lease_ids = sorted_ids(fcinfo, 2, "lease_ids", Presence::optional);
	pg::Session session;
	session.connect();
	int leases = 0;
	if (!lease_ids.empty()) {
		const auto locked = store::lock_leases(view(lease_ids));
		const core::Instant now = read_clock();
		require_all_live(lease_ids, now, locked);
		for (const store::LeaseRow &lease : locked) {
			if (!core::lease_is_live(lease.expires_at, now))
				continue;
			store::attach_lease(lease.id, attempt_id);
			leases++;
		}
	}
	int reservations = 0;
	for (const core::Uuid &id : reservation_ids) {
		if (store::attach_reservation(id, attempt_id))
			reservations++;
		else if (pg::writes_see_old_snapshot() && store::reservation_exists(id))
			pg::throw_serialization_failure();
	}
	session.finish();
	return two_counts(fcinfo, reservations, leases);
}

// Renews the live ones of the ids. Only the lease rows are locked: a grant that wants the slot of one of them waits.
pg::Vector<store::LeaseRow> renew_live(Ids &ids, std::optional<std::int32_t> ttl_seconds)
{
	if (ids.empty())
		return {};
	const auto locked = store::lock_leases(view(ids));
	const core::Instant now = read_clock();
	require_all_live(ids, now, locked);
	Ids live;
	for (const store::LeaseRow &lease : locked)
		if (core::lease_is_live(lease.expires_at, now))
			live.push_back(lease.id);
	std::sort(live.begin(), live.end());
	auto renewed = live.empty() ? pg::Vector<store::LeaseRow>() : store::renew_leases(view(live), now, ttl_seconds);
	std::sort(renewed.begin(), renewed.end(), [](const auto &a, const auto &b) { return a.id < b.id; });
	return renewed;
}

Datum renew(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_renew");
	const auto asked = ids_argument(fcinfo, 0, "lease_ids");
	Ids ids = sorted_ids(fcinfo, 0, "lease_ids", Presence::required);
	std::optional<std::int32_t> ttl_seconds;
	if (!PG_ARGISNULL(1))
		ttl_seconds = check_seconds({"ttl_seconds", {}, 0}, PG_GETARG_INT32(1));
	pg::SetResult result(fcinfo);
	pg::Session session;
	session.connect();
	const auto renewed = renew_live(ids, ttl_seconds);
	session.finish();
	for (std::size_t i = 0; i < asked.size(); i++) {
		pg::Columns<4> row;
		row.set(0, Int32GetDatum(static_cast<std::int32_t>(i + 1)));
		row.set(2, BoolGetDatum(false));
		if (asked[i]) {
			row.set(1, pg::uuid_datum(*asked[i]));
			const auto found = std::lower_bound(renewed.begin(), renewed.end(), *asked[i],
				[](const store::LeaseRow &lease, const core::Uuid &id) { return lease.id < id; });
			if (found != renewed.end() && found->id == *asked[i]) {
				row.set(2, BoolGetDatum(true));
				row.set(3, pg::timestamp_datum(found->expires_at.us));
			}
		}
		result.add(row);
	}
	return Datum(0);
}

} // namespace

} // namespace ratelimit::api

RATELIMIT_FUNCTION(rl_commit) { return ratelimit::api::commit(fcinfo); }
RATELIMIT_FUNCTION(rl_release) { return ratelimit::api::release(fcinfo); }
RATELIMIT_FUNCTION(rl_attach) { return ratelimit::api::attach(fcinfo); }
RATELIMIT_FUNCTION(rl_renew) { return ratelimit::api::renew(fcinfo); }
