// What the view `ratelimit.statistics` shows, and rl_reset_statistics.
#include "api/statistics.hpp"

#include "pg/entry.hpp"
#include "pg/value.hpp"

namespace ratelimit::api {

namespace {

namespace statistics = pg::statistics;

Datum statistics_rows(FunctionCallInfo fcinfo)
{
	pg::SetResult result(fcinfo);
	for (const statistics::Row &found : statistics::rows()) {
		pg::Columns<4 + statistics::counts> row;
		row.set(0, pg::text_datum(statistics::name_of(found.source)));
		if (!found.scope_type.empty())
			row.set(1, pg::text_datum(found.scope_type));
		if (!found.metric.empty())
			row.set(2, pg::text_datum(found.metric));
		for (std::size_t i = 0; i < statistics::counts; i++)
			row.set(3 + i, Int64GetDatum(static_cast<std::int64_t>(found.values[i])));
		row.set(3 + statistics::counts, TimestampTzGetDatum(found.since));
		result.add(row);
	}
	return Datum(0);
}

} // namespace

void count_admission(statistics::Source source, const Admission &admission, const ScopeList &scopes) noexcept
{
	if (admission.refused) {
		statistics::add(source, admission.refused->scope.scope_type, core::concurrent_metric, statistics::denied);
	} else if (admission.newly_admitted) {
		for (const TaskScope &scope : scopes)
			statistics::add(source, scope.scope_type, core::concurrent_metric, statistics::allowed);
	}
}

} // namespace ratelimit::api

RATELIMIT_FUNCTION(rl_statistics_rows) { return ratelimit::api::statistics_rows(fcinfo); }

RATELIMIT_FUNCTION(rl_reset_statistics)
{
	ratelimit::pg::require_writes("rl_reset_statistics");
	ratelimit::pg::statistics::reset();
	return Datum(0);
}
