// rl_top, and the clock that the views read.
#include "api/arguments.hpp"
#include "core/limits.hpp"
#include "pg/clock.hpp"
#include "pg/entry.hpp"
#include "pg/spi.hpp"
#include "store/window_store.hpp"

namespace ratelimit::api {

namespace {

Datum top(FunctionCallInfo fcinfo)
{
	pg::require_own_snapshots("rl_top");
	const std::int32_t keys_max = batch_argument(fcinfo, 0, "max_keys", core::limits::top_keys_default);
	pg::SetResult result(fcinfo);
	pg::Session session;
	session.connect();
	for (const store::TopCounter &counter : store::read_top_counters(keys_max)) {
		pg::Columns<8> row;
		row.set(0, counter.scope_type);
		row.set(1, counter.scope_key);
		row.set(2, counter.metric);
		row.set(3, Int32GetDatum(counter.window_seconds));
		row.set(4, Float8GetDatum(counter.limit));
		row.set(5, Float8GetDatum(counter.used));
		row.set(6, Float8GetDatum(counter.reserved));
		row.set(7, Float8GetDatum(counter.percent_used));
		result.add(row);
	}
	session.finish();
	return Datum(0);
}

} // namespace

} // namespace ratelimit::api

RATELIMIT_FUNCTION(rl_top) { return ratelimit::api::top(fcinfo); }
RATELIMIT_FUNCTION(rl_decision_clock) { return ratelimit::pg::timestamp_datum(ratelimit::pg::decision_clock_us()); }
