#include "api/off_switch.hpp"

#include "api/admit_call.hpp"
#include "core/limits.hpp"
#include "pg/clock.hpp"
#include "pg/error.hpp"
#include "pg/settings.hpp"

namespace ratelimit::api {

namespace {

core::Instant now() noexcept { return {pg::decision_clock_us()}; }

} // namespace

std::optional<core::Verdict> verdict_when_off()
{
	namespace settings = pg::settings;
	if (settings::enabled())
		return std::nullopt;
	switch (settings::when_disabled()) {
	case settings::WhenDisabled::allow:
		return core::Verdict::pass();
	case settings::WhenDisabled::deny:
		return core::Verdict::later(core::Reason::disabled, core::limits::disabled_retry.ceil_ms());
	case settings::WhenDisabled::error:
		break;
	}
	throw pg::SqlError{ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "rate limiting is switched off",
		"ratelimit.enabled is off, and ratelimit.when_disabled is \"error\".",
		"A superuser can set ratelimit.enabled to on, or ratelimit.when_disabled to \"allow\" or \"deny\"."};
}

Admission admission_when_off(const AdmitRequest &request, const core::Verdict &verdict)
{
	Admission admission;
	admission.task_id = request.task_id;
	admission.mode = request.mode.value_or(request.ask == Ask::enqueue ? core::TaskMode::async : core::TaskMode::sync);
	admission.priority = request.priority;
	admission.scopes = request.scopes.json;
	admission.retry_after_ms = verdict.retry_after_ms;
	if (verdict.passes()) {
		admission.status = core::name_of(core::TaskStatus::admitted);
		admission.admitted = true;
		admission.newly_admitted = true;
		admission.admitted_at = now();
	} else {
		admission.status = status_denied;
		admission.reason = core::name_of(verdict.reason);
	}
	return admission;
}

core::BucketGrant grant_when_off(const core::BucketDemand &demand, const core::Verdict &verdict)
{
	core::BucketGrant grant;
	grant.server_now_ms = now().floor_ms();
	if (verdict.passes()) {
		grant.granted = demand.requested;
		grant.first_ms = grant.server_now_ms; // all of them at once
		grant.burst = demand.requested;
	} else {
		grant.wait_ms = *verdict.retry_after_ms;
	}
	return grant;
}

} // namespace ratelimit::api
