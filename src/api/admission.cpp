#include "api/admission.hpp"

#include "pg/value.hpp"

namespace ratelimit::api {

namespace {

constexpr std::string_view denied = "denied";
constexpr std::string_view timed_out = "timed_out";

void set_text(AdmissionRow &row, std::size_t column, std::string_view text) { row.set(column, pg::text_datum(text)); }

void set_instant(AdmissionRow &row, std::size_t column, const std::optional<core::Instant> &at)
{
	if (at)
		row.set(column, pg::timestamp_datum(at->us));
}

void set_refused(AdmissionRow &row, const RefusedScope &refused)
{
	set_text(row, 9, refused.scope.scope_type);
	set_text(row, 10, refused.scope.scope_key);
	if (refused.scope.demand.limit)
		row.set(11, Float8GetDatum(*refused.scope.demand.limit));
	row.set(12, Float8GetDatum(refused.scope.demand.amount));
	row.set(13, Float8GetDatum(refused.used));
	set_instant(row, 14, refused.reset_at);
	row.set(15, Int32GetDatum(static_cast<std::int32_t>(
					std::min<std::int64_t>(refused.queue_depth, core::limits::queue_limit_max))));
	if (refused.scope.demand.queue_limit)
		row.set(16, Int32GetDatum(*refused.scope.demand.queue_limit));
}

Datum blockers_datum(const pg::SmallVector<Blocker, 4> &blockers)
{
	constexpr std::string_view keys[] = {"scope_type", "scope_key", "reason"};
	pg::Vector<std::string_view> values;
	for (const Blocker &blocker : blockers) {
		values.push_back(blocker.scope_type);
		values.push_back(blocker.scope_key);
		values.push_back(core::name_of(blocker.obstacle));
	}
	return pg::json_objects_datum(keys, std::size(keys), values.data(), blockers.size());
}

} // namespace

Admission admission_of(const store::TaskRow &task, core::Instant now)
{
	Admission admission;
	admission.task_id = task.task_id;
	admission.mode = task.mode;
	admission.status = core::name_of(task.status);
	admission.admitted = task.status == core::TaskStatus::admitted || task.status == core::TaskStatus::running;
	admission.priority = task.priority;
	admission.enqueued_at = task.enqueued_at;
	admission.deadline = task.presence.deadline;
	admission.admitted_at = task.admitted_at;
	admission.waiter_expires_at = task.presence.waiter_expires_at;
	admission.lease_ids = task.lease_ids;
	admission.scopes = task.scopes;
	if (admission.admitted) {
		admission.retry_after_ms = 0;
	} else if (task.status == core::TaskStatus::waiting) {
		if (core::is_timed_out(task.presence, now)) {
			admission.status = timed_out;
			admission.reason = core::code_queue_timeout;
		} else {
			admission.retry_after_ms = core::limits::lease_retry_min.ceil_ms();
		}
	} else {
		admission.reason = task.error_code;
		if (task.status == core::TaskStatus::failed && task.attempt_no == 0 && task.error_code == core::code_queue_timeout)
			admission.status = timed_out;
	}
	return admission;
}

pg::SmallVector<Blocker, 4> blockers_of(
	const store::TaskRow &task, const ScopeList &list, const Standings &standings, core::Instant now)
{
	pg::SmallVector<Blocker, 4> blockers;
	const bool away = core::is_put_aside(task.presence, now) || core::is_abandoned(task.presence, now);
	for (std::size_t i = 0; i < list.size(); i++) {
		core::Obstacle obstacle = core::obstacle_in(list[i].demand, standings[i]);
		if (obstacle == core::Obstacle::none && away)
			obstacle = core::Obstacle::not_head;
		if (obstacle != core::Obstacle::none)
			blockers.push_back({list[i].scope_type, list[i].scope_key, obstacle});
	}
	return blockers;
}

Admission waiting_admission(
	const store::TaskRow &task, const ScopeList &list, const Standings &standings, core::Instant now)
{
	Admission admission = admission_of(task, now);
	if (!admission.retry_after_ms)
		return admission;
	pg::SmallVector<core::Demand, 4> demands;
	for (const TaskScope &scope : list)
		demands.push_back(scope.demand);
	admission.retry_after_ms = core::poll_after_ms({demands.data(), demands.size()}, {standings.data(), standings.size()}, now);
	admission.blockers = blockers_of(task, list, standings, now);
	return admission;
}

Admission refused_admission(
	Admission admission, const ScopeList &list, const Standings &standings, const core::Refusal &refusal)
{
	const core::Standing &standing = standings[refusal.scope];
	admission.status = denied;
	admission.admitted = false;
	admission.reason = core::name_of(refusal.verdict.reason);
	admission.retry_after_ms = refusal.verdict.retry_after_ms;
	admission.refused = RefusedScope{list[refusal.scope], standing.active, standing.next_expiry, refusal.queue_depth};
	return admission;
}

AdmissionRow admission_row(std::size_t ordinal, const Admission &admission)
{
	AdmissionRow row;
	row.set(0, Int32GetDatum(static_cast<std::int32_t>(ordinal)));
	set_text(row, 1, admission.task_id);
	set_text(row, 2, core::name_of(admission.mode));
	set_text(row, 3, admission.status);
	row.set(4, BoolGetDatum(admission.admitted));
	row.set(5, BoolGetDatum(admission.newly_admitted));
	if (admission.reason)
		set_text(row, 6, *admission.reason);
	row.set(7, BoolGetDatum(admission.retry_after_ms.has_value()));
	if (admission.retry_after_ms)
		row.set(8, Int64GetDatum(*admission.retry_after_ms));
	if (admission.refused)
		set_refused(row, *admission.refused);
	row.set(17, Int32GetDatum(admission.priority));
	set_instant(row, 18, admission.enqueued_at);
	set_instant(row, 19, admission.deadline);
	set_instant(row, 20, admission.admitted_at);
	set_instant(row, 21, admission.waiter_expires_at);
	row.set(22, pg::uuid_array_datum(admission.lease_ids.data(), admission.lease_ids.size()));
	row.set(23, admission.scopes);
	row.set(24, blockers_datum(admission.blockers));
	return row;
}

} // namespace ratelimit::api
