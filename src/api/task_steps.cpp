#include "api/task_steps.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "core/task.hpp"
#include "pg/notify.hpp"
#include "pg/settings.hpp"
#include "pg/spi.hpp"
#include "store/attempt_store.hpp"

namespace ratelimit::api {

namespace {

constexpr std::string_view event_recovered = "task.recovered";

// Changes the state as the table says.
void follow(store::TaskRow &task, core::TaskEvent event)
{
	const core::TaskStep step = core::step(task.status, event);
	RATELIMIT_CHECK(step.effect == core::TaskEffect::moves);
	task.status = step.next;
}

std::string_view event_type_of(core::TaskStatus status) noexcept
{
	switch (status) {
	case core::TaskStatus::none:
		break;
	case core::TaskStatus::waiting:
		return "task.waiting";
	case core::TaskStatus::admitted:
		return "task.admitted";
	case core::TaskStatus::running:
		return "task.running";
	case core::TaskStatus::succeeded:
		return "task.succeeded";
	case core::TaskStatus::failed:
		return "task.failed";
	case core::TaskStatus::cancelled:
		return "task.cancelled";
	case core::TaskStatus::review:
		return "task.review";
	}
	return {};
}

void append_event(store::TaskRow &task, bool recovered, core::Instant now)
{
	task.last_event.seq++;
	task.last_event.type = recovered ? event_recovered : event_type_of(task.status);
	task.last_event.status = core::name_of(task.status);
	store::append_event(task, now);
}

} // namespace

void mark_entered(QueueBook &book, const ScopeList &list, bool entered)
{
	for (const TaskScope &scope : list)
		book.add(scope.scope_type, scope.scope_key).entered = entered;
}

void reopen(QueueBook &book, const store::TaskRow &task, const ScopeList &list)
{
	for (const TaskScope &wanted : list) {
		QueueScope &scope = book.look(wanted);
		if (!core::begins_after(scope.queue(), task.turn()))
			continue;
		scope.lease.row->queue = core::begin_at(scope.queue(), task.turn());
		book.changed(wanted, false);
	}
}

bool try_to_go(QueueBook &book, store::TaskRow &task, const ScopeList &list, Standings &standings)
{
	standings = book.standings(task.turn(), list);
	if (!blockers_of(task, list, standings, book.now()).empty())
		return false;
	// What has expired must be removed before it counts as free; somebody may be renewing it.
	book.make_room(list);
	standings = book.standings(task.turn(), list);
	if (!blockers_of(task, list, standings, book.now()).empty())
		return false;
	go(book, task, list);
	return true;
}

void go(QueueBook &book, store::TaskRow &task, const ScopeList &list)
{
	task.lease_ids = book.grant(task.task_id, list);
	follow(task, task.has_execution() ? core::TaskEvent::readmit : core::TaskEvent::admit);
	task.admitted_at = book.now();
	task.presence.put_aside_until.reset();
	task.defer_count = 0;
	task.error_code.reset();
	task.sleeping = {};
	task.check_at.reset();
	if (task.status != core::TaskStatus::admitted)
		return;
	// One that holds no lease has none that could run out; it is not kept for ever all the same.
	std::int32_t seconds = pg::settings::idle_retention_seconds();
	for (const TaskScope &scope : list)
		if (scope.demand.limit)
			seconds = std::min(seconds, scope.demand.lease_ttl_seconds);
	task.check_at = book.now() + core::Span::from_seconds(seconds);
}

void tell_sleeper(const store::TaskRow &task)
{
	if (task.sleeping.pid)
		pg::wake_at_commit(*task.sleeping.pid);
}

void save_task(store::TaskRow &task, core::Instant now, Cause cause)
{
	const std::string_view status = core::name_of(task.status);
	const bool recovered = cause == Cause::cold_start;
	const bool is_said = task.last_event.status == status && (!recovered || task.last_event.type == event_recovered);
	if (!is_said)
		append_event(task, recovered, now);
	store::write_task(task);
}

void note_created(store::TaskRow &task, core::Instant now) { append_event(task, false, now); }

void end_execution(store::TaskRow &task, const AttemptEnd &end, core::Instant now)
{
	if (!task.has_execution())
		return;
	store::close_attempt(task.task_id, task.attempt_no, {end.outcome, end.code, end.retryable, now});
	task.execution.token.reset();
	task.execution.expires_at.reset();
}

void end_task(store::TaskRow &task, core::TaskEvent event, const std::optional<std::string_view> &code, core::Instant now)
{
	tell_sleeper(task);
	follow(task, event);
	end_execution(task, {core::name_of(task.status), code, std::nullopt}, now);
	task.error_code = code;
	task.finished_at = task.status == core::TaskStatus::review ? std::nullopt : std::optional(now);
	task.presence.put_aside_until.reset();
	task.sleeping = {};
	task.lease_ids.clear();
	task.check_at.reset();
}

core::Instant deadline_of(const ScopeList &list, core::Instant now)
{
	const auto demands = demands_of(list);
	return core::fresh_deadline({demands.data(), demands.size()}, now);
}

bool admission_is_live(const store::TaskRow &task, core::Instant now)
{
	pg::Vector<core::Uuid> ids = task.lease_ids;
	return leases_are_live(store::read_leases({ids.data(), ids.size()}), ids.size(), now);
}

bool leases_are_live(const pg::Vector<store::LeaseRow> &leases, std::size_t expected, core::Instant now) noexcept
{
	return leases.size() == expected && std::all_of(leases.begin(), leases.end(),
		[&](const store::LeaseRow &lease) { return core::lease_is_live(lease.expires_at, now); });
}

void renew_waiter_lease(store::TaskRow &task, core::Instant now)
{
	if (task.mode != core::TaskMode::sync)
		return;
	const core::Instant expires_at = now + core::Span::from_seconds(pg::settings::waiter_ttl_seconds());
	task.presence.waiter_expires_at = std::max(task.presence.waiter_expires_at.value_or(expires_at), expires_at);
	task.check_at = task.presence.waiter_expires_at;
}

void back_to_waiting(store::TaskRow &task, core::TaskEvent event, Deadline deadline, const ScopeList &list, core::Instant now)
{
	follow(task, event);
	const core::Instant fresh = deadline_of(list, now);
	task.presence.deadline =
		deadline == Deadline::fresh ? fresh : core::earlier_deadline(task.presence.deadline, fresh);
	task.presence.put_aside_until.reset();
	task.lease_ids.clear();
	task.admitted_at.reset();
	task.finished_at.reset();
	task.check_at.reset();
	renew_waiter_lease(task, now);
}

void wait_again(QueueBook &book, store::TaskRow &task, core::TaskEvent event, Deadline deadline, const ScopeList &list)
{
	back_to_waiting(task, event, deadline, list, book.now());
	book.enter(task.turn(), list);
	for (const TaskScope &scope : list)
		book.changed(scope, true);
}

Admission time_out(QueueBook &book, store::TaskRow &task, const ScopeList &list, std::string_view code)
{
	book.leave(task.turn(), list);
	end_task(task, code == core::code_dispatch_failed ? core::TaskEvent::defer_too_late : core::TaskEvent::time_out, code,
		book.now());
	save_task(task, book.now());
	book.write();
	book.wake_next();
	return admission_of(task, book.now());
}

bool is_forgotten(const store::TaskRow &task, core::Instant now) noexcept
{
	return core::is_finished(task.status) && task.finished_at &&
		   now >= *task.finished_at + core::Span::from_seconds(pg::settings::retention_seconds());
}

std::optional<store::TaskRow> lock_known_task(std::string_view task_id)
{
	std::optional<store::TaskRow> task = store::lock_task(task_id);
	if (!task && pg::writes_see_old_snapshot() && store::read_task(task_id))
		pg::throw_serialization_failure();
	return task;
}

} // namespace ratelimit::api
