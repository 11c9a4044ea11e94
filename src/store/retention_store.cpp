#include "store/retention_store.hpp"

#include "core/check.hpp"
#include "pg/spi.hpp"
#include "pg/value.hpp"

namespace ratelimit::store {

namespace {

using pg::Access;
using pg::Parameters;
using pg::Rows;
using pg::Statement;

Statement expired_leases_statement{
	"SELECT lease_id, expires_at, scope_type, scope_key FROM ratelimit.leases WHERE expires_at {<=} $1"
	" ORDER BY expires_at LIMIT $2 OFFSET $3",
	{TIMESTAMPTZOID, INT8OID, INT8OID}};

Statement lock_scope_statement{
	"SELECT FROM ratelimit.scopes WHERE scope_type {=} $1 AND scope_key {=} $2 FOR UPDATE SKIP LOCKED", {TEXTOID, TEXTOID}};

Statement try_lock_leases_statement{
	"SELECT lease_id FROM ratelimit.leases WHERE lease_id {=} ANY ($1) FOR UPDATE SKIP LOCKED", {UUIDARRAYOID}};

Statement count_leases_statement{
	"SELECT pg_catalog.count(*) FROM ratelimit.leases WHERE lease_id {=} ANY ($1)", {UUIDARRAYOID}};

Statement delete_workers_statement{
	"DELETE FROM ratelimit.workers WHERE ctid {=} ANY (ARRAY(SELECT ctid FROM ratelimit.workers"
	" WHERE heartbeat_at {<=} $1 LIMIT $2 FOR UPDATE SKIP LOCKED))",
	{TIMESTAMPTZOID, INT8OID}, pg::Scans::whole_tables};

Statement due_reservations_statement{
	"SELECT reservation_id, window_start, amount, window_seconds, scope_type, scope_key, metric"
	" FROM ratelimit.reservations WHERE status {=} 'reserved' AND due_at {<=} $1 ORDER BY due_at LIMIT $2 OFFSET $3",
	{TIMESTAMPTZOID, INT8OID, INT8OID}};

Statement lock_counter_statement{
	"SELECT window_start, used, reserved, touched_at, ctid, xmin FROM ratelimit.counters"
	" WHERE scope_type {=} $1 AND scope_key {=} $2 AND metric {=} $3 AND window_seconds {=} $4 FOR UPDATE SKIP LOCKED",
	{TEXTOID, TEXTOID, TEXTOID, INT4OID}};

Statement lock_open_statement{"SELECT FROM ratelimit.reservations WHERE reservation_id {=} $1 AND finalized_at IS NULL"
							  " FOR UPDATE SKIP LOCKED",
	{UUIDOID}};

Statement delete_finished_statement{
	"DELETE FROM ratelimit.reservations WHERE ctid {=} ANY (ARRAY(SELECT ctid FROM ratelimit.reservations"
	" WHERE status {<>} 'reserved' AND due_at {<=} $1 ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED))",
	{TIMESTAMPTZOID, INT8OID}};

#define OLD_REQUESTS                                                                                                   \
	"q.ctid {=} ANY (ARRAY(SELECT ctid FROM ratelimit.requests WHERE kept_from {<=} $1 ORDER BY kept_from LIMIT $2"   \
	" FOR UPDATE SKIP LOCKED))"
#define HAS_RESERVATIONS                                                                                               \
	"EXISTS (SELECT FROM ratelimit.reservations r WHERE r.reservation_id {=} ANY (q.reservation_ids))"
#define HAS_LEASES "EXISTS (SELECT FROM ratelimit.leases l WHERE l.lease_id {=} ANY (q.lease_ids))"

// A settled reservation says when it goes itself; what is open is looked at again after another retention.
Statement keep_requests_statement{
	"UPDATE ratelimit.requests q SET kept_from = GREATEST($3, CASE WHEN " HAS_LEASES " THEN $4 END,"
	" (SELECT pg_catalog.max(CASE r.status WHEN 'reserved' THEN $4 ELSE r.due_at END) FROM ratelimit.reservations r"
	" WHERE r.reservation_id {=} ANY (q.reservation_ids)))"
	" WHERE " OLD_REQUESTS " AND (" HAS_RESERVATIONS " OR " HAS_LEASES ")",
	{TIMESTAMPTZOID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID}};

Statement delete_requests_statement{
	"DELETE FROM ratelimit.requests q WHERE " OLD_REQUESTS " AND NOT " HAS_RESERVATIONS " AND NOT " HAS_LEASES,
	{TIMESTAMPTZOID, INT8OID}};

// One of these for each table with a bound `idle_from`.
struct IdleStatements {
	Statement lock;
	Statement remove;
	Statement move;
};

IdleStatements counter_statements{
	{"SELECT ctid, touched_at, window_start, window_seconds, false FROM ratelimit.counters WHERE idle_from {<=} $1"
	 " ORDER BY idle_from LIMIT $2 FOR UPDATE SKIP LOCKED",
		{TIMESTAMPTZOID, INT8OID}},
	{"DELETE FROM ratelimit.counters WHERE ctid {=} ANY ($1)", {TIDARRAYOID}},
	{"UPDATE ratelimit.counters SET idle_from = $2 WHERE ctid {=} $1", {TIDOID, TIMESTAMPTZOID}}};

IdleStatements scope_statements{
	{"SELECT ctid, touched_at, touched_at, 0, lease_count {>} 0 OR waiting {>} 0 FROM ratelimit.scopes WHERE idle_from {<=} $1"
	 " ORDER BY idle_from LIMIT $2 FOR UPDATE SKIP LOCKED",
		{TIMESTAMPTZOID, INT8OID}},
	{"DELETE FROM ratelimit.scopes WHERE ctid {=} ANY ($1)", {TIDARRAYOID}},
	{"UPDATE ratelimit.scopes SET idle_from = $2 WHERE ctid {=} $1", {TIDOID, TIMESTAMPTZOID}}};

IdleStatements &statements_of(IdleTable table) noexcept
{
	return table == IdleTable::counters ? counter_statements : scope_statements;
}

Parameters time_and_count(core::Instant until, std::int64_t count)
{
	Parameters parameters;
	parameters.add(pg::timestamp_datum(until.us)).add(Int64GetDatum(count));
	return parameters;
}

} // namespace

pg::Vector<LeaseRow> read_expired_leases(core::Instant now, std::int64_t count, std::int64_t skip)
{
	Parameters parameters = time_and_count(now, count);
	parameters.add(Int64GetDatum(skip));
	const Rows rows = expired_leases_statement.run(Access::read, parameters);
	pg::Vector<LeaseRow> leases;
	leases.reserve(rows.count());
	for (std::size_t i = 0; i < rows.count(); i++) {
		LeaseRow lease{};
		lease.id = pg::uuid_bytes(rows.datum(i, 1));
		lease.expires_at = {pg::timestamp_us(rows.datum(i, 2))};
		lease.scope_type = pg::text_view(rows.datum(i, 3));
		lease.scope_key = pg::text_view(rows.datum(i, 4));
		leases.push_back(lease);
	}
	return leases;
}

bool try_lock_scope(const ScopeKey &key)
{
	Parameters parameters;
	parameters.add(key.scope_type).add(key.scope_key);
	return lock_scope_statement.run(Access::write, parameters).count() > 0;
}

bool try_lock_leases(core::View<core::Uuid> ids)
{
	Parameters parameters;
	parameters.add(pg::uuid_array_datum(ids.data, ids.size));
	const std::size_t locked = try_lock_leases_statement.run(Access::write, parameters).count();
	return locked == ids.size ||
		static_cast<std::int64_t>(locked) >= count_leases_statement.run(Access::read, parameters).int8(0, 1);
}

std::int64_t delete_workers(core::Instant until, std::int64_t count)
{
	Parameters parameters = time_and_count(until, count);
	return static_cast<std::int64_t>(delete_workers_statement.run(Access::write, parameters).affected());
}

pg::Vector<OpenReservation> read_due_reservations(core::Instant until, std::int64_t count, std::int64_t skip)
{
	Parameters parameters = time_and_count(until, count);
	parameters.add(Int64GetDatum(skip));
	const Rows rows = due_reservations_statement.run(Access::read, parameters);
	pg::Vector<OpenReservation> due;
	due.reserve(rows.count());
	for (std::size_t i = 0; i < rows.count(); i++) {
		OpenReservation open;
		open.id = pg::uuid_bytes(rows.datum(i, 1));
		open.window_start = {pg::timestamp_us(rows.datum(i, 2))};
		open.amount = rows.float8(i, 3);
		open.window_seconds = rows.int4(i, 4);
		open.scope_type = pg::text_view(rows.datum(i, 5));
		open.scope_key = pg::text_view(rows.datum(i, 6));
		open.metric = pg::text_view(rows.datum(i, 7));
		due.push_back(open);
	}
	return due;
}

std::optional<CounterRow> try_lock_counter(const CounterKey &key)
{
	Parameters parameters;
	parameters.add(key.scope_type).add(key.scope_key).add(key.metric).add(key.window_seconds);
	Rows rows = lock_counter_statement.run(Access::write, parameters);
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

bool try_lock_open(const core::Uuid &id)
{
	Parameters parameters;
	parameters.add(PointerGetDatum(id.data()));
	return lock_open_statement.run(Access::write, parameters).count() > 0;
}

std::int64_t delete_finished_reservations(core::Instant until, std::int64_t count)
{
	Parameters parameters = time_and_count(until, count);
	return static_cast<std::int64_t>(delete_finished_statement.run(Access::write, parameters).affected());
}

std::int64_t keep_open_requests(core::Instant until, core::Instant now, std::int64_t count)
{
	Parameters parameters = time_and_count(until, count);
	parameters.add(pg::timestamp_datum(until.us + 1)).add(pg::timestamp_datum(now.us));
	return static_cast<std::int64_t>(keep_requests_statement.run(Access::write, parameters).affected());
}

std::int64_t delete_requests(core::Instant until, std::int64_t count)
{
	Parameters parameters = time_and_count(until, count);
	return static_cast<std::int64_t>(delete_requests_statement.run(Access::write, parameters).affected());
}

pg::Vector<IdleCandidate> lock_idle_candidates(IdleTable table, core::Instant until, std::int64_t count)
{
	Parameters parameters = time_and_count(until, count);
	Rows rows = statements_of(table).lock.run(Access::write, parameters);
	pg::Vector<IdleCandidate> candidates;
	candidates.reserve(rows.count());
	for (std::size_t i = 0; i < rows.count(); i++) {
		IdleCandidate candidate;
		candidate.place = rows.place(i, 1);
		candidate.touched_at = {pg::timestamp_us(rows.datum(i, 2))};
		candidate.over_at = core::Instant{pg::timestamp_us(rows.datum(i, 3))} + core::Span::from_seconds(rows.int4(i, 4));
		candidate.in_use = rows.boolean(i, 5);
		candidates.push_back(candidate);
	}
	rows.release();
	return candidates;
}

void delete_idle(IdleTable table, const pg::Vector<ItemPointerData> &places)
{
	if (places.empty())
		return;
	Parameters parameters;
	parameters.add(pg::place_array_datum(places.data(), places.size()));
	const std::uint64_t deleted = statements_of(table).remove.run(Access::write, parameters).affected();
	RATELIMIT_CHECK(deleted == places.size());
}

void move_idle_from(IdleTable table, const ItemPointerData &place, core::Instant idle_from)
{
	Parameters parameters;
	parameters.add(PointerGetDatum(&place)).add(pg::timestamp_datum(idle_from.us));
	const std::uint64_t moved = statements_of(table).move.run(Access::write, parameters).affected();
	RATELIMIT_CHECK(moved == 1);
}

} // namespace ratelimit::store
