#include "api/lease_scope.hpp"

#include <algorithm>

#include "pg/entry.hpp"

namespace ratelimit::api {

namespace {

// How many expired leases a grant removes beyond what it needs: an eighth of the backlog, which it has just added up, at
// least sixteen and never so many that one grant pays for all. The backlog shrinks geometrically, so that each lease is
// added up a bounded number of times on average.
std::size_t extra_removals(const LeaseScope &scope) noexcept
{
	return static_cast<std::size_t>(std::clamp<std::int64_t>(scope.usage().expired_count / 8, 16, 1000));
}

using Ids = pg::Vector<core::Uuid>;

bool has_room(const LeaseScope &scope) noexcept { return core::fits(scope.stored().leased + scope.amount, scope.limit); }

bool may_have_expired(const LeaseScope &scope, core::Instant now) noexcept
{
	return scope.row && !core::lease_is_live(scope.row->scope.expires_from, now);
}

// Picks the expired leases of one scope: those that must go for the call to fit, and a few more. Reads only.
void pick_expired(const LeaseScope &scope, core::Instant now, Ids &needed, Ids &extra)
{
	const std::size_t extra_count = extra_removals(scope);
	std::int64_t count = 2 * static_cast<std::int64_t>(extra_count);
	for (;;) {
		const auto expired = store::read_expired(scope.key, scope.stored().expires_from, now, count);
		core::StoredScope left = scope.stored();
		std::size_t must_go = 0;
		while (must_go < expired.size() && !core::fits(left.leased + scope.amount, scope.limit))
			left = core::remove_leases(left, expired[must_go++].amount, 1);
		const bool seen_all = static_cast<std::int64_t>(expired.size()) < count;
		if (!seen_all && must_go + extra_count > expired.size()) {
			count *= 4;
			continue;
		}
		for (std::size_t i = 0; i < std::min(expired.size(), must_go + extra_count); i++)
			(i < must_go ? needed : extra).push_back(expired[i].id);
		return;
	}
}

void subtract_removed(core::View<LeaseScope> scopes, const pg::Vector<store::RemovedLease> &removed) noexcept
{
	for (const store::RemovedLease &lease : removed)
		for (LeaseScope &scope : scopes)
			if (scope.scope_type == lease.scope_type && scope.scope_key == lease.scope_key)
				scope.row->scope = core::remove_leases(scope.row->scope, lease.amount, 1);
}

core::View<core::Uuid> sorted_view(Ids &ids)
{
	std::sort(ids.begin(), ids.end());
	return {ids.data(), ids.size()};
}

struct Round {
	bool progress; // another one may find more: something was removed, or turned out to be live after all
	bool all_gone; // what had to go is gone
};

// One round over all scopes. The leases of all of them are locked in one order, that of their ids, in one statement.
Round remove_round(core::View<LeaseScope> scopes, core::Instant now, store::Locked locked)
{
	Ids needed;
	Ids extra;
	for (const LeaseScope &scope : scopes)
		if (may_have_expired(scope, now))
			pick_expired(scope, now, needed, extra);
	const auto removed = store::remove_expired(sorted_view(needed), now, locked);
	const auto removed_too = store::remove_expired(sorted_view(extra), now, store::Locked::skip);
	pg::SmallVector<core::StoredScope, 4> before;
	for (const LeaseScope &scope : scopes)
		before.push_back(scope.stored());
	subtract_removed(scopes, removed);
	subtract_removed(scopes, removed_too);
	for (std::size_t i = 0; i < scopes.size; i++)
		if (scopes[i].row && core::sum_is_doubtful(before[i], scopes[i].row->scope))
			scopes[i].row->scope.leased = store::sum_leases(scopes[i].key);
	for (LeaseScope &scope : scopes)
		if (may_have_expired(scope, now))
			scope.row->scope.expires_from = store::expiry_from(scope.key, scope.row->scope.expires_from);
	const bool waited_for_all = locked == store::Locked::wait && !needed.empty(); // what is left of them is live
	return {waited_for_all || !removed.empty() || !removed_too.empty(), removed.size() == needed.size()};
}

} // namespace

void lock_scope(LeaseScope &scope, core::Instant now)
{
	while (!store::lock_scope(scope.key)) {
		if (store::insert_scope(scope.key, core::StoredScope{}, now))
			scope.inserted = true;
		pg::check_for_interrupts();
	}
}

Room make_room(core::View<LeaseScope> scopes, core::Instant now)
{
	const auto all_fit = [&] { return std::all_of(scopes.begin(), scopes.end(), has_room); };
	const auto any_expired = [&] {
		return std::any_of(scopes.begin(), scopes.end(), [&](const LeaseScope &scope) { return may_have_expired(scope, now); });
	};
	if (!any_expired())
		return {all_fit(), true};

	// The first round waits for leases that somebody is renewing, in the order of the ids, and so cannot deadlock with
	// another call. Later rounds already hold lease rows and must not wait.
	Round round = remove_round(scopes, now, store::Locked::wait);
	const bool as_seen = round.all_gone;
	while (!all_fit() && round.progress && any_expired()) {
		pg::check_for_interrupts();
		round = remove_round(scopes, now, store::Locked::skip);
	}
	return {all_fit(), as_seen};
}

void add_to_scope(LeaseScope &scope, double amount, core::Instant expires_at) noexcept
{
	scope.row->scope = core::add_lease(scope.row->scope, amount, expires_at);
}

void write_scope(const LeaseScope &scope, core::Instant now) { store::write_scope(*scope.row, scope.row->scope, now); }

} // namespace ratelimit::api
