// Scopes and leases.
//
// Who changes the lease rows of a scope holds the lock on its row in `scopes`: grants and releases of one scope come one
// after the other. Renewing is the exception: it moves expiries only, which no aggregate depends on, and locks just the
// lease rows. Whoever locks several lease rows does so in the order of their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/lease.hpp"
#include "core/queue.hpp"
#include "core/uuid7.hpp"
#include "core/view.hpp"
#include "pg/memory.hpp"
#include "pg/index_scan.hpp"

namespace ratelimit::store {

// The scope as parameters, made once per call.
struct ScopeKey {
	ScopeKey() noexcept = default;
	ScopeKey(std::string_view scope_type, std::string_view scope_key);

	Datum scope_type = Datum(0);
	Datum scope_key = Datum(0);
	std::uint32_t hash = 0;
};

// A scope, and its lease rows as of the instant asked for, read under one snapshot.
struct ScopeRow {
	core::StoredScope scope;
	core::ScopeUsage usage;
	core::StoredQueue queue;  // as the call changes it; written by store/queue_store only
	core::StoredQueue stored; // as found
	bool ready = true;        // the dispatcher has to look at the scope
	ScopeKey key;
	core::Instant touched_at;
	pg::RowVersion version;
	bool contended; // another transaction is changing or locking the row
};

[[nodiscard]] std::optional<ScopeRow> read_scope(const ScopeKey &key, core::Instant now);
// Without what its lease rows say: its usage is left empty, and it costs the same however many there are.
[[nodiscard]] std::optional<ScopeRow> read_scope_sums(const ScopeKey &key);
// Locks the row, waiting for others; false when there is none. Until the transaction ends nobody else changes it, nor any
// lease row of the scope but for renewals.
[[nodiscard]] bool lock_scope(const ScopeKey &key);
// Creates the row, empty or with its first lease. False when it exists by now.
[[nodiscard]] bool insert_scope(const ScopeKey &key, const core::StoredScope &scope, core::Instant at);
// Replaces the row if it is still what was read; may wait for another transaction to decide that.
[[nodiscard]] bool replace_scope(const ScopeRow &found, const core::StoredScope &scope, core::Instant at);
// Writes a row that this transaction has locked.
void write_scope(const ScopeRow &locked, const core::StoredScope &scope, core::Instant at);
// Takes back a row that this call has inserted.
void delete_scope(const ScopeRow &locked);

// The earliest expiry of a lease row of the scope that is not before `from`; `latest` when there is none.
[[nodiscard]] core::Instant expiry_from(const ScopeKey &key, core::Instant from);

// The sum over all lease rows of the scope, which is locked.
[[nodiscard]] double sum_leases(const ScopeKey &key);

struct ExpiredLease {
	core::Uuid id;
	double amount;
};

// The lease rows of the scope that expire in [from, until], oldest first, at most `count` of them. Takes no lock.
[[nodiscard]] pg::Vector<ExpiredLease> read_expired(
	const ScopeKey &key, core::Instant from, core::Instant until, std::int64_t count);

// A lease row that was deleted. Views live until the session ends.
struct RemovedLease {
	core::Uuid id;
	double amount;
	std::string_view scope_type;
	std::string_view scope_key;
};

// Whether to wait for lease rows that others hold locked, or to leave them.
enum class Locked { wait, skip };

// Deletes those of the ids that are over at `now`, or are live at `now`, in the order of the ids.
[[nodiscard]] pg::Vector<RemovedLease> remove_expired(core::View<core::Uuid> ids, core::Instant now, Locked locked);
[[nodiscard]] pg::Vector<RemovedLease> remove_live(core::View<core::Uuid> ids, core::Instant now);

struct NewLease {
	core::Uuid id;
	core::Instant created_at;
	core::Instant expires_at;
	double amount;
	double limit;
	std::int32_t ttl_seconds;
	std::optional<std::string_view> task_id;
	std::optional<std::string_view> attempt_id;
};

void insert_lease(const ScopeKey &key, const NewLease &lease);

// Where a lease is and how long it lasts.
struct LeaseRow {
	core::Uuid id;
	core::Instant expires_at;
	std::string_view scope_type;
	std::string_view scope_key;
	double amount;
};

// As committed, or as changed by this transaction; or locked in the order of the ids. Unknown ids are left out.
[[nodiscard]] pg::Vector<LeaseRow> read_leases(core::View<core::Uuid> ids);
[[nodiscard]] pg::Vector<LeaseRow> lock_leases(core::View<core::Uuid> ids);

// The live leases that carry a task's id. Takes no lock.
[[nodiscard]] pg::Vector<LeaseRow> read_leases_of_task(std::string_view task_id, core::Instant now);

// Moves the expiries of locked leases to at least now + TTL; a given TTL becomes theirs. Returns the new state.
[[nodiscard]] pg::Vector<LeaseRow> renew_leases(
	core::View<core::Uuid> ids, core::Instant now, std::optional<std::int32_t> ttl_seconds);

// Sets the attempt of a locked lease.
void attach_lease(const core::Uuid &id, Datum attempt_id);

} // namespace ratelimit::store
