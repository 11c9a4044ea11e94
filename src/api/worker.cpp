// rl_worker_heartbeat and rl_worker_stop: which of the application's workers are live.
#include "api/arguments.hpp"
#include "pg/clock.hpp"
#include "pg/entry.hpp"
#include "pg/spi.hpp"
#include "pg/value.hpp"
#include "store/worker_store.hpp"

namespace ratelimit::api {

namespace {

core::Instant read_clock() noexcept { return {pg::decision_clock_us()}; }

// The clock is read once the row is locked, so a heartbeat that has waited still counts in full.
core::Instant beat(Datum worker_id, std::optional<std::int32_t> capacity)
{
	while (true) {
		if (store::lock_worker(worker_id))
			return store::beat_worker(worker_id, read_clock(), capacity);
		const core::Instant now = read_clock();
		if (store::insert_worker(worker_id, now, capacity))
			return now;
		pg::check_for_interrupts();
	}
}

Datum heartbeat(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_worker_heartbeat");
	check_name({"worker_id", {}, 0}, required_text(fcinfo, 0, "worker_id"));
	std::optional<std::int32_t> capacity;
	if (!PG_ARGISNULL(1))
		capacity = check_capacity({"capacity", {}, 0}, PG_GETARG_INT32(1));
	pg::Session session;
	session.connect();
	const core::Instant heartbeat_at = beat(PG_GETARG_DATUM(0), capacity);
	session.finish();
	return pg::timestamp_datum(store::stale_at(heartbeat_at).us);
}

Datum stop(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_worker_stop");
	check_name({"worker_id", {}, 0}, required_text(fcinfo, 0, "worker_id"));
	pg::Session session;
	session.connect();
	const std::optional<store::WorkerRow> worker = store::lock_worker(PG_GETARG_DATUM(0));
	const bool was_live = worker && store::worker_is_live(*worker, read_clock());
	if (worker && !worker->stopped)
		store::stop_worker(PG_GETARG_DATUM(0));
	session.finish();
	return BoolGetDatum(was_live);
}

} // namespace

} // namespace ratelimit::api

RATELIMIT_FUNCTION(rl_worker_heartbeat) { return ratelimit::api::heartbeat(fcinfo); }
RATELIMIT_FUNCTION(rl_worker_stop) { return ratelimit::api::stop(fcinfo); }

RATELIMIT_FUNCTION(rl_worker_stale_at)
{
	const Datum heartbeat_at = ratelimit::api::required_datum(fcinfo, 0, "heartbeat_at");
	return ratelimit::pg::timestamp_datum(ratelimit::store::stale_at({ratelimit::pg::timestamp_us(heartbeat_at)}).us);
}
