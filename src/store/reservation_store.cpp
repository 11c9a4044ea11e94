#include "store/reservation_store.hpp"

#include "pg/spi.hpp"
#include "pg/value.hpp"

namespace ratelimit::store {

namespace {

using pg::Access;
using pg::Parameters;
using pg::Rows;
using pg::Statement;

Statement insert_statement{
	"INSERT INTO ratelimit.reservations (scope_type, scope_key, metric, window_seconds, reservation_id, created_at,"
	" window_start, due_at, amount, limit_value, task_id, attempt_id)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
	{TEXTOID, TEXTOID, TEXTOID, INT4OID, UUIDOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, FLOAT8OID, FLOAT8OID,
		TEXTOID, TEXTOID}};

// An open reservation is recognised by `finalized_at`, not by `status`: the status begins an index, and where open ones are
// rare the planner would rather walk over all of them than look ids up, out of order and at any cost once they are many.
Statement read_open_statement{
	"SELECT reservation_id, window_start, amount, window_seconds, scope_type, scope_key, metric"
	" FROM ratelimit.reservations WHERE reservation_id {=} ANY ($1) AND finalized_at IS NULL",
	{UUIDARRAYOID}};

Statement read_open_of_task_statement{
	"SELECT reservation_id, window_start, amount, window_seconds, scope_type, scope_key, metric"
	" FROM ratelimit.reservations WHERE task_id {=} $1 AND finalized_at IS NULL",
	{TEXTOID}};

Statement settle_statement{
	"UPDATE ratelimit.reservations SET status = $2, actual_amount = $3, reason = $4, finalized_at = $5, due_at = $5"
	" WHERE reservation_id {=} $1 AND finalized_at IS NULL",
	{UUIDOID, TEXTOID, FLOAT8OID, TEXTOID, TIMESTAMPTZOID}};

Statement delete_open_statement{
	"DELETE FROM ratelimit.reservations WHERE reservation_id {=} $1 AND finalized_at IS NULL", {UUIDOID}};

Statement exists_statement{"SELECT FROM ratelimit.reservations WHERE reservation_id {=} $1", {UUIDOID}};

Statement attach_statement{"UPDATE ratelimit.reservations SET attempt_id = $2 WHERE reservation_id {=} $1", {UUIDOID, TEXTOID}};

pg::Vector<OpenReservation> open_reservations(const Rows &rows)
{
	pg::Vector<OpenReservation> found;
	found.reserve(rows.count());
	for (std::size_t i = 0; i < rows.count(); i++) {
		OpenReservation open;
		open.id = pg::uuid_bytes(rows.datum(i, 1));
		open.window_start = {pg::timestamp_us(rows.datum(i, 2))};
		open.amount = rows.float8(i, 3);
		open.window_seconds = rows.int4(i, 4);
		open.scope_type = pg::text_view(rows.datum(i, 5));
		open.scope_key = pg::text_view(rows.datum(i, 6));
		open.metric = pg::text_view(rows.datum(i, 7));
		found.push_back(open);
	}
	return found;
}

} // namespace

void insert_reservation(const CounterKey &key, const NewReservation &reservation)
{
	Parameters parameters;
	parameters.add(key.scope_type)
		.add(key.scope_key)
		.add(key.metric)
		.add(key.window_seconds)
		.add(PointerGetDatum(reservation.id.data())) // a uuid is its 16 bytes
		.add(pg::timestamp_datum(reservation.created_at.us))
		.add(pg::timestamp_datum(reservation.window_start.us))
		.add(pg::timestamp_datum(reservation.reset_at.us))
		.add(Float8GetDatum(reservation.amount))
		.add(Float8GetDatum(reservation.limit));
	parameters.add_optional_text(reservation.task_id);
	parameters.add_optional_text(reservation.attempt_id);
	(void)insert_statement.run(Access::write, parameters);
}

pg::Vector<OpenReservation> read_open_reservations(Datum reservation_ids)
{
	Parameters parameters;
	parameters.add(reservation_ids);
	return open_reservations(read_open_statement.run(Access::read, parameters));
}

pg::Vector<OpenReservation> read_open_reservations_of_task(std::string_view task_id)
{
	Parameters parameters;
	parameters.add(pg::text_datum(task_id));
	return open_reservations(read_open_of_task_statement.run(Access::read, parameters));
}

bool settle_reservation(const core::Uuid &id, const Settlement &settlement)
{
	Parameters parameters;
	parameters.add(PointerGetDatum(id.data()));
	if (!settlement.keep)
		return delete_open_statement.run(Access::write, parameters).affected() == 1;
	parameters.add(pg::text_datum(settlement.actual ? "committed" : "released"));
	if (settlement.actual)
		parameters.add(Float8GetDatum(*settlement.actual));
	else
		parameters.add_null();
	parameters.add_optional_text(settlement.reason);
	parameters.add(pg::timestamp_datum(settlement.at.us));
	return settle_statement.run(Access::write, parameters).affected() == 1;
}

bool reservation_exists(const core::Uuid &id)
{
	Parameters parameters;
	parameters.add(PointerGetDatum(id.data()));
	return exists_statement.run(Access::read, parameters).count() > 0;
}

bool attach_reservation(const core::Uuid &id, Datum attempt_id)
{
	Parameters parameters;
	parameters.add(PointerGetDatum(id.data())).add(attempt_id);
	return attach_statement.run(Access::write, parameters).affected() == 1;
}

} // namespace ratelimit::store
