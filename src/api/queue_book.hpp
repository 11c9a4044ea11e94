// The scopes that one call of the admission queue deals with: read as of one instant, or locked, then changed together.
//
// Looking (add, look) locks nothing and serves answers that the committed state proves. Changing goes: add every scope of
// the call, lock_all(), decide again, then grant, enter and leave in memory, write() each row once, wake_next().
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <tuple>

#include "api/lease_scope.hpp"
#include "api/task_scopes.hpp"
#include "core/queue.hpp"
#include "pg/memory.hpp"
#include "store/queue_store.hpp"
#include "store/task_store.hpp"

namespace ratelimit::api {

[[nodiscard]] core::Instant queue_clock() noexcept;

struct ScopeName {
	std::string_view scope_type;
	std::string_view scope_key;

	friend bool operator<(const ScopeName &a, const ScopeName &b) noexcept
	{
		return std::tie(a.scope_type, a.scope_key) < std::tie(b.scope_type, b.scope_key);
	}
};

// One scope during a call.
struct QueueScope {
	explicit QueueScope(const ScopeName &name) : lease(name.scope_type, name.scope_key, 0, 0) {}

	LeaseScope lease;
	bool seen = false;   // the row was read, or found missing
	bool locked = false;
	bool dirty = false;  // to be written
	bool left = false;   // somebody left the queue or gave leases back: the next may go
	bool held = false;   // the dispatcher cannot go on here: somebody else holds the head
	double own = 0;      // live leases that do not count against the task
	bool entered = false; // the task itself is counted among the waiting
	double taken = 0;    // what others are about to take: the dispatcher's plan, or who was told
	core::Turn passed;   // the dispatcher plans to admit everybody up to here
	bool any_passed = false;
	std::optional<std::optional<store::Candidate>> head; // once it was looked for

	[[nodiscard]] core::StoredQueue queue() const noexcept
	{
		return lease.row ? lease.row->queue : core::StoredQueue{};
	}
};

// Whether to look for the heads, which being let in does not depend on.
enum class Heads { look, skip };

using Standings = pg::SmallVector<core::Standing, 4>;

class QueueBook {
public:
	explicit QueueBook(core::Instant now) noexcept : now_(now) {}
	QueueBook(const QueueBook &) = delete;
	QueueBook &operator=(const QueueBook &) = delete;

	[[nodiscard]] core::Instant now() const noexcept { return now_; }
	QueueScope &add(std::string_view scope_type, std::string_view scope_key);
	void add(const ScopeList &list);
	// As committed, or as changed by this transaction.
	QueueScope &look(const TaskScope &scope);
	// Locks all scopes in the order of their names, creating missing ones, then reads the clock and the rows.
	void lock_all();
	// The same without waiting for a scope that somebody else holds; false when one is held.
	[[nodiscard]] bool try_lock_all();

	// Fills in the limits that are taken anew by every call.
	void resolve(ScopeList &list);
	// How the scopes stand for a task with this turn. A saturated scope is not asked for its head.
	[[nodiscard]] Standings standings(const core::Turn &turn, const ScopeList &list, Heads heads = Heads::look);
	// The head of the scope's order.
	const std::optional<store::Candidate> &head_of(QueueScope &scope);

	// Removes expired leases of the locked scopes so that the demands fit, as far as they can. What counts as free from
	// then on is what is left of the sums.
	void make_room(const ScopeList &list);

	// Of locked scopes, in memory except for the rows of leases and of the waiting.
	void enter(const core::Turn &turn, const ScopeList &list);
	void leave(const core::Turn &turn, const ScopeList &list);
	[[nodiscard]] pg::Vector<core::Uuid> grant(std::string_view task_id, const ScopeList &list);
	// Gives back those of the leases that are live; their scopes are locked. Returns how many.
	int release(pg::Vector<core::Uuid> &lease_ids);
	void changed(const TaskScope &scope, bool left);

	void write();
	// Writes every scope, with the number of its waiting tasks as its rows say.
	void recount();
	// Drops rows that this call has created and nobody uses, when it changes nothing after all.
	void undo();
	// Tells the heads that can go now, of the scopes where somebody left.
	void wake_next();

	// What a task is about to take counts from now on.
	void take(const ScopeList &list);
	// The dispatcher's plan, before it locks.
	void plan(const core::Turn &turn, const ScopeList &list);
	void hold(const ScopeList &list);

private:
	void read_locked();
	[[nodiscard]] double active_in(const QueueScope &scope) const noexcept;

	core::Instant now_;
	std::map<ScopeName, QueueScope> scopes_; // in lock order
	bool roomy_ = false;                     // expired leases were removed: the sums count
	std::optional<double> worker_capacity_;
};

// Tells the heads of these scopes that can go now; call it when what they see has been written.
class Waker {
public:
	explicit Waker(core::Instant now) : book_(now) {}
	void wake_head_of(std::string_view scope_type, std::string_view scope_key);

private:
	void wake(const store::Candidate &candidate);

	QueueBook book_;
	pg::Vector<std::string_view> told_;
};

} // namespace ratelimit::api
