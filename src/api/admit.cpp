// rl_admit, rl_enqueue and rl_rebind.
#include "api/admit_call.hpp"
#include "api/arguments.hpp"
#include "api/off_switch.hpp"
#include "api/statistics.hpp"
#include "pg/entry.hpp"
#include "pg/spi.hpp"

namespace ratelimit::api {

namespace {

pg::statistics::Source source_of(Ask ask) noexcept
{
	return ask == Ask::admit     ? pg::statistics::Source::rl_admit
	       : ask == Ask::enqueue ? pg::statistics::Source::rl_enqueue
	                             : pg::statistics::Source::none;
}

Datum answer(FunctionCallInfo fcinfo, const AdmitRequest &request)
{
	pg::Session session;
	session.connect();
	const std::optional<Admission> admission = AdmitCall(request).run();
	session.finish();
	if (!admission) {
		fcinfo->isnull = true;
		return Datum(0);
	}
	count_admission(source_of(request.ask), *admission, request.scopes.list);
	AdmissionRow row = admission_row(1, *admission);
	return pg::composite_result(fcinfo, row);
}

Datum answer_unless_off(FunctionCallInfo fcinfo, const AdmitRequest &request)
{
	const std::optional<core::Verdict> verdict = verdict_when_off();
	if (!verdict)
		return answer(fcinfo, request);
	AdmissionRow row = admission_row(1, admission_when_off(request, *verdict));
	return pg::composite_result(fcinfo, row);
}

AdmitRequest request_of(FunctionCallInfo fcinfo, Ask ask)
{
	AdmitRequest request;
	request.ask = ask;
	request.task_id = check_name({"task_id", {}, 0}, required_text(fcinfo, 0, "task_id"));
	request.scopes = scopes_argument(fcinfo, 1);
	return request;
}

Datum admit(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_admit");
	AdmitRequest request = request_of(fcinfo, Ask::admit);
	request.mode = mode_argument(fcinfo, 2);
	if (!PG_ARGISNULL(3))
		request.priority = PG_GETARG_INT32(3);
	request.waiter_id = check_optional_name({"waiter_id", {}, 0}, optional_text(fcinfo, 4));
	return answer_unless_off(fcinfo, request);
}

Datum enqueue(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_enqueue");
	AdmitRequest request = request_of(fcinfo, Ask::enqueue);
	if (!PG_ARGISNULL(2))
		request.priority = PG_GETARG_INT32(2);
	return answer_unless_off(fcinfo, request);
}

Datum rebind(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_rebind");
	return answer(fcinfo, request_of(fcinfo, Ask::rebind));
}

} // namespace

} // namespace ratelimit::api

RATELIMIT_FUNCTION(rl_admit) { return ratelimit::api::admit(fcinfo); }
RATELIMIT_FUNCTION(rl_enqueue) { return ratelimit::api::enqueue(fcinfo); }
RATELIMIT_FUNCTION(rl_rebind) { return ratelimit::api::rebind(fcinfo); }
