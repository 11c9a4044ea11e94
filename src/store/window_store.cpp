#include "store/window_store.hpp"

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

Statement read_statement{"SELECT window_start, used, reserved, ctid, xmax FROM ratelimit.counters WHERE " COUNTER_KEY_IS,
	{TEXTOID, TEXTOID, TEXTOID, INT4OID}};

Statement lock_statement{
	"SELECT window_start, used, reserved, ctid, xmax FROM ratelimit.counters WHERE " COUNTER_KEY_IS " FOR UPDATE",
	{TEXTOID, TEXTOID, TEXTOID, INT4OID}};

Statement insert_statement{
	"INSERT INTO ratelimit.counters (scope_type, scope_key, metric, window_seconds, window_start, used, reserved,"
	" limit_value, touched_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING",
	{TEXTOID, TEXTOID, TEXTOID, INT4OID, TIMESTAMPTZOID, FLOAT8OID, FLOAT8OID, FLOAT8OID, TIMESTAMPTZOID}};

// The amounts are compared again, and after waiting for another transaction with its result. The key is compared too: the
// place may have been given to another row since it was read.
Statement replace_statement{
	"UPDATE ratelimit.counters SET window_start = $5, used = $6, reserved = $7, limit_value = $8,"
	" touched_at = GREATEST(touched_at, $9) WHERE ctid {=} $10 AND " COUNTER_KEY_IS
	" AND window_start {=} $11 AND used {=} $12 AND reserved {=} $13",
	{TEXTOID, TEXTOID, TEXTOID, INT4OID, TIMESTAMPTZOID, FLOAT8OID, FLOAT8OID, FLOAT8OID, TIMESTAMPTZOID, TIDOID,
		TIMESTAMPTZOID, FLOAT8OID, FLOAT8OID}};

Statement write_statement{
	"UPDATE ratelimit.counters SET window_start = $2, used = $3, reserved = $4, limit_value = $5,"
	" touched_at = GREATEST(touched_at, $6) WHERE ctid {=} $1",
	{TIDOID, TIMESTAMPTZOID, FLOAT8OID, FLOAT8OID, FLOAT8OID, TIMESTAMPTZOID}};

Statement settle_statement{
	"UPDATE ratelimit.counters SET used = $2, reserved = $3, touched_at = GREATEST(touched_at, $4) WHERE ctid {=} $1",
	{TIDOID, FLOAT8OID, FLOAT8OID, TIMESTAMPTZOID}};

Statement delete_statement{"DELETE FROM ratelimit.counters WHERE ctid {=} $1", {TIDOID}};

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

Datum place_datum(const CounterRow &row) { return PointerGetDatum(&row.place); }

std::optional<CounterRow> find(Statement &statement, Access access, const CounterKey &key)
{
	Parameters parameters = key_parameters(key);
	Rows rows = statement.run(access, parameters);
	if (rows.count() == 0)
		return std::nullopt;
	CounterRow row;
	row.window.start = {pg::timestamp_us(rows.datum(0, 1))};
	row.window.used = rows.float8(0, 2);
	row.window.reserved = rows.float8(0, 3);
	row.place = rows.place(0, 4);
	row.touched = DatumGetTransactionId(rows.datum(0, 5)) != InvalidTransactionId;
	rows.release();
	return row;
}

} // namespace

CounterKey::CounterKey(std::string_view type, std::string_view key, std::string_view name, std::int32_t seconds)
	: scope_type(pg::text_datum(type)), scope_key(pg::text_datum(key)), metric(pg::text_datum(name)),
	  window_seconds(Int32GetDatum(seconds))
{
}

std::optional<CounterRow> read_counter(const CounterKey &key) { return find(read_statement, Access::read, key); }

std::optional<CounterRow> lock_counter(const CounterKey &key) { return find(lock_statement, Access::write, key); }

bool insert_counter(const CounterKey &key, const CounterUpdate &update)
{
	Parameters parameters = key_parameters(key);
	add_update(parameters, update);
	return insert_statement.run(Access::write, parameters).affected() == 1;
}

bool replace_counter(const CounterKey &key, const CounterRow &found, const CounterUpdate &update)
{
	Parameters parameters = key_parameters(key);
	add_update(parameters, update);
	parameters.add(place_datum(found))
		.add(pg::timestamp_datum(found.window.start.us))
		.add(Float8GetDatum(found.window.used))
		.add(Float8GetDatum(found.window.reserved));
	return replace_statement.run(Access::write, parameters).affected() == 1;
}

void write_counter(const CounterRow &locked, const CounterUpdate &update)
{
	Parameters parameters;
	parameters.add(place_datum(locked));
	add_update(parameters, update);
	const std::uint64_t written = write_statement.run(Access::write, parameters).affected();
	RATELIMIT_CHECK(written == 1);
}

void settle_counter(const CounterRow &locked, const core::StoredWindow &settled, core::Instant at)
{
	Parameters parameters;
	parameters.add(place_datum(locked))
		.add(Float8GetDatum(settled.used))
		.add(Float8GetDatum(settled.reserved))
		.add(pg::timestamp_datum(at.us));
	const std::uint64_t written = settle_statement.run(Access::write, parameters).affected();
	RATELIMIT_CHECK(written == 1);
}

void delete_counter(const CounterRow &locked)
{
	Parameters parameters;
	parameters.add(place_datum(locked));
	(void)delete_statement.run(Access::write, parameters);
}

} // namespace ratelimit::store
