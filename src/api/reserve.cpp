// rl_check, rl_consume and rl_reserve, each for one limit and for a list.
#include "api/arguments.hpp"
#include "api/limits_call.hpp"
#include "api/statistics.hpp"
#include "pg/entry.hpp"
#include "pg/spi.hpp"

namespace ratelimit::api {

namespace {

void require_mode(Mode mode, const char *name)
{
	if (mode == Mode::check)
		pg::require_own_snapshots(name);
	else
		pg::require_writes(name);
}

pg::statistics::Source source_of(Mode mode) noexcept
{
	return mode == Mode::check     ? pg::statistics::Source::rl_check
	       : mode == Mode::consume ? pg::statistics::Source::rl_consume
	                               : pg::statistics::Source::rl_reserve;
}

Datum one_limit(FunctionCallInfo fcinfo, Mode mode, const char *name)
{
	require_mode(mode, name);
	Elements elements;
	elements.push_back(limit_argument(fcinfo, mode));
	std::optional<std::string_view> task_id;
	std::optional<std::string_view> request_id;
	if (mode == Mode::reserve) {
		task_id = check_optional_name({"task_id", {}, 0}, optional_text(fcinfo, 7));
		request_id = check_optional_name({"request_id", {}, 0}, optional_text(fcinfo, 9));
	}
	LimitsCall limits_call(mode, elements, task_id, request_id);
	const bool allowed = limits_call.run();
	count_outcome(source_of(mode), elements[0], allowed, limits_call.outcome(0));
	DecisionRow row = decision_row(1, allowed, elements[0], limits_call.outcome(0));
	return pg::composite_result(fcinfo, row);
}

Datum list_of_limits(FunctionCallInfo fcinfo, Mode mode, const char *name)
{
	require_mode(mode, name);
	Elements elements = limits_argument(fcinfo, 0, mode);
	std::optional<std::string_view> task_id;
	std::optional<std::string_view> request_id;
	if (mode == Mode::reserve) {
		task_id = check_optional_name({"task_id", {}, 0}, optional_text(fcinfo, 1));
		request_id = check_optional_name({"request_id", {}, 0}, optional_text(fcinfo, 2));
	}
	pg::SetResult result(fcinfo);
	LimitsCall limits_call(mode, elements, task_id, request_id);
	const bool allowed = limits_call.run();
	for (std::size_t i = 0; i < elements.size(); i++) {
		count_outcome(source_of(mode), elements[i], allowed, limits_call.outcome(i));
		DecisionRow row = decision_row(i + 1, allowed, elements[i], limits_call.outcome(i));
		result.add(row);
	}
	return Datum(0);
}

} // namespace

} // namespace ratelimit::api

using ratelimit::api::Mode;

RATELIMIT_FUNCTION(rl_check) { return ratelimit::api::one_limit(fcinfo, Mode::check, "rl_check"); }
RATELIMIT_FUNCTION(rl_check_list) { return ratelimit::api::list_of_limits(fcinfo, Mode::check, "rl_check"); }
RATELIMIT_FUNCTION(rl_consume) { return ratelimit::api::one_limit(fcinfo, Mode::consume, "rl_consume"); }
RATELIMIT_FUNCTION(rl_consume_list) { return ratelimit::api::list_of_limits(fcinfo, Mode::consume, "rl_consume"); }
RATELIMIT_FUNCTION(rl_reserve) { return ratelimit::api::one_limit(fcinfo, Mode::reserve, "rl_reserve"); }
RATELIMIT_FUNCTION(rl_reserve_list) { return ratelimit::api::list_of_limits(fcinfo, Mode::reserve, "rl_reserve"); }
