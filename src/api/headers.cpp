// rl_headers: decisions as HTTP header fields. core/headers says how they are written.
#include "core/headers.hpp"

#include "api/arguments.hpp"
#include "api/rows.hpp"
#include "pg/clock.hpp"
#include "pg/entry.hpp"
#include "pg/record.hpp"
#include "pg/value.hpp"

namespace ratelimit::api {

namespace {

std::string_view utf8(const DecisionRow &row, std::size_t column)
{
	return row.nulls[column] ? std::string_view() : pg::to_utf8(pg::text_view(row.values[column]));
}

std::optional<double> number(const DecisionRow &row, std::size_t column)
{
	return row.nulls[column] ? std::nullopt : std::optional(DatumGetFloat8(row.values[column]));
}

std::optional<core::Instant> instant(const DecisionRow &row, std::size_t column)
{
	return row.nulls[column] ? std::nullopt : std::optional(core::Instant{pg::instant_us(row.values[column])});
}

// `place` stands in for an ordinal that is NULL, in a row that somebody made up.
core::HeaderDecision header_decision(const DecisionRow &row, std::size_t place)
{
	core::HeaderDecision decision;
	decision.ordinal = row.nulls[0] ? place : static_cast<std::size_t>(std::max(0, DatumGetInt32(row.values[0])));
	decision.allowed = !row.nulls[1] && DatumGetBool(row.values[1]);
	if (!row.nulls[4])
		decision.retry_after_ms = DatumGetInt64(row.values[4]);
	decision.scope_type = utf8(row, 5);
	decision.metric = utf8(row, 7);
	decision.limit = number(row, 8);
	decision.remaining = number(row, 12);
	decision.window_start = instant(row, 13);
	decision.reset_at = instant(row, 14);
	return decision;
}

Datum headers(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(0)) {
		fcinfo->isnull = true;
		return Datum(0);
	}
	if (const std::size_t length = pg::array_length(PG_GETARG_DATUM(0)); length > core::limits::list_elements_max)
		reject_length("decisions", length);

	pg::Vector<core::HeaderDecision> decisions;
	std::size_t place = 0;
	for (const std::optional<Datum> &element : pg::array_elements(PG_GETARG_DATUM(0))) {
		place++;
		if (element)
			decisions.push_back(header_decision(pg::columns_of<DecisionRow::size()>(*element), place));
	}
	const core::HeaderFields fields =
		core::header_fields({decisions.data(), decisions.size()}, core::Instant{pg::decision_clock_us()});

	pg::SmallVector<pg::JsonField, 3> shown;
	for (const pg::JsonField &field : {pg::JsonField{"RateLimit-Policy", fields.policy},
			 pg::JsonField{"RateLimit", fields.limit}, pg::JsonField{"Retry-After", fields.retry_after}})
		if (!field.value.empty())
			shown.push_back(field);
	return pg::json_object_datum(shown.data(), shown.size());
}

} // namespace

} // namespace ratelimit::api

RATELIMIT_FUNCTION(rl_headers) { return ratelimit::api::headers(fcinfo); }
