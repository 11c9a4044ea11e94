// Granting leases in scopes that are locked: what a call with concurrency limits and the admission queue share.
#pragma once

#include <optional>

#include "core/lease.hpp"
#include "core/request.hpp"
#include "core/view.hpp"
#include "store/lease_store.hpp"

namespace ratelimit::api {

// One scope during a call.
struct LeaseScope {
	LeaseScope(std::string_view type, std::string_view name, double asked, double bound)
		: scope_type(type), scope_key(name), amount(asked), limit(bound), key(type, name)
	{
	}

	std::string_view scope_type;
	std::string_view scope_key;
	double amount; // what the call asks for in all
	double limit;  // the smallest limit it names
	store::ScopeKey key;
	std::optional<store::ScopeRow> row;
	bool inserted = false; // the row was created by this call

	[[nodiscard]] core::ScopeUsage usage() const noexcept { return row ? row->usage : core::ScopeUsage{}; }
	[[nodiscard]] core::StoredScope stored() const noexcept { return row ? row->scope : core::StoredScope{}; }
};

// Locks the scope's row, creating it when there is none.
void lock_scope(LeaseScope &scope, core::Instant now);

// Removes expired leases of the locked scopes until what the call asks for fits, oldest first, and a batch more, so
// that each lease is removed once and no grant pays for all. What looked expired may have been renewed by a transaction that
// has ended since. The rows hold the new sums, which are written either way.
struct Room {
	bool fits;
	bool as_seen; // nothing turned out to be live after all, so what was read about the scopes still holds
};
[[nodiscard]] Room make_room(core::View<LeaseScope> scopes, core::Instant now);

// Adds a lease to the sums in memory; write_scope() stores them.
void add_to_scope(LeaseScope &scope, double amount, core::Instant expires_at) noexcept;
void write_scope(const LeaseScope &scope, core::Instant now);

} // namespace ratelimit::api
