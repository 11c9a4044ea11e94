// One call of rl_dispatch.
//
// 1. Plan, without a lock on any scope. Only heads can go, so the call walks scopes and never the queue: those in which
//    something has changed since a dispatcher looked (`ready`) in the order of where their heads may be, those whose time
//    has come, and tasks that were put aside and are back. Of all heads at hand the first in the order of the queue is
//    looked at; if it can go its row is locked, unless somebody else holds it, and the next heads of its scopes join in.
// 2. Admit: all scopes of the planned tasks are locked in the order of their names, the clock is read, expired leases are
//    removed, and each task is decided again, in order. So two dispatchers can neither admit one task twice, nor overfill
//    a scope, nor deadlock.
// 3. Scopes in which nothing could go are marked, so that the next call does not look at them again until something
//    changes, or until time alone may let something go. Rows that somebody holds are left alone: nothing is waited for
//    after step 2.
#include "api/dispatch_call.hpp"
#include "api/task_steps.hpp"

#include <algorithm>

#include "pg/entry.hpp"
#include "pg/value.hpp"

namespace ratelimit::api {

namespace {

constexpr std::size_t due_max = 1'000;
constexpr std::size_t returned_max = 1'000;
// However it came about, a scope is looked at again after this long.
constexpr core::Span idle_max = core::Span::from_seconds(30);

bool workers_are_busy(const ScopeList &list, const Standings &standings) noexcept
{
	for (std::size_t i = 0; i < list.size(); i++)
		if (list[i].demand.from_workers && core::is_saturated(list[i].demand, standings[i].active))
			return true;
	return false;
}

} // namespace

pg::Vector<Admission> DispatchCall::run()
{
	for (const store::ReadyScope &due : store::read_due(book_.now(), due_max))
		add_source({due.scope_type, due.scope_key}, due.begins);
	add_returned();
	while (planned_.size() < tasks_max_) {
		pg::check_for_interrupts();
		load_ready();
		if (sources_.empty())
			break;
		const Source first = *sources_.begin();
		sources_.erase(sources_.begin());
		if (look_at(first) == Step::stop)
			break;
	}
	pg::Vector<Admission> admitted;
	if (!planned_.empty())
		admit_planned(admitted);
	mark_idle_scopes();
	for (const std::string_view task_id : returned_)
		line_up(task_id);
	return admitted;
}

// --- where tasks come from -----------------------------------------------------------------------------------------

void DispatchCall::add_source(const ScopeName &scope, const core::Turn &from)
{
	for (const store::WaitKind kind : {store::WaitKind::ordered, store::WaitKind::free})
		sources_.insert({from, from, scope, kind, false, false});
}

void DispatchCall::add_returned()
{
	returned_ = store::read_returned(book_.now(), returned_max);
	for (const std::string_view task_id : returned_)
		if (const std::optional<store::TaskRow> task = store::read_task(task_id); task && task->mode == core::TaskMode::async)
			sources_.insert({task->turn(), {}, {}, store::WaitKind::ordered, true, true});
}

// Takes in the scopes that may come before everything at hand.
void DispatchCall::load_ready()
{
	for (;;) {
		if (ready_used_ == ready_.size()) {
			if (ready_exhausted_)
				return;
			const std::optional<store::ReadyScope> last = ready_.empty() ? std::nullopt : std::optional(ready_.back());
			ready_ = store::read_ready(last);
			ready_used_ = 0;
			ready_exhausted_ = ready_.size() < store::ready_batch;
			if (ready_.empty())
				return;
		}
		const store::ReadyScope &next = ready_[ready_used_];
		if (!sources_.empty() && sources_.begin()->turn < next.begins)
			return;
		add_source({next.scope_type, next.scope_key}, next.begins);
		ready_used_++;
	}
}

std::optional<store::Candidate> DispatchCall::next_of(const Source &source)
{
	QueueScope &scope = book_.look({source.scope.scope_type, source.scope.scope_key, {}});
	if (scope.queue().waiting == 0)
		return std::nullopt;
	if (source.kind == store::WaitKind::ordered)
		return book_.head_of(scope);
	return store::next_waiting(scope.lease.key, source.kind, source.after, book_.now(), store::Aside::skip);
}

DispatchCall::Step DispatchCall::look_at(const Source &source)
{
	if (source.returned) {
		const std::optional<store::TaskRow> task = store::read_task(source.turn.task_id);
		if (!task || task->status != core::TaskStatus::waiting || !core::may_be_head(task->presence, book_.now()))
			return Step::next;
		return consider(source, {task->turn(), task->presence, task->mode});
	}
	const std::optional<store::Candidate> candidate = next_of(source);
	if (!candidate) {
		note_idle(source, book_.now() + idle_max);
		return Step::next;
	}
	if (source.is_task && source.turn == candidate->turn)
		return consider(source, *candidate);
	// It may come later than the scope promised: back into the line, at its own place.
	Source exact = source;
	exact.turn = candidate->turn;
	exact.is_task = true;
	sources_.insert(exact);
	return Step::next;
}

// --- the plan ------------------------------------------------------------------------------------------------------

DispatchCall::Step DispatchCall::consider(const Source &source, const store::Candidate &candidate)
{
	const bool ordered = source.kind == store::WaitKind::ordered;
	if (candidate.mode == core::TaskMode::sync && ordered) {
		// Its own waiter admits it, and until then it holds the others up.
		note_idle(source, std::min({book_.now() + idle_max, candidate.presence.deadline.value_or(core::Instant::latest()),
							  candidate.presence.waiter_expires_at.value_or(core::Instant::latest())}));
		return Step::next;
	}
	const std::optional<store::TaskRow> task = store::read_task(candidate.turn.task_id);
	if (!task || task->status != core::TaskStatus::waiting || !(task->turn() == candidate.turn))
		return Step::next;
	TaskScopes scopes = stored_scopes(task->scopes);
	book_.resolve(scopes.list);
	const Standings standings = book_.standings(task->turn(), scopes.list);
	const bool is_async = candidate.mode == core::TaskMode::async;
	if (is_async && workers_are_busy(scopes.list, standings))
		return Step::stop;
	const bool blocked = !is_async || !blockers_of(*task, scopes.list, standings, book_.now()).empty();
	if (blocked)
		note_blocked(source, candidate, scopes.list, standings);
	else if (!plan(*task, scopes))
		book_.hold(scopes.list);
	if (!ordered && !(blocked && core::is_saturated(scopes.list[0].demand, standings[0].active)))
		sources_.insert({candidate.turn, candidate.turn, source.scope, source.kind, false, false});
	return Step::next;
}

// Locks the task's row and reckons with its leases. False when somebody else holds it.
bool DispatchCall::plan(const store::TaskRow &seen, const TaskScopes &scopes)
{
	std::optional<store::TaskRow> task = store::try_lock_waiting(seen.task_id);
	if (!task || !(task->turn() == seen.turn()) || !pg::json_identical(task->scopes, seen.scopes) ||
		!core::may_be_head(task->presence, book_.now()))
		return false;
	const core::Turn turn = task->turn();
	book_.plan(turn, scopes.list);
	for (const TaskScope &scope : scopes.list) {
		const ScopeName name{scope.scope_type, scope.scope_key};
		idle_.erase(name);
		if (scope.demand.fifo)
			sources_.insert({turn, turn, name, store::WaitKind::ordered, false, false});
	}
	planned_.push_back({std::move(*task), scopes});
	return true;
}

// A blocked head waits for a scope in whose order it stands: when that changes the dispatcher looks there. If it waits only
// for scopes where it is merely counted, its own scopes must be looked at each time.
void DispatchCall::note_blocked(
	const Source &source, const store::Candidate &candidate, const ScopeList &list, const Standings &standings)
{
	core::Instant until = std::min({book_.now() + idle_max, candidate.presence.deadline.value_or(core::Instant::latest()),
		candidate.presence.waiter_expires_at.value_or(core::Instant::latest())});
	bool waits_in_order = false;
	for (std::size_t i = 0; i < list.size(); i++) {
		const core::Obstacle obstacle = core::obstacle_in(list[i].demand, standings[i]);
		const bool here = list[i].scope_type == source.scope.scope_type && list[i].scope_key == source.scope.scope_key;
		if (obstacle == core::Obstacle::none || !(list[i].demand.fifo || here))
			continue;
		waits_in_order = true;
		if (obstacle == core::Obstacle::saturated && standings[i].next_expiry)
			until = std::min(until, *standings[i].next_expiry);
	}
	if (source.returned)
		return;
	if (waits_in_order)
		note_idle(source, until);
	else
		watched_.insert(source.scope);
}

void DispatchCall::note_idle(const Source &source, core::Instant until)
{
	Idle &idle = idle_[source.scope];
	(source.kind == store::WaitKind::ordered ? idle.ordered : idle.free) = until;
}

// --- admitting -----------------------------------------------------------------------------------------------------

// What all planned tasks ask for, by scope.
ScopeList DispatchCall::everything_planned() const
{
	std::map<ScopeName, TaskScope> sums;
	for (const Planned &planned : planned_) {
		for (const TaskScope &scope : planned.scopes.list) {
			const auto [found, is_new] = sums.try_emplace({scope.scope_type, scope.scope_key}, scope);
			core::Demand &sum = found->second.demand;
			if (is_new || !scope.demand.limit)
				continue;
			sum.amount = sum.limit ? core::add_amounts(sum.amount, scope.demand.amount) : scope.demand.amount;
			sum.limit = std::min(*scope.demand.limit, sum.limit.value_or(*scope.demand.limit));
		}
	}
	ScopeList list;
	for (const auto &[name, scope] : sums)
		list.push_back(scope);
	return list;
}

void DispatchCall::admit_planned(pg::Vector<Admission> &admitted)
{
	QueueBook book(book_.now());
	for (const Planned &planned : planned_)
		book.add(planned.scopes.list);
	book.lock_all();
	book.make_room(everything_planned());
	for (Planned &planned : planned_) {
		store::TaskRow &task = planned.task;
		ScopeList &list = planned.scopes.list;
		book.resolve(list);
		const Standings standings = book.standings(task.turn(), list);
		if (workers_are_busy(list, standings))
			break;
		if (!core::may_be_head(task.presence, book.now()) || !blockers_of(task, list, standings, book.now()).empty())
			continue;
		go(book, task, list);
		book.leave(task.turn(), list);
		save_task(task, book.now());
		Admission admission = admission_of(task, book.now());
		admission.newly_admitted = true;
		admitted.push_back(std::move(admission));
	}
	book.write();
	book.wake_next();
}

void DispatchCall::mark_idle_scopes()
{
	for (const auto &[name, idle] : idle_) {
		if (!idle.ordered || !idle.free || watched_.count(name) > 0)
			continue;
		const QueueScope &scope = book_.look({name.scope_type, name.scope_key, {}});
		if (scope.lease.row && !scope.held && store::mark_idle(*scope.lease.row, std::min(*idle.ordered, *idle.free)))
			marked_.insert(name);
	}
}

// A task that is back and has not gone. When its scopes were marked it was away, so they are to be looked at again, except
// those that this call has marked. Who holds one of them may be marking it: then the next call sees to it.
void DispatchCall::line_up(std::string_view task_id)
{
	const std::optional<store::TaskRow> task = store::read_task(task_id);
	if (!task || task->status != core::TaskStatus::waiting)
		return;
	if (task->mode == core::TaskMode::async) {
		for (const TaskScope &scope : stored_scopes(task->scopes).list) {
			const ScopeName name{scope.scope_type, scope.scope_key};
			if (marked_.count(name) > 0)
				continue;
			const auto row = store::read_scope(store::ScopeKey(name.scope_type, name.scope_key), book_.now());
			if (!row || !store::mark_ready(*row))
				return;
			marked_.insert(name);
		}
	}
	store::clear_put_aside(task_id, book_.now());
}

} // namespace ratelimit::api
