#include "store/worker_store.hpp"

#include "pg/settings.hpp"
#include "pg/spi.hpp"
#include "pg/value.hpp"

namespace ratelimit::store {

namespace {

using pg::Access;
using pg::Parameters;
using pg::Rows;
using pg::Statement;

Statement lock_worker_statement{
	"SELECT heartbeat_at, stopped FROM ratelimit.workers WHERE worker_id {=} $1 FOR UPDATE", {TEXTOID}};

Statement insert_worker_statement{"INSERT INTO ratelimit.workers (worker_id, heartbeat_at, capacity, stopped)"
								  " VALUES ($1, $2, COALESCE($3, 0), false) ON CONFLICT DO NOTHING",
	{TEXTOID, TIMESTAMPTZOID, INT4OID}};

Statement beat_worker_statement{"UPDATE ratelimit.workers SET heartbeat_at = GREATEST(heartbeat_at, $2),"
								" capacity = COALESCE($3, capacity), stopped = false WHERE worker_id {=} $1"
								" RETURNING heartbeat_at",
	{TEXTOID, TIMESTAMPTZOID, INT4OID}};

Statement stop_worker_statement{"UPDATE ratelimit.workers SET stopped = true WHERE worker_id {=} $1", {TEXTOID}};

// Workers are few, and every heartbeat would have to change an index on its time: a scan of the table it is.
Statement live_capacity_statement{"SELECT pg_catalog.count(*), COALESCE(pg_catalog.sum(capacity), 0)::pg_catalog.float8"
								  " FROM ratelimit.workers WHERE heartbeat_at {>} $1 AND NOT stopped",
	{TIMESTAMPTZOID}};

core::Span stale_after() noexcept { return core::Span::from_seconds(pg::settings::worker_stale_after_seconds()); }

Parameters &add_capacity(Parameters &parameters, std::optional<std::int32_t> capacity)
{
	return capacity ? parameters.add(Int32GetDatum(*capacity)) : parameters.add_null();
}

} // namespace

std::optional<WorkerRow> lock_worker(Datum worker_id)
{
	Parameters parameters;
	parameters.add(worker_id);
	const Rows rows = lock_worker_statement.run(Access::write, parameters);
	if (rows.count() == 0)
		return std::nullopt;
	return WorkerRow{{pg::timestamp_us(rows.datum(0, 1))}, rows.boolean(0, 2)};
}

bool insert_worker(Datum worker_id, core::Instant at, std::optional<std::int32_t> capacity)
{
	Parameters parameters;
	add_capacity(parameters.add(worker_id).add(pg::timestamp_datum(at.us)), capacity);
	return insert_worker_statement.run(Access::write, parameters).affected() == 1;
}

core::Instant beat_worker(Datum worker_id, core::Instant at, std::optional<std::int32_t> capacity)
{
	Parameters parameters;
	add_capacity(parameters.add(worker_id).add(pg::timestamp_datum(at.us)), capacity);
	return {pg::timestamp_us(beat_worker_statement.run(Access::write, parameters).datum(0, 1))};
}

void stop_worker(Datum worker_id)
{
	Parameters parameters;
	parameters.add(worker_id);
	(void)stop_worker_statement.run(Access::write, parameters);
}

core::Instant stale_at(core::Instant heartbeat_at) noexcept { return heartbeat_at + stale_after(); }

bool worker_is_live(const WorkerRow &worker, core::Instant now) noexcept
{
	return !worker.stopped && now < stale_at(worker.heartbeat_at);
}

WorkerCapacity live_workers(core::Instant now)
{
	Parameters parameters;
	parameters.add(pg::timestamp_datum((now - stale_after()).us));
	const Rows rows = live_capacity_statement.run(Access::read, parameters);
	return {rows.int8(0, 1), rows.float8(0, 2)};
}

double live_worker_capacity(core::Instant now) { return live_workers(now).capacity; }

} // namespace ratelimit::store
