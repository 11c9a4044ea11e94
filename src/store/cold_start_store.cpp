#include "store/cold_start_store.hpp"

#include "pg/settings.hpp"
#include "pg/spi.hpp"
#include "pg/value.hpp"

namespace ratelimit::store {

namespace {

using pg::Access;
using pg::Parameters;
using pg::Scans;
using pg::Statement;

Statement lock_tables_statement{
	"LOCK TABLE ratelimit.tasks, ratelimit.counters, ratelimit.scopes, ratelimit.leases, ratelimit.reservations"
	" IN SHARE ROW EXCLUSIVE MODE"};

Statement delete_leases_statement{"DELETE FROM ratelimit.leases WHERE expires_at {<=} $1", {TIMESTAMPTZOID}, Scans::whole_tables};
Statement delete_live_leases_statement{"DELETE FROM ratelimit.leases", Scans::whole_tables};
Statement empty_scopes_statement{
	"UPDATE ratelimit.scopes SET leased = 0, lease_count = 0, expires_from = 'infinity', touched_at = GREATEST(touched_at, $1),"
	" ready = true WHERE lease_count {<>} 0 OR leased {<>} 0",
	{TIMESTAMPTZOID}, Scans::whole_tables};
Statement wake_dispatcher_statement{"UPDATE ratelimit.awaited SET ready = true WHERE NOT ready", Scans::whole_tables};

Statement release_reservations_statement{
	"UPDATE ratelimit.reservations SET status = 'released', reason = $1, finalized_at = $2, due_at = $2"
	" WHERE status {=} 'reserved'",
	{TEXTOID, TIMESTAMPTZOID}, Scans::whole_tables};
Statement delete_reservations_statement{
	"DELETE FROM ratelimit.reservations WHERE status {=} 'reserved'", Scans::whole_tables};
Statement empty_counters_statement{
	"UPDATE ratelimit.counters SET reserved = 0 WHERE reserved {<>} 0", Scans::whole_tables};

} // namespace

void lock_tables()
{
	Parameters none;
	(void)lock_tables_statement.run(Access::write, none);
}

std::int64_t release_all_leases(core::Instant now)
{
	Parameters at;
	at.add(pg::timestamp_datum(now.us));
	Parameters none;
	(void)delete_leases_statement.run(Access::write, at);
	const auto released = static_cast<std::int64_t>(delete_live_leases_statement.run(Access::write, none).affected());
	(void)empty_scopes_statement.run(Access::write, at);
	(void)wake_dispatcher_statement.run(Access::write, none);
	return released;
}

std::int64_t release_all_reservations(std::string_view reason, core::Instant now)
{
	Parameters none;
	std::uint64_t released = 0;
	if (pg::settings::retention_seconds() > 0) {
		Parameters parameters;
		parameters.add(pg::text_datum(reason)).add(pg::timestamp_datum(now.us));
		released = release_reservations_statement.run(Access::write, parameters).affected();
	} else {
		released = delete_reservations_statement.run(Access::write, none).affected();
	}
	(void)empty_counters_statement.run(Access::write, none);
	return static_cast<std::int64_t>(released);
}

} // namespace ratelimit::store
