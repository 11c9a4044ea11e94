// rl_route: which of several candidates a call should go to. Each candidate's windows are checked as rl_check would;
// nothing is written.
#include "api/candidates.hpp"
#include "api/limits_call.hpp"
#include "api/off_switch.hpp"
#include "core/route.hpp"
#include "pg/entry.hpp"
#include "pg/value.hpp"

namespace ratelimit::api {

namespace {

// The candidate's limit that has to be waited for the longest; `verdict` is what is known before.
core::Verdict check(Elements &limits, core::Verdict verdict)
{
	LimitsCall limits_call(Mode::check, limits, std::nullopt, std::nullopt);
	(void)limits_call.run();
	for (std::size_t i = 0; i < limits.size(); i++)
		verdict = core::longest_wait(verdict, limits_call.outcome(i).verdict);
	return verdict;
}

Datum route(FunctionCallInfo fcinfo)
{
	Candidates candidates = candidates_argument(fcinfo, 0);
	const std::optional<std::string_view> pinned_name = optional_text(fcinfo, 1);
	const core::Verdict verdict = verdict_when_off().value_or(core::Verdict::pass());
	pg::SetResult result(fcinfo);

	pg::Vector<core::Verdict> verdicts;
	verdicts.reserve(candidates.size());
	std::optional<std::size_t> pinned;
	for (Candidate &candidate : candidates) {
		pg::check_for_interrupts();
		if (pinned_name == candidate.name)
			pinned = verdicts.size();
		verdicts.push_back(check(candidate.limits, verdict));
	}
	const std::optional<std::size_t> chosen = core::choose_candidate({verdicts.data(), verdicts.size()}, pinned);
	for (std::size_t i = 0; i < candidates.size(); i++) {
		pg::Columns<5> row;
		row.set(0, Int32GetDatum(static_cast<std::int32_t>(i + 1)));
		row.set(1, pg::text_datum(candidates[i].name));
		row.set(2, BoolGetDatum(chosen == i));
		if (!verdicts[i].passes())
			row.set(3, pg::text_datum(core::name_of(verdicts[i].reason)));
		if (verdicts[i].retry_after_ms)
			row.set(4, Int64GetDatum(*verdicts[i].retry_after_ms));
		result.add(row);
	}
	return Datum(0);
}

} // namespace

} // namespace ratelimit::api

RATELIMIT_FUNCTION(rl_route) { return ratelimit::api::route(fcinfo); }
