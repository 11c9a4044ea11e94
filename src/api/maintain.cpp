// rl_reap: what the background worker does, on demand.
#include "api/arguments.hpp"
#include "core/limits.hpp"
#include "pg/entry.hpp"
#include "pg/spi.hpp"
#include "upkeep/reap.hpp"

namespace ratelimit::api {

namespace {

constexpr std::int32_t reap_batch_default = 500;

std::int32_t batch_argument(FunctionCallInfo fcinfo, std::int32_t default_value)
{
	namespace limits = core::limits;
	if (PG_ARGISNULL(0))
		return default_value;
	const std::int32_t batch = PG_GETARG_INT32(0);
	if (batch < limits::batch_min || batch > limits::batch_max)
		reject(Place{"batch", {}, 0}, "The value is " + std::to_string(batch) + ".", "It must be from 1 to 10000.");
	return batch;
}

Datum reap(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_reap");
	const std::int32_t batch = batch_argument(fcinfo, reap_batch_default);
	pg::Session session;
	session.connect();
	const upkeep::Reaped reaped = upkeep::reap(batch);
	session.finish();
	pg::Columns<5> row;
	const std::int64_t counts[] = {reaped.expired_waiters, reaped.expired_deadlines, reaped.expired_leases,
		reaped.expired_reservations, reaped.deleted};
	for (std::size_t i = 0; i < row.size(); i++)
		row.set(i, Int32GetDatum(static_cast<std::int32_t>(counts[i])));
	return pg::composite_result(fcinfo, row);
}

} // namespace

} // namespace ratelimit::api

RATELIMIT_FUNCTION(rl_reap) { return ratelimit::api::reap(fcinfo); }
