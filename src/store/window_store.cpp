#include "store/window_store.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "pg/spi.hpp"
#include "pg/value.hpp"

namespace ratelimit::store {

namespace {

using pg::Access;
using pg::Parameters;
using pg::Rows;
using pg::Statement;

#define COUNTER_KEY_IS "scope_type {=} $1 AND scope_key {=} $2 AND metric {=} $3 AND window_seconds {=} $4"

pg::IndexName primary_key{"counters_pkey"};

// Places of the columns in the table, for reading without the executor.
enum Column : int { window_start_column = 1, used_column = 2, reserved_column = 3, touched_at_column = 5 };

Statement lock_statement{
	"SELECT window_start, used, reserved, touched_at, ctid, xmin FROM ratelimit.counters WHERE " COUNTER_KEY_IS " FOR UPDATE",
	{TEXTOID, TEXTOID, TEXTOID, INT4OID}};

Statement insert_statement{
	"INSERT INTO ratelimit.counters (scope_type, scope_key, metric, window_seconds, window_start, used, reserved,"
	" limit_value, touched_at, idle_from) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9) ON CONFLICT DO NOTHING",
	{TEXTOID, TEXTOID, TEXTOID, INT4OID, TIMESTAMPTZOID, FLOAT8OID, FLOAT8OID, FLOAT8OID, TIMESTAMPTZOID}};

// The place and the maker name one version of the row. If another transaction replaces it first, the server looks at the
// new version, which another transaction has made, and finds nothing to update.
Statement replace_statement{
	"UPDATE ratelimit.counters SET window_start = $3, used = $4, reserved = $5, limit_value = $6, touched_at = $7"
	" WHERE ctid {=} $1 AND xmin {=} $2",
	{TIDOID, XIDOID, TIMESTAMPTZOID, FLOAT8OID, FLOAT8OID, FLOAT8OID, TIMESTAMPTZOID}};

Statement settle_statement{
	"UPDATE ratelimit.counters SET used = $2, reserved = $3, touched_at = $4 WHERE ctid {=} $1",
	{TIDOID, FLOAT8OID, FLOAT8OID, TIMESTAMPTZOID}};

Statement delete_statement{"DELETE FROM ratelimit.counters WHERE ctid {=} $1", {TIDOID}};

Statement top_statement{"SELECT scope_type, scope_key, metric, window_seconds, limit_value, used, reserved, percent_used"
						" FROM ratelimit.windows ORDER BY percent_used DESC, scope_type, scope_key, metric, window_seconds"
						" LIMIT $1",
	{INT4OID}, pg::Scans::whole_tables};

Parameters key_parameters(const CounterKey &key)
{
	Parameters parameters;
	parameters.add(key.scope_type).add(key.scope_key).add(key.metric).add(key.window_seconds);
	return parameters;
}

void add_update(Parameters &parameters, const CounterUpdate &update)
{
	parameters.add(pg::timestamp_datum(update.window.start.us))
		.add(Float8GetDatum(update.window.used))
		.add(Float8GetDatum(update.window.reserved))
		.add(Float8GetDatum(update.limit))
		.add(pg::timestamp_datum(update.at.us));
}

Datum place_datum(const CounterRow &row) { return PointerGetDatum(&row.version.place); }

// A stored time is never moved back.
core::Instant later(core::Instant stored, core::Instant now) noexcept { return std::max(stored, now); }

} // namespace

CounterKey::CounterKey(std::string_view type, std::string_view key, std::string_view name, std::int32_t seconds)
	: scope_type(pg::text_datum(type)), scope_key(pg::text_datum(key)), metric(pg::text_datum(name)),
	  window_seconds(Int32GetDatum(seconds))
{
}

std::optional<CounterRow> read_counter(const CounterKey &key)
{
	pg::ScanKeys keys;
	keys.equals_text(key.scope_type);
	keys.equals_text(key.scope_key);
	keys.equals_text(key.metric);
	keys.equals_int4(key.window_seconds);

	CounterRow row;
	bool found = false;
	CounterRow *const target = &row;
	bool *const target_found = &found;
	pg::Reader reader;
	reader.scan(primary_key, keys, [=](TupleTableSlot *slot) {
		target->window.start = {pg::timestamp_us(pg::slot_datum(slot, window_start_column))};
		target->window.used = DatumGetFloat8(pg::slot_datum(slot, used_column));
		target->window.reserved = DatumGetFloat8(pg::slot_datum(slot, reserved_column));
		target->touched_at = {pg::timestamp_us(pg::slot_datum(slot, touched_at_column))};
		target->version = pg::slot_version(slot);
		target->contended = pg::slot_is_contended(slot);
		*target_found = true;
		return false;
	});
	reader.finish();
	return found ? std::optional(row) : std::nullopt;
}

std::optional<CounterRow> lock_counter(const CounterKey &key)
{
	Parameters parameters = key_parameters(key);
	Rows rows = lock_statement.run(Access::write, parameters);
	if (rows.count() == 0)
		return std::nullopt;
	CounterRow row;
	row.window.start = {pg::timestamp_us(rows.datum(0, 1))};
	row.window.used = rows.float8(0, 2);
	row.window.reserved = rows.float8(0, 3);
	row.touched_at = {pg::timestamp_us(rows.datum(0, 4))};
	row.version = {rows.place(0, 5), DatumGetTransactionId(rows.datum(0, 6))};
	row.contended = false;
	rows.release();
	return row;
}

bool insert_counter(const CounterKey &key, const CounterUpdate &update)
{
	Parameters parameters = key_parameters(key);
	add_update(parameters, update);
	return insert_statement.run(Access::write, parameters).affected() == 1;
}

bool replace_counter(const CounterRow &found, const CounterUpdate &update)
{
	Parameters parameters;
	parameters.add(place_datum(found)).add(TransactionIdGetDatum(found.version.made_by));
	add_update(parameters, {update.window, update.limit, later(found.touched_at, update.at)});
	return replace_statement.run(Access::write, parameters).affected() == 1;
}

void write_counter(const CounterRow &locked, const CounterUpdate &update)
{
	const bool written = replace_counter(locked, update);
	RATELIMIT_CHECK(written);
}

void settle_counter(const CounterRow &locked, const core::StoredWindow &settled, core::Instant at)
{
	Parameters parameters;
	parameters.add(place_datum(locked))
		.add(Float8GetDatum(settled.used))
		.add(Float8GetDatum(settled.reserved))
		.add(pg::timestamp_datum(later(locked.touched_at, at).us));
	const std::uint64_t written = settle_statement.run(Access::write, parameters).affected();
	RATELIMIT_CHECK(written == 1);
}

void delete_counter(const CounterRow &locked)
{
	Parameters parameters;
	parameters.add(place_datum(locked));
	(void)delete_statement.run(Access::write, parameters);
}

pg::Vector<TopCounter> read_top_counters(std::int32_t count)
{
	Parameters parameters;
	parameters.add(Int32GetDatum(count));
	const Rows rows = top_statement.run(Access::read, parameters);
	pg::Vector<TopCounter> counters;
	counters.reserve(rows.count());
	for (std::size_t i = 0; i < rows.count(); i++)
		counters.push_back({rows.datum(i, 1), rows.datum(i, 2), rows.datum(i, 3), rows.int4(i, 4), rows.float8(i, 5),
			rows.float8(i, 6), rows.float8(i, 7), rows.float8(i, 8)});
	return counters;
}

} // namespace ratelimit::store
