#include "store/lease_store.hpp"

#include "core/check.hpp"
#include "pg/spi.hpp"
#include "pg/value.hpp"

namespace ratelimit::store {

namespace {

using pg::Access;
using pg::Parameters;
using pg::Rows;
using pg::Statement;

#define SCOPE_IS "scope_type {=} $1 AND scope_key {=} $2"

// One snapshot for the sums and the rows under them. What has expired is added up only where the bound says that something
// may have, and both scans begin at the bound, so they never walk over the index entries of leases long gone.
Statement read_scope_statement{
	"SELECT s.leased, s.lease_count, s.expires_from, s.ctid, s.xmax,"
	" CASE WHEN s.expires_from {<=} $3 THEN (SELECT pg_catalog.sum(l.amount) FROM ratelimit.leases l"
	" WHERE l.scope_type {=} s.scope_type AND l.scope_key {=} s.scope_key"
	" AND l.expires_at {>=} s.expires_from AND l.expires_at {<=} $3) END,"
	" (SELECT l.expires_at FROM ratelimit.leases l WHERE l.scope_type {=} s.scope_type AND l.scope_key {=} s.scope_key"
	" AND l.expires_at {>=} s.expires_from AND l.expires_at {>} $3 ORDER BY l.expires_at LIMIT 1),"
	" s.waiting, s.head_priority, s.head_at"
	" FROM ratelimit.scopes s WHERE s.scope_type {=} $1 AND s.scope_key {=} $2",
	{TEXTOID, TEXTOID, TIMESTAMPTZOID}};

Statement lock_scope_statement{"SELECT FROM ratelimit.scopes WHERE " SCOPE_IS " FOR UPDATE", {TEXTOID, TEXTOID}};

Statement insert_scope_statement{
	"INSERT INTO ratelimit.scopes (scope_type, scope_key, leased, lease_count, expires_from, touched_at)"
	" VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
	{TEXTOID, TEXTOID, FLOAT8OID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID}};

// Whatever happens to the leases, the dispatcher looks at the scope again (`ready`).
Statement replace_scope_statement{
	"UPDATE ratelimit.scopes SET leased = $3, lease_count = $4, expires_from = $5, touched_at = GREATEST(touched_at, $6),"
	" ready = true"
	" WHERE ctid {=} $7 AND " SCOPE_IS " AND leased {=} $8 AND lease_count {=} $9 AND expires_from {=} $10",
	{TEXTOID, TEXTOID, FLOAT8OID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIDOID, FLOAT8OID, INT8OID, TIMESTAMPTZOID}};

Statement write_scope_statement{
	"UPDATE ratelimit.scopes SET leased = $2, lease_count = $3, expires_from = $4, touched_at = GREATEST(touched_at, $5),"
	" ready = true"
	" WHERE ctid {=} $1",
	{TIDOID, FLOAT8OID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID}};

Statement delete_scope_statement{"DELETE FROM ratelimit.scopes WHERE ctid {=} $1", {TIDOID}};

Statement expiry_from_statement{"SELECT expires_at FROM ratelimit.leases WHERE " SCOPE_IS
								" AND expires_at {>=} $3 ORDER BY expires_at LIMIT 1",
	{TEXTOID, TEXTOID, TIMESTAMPTZOID}};

Statement read_expired_statement{"SELECT lease_id, amount FROM ratelimit.leases WHERE " SCOPE_IS
								 " AND expires_at {>=} $3 AND expires_at {<=} $4 ORDER BY expires_at LIMIT $5",
	{TEXTOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID}};

// The primary key's index returns the ids of an array in their order, and rows are locked in that order.
Statement remove_expired_statement{"DELETE FROM ratelimit.leases WHERE lease_id {=} ANY ($1) AND expires_at {<=} $2"
								   " RETURNING lease_id, amount, scope_type, scope_key",
	{UUIDARRAYOID, TIMESTAMPTZOID}};

Statement remove_unlocked_statement{
	"DELETE FROM ratelimit.leases WHERE lease_id {=} ANY (ARRAY(SELECT lease_id FROM ratelimit.leases"
	" WHERE lease_id {=} ANY ($1) AND expires_at {<=} $2 FOR UPDATE SKIP LOCKED))"
	" RETURNING lease_id, amount, scope_type, scope_key",
	{UUIDARRAYOID, TIMESTAMPTZOID}};

Statement remove_live_statement{"DELETE FROM ratelimit.leases WHERE lease_id {=} ANY ($1) AND expires_at {>} $2"
								" RETURNING lease_id, amount, scope_type, scope_key",
	{UUIDARRAYOID, TIMESTAMPTZOID}};

Statement insert_lease_statement{
	"INSERT INTO ratelimit.leases (scope_type, scope_key, lease_id, created_at, expires_at, amount, limit_value,"
	" ttl_seconds, task_id, attempt_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
	{TEXTOID, TEXTOID, UUIDOID, TIMESTAMPTZOID, TIMESTAMPTZOID, FLOAT8OID, FLOAT8OID, INT4OID, TEXTOID, TEXTOID}};

Statement read_leases_statement{
	"SELECT lease_id, expires_at, scope_type, scope_key FROM ratelimit.leases WHERE lease_id {=} ANY ($1)",
	{UUIDARRAYOID}};

Statement lock_leases_statement{"SELECT lease_id, expires_at, scope_type, scope_key FROM ratelimit.leases"
								" WHERE lease_id {=} ANY ($1) FOR UPDATE",
	{UUIDARRAYOID}};

Statement renew_leases_statement{
	"UPDATE ratelimit.leases SET ttl_seconds = COALESCE($3, ttl_seconds), expires_at = GREATEST(expires_at, $2 {+}"
	" pg_catalog.make_interval(secs => COALESCE($3, ttl_seconds))) WHERE lease_id {=} ANY ($1)"
	" RETURNING lease_id, expires_at, scope_type, scope_key",
	{UUIDARRAYOID, TIMESTAMPTZOID, INT4OID}};

Statement attach_statement{"UPDATE ratelimit.leases SET attempt_id = $2 WHERE lease_id {=} $1", {UUIDOID, TEXTOID}};

// Without leases the bound is for ever, which is stored as infinity.
Datum expiry_datum(core::Instant at)
{
	return at == core::Instant::latest() ? TimestampTzGetDatum(DT_NOEND) : pg::timestamp_datum(at.us);
}

core::Instant expiry_instant(Datum datum)
{
	return TIMESTAMP_IS_NOEND(DatumGetTimestampTz(datum)) ? core::Instant::latest()
														  : core::Instant{pg::timestamp_us(datum)};
}

Parameters scope_parameters(const ScopeKey &key)
{
	Parameters parameters;
	parameters.add(key.scope_type).add(key.scope_key);
	return parameters;
}

void add_scope(Parameters &parameters, const core::StoredScope &scope)
{
	parameters.add(Float8GetDatum(scope.leased))
		.add(Int64GetDatum(scope.lease_count))
		.add(expiry_datum(scope.expires_from));
}

Datum place_datum(const ScopeRow &row) { return PointerGetDatum(&row.place); }

Datum ids_datum(core::View<core::Uuid> ids) { return pg::uuid_array_datum(ids.data, ids.size); }

pg::Vector<RemovedLease> remove(Statement &statement, core::View<core::Uuid> ids, core::Instant now)
{
	pg::Vector<RemovedLease> removed;
	if (ids.empty())
		return removed;
	Parameters parameters;
	parameters.add(ids_datum(ids)).add(pg::timestamp_datum(now.us));
	const Rows rows = statement.run(Access::write, parameters);
	removed.reserve(rows.count());
	for (std::size_t i = 0; i < rows.count(); i++)
		removed.push_back({pg::uuid_bytes(rows.datum(i, 1)), rows.float8(i, 2), pg::text_view(rows.datum(i, 3)),
			pg::text_view(rows.datum(i, 4))});
	return removed;
}

pg::Vector<LeaseRow> lease_rows(const Rows &rows)
{
	pg::Vector<LeaseRow> leases;
	leases.reserve(rows.count());
	for (std::size_t i = 0; i < rows.count(); i++)
		leases.push_back({pg::uuid_bytes(rows.datum(i, 1)), {pg::timestamp_us(rows.datum(i, 2))},
			pg::text_view(rows.datum(i, 3)), pg::text_view(rows.datum(i, 4))});
	return leases;
}

} // namespace

ScopeKey::ScopeKey(std::string_view type, std::string_view key)
	: scope_type(pg::text_datum(type)), scope_key(pg::text_datum(key))
{
}

std::optional<ScopeRow> read_scope(const ScopeKey &key, core::Instant now)
{
	Parameters parameters = scope_parameters(key);
	parameters.add(pg::timestamp_datum(now.us));
	Rows rows = read_scope_statement.run(Access::read, parameters);
	if (rows.count() == 0)
		return std::nullopt;
	ScopeRow row;
	row.scope.leased = rows.float8(0, 1);
	row.scope.lease_count = rows.int8(0, 2);
	row.scope.expires_from = expiry_instant(rows.datum(0, 3));
	row.place = rows.place(0, 4);
	row.touched = DatumGetTransactionId(rows.datum(0, 5)) != InvalidTransactionId;
	const double expired = rows.is_null(0, 6) ? 0.0 : rows.float8(0, 6);
	row.usage.live = core::subtract_amount(row.scope.leased, expired);
	if (!rows.is_null(0, 7))
		row.usage.next_expiry = core::Instant{pg::timestamp_us(rows.datum(0, 7))};
	row.queue.waiting = rows.int4(0, 8);
	row.queue.head_priority = rows.int4(0, 9);
	row.queue.head_at = expiry_instant(rows.datum(0, 10));
	rows.release();
	return row;
}

bool lock_scope(const ScopeKey &key)
{
	Parameters parameters = scope_parameters(key);
	return lock_scope_statement.run(Access::write, parameters).count() > 0;
}

bool insert_scope(const ScopeKey &key, const core::StoredScope &scope, core::Instant at)
{
	Parameters parameters = scope_parameters(key);
	add_scope(parameters, scope);
	parameters.add(pg::timestamp_datum(at.us));
	return insert_scope_statement.run(Access::write, parameters).affected() == 1;
}

bool replace_scope(const ScopeKey &key, const ScopeRow &found, const core::StoredScope &scope, core::Instant at)
{
	Parameters parameters = scope_parameters(key);
	add_scope(parameters, scope);
	parameters.add(pg::timestamp_datum(at.us)).add(place_datum(found));
	add_scope(parameters, found.scope);
	return replace_scope_statement.run(Access::write, parameters).affected() == 1;
}

void write_scope(const ScopeRow &locked, const core::StoredScope &scope, core::Instant at)
{
	Parameters parameters;
	parameters.add(place_datum(locked));
	add_scope(parameters, scope);
	parameters.add(pg::timestamp_datum(at.us));
	const std::uint64_t written = write_scope_statement.run(Access::write, parameters).affected();
	RATELIMIT_CHECK(written == 1);
}

void delete_scope(const ScopeRow &locked)
{
	Parameters parameters;
	parameters.add(place_datum(locked));
	(void)delete_scope_statement.run(Access::write, parameters);
}

core::Instant expiry_from(const ScopeKey &key, core::Instant from)
{
	Parameters parameters = scope_parameters(key);
	parameters.add(expiry_datum(from));
	Rows rows = expiry_from_statement.run(Access::read, parameters);
	const core::Instant found = rows.count() > 0 ? expiry_instant(rows.datum(0, 1)) : core::Instant::latest();
	rows.release();
	return found;
}

pg::Vector<ExpiredLease> read_expired(
	const ScopeKey &key, core::Instant from, core::Instant until, std::int64_t count)
{
	Parameters parameters = scope_parameters(key);
	parameters.add(expiry_datum(from)).add(pg::timestamp_datum(until.us)).add(Int64GetDatum(count));
	Rows rows = read_expired_statement.run(Access::read, parameters);
	pg::Vector<ExpiredLease> expired;
	expired.reserve(rows.count());
	for (std::size_t i = 0; i < rows.count(); i++)
		expired.push_back({pg::uuid_bytes(rows.datum(i, 1)), rows.float8(i, 2)});
	rows.release();
	return expired;
}

pg::Vector<RemovedLease> remove_expired(core::View<core::Uuid> ids, core::Instant now, Locked locked)
{
	return remove(locked == Locked::wait ? remove_expired_statement : remove_unlocked_statement, ids, now);
}

pg::Vector<RemovedLease> remove_live(core::View<core::Uuid> ids, core::Instant now)
{
	return remove(remove_live_statement, ids, now);
}

void insert_lease(const ScopeKey &key, const NewLease &lease)
{
	Parameters parameters = scope_parameters(key);
	parameters.add(PointerGetDatum(lease.id.data()))
		.add(pg::timestamp_datum(lease.created_at.us))
		.add(pg::timestamp_datum(lease.expires_at.us))
		.add(Float8GetDatum(lease.amount))
		.add(Float8GetDatum(lease.limit))
		.add(Int32GetDatum(lease.ttl_seconds));
	parameters.add_optional_text(lease.task_id);
	parameters.add_optional_text(lease.attempt_id);
	(void)insert_lease_statement.run(Access::write, parameters);
}

pg::Vector<LeaseRow> read_leases(core::View<core::Uuid> ids)
{
	Parameters parameters;
	parameters.add(ids_datum(ids));
	return lease_rows(read_leases_statement.run(Access::read, parameters));
}

pg::Vector<LeaseRow> lock_leases(core::View<core::Uuid> ids)
{
	Parameters parameters;
	parameters.add(ids_datum(ids));
	return lease_rows(lock_leases_statement.run(Access::write, parameters));
}

pg::Vector<LeaseRow> renew_leases(
	core::View<core::Uuid> ids, core::Instant now, std::optional<std::int32_t> ttl_seconds)
{
	Parameters parameters;
	parameters.add(ids_datum(ids)).add(pg::timestamp_datum(now.us));
	if (ttl_seconds)
		parameters.add(Int32GetDatum(*ttl_seconds));
	else
		parameters.add_null();
	return lease_rows(renew_leases_statement.run(Access::write, parameters));
}

void attach_lease(const core::Uuid &id, Datum attempt_id)
{
	Parameters parameters;
	parameters.add(PointerGetDatum(id.data())).add(attempt_id);
	(void)attach_statement.run(Access::write, parameters);
}

} // namespace ratelimit::store
