// Who waits in which scope, and what a scope keeps about its queue.
//
// Rows of `waiting` and the queue columns of a scope are changed under the lock of the scope's row. Heads are found by the
// primary key of `waiting`, from where the scope says to begin, so that no queue is ever walked for it.
#pragma once

#include <optional>
#include <string_view>

#include "core/queue.hpp"
#include "pg/memory.hpp"
#include "pg/postgres.hpp"
#include "store/lease_store.hpp"

namespace ratelimit::store {

// How a task takes part in a scope.
enum class WaitKind : char {
	ordered = 'o', // in the scope's order
	counted = 'c', // only counted there, ordered elsewhere
	free = 'f',    // only counted, of a task that is ordered nowhere: in its first scope, where the dispatcher finds it
};

void insert_waiting(const ScopeKey &key, WaitKind kind, const core::Turn &turn);
void delete_waiting(const ScopeKey &key, WaitKind kind, const core::Turn &turn);

// A waiting task that is neither past its deadline nor abandoned. Views live as long as the call.
struct Candidate {
	core::Turn turn;
	core::Presence presence;
	core::TaskMode mode;
};

// Before every turn that there is from where the scope says to begin.
[[nodiscard]] core::Turn first_turn(const core::StoredQueue &queue) noexcept;

// The first such task after a turn; those that are put aside are taken too, or not.
enum class Aside { take, skip };
[[nodiscard]] std::optional<Candidate> next_waiting(
	const ScopeKey &key, WaitKind kind, const core::Turn &after, core::Instant now, Aside aside);

// Writes both halves of a scope's row that this transaction has locked, and has the dispatcher look at it.
void write_scope(const ScopeRow &locked, const core::StoredScope &scope, const core::StoredQueue &queue, core::Instant at);

// The same when the queue's columns may have been wrong: what the dispatcher is told is made anew, and the head is looked for
// from the beginning.
void rewrite_scope(const ScopeRow &locked, const core::StoredScope &scope, core::StoredQueue queue, core::Instant at);
// Deletes all places of a task in a scope whose row is locked.
void delete_places(const ScopeKey &key, std::string_view task_id);
// The scopes in which a task has a place. Views live as long as the call.
struct PlaceScope {
	std::string_view scope_type;
	std::string_view scope_key;
};
[[nodiscard]] pg::Vector<PlaceScope> read_places(std::string_view task_id);
[[nodiscard]] std::int64_t count_places(const ScopeKey &key);

// Scopes with waiting tasks that the dispatcher has to look at. Views live as long as the call.
struct ReadyScope {
	std::string_view scope_type;
	std::string_view scope_key;
	core::Turn begins; // no task of it comes before this; without an id
};

// Those that have changed since the dispatcher looked, in the order of where they begin, a batch after one of them.
inline constexpr std::size_t ready_batch = 16;
[[nodiscard]] pg::Vector<ReadyScope> read_ready(const std::optional<ReadyScope> &after);
// Those that have not changed, but whose time has come.
[[nodiscard]] pg::Vector<ReadyScope> read_due(core::Instant now, std::size_t count);

// The dispatcher found that nothing in the scope can go before `look_at` unless something changes; or that it has to look
// again. False, with nothing done, when somebody has changed the row since it was read, or holds it.
[[nodiscard]] bool mark_idle(const ScopeRow &found, core::Instant look_at);
[[nodiscard]] bool mark_ready(const ScopeRow &found);

} // namespace ratelimit::store
