#include "api/rows.hpp"

#include "pg/value.hpp"

namespace ratelimit::api {

DecisionRow decision_row(std::size_t ordinal, bool allowed, const core::Element &element, const Outcome &outcome)
{
	DecisionRow row;
	row.set(0, Int32GetDatum(static_cast<std::int32_t>(ordinal)));
	row.set(1, BoolGetDatum(allowed));
	if (!outcome.verdict.passes())
		row.set(2, pg::text_datum(core::name_of(outcome.verdict.reason)));
	row.set(3, BoolGetDatum(outcome.verdict.retryable()));
	if (outcome.verdict.retry_after_ms)
		row.set(4, Int64GetDatum(*outcome.verdict.retry_after_ms));
	row.set(5, pg::text_datum(element.scope_type));
	row.set(6, pg::text_datum(element.scope_key));
	row.set(7, pg::text_datum(element.metric));
	if (element.limit)
		row.set(8, Float8GetDatum(*element.limit));
	row.set(9, Float8GetDatum(element.amount));
	if (outcome.looked) {
		row.set(10, Float8GetDatum(outcome.used));
		row.set(11, Float8GetDatum(outcome.reserved));
		row.set(12, Float8GetDatum(outcome.remaining));
	}
	if (outcome.window_start)
		row.set(13, pg::timestamp_datum(outcome.window_start->us));
	if (outcome.reset_at)
		row.set(14, pg::timestamp_datum(outcome.reset_at->us));
	if (outcome.reservation_id)
		row.set(15, pg::uuid_datum(*outcome.reservation_id));
	if (outcome.lease_id)
		row.set(16, pg::uuid_datum(*outcome.lease_id));
	if (outcome.lease_expires_at)
		row.set(17, pg::timestamp_datum(outcome.lease_expires_at->us));
	return row;
}

} // namespace ratelimit::api
