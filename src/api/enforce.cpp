// rl_enforce: rl_consume for places that understand errors only, such as triggers and policies. A denial is an ERROR whose
// SQLSTATE the session chooses; it undoes the statement, and with it nothing that this call has written.
#include "api/arguments.hpp"
#include "api/limits_call.hpp"
#include "api/statistics.hpp"
#include "core/route.hpp"
#include "pg/entry.hpp"
#include "pg/record.hpp"
#include "pg/settings.hpp"
#include "pg/value.hpp"

namespace ratelimit::api {

namespace {

// The limit that has to be waited for the longest.
std::size_t decisive_element(const LimitsCall &limits_call, std::size_t count)
{
	core::Verdict longest = core::Verdict::pass();
	std::size_t decisive = 0;
	for (std::size_t i = 0; i < count; i++) {
		const core::Verdict &verdict = limits_call.outcome(i).verdict;
		const core::Verdict longer = core::longest_wait(longest, verdict);
		if (longer.reason != longest.reason || longer.retry_after_ms != longest.retry_after_ms)
			decisive = i;
		longest = longer;
	}
	return decisive;
}

[[noreturn]] void throw_denied(std::size_t ordinal, const core::Element &element, const Outcome &outcome)
{
	DecisionRow row = decision_row(ordinal, false, element, outcome);
	const std::optional<std::int64_t> &wait_ms = outcome.verdict.retry_after_ms;
	throw pg::SqlError{pg::settings::denied_sqlstate(),
		"rate limit exceeded: \"" + pg::excerpt(element.metric) + "\" of " + pg::excerpt(element.scope_type) + " \"" +
			pg::excerpt(element.scope_key) + "\"",
		pg::record_json("decision", row),
		wait_ms ? "Retry after " + std::to_string(*wait_ms) + " ms." : "Waiting does not help."};
}

Datum enforce(Elements &elements)
{
	LimitsCall limits_call(Mode::consume, elements, std::nullopt, std::nullopt);
	const bool allowed = limits_call.run();
	for (std::size_t i = 0; i < elements.size(); i++)
		count_outcome(pg::statistics::Source::rl_enforce, elements[i], allowed, limits_call.outcome(i));
	if (!allowed) {
		const std::size_t decisive = decisive_element(limits_call, elements.size());
		throw_denied(decisive + 1, elements[decisive], limits_call.outcome(decisive));
	}
	return Datum(0);
}

} // namespace

} // namespace ratelimit::api

namespace api = ratelimit::api;

RATELIMIT_FUNCTION(rl_enforce)
{
	ratelimit::pg::require_writes("rl_enforce");
	api::Elements elements;
	elements.push_back(api::limit_argument(fcinfo, api::Mode::consume));
	return api::enforce(elements);
}

RATELIMIT_FUNCTION(rl_enforce_list)
{
	ratelimit::pg::require_writes("rl_enforce");
	api::Elements elements = api::limits_argument(fcinfo, 0, api::Mode::consume);
	return api::enforce(elements);
}
