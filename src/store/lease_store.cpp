#include "store/lease_store.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "pg/spi.hpp"
#include "pg/value.hpp"
#include "store/scope_places.hpp"

namespace ratelimit::store {

namespace {

using pg::Access;
using pg::Parameters;
using pg::Rows;
using pg::Statement;

#define SCOPE_IS "scope_type {=} $1 AND scope_key {=} $2"

pg::IndexName scopes_key{"scopes_pkey"};
pg::IndexName leases_by_expiry{"leases_scope"};

// Places of the columns in the tables, for reading without the executor.
enum ScopeColumn : int {
	leased_column = 1,
	lease_count_column = 2,
	expires_from_column = 3,
	touched_at_column = 4,
	head_at_column = 5,
	head_priority_column = 6,
	waiting_column = 7,
	ready_column = 8,
	scope_type_column = 10,
	scope_key_column = 11,
};
enum LeaseColumn : int { expires_at_column = 2, amount_column = 4 };

Statement lock_place_statement{
	"SELECT FROM ratelimit.scopes WHERE ctid {=} $3 AND " SCOPE_IS " FOR UPDATE", {TEXTOID, TEXTOID, TIDOID}};

Statement lock_scope_statement{"SELECT FROM ratelimit.scopes WHERE " SCOPE_IS " FOR UPDATE", {TEXTOID, TEXTOID}};

Statement insert_scope_statement{
	"INSERT INTO ratelimit.scopes (scope_type, scope_key, leased, lease_count, expires_from, touched_at, idle_from)"
	" VALUES ($1, $2, $3, $4, $5, $6, $6) ON CONFLICT DO NOTHING RETURNING ctid",
	{TEXTOID, TEXTOID, FLOAT8OID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID}};

// The place and the maker name one version of the row; see the counters. Whatever happens to the leases, the dispatcher has
// to look at the scope again.
Statement replace_scope_statement{
	"UPDATE ratelimit.scopes SET leased = $3, lease_count = $4, expires_from = $5, touched_at = $6, ready = true"
	" WHERE ctid {=} $1 AND xmin {=} $2 RETURNING ctid",
	{TIDOID, XIDOID, FLOAT8OID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID}};

Statement make_ready_statement{
	"UPDATE ratelimit.awaited SET ready = true WHERE " SCOPE_IS, {TEXTOID, TEXTOID}};

Statement delete_scope_statement{"DELETE FROM ratelimit.scopes WHERE ctid {=} $1", {TIDOID}};

Statement read_expired_statement{"SELECT lease_id, amount FROM ratelimit.leases WHERE " SCOPE_IS
								 " AND expires_at {>=} $3 AND expires_at {<=} $4 ORDER BY expires_at LIMIT $5",
	{TEXTOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID}};

// The primary key's index returns the ids of an array in their order, and rows are locked in that order. The expiry is
// compared by a function and not by its operator, so that the index on expiries, which returns another order and walks over
// the leases of all scopes, cannot serve instead.
Statement remove_expired_statement{"DELETE FROM ratelimit.leases WHERE lease_id {=} ANY ($1) AND pg_catalog.timestamptz_le(expires_at, $2)"
								   " RETURNING lease_id, amount, scope_type, scope_key",
	{UUIDARRAYOID, TIMESTAMPTZOID}};

Statement remove_unlocked_statement{
	"DELETE FROM ratelimit.leases WHERE lease_id {=} ANY (ARRAY(SELECT lease_id FROM ratelimit.leases"
	" WHERE lease_id {=} ANY ($1) AND pg_catalog.timestamptz_le(expires_at, $2) FOR UPDATE SKIP LOCKED))"
	" RETURNING lease_id, amount, scope_type, scope_key",
	{UUIDARRAYOID, TIMESTAMPTZOID}};

Statement remove_live_statement{"DELETE FROM ratelimit.leases WHERE lease_id {=} ANY ($1) AND pg_catalog.timestamptz_gt(expires_at, $2)"
								" RETURNING lease_id, amount, scope_type, scope_key",
	{UUIDARRAYOID, TIMESTAMPTZOID}};

Statement insert_lease_statement{
	"INSERT INTO ratelimit.leases (scope_type, scope_key, lease_id, created_at, expires_at, amount, limit_value,"
	" ttl_seconds, task_id, attempt_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
	{TEXTOID, TEXTOID, UUIDOID, TIMESTAMPTZOID, TIMESTAMPTZOID, FLOAT8OID, FLOAT8OID, INT4OID, TEXTOID, TEXTOID}};

Statement read_leases_statement{
	"SELECT lease_id, expires_at, scope_type, scope_key, amount FROM ratelimit.leases WHERE lease_id {=} ANY ($1)",
	{UUIDARRAYOID}};

Statement read_leases_of_task_statement{"SELECT lease_id, expires_at, scope_type, scope_key, amount FROM ratelimit.leases"
										" WHERE task_id {=} $1 AND pg_catalog.timestamptz_gt(expires_at, $2)",
	{TEXTOID, TIMESTAMPTZOID}};

Statement lock_leases_statement{"SELECT lease_id, expires_at, scope_type, scope_key, amount FROM ratelimit.leases"
								" WHERE lease_id {=} ANY ($1) FOR UPDATE",
	{UUIDARRAYOID}};

Statement renew_leases_statement{
	"UPDATE ratelimit.leases SET ttl_seconds = COALESCE($3, ttl_seconds), expires_at = GREATEST(expires_at, $2 {+}"
	" pg_catalog.make_interval(secs => COALESCE($3, ttl_seconds))) WHERE lease_id {=} ANY ($1)"
	" RETURNING lease_id, expires_at, scope_type, scope_key, amount",
	{UUIDARRAYOID, TIMESTAMPTZOID, INT4OID}};

Statement attach_statement{"UPDATE ratelimit.leases SET attempt_id = $2 WHERE lease_id {=} $1", {UUIDOID, TEXTOID}};

// Without leases the bound is for ever, which is stored as infinity.
Datum expiry_datum(core::Instant at)
{
	if (at == core::Instant::earliest())
		return TimestampTzGetDatum(DT_NOBEGIN);
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

Datum place_datum(const ScopeRow &row) { return PointerGetDatum(&row.version.place); }

pg::ScanKeys scope_conditions(const ScopeKey &key)
{
	pg::ScanKeys keys;
	keys.equals_text(key.scope_type);
	keys.equals_text(key.scope_key);
	return keys;
}

void fill_scope(ScopeRow &row, TupleTableSlot *slot) noexcept
{
	row.scope.leased = DatumGetFloat8(pg::slot_datum(slot, leased_column));
	row.scope.lease_count = DatumGetInt64(pg::slot_datum(slot, lease_count_column));
	row.scope.expires_from = expiry_instant(pg::slot_datum(slot, expires_from_column));
	row.touched_at = {pg::timestamp_us(pg::slot_datum(slot, touched_at_column))};
	row.stored.head_at = expiry_instant(pg::slot_datum(slot, head_at_column));
	row.stored.head_priority = DatumGetInt32(pg::slot_datum(slot, head_priority_column));
	row.stored.waiting = DatumGetInt32(pg::slot_datum(slot, waiting_column));
	row.queue = row.stored;
	row.ready = DatumGetBool(pg::slot_datum(slot, ready_column));
	row.version = pg::slot_version(slot);
	row.contended = pg::slot_is_contended(slot);
}

std::optional<ScopeRow> scope_row(pg::Reader &reader, const ScopeKey &key)
{
	ScopeRow row;
	row.key = key;
	ScopeRow *const target = &row;
	if (const ItemPointerData *const place = remembered_place(key)) {
		const Datum scope_type = key.scope_type;
		const Datum scope_key = key.scope_key;
		if (reader.visit_place(scopes_key, *place, [=](TupleTableSlot *slot) {
				if (!pg::same_text(pg::slot_datum(slot, scope_type_column), scope_type) ||
					!pg::same_text(pg::slot_datum(slot, scope_key_column), scope_key))
					return false;
				fill_scope(*target, slot);
				return true;
			}))
			return row;
	}
	bool found = false;
	bool *const target_found = &found;
	pg::ScanKeys keys = scope_conditions(key);
	reader.scan(scopes_key, keys, [=](TupleTableSlot *slot) {
		fill_scope(*target, slot);
		*target_found = true;
		return false;
	});
	return found ? std::optional(row) : std::nullopt;
}

// The earliest expiry of a lease row of the scope that is not before `from` and after `after`.
std::optional<core::Instant> first_expiry(
	pg::Reader &reader, const ScopeKey &key, core::Instant from, core::Instant after)
{
	pg::ScanKeys keys = scope_conditions(key);
	keys.from(expiry_datum(from));
	keys.after(expiry_datum(after));
	core::Instant first = core::Instant::latest();
	core::Instant *const target = &first;
	reader.scan(leases_by_expiry, keys, [=](TupleTableSlot *slot) {
		*target = expiry_instant(pg::slot_datum(slot, expires_at_column));
		return false;
	});
	return first == core::Instant::latest() ? std::nullopt : std::optional(first);
}

struct LeaseSum {
	double amount = 0;
	std::int64_t count = 0;
};

// The lease rows of the scope that expire in [from, until], added up.
LeaseSum add_up_leases(pg::Reader &reader, const ScopeKey &key, core::Instant from, core::Instant until)
{
	pg::ScanKeys keys = scope_conditions(key);
	keys.from(expiry_datum(from));
	keys.until(expiry_datum(until));
	LeaseSum sum;
	LeaseSum *const target = &sum;
	reader.scan(leases_by_expiry, keys, [=](TupleTableSlot *slot) {
		CHECK_FOR_INTERRUPTS();
		target->amount = core::add_amounts(target->amount, DatumGetFloat8(pg::slot_datum(slot, amount_column)));
		target->count++;
		return true;
	});
	return sum;
}

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
			pg::text_view(rows.datum(i, 3)), pg::text_view(rows.datum(i, 4)), rows.float8(i, 5)});
	return leases;
}

} // namespace

