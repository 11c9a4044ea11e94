// What the view `ratelimit.worker_status` shows, and how the background worker learns of a new extension.
#include <string>

#include "pg/clock.hpp"
#include "pg/entry.hpp"
#include "pg/shared_memory.hpp"
#include "pg/value.hpp"

namespace ratelimit::api {

namespace {

namespace shared_memory = pg::shared_memory;

constexpr std::size_t column_count = 13;

std::string_view state_of(const shared_memory::Database &database)
{
	if (!shared_memory::is_available())
		return "not preloaded";
	if (RecoveryInProgress())
		return "standby";
	if (shared_memory::launcher_pid() == 0)
		return "no launcher";
	if (database.worker_pid != 0)
		return "working";
	if (database.failures > 0)
		return "failing";
	return database.installed ? "idle" : "not seen yet";
}

// Errors of another database may be in another encoding.
std::string_view readable(const char *text)
{
	const std::string_view view(text);
	const bool valid = pg_verifymbstr(view.data(), static_cast<int>(view.size()), true);
	return valid ? view : "(not in the encoding of this database)";
}

void set_instant(pg::Columns<column_count> &row, std::size_t column, TimestampTz at)
{
	if (at != 0)
		row.set(column, TimestampTzGetDatum(at));
}

pg::Columns<column_count> status_row(const shared_memory::Database &database)
{
	pg::Columns<column_count> row;
	row.set(0, ObjectIdGetDatum(database.oid));
	row.set(1, pg::text_datum(state_of(database)));
	if (const std::int32_t launcher = shared_memory::launcher_pid(); launcher != 0)
		row.set(2, Int32GetDatum(launcher));
	if (database.worker_pid != 0)
		row.set(3, Int32GetDatum(database.worker_pid));
	row.set(4, Int64GetDatum(database.rounds));
	set_instant(row, 5, database.last_round_at);
	if (database.rounds > 0) {
		row.set(6, Float8GetDatum(static_cast<double>(database.last_round_us) / 1'000));
		row.set(7, Int64GetDatum(database.last_rows));
	}
	row.set(8, Int64GetDatum(database.total_rows));
	row.set(9, Int32GetDatum(database.failures));
	set_instant(row, 10, database.last_error_at);
	if (database.last_error_at != 0) {
		row.set(11, pg::text_datum(std::string_view(unpack_sql_state(database.last_sqlstate), 5)));
		row.set(12, pg::text_datum(readable(database.last_error)));
	}
	return row;
}

} // namespace

} // namespace ratelimit::api

// One row for each database that is known to have the extension, and one for this database in any case.
RATELIMIT_FUNCTION(rl_worker_rows)
{
	namespace pg = ratelimit::pg;
	pg::SetResult result(fcinfo);
	bool has_this = false;
	const auto add = [&](const pg::shared_memory::Database &database) {
		auto row = ratelimit::api::status_row(database);
		result.add(row);
	};
	for (const pg::shared_memory::Database &database : pg::shared_memory::databases()) {
		const bool is_this = database.oid == MyDatabaseId;
		has_this = has_this || is_this;
		if (is_this || database.installed || database.failures > 0)
			add(database);
	}
	if (!has_this) {
		pg::shared_memory::Database unknown{};
		unknown.oid = MyDatabaseId;
		add(unknown);
	}
	return Datum(0);
}

RATELIMIT_FUNCTION(rl_extension_created)
{
	ratelimit::pg::shared_memory::extension_is_created();
	return Datum(0);
}
