// One call for one task.
//
// 1. Look: the task is read without a lock, and what the answer needs of its scopes. A refusal ends here, and so does the
//    poll of a task whose turn it is not: that renews the waiter's lease in the task's row and locks no scope.
// 2. Change: the task's row is locked, or inserted, then all scopes that the call concerns, in the order of their names;
//    the clock is read once all locks are held, and everything is decided again by the same functions.
// 3. Whoever left a scope, or gave leases back, tells the next heads.
//
// A task enters a scope's queue, and leases are released there, under the lock of the scope's row. So either the releaser
// sees the task among the waiting, and tells it, or the task finds the slot free.
#include "api/admit_call.hpp"

#include <algorithm>

#include "pg/entry.hpp"
#include "pg/error.hpp"
#include "pg/settings.hpp"
#include "pg/spi.hpp"
#include "pg/value.hpp"

namespace ratelimit::api {

namespace {

std::optional<core::Refusal> refusal_of(Ask ask, const ScopeList &list, const Standings &standings, core::Instant now)
{
	const auto demands = demands_of(list);
	const core::View<const core::Demand> all{demands.data(), demands.size()};
	const core::View<const core::Standing> states{standings.data(), standings.size()};
	return ask == Ask::enqueue ? core::refuse_enqueued(all, states, now) : core::refuse_new(all, states, now);
}

core::View<core::Uuid> view(pg::Vector<core::Uuid> &ids) noexcept { return {ids.data(), ids.size()}; }

} // namespace

std::optional<Admission> AdmitCall::run()
{
	for (;;) {
		pg::check_for_interrupts();
		const core::Instant now = queue_clock();
		const std::optional<store::TaskRow> task = store::read_task(request_.task_id);
		const bool is_known = task && !is_forgotten(*task, now);
		if (!is_known && request_.ask == Ask::rebind)
			return std::nullopt;
		if (Answer answer = is_known ? known(*task, now) : unknown(now, task.has_value()))
			return answer;
	}
}

void AdmitCall::drop_forgotten(core::Instant now) const
{
	const std::optional<store::TaskRow> task = lock_task();
	if (task && is_forgotten(*task, now))
		store::delete_task(task->task_id);
}

std::optional<store::TaskRow> AdmitCall::lock_task() const { return lock_known_task(request_.task_id); }

ScopeList AdmitCall::wanted(QueueBook &book) const
{
	ScopeList list = request_.scopes.list;
	book.resolve(list);
	return list;
}

void AdmitCall::touch_waiter(store::TaskRow &task, core::Instant now) const
{
	if (task.mode != core::TaskMode::sync)
		return;
	const std::optional<core::Instant> check_at = task.check_at;
	renew_waiter_lease(task, now);
	if (check_at)
		task.check_at = check_at; // the reaper moves it on
	task.waiter_id = request_.waiter_id.value_or(task.task_id);
	if (request_.deadline)
		task.presence.deadline = core::earlier_deadline(task.presence.deadline, *request_.deadline);
	// One that sleeps for the task has lost its place to this call.
	tell_sleeper(task);
	task.sleeping = request_.sleeping;
}

store::TaskRow AdmitCall::new_task(core::Instant now) const
{
	store::TaskRow task;
	task.task_id = request_.task_id;
	task.mode = request_.ask == Ask::enqueue ? core::TaskMode::async : request_.mode.value_or(core::TaskMode::sync);
	task.priority = request_.priority;
	task.enqueued_at = now;
	task.scopes = request_.scopes.json;
	task.presence.deadline = deadline_of(request_.scopes.list, now);
	touch_waiter(task, now);
	return task;
}

// A new task. One of the same id whose retention is over may still be stored; a denial leaves it alone.
AdmitCall::Answer AdmitCall::unknown(core::Instant now, bool is_stored)
{
	QueueBook book(now);
	ScopeList list = wanted(book);
	store::TaskRow task = new_task(now);
	const auto refused = [&]() -> Answer {
		const Standings standings = book.standings(task.turn(), list, Heads::skip);
		const auto refusal = refusal_of(request_.ask, list, standings, book.now());
		if (!refusal)
			return std::nullopt;
		Admission denied = admission_of(task, book.now());
		denied.enqueued_at.reset();
		denied.deadline.reset();
		denied.waiter_expires_at.reset();
		return refused_admission(denied, list, standings, *refusal);
	};
	if (Answer answer = refused())
		return answer;
	if (is_stored)
		drop_forgotten(now);
	if (!store::insert_task(task))
		return std::nullopt;
	// Who asks for nothing goes at once, past everybody.
	if (request_.ask == Ask::admit && is_unscoped(list))
		list.clear();
	book.add(list);
	book.lock_all();
	if (Answer answer = refused()) {
		store::delete_task(task.task_id);
		book.undo();
		return answer;
	}
	task = new_task(book.now());
	note_created(task, book.now());
	return settle_in(book, task, list, false);
}

// Lets the task go if it is its turn, else wait; everything is written. `counted` when it waits in these scopes already.
Admission AdmitCall::settle_in(QueueBook &book, store::TaskRow &task, const ScopeList &list, bool counted)
{
	Standings standings;
	const bool goes = request_.ask == Ask::admit && try_to_go(book, task, list, standings);
	if (goes && counted)
		book.leave(task.turn(), list);
	if (!goes && request_.ask != Ask::admit)
		standings = book.standings(task.turn(), list);
	if (!goes && !counted)
		book.enter(task.turn(), list);
	if (!goes && counted)
		reopen(book, task, list);
	save_task(task, book.now());
	book.write();
	book.wake_next();
	if (!goes)
		return waiting_admission(task, list, standings, book.now());
	Admission admission = admission_of(task, book.now());
	admission.newly_admitted = true;
	return admission;
}

AdmitCall::Answer AdmitCall::known(const store::TaskRow &task, core::Instant now)
{
	if (core::is_finished(task.status))
		return ended(task, now);
	const std::optional<core::TaskMode> mode = request_.ask == Ask::enqueue ? core::TaskMode::async : request_.mode;
	if (mode && *mode != task.mode)
		throw pg::SqlError{ERRCODE_INVALID_PARAMETER_VALUE, "invalid value for argument \"mode\"",
			"The task \"" + pg::excerpt(task.task_id) + "\" has the mode " + std::string(core::name_of(task.mode)) + ".",
			"A task keeps the mode that its first call gave it."};
	switch (task.status) {
	case core::TaskStatus::waiting:
		return waiting(task, now);
	case core::TaskStatus::admitted:
	case core::TaskStatus::running:
		return holding(task, now);
	default:
		return admission_of(task, now);
	}
}

Admission AdmitCall::ended(const store::TaskRow &task, core::Instant now) const
{
	const bool ran = task.attempt_no > 0 || task.status == core::TaskStatus::succeeded;
	if (ran && request_.ask != Ask::rebind)
		throw pg::SqlError{ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "task has already run",
			"The task \"" + pg::excerpt(task.task_id) + "\" ended as " + std::string(core::name_of(task.status)) + ".",
			"Use a new task_id, or wait until its record is no longer kept (ratelimit.retention)."};
	return admission_of(task, now);
}

// --- a task that waits ---------------------------------------------------------------------------------------------

AdmitCall::Answer AdmitCall::waiting(const store::TaskRow &task, core::Instant now)
{
	const TaskScopes stored = stored_scopes(task.scopes);
	const bool moves = request_.ask == Ask::rebind || !same_scopes(stored.list, request_.scopes.list);
	if (moves)
		return move_waiting();
	const bool same_numbers = request_.ask == Ask::enqueue || pg::json_identical(stored.json, request_.scopes.json);
	if (!same_numbers || core::is_timed_out(task.presence, now) || core::is_abandoned(task.presence, now) || request_.deadline)
		return admit_waiting();
	return poll(task, stored, now);
}

// Answers without a lock on any scope, as long as it is not the task's turn.
AdmitCall::Answer AdmitCall::poll(store::TaskRow task, const TaskScopes &stored, core::Instant now)
{
	QueueBook book(now);
	ScopeList list = stored.list;
	book.resolve(list);
	mark_entered(book, list, true);
	const Standings standings = book.standings(task.turn(), list);
	if (request_.ask == Ask::admit) {
		const bool passed_over = std::any_of(list.begin(), list.end(), [&](const TaskScope &scope) {
			return core::begins_after(book.look(scope).queue(), task.turn());
		});
		if (passed_over || blockers_of(task, list, standings, now).empty())
			return admit_waiting();
		if (task.mode == core::TaskMode::sync) {
			touch_waiter(task, now);
			if (!store::renew_waiter(task))
				return std::nullopt;
		}
	}
	return waiting_admission(task, list, standings, now);
}

AdmitCall::Answer AdmitCall::admit_waiting()
{
	std::optional<store::TaskRow> task = lock_task();
	if (!task || task->status != core::TaskStatus::waiting)
		return std::nullopt;
	const TaskScopes stored = stored_scopes(task->scopes);
	if (!same_scopes(stored.list, request_.scopes.list))
		return std::nullopt;
	QueueBook book(queue_clock());
	book.add(stored.list);
	book.lock_all();
	mark_entered(book, stored.list, true);
	if (core::is_timed_out(task->presence, book.now()))
		return time_out(book, *task, stored.list, core::code_queue_timeout);
	bool counted = true;
	const bool replaces = request_.ask == Ask::admit && !pg::json_identical(stored.json, request_.scopes.json);
	if (replaces) {
		// It may take part in other orders by the new numbers.
		book.leave(task->turn(), stored.list);
		mark_entered(book, stored.list, false);
		task->scopes = request_.scopes.json;
		counted = false;
	}
	if (request_.ask == Ask::admit)
		touch_waiter(*task, book.now());
	ScopeList list = replaces ? request_.scopes.list : stored.list;
	book.resolve(list);
	return settle_in(book, *task, list, counted);
}

AdmitCall::Answer AdmitCall::move_waiting()
{
	std::optional<store::TaskRow> task = lock_task();
	if (!task || task->status != core::TaskStatus::waiting)
		return std::nullopt;
	const TaskScopes stored = stored_scopes(task->scopes);
	QueueBook book(queue_clock());
	ScopeList list = wanted(book);
	book.add(stored.list);
	book.add(list);
	book.lock_all();
	mark_entered(book, stored.list, true);
	if (core::is_timed_out(task->presence, book.now()))
		return time_out(book, *task, stored.list, core::code_queue_timeout);
	if (request_.ask == Ask::admit)
		touch_waiter(*task, book.now());
	const Standings standings = book.standings(task->turn(), list, Heads::skip);
	// Whatever the call, it is checked as one that asks for its turn.
	if (const auto refusal = refusal_of(Ask::rebind, list, standings, book.now())) {
		book.undo();
		if (request_.ask == Ask::admit) {
			reopen(book, *task, stored.list);
			save_task(*task, book.now());
			book.write();
		}
		return refused_admission(admission_of(*task, book.now()), list, standings, *refusal);
	}
	book.leave(task->turn(), stored.list);
	mark_entered(book, stored.list, false);
	task->scopes = request_.scopes.json;
	task->presence.deadline = core::earlier_deadline(task->presence.deadline, deadline_of(list, book.now()));
	task->presence.put_aside_until.reset();
	task->defer_count = 0;
	// Where it arrives it may be the one that can go.
	for (const TaskScope &scope : list)
		book.changed(scope, true);
	return settle_in(book, *task, list, false);
}

// --- a task that is admitted or running ----------------------------------------------------------------------------

AdmitCall::Answer AdmitCall::holding(const store::TaskRow &task, core::Instant now)
{
	if (request_.ask == Ask::rebind)
		return admission_of(task, now);
	const TaskScopes stored = stored_scopes(task.scopes);
	if (request_.ask == Ask::admit && !same_scopes(stored.list, request_.scopes.list))
		return move_holder();
	pg::Vector<core::Uuid> ids = task.lease_ids;
	if (task.status == core::TaskStatus::admitted && !leases_are_live(store::read_leases(view(ids)), ids.size(), now))
		return lost_lease();
	if (request_.ask == Ask::admit && !pg::json_identical(stored.json, request_.scopes.json))
		return replace_numbers(task, now);
	return admission_of(task, now);
}

AdmitCall::Answer AdmitCall::replace_numbers(const store::TaskRow &task, core::Instant now)
{
	std::optional<store::TaskRow> locked = lock_task();
	if (!locked || locked->status != task.status || !same_scopes(stored_scopes(locked->scopes).list, request_.scopes.list))
		return std::nullopt;
	locked->scopes = request_.scopes.json;
	save_task(*locked, now);
	return admission_of(*locked, now);
}

// One of its leases is over: the rest are released, and it waits again, with its age.
AdmitCall::Answer AdmitCall::lost_lease()
{
	std::optional<store::TaskRow> task = lock_task();
	if (!task || task->status != core::TaskStatus::admitted)
		return std::nullopt;
	const TaskScopes stored = stored_scopes(task->scopes);
	QueueBook book(queue_clock());
	ScopeList list = request_.ask == Ask::admit ? request_.scopes.list : stored.list;
	if (!same_scopes(stored.list, list))
		return std::nullopt;
	book.resolve(list);
	book.add(list);
	book.lock_all();
	if (leases_are_live(store::lock_leases(view(task->lease_ids)), task->lease_ids.size(), book.now()))
		return admission_of(*task, book.now());
	(void)book.release(task->lease_ids);
	if (request_.ask == Ask::admit)
		task->scopes = request_.scopes.json;
	back_to_waiting(*task, core::TaskEvent::lose_lease, Deadline::earlier, list, book.now());
	touch_waiter(*task, book.now());
	if (!core::is_timed_out(task->presence, book.now()))
		return settle_in(book, *task, list, false);
	end_task(*task, core::TaskEvent::time_out, core::code_queue_timeout, book.now());
	save_task(*task, book.now());
	book.write();
	book.wake_next();
	return admission_of(*task, book.now());
}

// It gives its leases back for a place under other scopes, unless it would be refused there.
AdmitCall::Answer AdmitCall::move_holder()
{
	std::optional<store::TaskRow> task = lock_task();
	if (!task || (task->status != core::TaskStatus::admitted && task->status != core::TaskStatus::running))
		return std::nullopt;
	const TaskScopes stored = stored_scopes(task->scopes);
	QueueBook book(queue_clock());
	ScopeList list = wanted(book);
	book.add(stored.list);
	book.add(list);
	for (const store::LeaseRow &lease : store::read_leases(view(task->lease_ids)))
		(void)book.add(lease.scope_type, lease.scope_key);
	book.lock_all();
	for (const store::LeaseRow &lease : store::lock_leases(view(task->lease_ids)))
		if (core::lease_is_live(lease.expires_at, book.now()))
			book.add(lease.scope_type, lease.scope_key).own += lease.amount;
	const Standings standings = book.standings(task->turn(), list, Heads::skip);
	if (const auto refusal = refusal_of(Ask::rebind, list, standings, book.now())) {
		book.undo();
		return refused_admission(admission_of(*task, book.now()), list, standings, *refusal);
	}
	(void)book.release(task->lease_ids);
	task->scopes = request_.scopes.json;
	back_to_waiting(*task, core::TaskEvent::move, Deadline::earlier, list, book.now());
	touch_waiter(*task, book.now());
	return settle_in(book, *task, list, false);
}

} // namespace ratelimit::api