ScopeKey::ScopeKey(std::string_view type, std::string_view key)
	: scope_type(pg::text_datum(type)), scope_key(pg::text_datum(key)),
	  hash(core::fnv1a_32(type) ^ (core::fnv1a_32(key) * 31U))
{
}

// One snapshot for the sums and the rows under them. What has expired is added up only where the bound says that something
// may have, and both scans begin at the bound, so they never walk over the index entries of leases long gone.
std::optional<ScopeRow> read_scope(const ScopeKey &key, core::Instant now)
{
	pg::Reader reader;
	reader.lock(leases_by_expiry);
	std::optional<ScopeRow> row = scope_row(reader, key);
	if (row) {
		const core::StoredScope &scope = row->scope;
		row->usage.live = scope.leased;
		if (!core::lease_is_live(scope.expires_from, now)) {
			const LeaseSum expired = add_up_leases(reader, key, scope.expires_from, now);
			row->usage.live = core::subtract_amount(scope.leased, expired.amount);
			row->usage.expired_count = expired.count;
			if (core::sum_is_doubtful(scope, {row->usage.live, scope.lease_count - expired.count, scope.expires_from}))
				row->usage.live =
					add_up_leases(reader, key, now + core::Span{1}, core::Instant::latest()).amount;
		}
		if (scope.lease_count > 0)
			row->usage.next_expiry = first_expiry(reader, key, scope.expires_from, now);
	}
	reader.finish();
	return row;
}

