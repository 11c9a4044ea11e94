// rl_reap and rl_recover: what the background worker does, on demand; and rl_verify.
#include "api/arguments.hpp"
#include "pg/entry.hpp"
#include "pg/spi.hpp"
#include "pg/value.hpp"
#include "upkeep/reap.hpp"
#include "upkeep/recover.hpp"
#include "upkeep/verify.hpp"

namespace ratelimit::upkeep {

namespace {

constexpr std::int32_t reap_batch_default = 500;
constexpr std::int32_t recover_batch_default = 50;

Datum reap_call(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_reap");
	const std::int32_t batch = api::batch_argument(fcinfo, 0, "batch", reap_batch_default);
	pg::Session session;
	session.connect();
	const Reaped reaped = reap(batch);
	session.finish();
	pg::Columns<5> row;
	const std::int64_t counts[] = {reaped.expired_waiters, reaped.expired_deadlines, reaped.expired_leases,
		reaped.expired_reservations, reaped.deleted};
	for (std::size_t i = 0; i < row.size(); i++)
		row.set(i, Int32GetDatum(static_cast<std::int32_t>(counts[i])));
	return pg::composite_result(fcinfo, row);
}

Datum recover_call(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_recover");
	const std::int32_t batch = api::batch_argument(fcinfo, 0, "batch", recover_batch_default);
	const bool everything = !PG_ARGISNULL(1) && PG_GETARG_BOOL(1);
	pg::Session session;
	session.connect();
	const Recovery recovery = everything ? recover_everything() : recover(batch, Round::until_found);
	session.finish();
	pg::Columns<8> row;
	const std::int64_t counts[] = {recovery.released_leases, recovery.released_reservations, recovery.failed_attempts,
		recovery.failed_tasks, recovery.requeued_tasks, recovery.cleaned_tasks, recovery.review_tasks,
		recovery.repaired_aggregates};
	for (std::size_t i = 0; i < row.size(); i++)
		row.set(i, Int32GetDatum(static_cast<std::int32_t>(counts[i])));
	return pg::composite_result(fcinfo, row);
}

Datum verify_call(FunctionCallInfo fcinfo)
{
	pg::require_own_snapshots("rl_verify");
	pg::SetResult result(fcinfo);
	pg::Session session;
	session.connect();
	for (const Inconsistency &found : verify()) {
		pg::Columns<5> row;
		row.set(0, pg::text_datum(found.object));
		row.set(1, found.key);
		row.set(2, pg::text_datum(found.problem));
		row.set(3, Float8GetDatum(found.expected));
		if (found.found)
			row.set(4, Float8GetDatum(*found.found));
		result.add(row);
	}
	session.finish();
	return Datum(0);
}

} // namespace

} // namespace ratelimit::upkeep

RATELIMIT_FUNCTION(rl_reap) { return ratelimit::upkeep::reap_call(fcinfo); }
RATELIMIT_FUNCTION(rl_recover) { return ratelimit::upkeep::recover_call(fcinfo); }
RATELIMIT_FUNCTION(rl_verify) { return ratelimit::upkeep::verify_call(fcinfo); }
