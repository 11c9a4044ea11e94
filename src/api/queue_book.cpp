#include "api/queue_book.hpp"

#include <algorithm>
#include <limits>

#include "api/ids.hpp"
#include "core/check.hpp"
#include "pg/clock.hpp"
#include "pg/entry.hpp"
#include "pg/notify.hpp"
#include "store/retention_store.hpp"
#include "store/worker_store.hpp"

namespace ratelimit::api {

namespace {

// How many tasks that are only counted in a scope are looked at for those that can go.
constexpr int counted_looks_max = 32;

bool takes_part(const ScopeList &list) noexcept
{
	return std::any_of(list.begin(), list.end(), [](const TaskScope &scope) { return scope.demand.fifo; });
}

store::WaitKind kind_of(const ScopeList &list, std::size_t index) noexcept
{
	if (list[index].demand.fifo)
		return store::WaitKind::ordered;
	return index == 0 && !takes_part(list) ? store::WaitKind::free : store::WaitKind::counted;
}

} // namespace

core::Instant queue_clock() noexcept { return {pg::decision_clock_us()}; }

QueueScope &QueueBook::add(std::string_view scope_type, std::string_view scope_key)
{
	const ScopeName name{scope_type, scope_key};
	return scopes_.try_emplace(name, name).first->second;
}

void QueueBook::add(const ScopeList &list)
{
	for (const TaskScope &scope : list)
		(void)add(scope.scope_type, scope.scope_key);
}

QueueScope &QueueBook::look(const TaskScope &wanted)
{
	QueueScope &scope = add(wanted.scope_type, wanted.scope_key);
	if (!scope.seen) {
		scope.lease.row = store::read_scope(scope.lease.key, now_);
		scope.seen = true;
	}
	return scope;
}

void QueueBook::lock_all()
{
	for (auto &[name, scope] : scopes_) {
		lock_scope(scope.lease, now_);
		scope.locked = true;
	}
	read_locked();
}

bool QueueBook::try_lock_all()
{
	for (auto &[name, scope] : scopes_) {
		if (!store::try_lock_scope(scope.lease.key)) {
			if (store::read_scope_sums(scope.lease.key))
				return false;
			lock_scope(scope.lease, now_);
		}
		scope.locked = true;
	}
	read_locked();
	return true;
}

void QueueBook::read_locked()
{
	now_ = std::max(now_, queue_clock());
	for (auto &[name, scope] : scopes_) {
		scope.lease.row = store::read_scope(scope.lease.key, now_);
		RATELIMIT_CHECK(scope.lease.row.has_value());
		scope.seen = true;
		scope.head.reset();
	}
}

void QueueBook::resolve(ScopeList &list)
{
	for (TaskScope &scope : list) {
		if (!scope.demand.from_workers)
			continue;
		if (!worker_capacity_)
			worker_capacity_ = store::live_worker_capacity(now_);
		scope.demand.limit = *worker_capacity_;
	}
}

double QueueBook::active_in(const QueueScope &scope) const noexcept
{
	const double held = roomy_ && scope.locked ? scope.lease.stored().leased : scope.lease.usage().live;
	return core::subtract_amount(held, scope.own) + scope.taken;
}

Standings QueueBook::standings(const core::Turn &turn, const ScopeList &list, Heads heads)
{
	Standings standings;
	for (const TaskScope &wanted : list) {
		QueueScope &scope = look(wanted);
		core::Standing standing;
		standing.active = active_in(scope);
		standing.next_expiry = scope.lease.usage().next_expiry;
		standing.waiting = scope.queue().waiting - (scope.entered ? 1 : 0);
		if (heads == Heads::look && wanted.demand.fifo && !core::is_saturated(wanted.demand, standing.active)) {
			const std::optional<store::Candidate> &head = head_of(scope);
			standing.is_head = !scope.held && (!head || !(head->turn < turn));
		}
		standings.push_back(standing);
	}
	return standings;
}

// Where the search began is moved up to the first that is still there, so that it is not walked again: what lies before is
// over or abandoned, which a renewal undoes. Tasks that are put aside come back by themselves and are not passed.
const std::optional<store::Candidate> &QueueBook::head_of(QueueScope &scope)
{
	if (scope.head)
		return *scope.head;
	scope.head.emplace();
	const core::StoredQueue queue = scope.queue();
	if (queue.waiting == 0)
		return *scope.head;
	const core::Turn from = scope.any_passed ? scope.passed : store::first_turn(queue);
	std::optional<store::Candidate> first =
		store::next_waiting(scope.lease.key, store::WaitKind::ordered, from, now_, store::Aside::take);
	if (first && scope.locked && core::begins_after(core::begin_at(queue, first->turn), store::first_turn(queue))) {
		scope.lease.row->queue = core::begin_at(queue, first->turn);
		scope.dirty = true;
	}
	if (first && core::is_put_aside(first->presence, now_))
		first = store::next_waiting(scope.lease.key, store::WaitKind::ordered, first->turn, now_, store::Aside::skip);
	*scope.head = first;
	return *scope.head;
}

void QueueBook::make_room(const ScopeList &list)
{
	pg::SmallVector<LeaseScope, 4> crowded;
	for (const TaskScope &wanted : list) {
		if (!wanted.demand.limit)
			continue;
		LeaseScope scope = look(wanted).lease;
		scope.amount = wanted.demand.amount - look(wanted).own;
		scope.limit = *wanted.demand.limit;
		crowded.push_back(scope);
	}
	// In the order of the names, as they are locked.
	std::sort(crowded.begin(), crowded.end(), [](const LeaseScope &a, const LeaseScope &b) {
		return std::tie(a.scope_type, a.scope_key) < std::tie(b.scope_type, b.scope_key);
	});
	(void)api::make_room({crowded.data(), crowded.size()}, now_);
	for (const LeaseScope &done : crowded) {
		QueueScope &scope = add(done.scope_type, done.scope_key);
		scope.dirty = scope.dirty || scope.lease.row->scope.lease_count != done.row->scope.lease_count ||
					  scope.lease.row->scope.expires_from != done.row->scope.expires_from;
		scope.lease.row = done.row;
	}
	roomy_ = true;
}

void QueueBook::enter(const core::Turn &turn, const ScopeList &list)
{
	for (std::size_t i = 0; i < list.size(); i++) {
		QueueScope &scope = look(list[i]);
		RATELIMIT_CHECK(scope.locked);
		const store::WaitKind kind = kind_of(list, i);
		store::insert_waiting(scope.lease.key, kind, turn);
		core::StoredQueue &queue = scope.lease.row->queue;
		queue = core::enter(queue, turn);
		scope.dirty = true;
		scope.head.reset();
	}
}

void QueueBook::leave(const core::Turn &turn, const ScopeList &list)
{
	for (std::size_t i = 0; i < list.size(); i++) {
		QueueScope &scope = look(list[i]);
		RATELIMIT_CHECK(scope.locked);
		const store::WaitKind kind = kind_of(list, i);
		store::delete_waiting(scope.lease.key, kind, turn);
		scope.lease.row->queue = core::leave(scope.lease.row->queue);
		changed(list[i], kind == store::WaitKind::ordered); // nobody stood behind the others
	}
}

void QueueBook::changed(const TaskScope &wanted, bool left)
{
	QueueScope &scope = look(wanted);
	scope.dirty = true;
	scope.left = scope.left || left;
	scope.head.reset();
}

pg::Vector<core::Uuid> QueueBook::grant(std::string_view task_id, const ScopeList &list)
{
	pg::Vector<core::Uuid> ids;
	for (const TaskScope &wanted : list) {
		if (!wanted.demand.limit)
			continue;
		QueueScope &scope = look(wanted);
		RATELIMIT_CHECK(scope.locked);
		const core::Instant expires_at = now_ + core::Span::from_seconds(wanted.demand.lease_ttl_seconds);
		const core::Uuid id = new_id(wanted.scope_type, wanted.scope_key);
		add_to_scope(scope.lease, wanted.demand.amount, expires_at);
		store::insert_lease(scope.lease.key,
			{id, now_, expires_at, wanted.demand.amount, *wanted.demand.limit, wanted.demand.lease_ttl_seconds, task_id, {}});
		scope.dirty = true;
		ids.push_back(id);
	}
	return ids;
}

int QueueBook::release(pg::Vector<core::Uuid> &lease_ids)
{
	int released = 0;
	std::sort(lease_ids.begin(), lease_ids.end());
	for (const store::RemovedLease &lease : store::remove_live({lease_ids.data(), lease_ids.size()}, now_)) {
		const auto found = scopes_.find({lease.scope_type, lease.scope_key});
		RATELIMIT_CHECK(found != scopes_.end() && found->second.locked);
		QueueScope &scope = found->second;
		scope.lease.row->scope = core::remove_leases(scope.lease.row->scope, lease.amount, 1);
		scope.lease.row->usage.live = core::subtract_amount(scope.lease.row->usage.live, lease.amount);
		scope.own = core::subtract_amount(scope.own, lease.amount);
		scope.dirty = true;
		scope.left = true;
		released++;
	}
	return released;
}

void QueueBook::write()
{
	for (auto &[name, scope] : scopes_) {
		if (!scope.dirty)
			continue;
		store::write_scope(*scope.lease.row, scope.lease.row->scope, scope.lease.row->queue, now_);
		scope.dirty = false;
	}
}

void QueueBook::recount()
{
	for (auto &[name, scope] : scopes_) {
		scope.lease.row->queue.waiting = static_cast<std::int32_t>(store::count_places(scope.lease.key));
		store::rewrite_scope(*scope.lease.row, scope.lease.row->scope, scope.lease.row->queue, now_);
		scope.dirty = false;
	}
}

void QueueBook::undo()
{
	for (auto &[name, scope] : scopes_)
		if (scope.lease.inserted && scope.lease.stored().lease_count == 0 && scope.queue().waiting == 0)
			store::delete_scope(*scope.lease.row);
}

void QueueBook::wake_next()
{
	Waker waker(now_);
	for (const auto &[name, scope] : scopes_)
		if (scope.left && scope.queue().waiting > 0)
			waker.wake_head_of(name.scope_type, name.scope_key);
}

void QueueBook::take(const ScopeList &list)
{
	for (const TaskScope &wanted : list)
		if (wanted.demand.limit)
			look(wanted).taken = core::add_amounts(look(wanted).taken, wanted.demand.amount);
}

void QueueBook::plan(const core::Turn &turn, const ScopeList &list)
{
	take(list);
	for (std::size_t i = 0; i < list.size(); i++) {
		QueueScope &scope = look(list[i]);
		if (kind_of(list, i) != store::WaitKind::ordered)
			continue;
		scope.passed = turn;
		scope.any_passed = true;
		scope.head.reset();
	}
}

void QueueBook::hold(const ScopeList &list)
{
	for (const TaskScope &wanted : list)
		look(wanted).held = true;
}

// --- waking --------------------------------------------------------------------------------------------------------

// Tells the task if it can go now, beside those that were told before.
void Waker::wake(const store::Candidate &candidate)
{
	if (std::find(told_.begin(), told_.end(), candidate.turn.task_id) != told_.end())
		return;
	const std::optional<store::TaskRow> task = store::read_task(candidate.turn.task_id);
	if (!task || task->status != core::TaskStatus::waiting)
		return;
	TaskScopes scopes = stored_scopes(task->scopes);
	book_.resolve(scopes.list);
	const Standings standings = book_.standings(candidate.turn, scopes.list);
	for (std::size_t i = 0; i < standings.size(); i++)
		if (core::obstacle_in(scopes.list[i].demand, standings[i]) != core::Obstacle::none)
			return;
	std::optional<std::int64_t> started;
	if (task->sleeping.started_at)
		started = task->sleeping.started_at->us;
	pg::notify_admission({task->task_id, task->sleeping.pid, started});
	told_.push_back(task->task_id);
	book_.take(scopes.list);
}

// The head of the scope's order, which tells the next when it goes; then those that are only counted in the scope and can
// go as well, which wait for nobody.
void Waker::wake_head_of(std::string_view scope_type, std::string_view scope_key)
{
	QueueScope &scope = book_.look({scope_type, scope_key, {}});
	if (scope.queue().waiting == 0)
		return;
	if (const std::optional<store::Candidate> head = book_.head_of(scope))
		wake(*head);
	for (const store::WaitKind kind : {store::WaitKind::free, store::WaitKind::counted}) {
		core::Turn after{std::numeric_limits<std::int32_t>::min(), core::Instant::earliest(), {}};
		for (int looked = 0; looked < counted_looks_max; looked++) {
			const auto next = store::next_waiting(scope.lease.key, kind, after, book_.now(), store::Aside::skip);
			if (!next)
				break;
			wake(*next);
			after = next->turn;
		}
	}
}

} // namespace ratelimit::api