std::optional<ScopeRow> read_scope_sums(const ScopeKey &key)
{
	pg::Reader reader;
	const std::optional<ScopeRow> row = scope_row(reader, key);
	reader.finish();
	return row;
}

bool lock_scope(const ScopeKey &key)
{
	if (const ItemPointerData *const place = remembered_place(key)) {
		Parameters parameters = scope_parameters(key);
		parameters.add(PointerGetDatum(place));
		if (lock_place_statement.run(Access::write, parameters).count() > 0)
			return true;
	}
	Parameters parameters = scope_parameters(key);
	return lock_scope_statement.run(Access::write, parameters).count() > 0;
}

bool insert_scope(const ScopeKey &key, const core::StoredScope &scope, core::Instant at)
{
	Parameters parameters = scope_parameters(key);
	add_scope(parameters, scope);
	parameters.add(pg::timestamp_datum(at.us));
	const Rows rows = insert_scope_statement.run(Access::write, parameters);
	if (rows.count() == 0)
		return false;
	remember_place(key, rows.place(0, 1));
	return true;
}

bool replace_scope(const ScopeRow &found, const core::StoredScope &scope, core::Instant at)
{
	Parameters parameters;
	parameters.add(place_datum(found)).add(TransactionIdGetDatum(found.version.made_by));
	add_scope(parameters, scope);
	parameters.add(pg::timestamp_datum(std::max(found.touched_at, at).us)); // a stored time is never moved back
	Rows rows = replace_scope_statement.run(Access::write, parameters);
	if (rows.count() == 0)
		return false;
	remember_place(found.key, rows.place(0, 1));
	rows.release();
	if (!found.ready && found.stored.waiting > 0) {
		Parameters key = scope_parameters(found.key);
		(void)make_ready_statement.run(Access::write, key);
	}
	return true;
}

void write_scope(const ScopeRow &locked, const core::StoredScope &scope, core::Instant at)
{
	const bool written = replace_scope(locked, scope, at);
	RATELIMIT_CHECK(written);
}

void delete_scope(const ScopeRow &locked)
{
	Parameters parameters;
	parameters.add(place_datum(locked));
	(void)delete_scope_statement.run(Access::write, parameters);
}

core::Instant expiry_from(const ScopeKey &key, core::Instant from)
{
	pg::Reader reader;
	const std::optional<core::Instant> found = first_expiry(reader, key, from, core::Instant{from.us - 1});
	reader.finish();
	return found.value_or(core::Instant::latest());
}

double sum_leases(const ScopeKey &key)
{
	pg::Reader reader;
	const LeaseSum all = add_up_leases(reader, key, core::Instant::earliest(), core::Instant::latest());
	reader.finish();
	return all.amount;
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

pg::Vector<LeaseRow> read_leases_of_task(std::string_view task_id, core::Instant now)
{
	Parameters parameters;
	parameters.add(pg::text_datum(task_id)).add(pg::timestamp_datum(now.us));
	return lease_rows(read_leases_of_task_statement.run(Access::read, parameters));
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
