#include "store/verify_store.hpp"

#include <tuple>

#include "pg/value.hpp"

namespace ratelimit::store {

namespace {

using pg::Access;
using pg::Parameters;
using pg::ReadSnapshot;
using pg::Rows;
using pg::Scans;
using pg::Statement;

// The range of a statement on counters, and on scopes; `t` is the table that it is asked of.
#define COUNTER_RANGE(t)                                                                                               \
	"ROW(" t ".scope_type, " t ".scope_key, " t ".metric, " t ".window_seconds) {>} ROW($1, $2, $3, $4)"              \
	" AND ($5 IS NULL OR ROW(" t ".scope_type, " t ".scope_key, " t ".metric, " t ".window_seconds)"                   \
	" {<=} ROW($5, $6, $7, $8))"
#define SCOPE_RANGE(t)                                                                                                 \
	"ROW(" t ".scope_type, " t ".scope_key) {>} ROW($1, $2)"                                                           \
	" AND ($3 IS NULL OR ROW(" t ".scope_type, " t ".scope_key) {<=} ROW($3, $4))"

#define SAME_COUNTER(a, b)                                                                                             \
	a ".scope_type {=} " b ".scope_type AND " a ".scope_key {=} " b ".scope_key AND " a ".metric {=} " b               \
	  ".metric AND " a ".window_seconds {=} " b ".window_seconds"

#define OPEN_RESERVATIONS                                                                                              \
	"(SELECT r.scope_type, r.scope_key, r.metric, r.window_seconds, r.window_start, pg_catalog.sum(r.amount) AS amount," \
	" pg_catalog.max(r.limit_value) AS limit_value FROM ratelimit.reservations r"                                      \
	" WHERE r.status {=} 'reserved' AND " COUNTER_RANGE("r") " GROUP BY 1, 2, 3, 4, 5) o"

constexpr Oid counter_range_types[] = {TEXTOID, TEXTOID, TEXTOID, INT4OID, TEXTOID, TEXTOID, TEXTOID, INT4OID};
constexpr Oid scope_range_types[] = {TEXTOID, TEXTOID, TEXTOID, TEXTOID};

Statement counter_differences_statement{
	"SELECT c.scope_type, c.scope_key, c.metric, c.window_seconds, c.window_start, c.used, c.reserved, c.limit_value,"
	" COALESCE(o.amount, 0) FROM ratelimit.counters c LEFT JOIN " OPEN_RESERVATIONS " ON " SAME_COUNTER("c", "o")
	" AND c.window_start {=} o.window_start WHERE " COUNTER_RANGE("c") " AND (c.reserved {<>} COALESCE(o.amount, 0)"
	" OR NOT (c.used {>=} 0 AND c.used {<} 'infinity')) ORDER BY 1, 2, 3, 4",
	counter_range_types, Scans::whole_tables};

Statement uncounted_statement{
	"SELECT o.scope_type, o.scope_key, o.metric, o.window_seconds, o.window_start, o.amount, o.limit_value, c.window_start"
	" FROM " OPEN_RESERVATIONS " LEFT JOIN ratelimit.counters c ON " SAME_COUNTER("c", "o")
	" WHERE c.window_start IS NULL OR c.window_start {<} o.window_start ORDER BY 1, 2, 3, 4, 5",
	counter_range_types, Scans::whole_tables};

#define LEASE_SUMS                                                                                                     \
	"(SELECT l.scope_type, l.scope_key, pg_catalog.sum(l.amount) AS leased, pg_catalog.count(*) AS lease_count,"       \
	" pg_catalog.min(l.expires_at) AS first_expiry, pg_catalog.max(l.limit_value) AS largest FROM ratelimit.leases l"  \
	" WHERE " SCOPE_RANGE("l") " GROUP BY 1, 2) f"

#define WAITING_COUNTS                                                                                                 \
	"(SELECT w.scope_type, w.scope_key, pg_catalog.count(*) AS waiting FROM ratelimit.waiting w WHERE "                \
	SCOPE_RANGE("w") " GROUP BY 1, 2) q"

Statement scope_differences_statement{
	"SELECT scope_type, scope_key, s.leased, s.lease_count, s.expires_from, COALESCE(f.leased, 0),"
	" COALESCE(f.lease_count, 0), COALESCE(f.first_expiry, 'infinity'), COALESCE(f.largest, 0), COALESCE(s.waiting, 0),"
	" COALESCE(q.waiting, 0), a.ready IS NOT NULL"
	" FROM (SELECT s.* FROM ratelimit.scopes s WHERE " SCOPE_RANGE("s") ") s"
	" FULL JOIN " LEASE_SUMS " USING (scope_type, scope_key) FULL JOIN " WAITING_COUNTS " USING (scope_type, scope_key)"
	" FULL JOIN (SELECT a.scope_type, a.scope_key, a.ready FROM ratelimit.awaited a WHERE " SCOPE_RANGE("a") ") a"
	" USING (scope_type, scope_key)"
	" WHERE s.leased IS NULL OR s.leased {<>} COALESCE(f.leased, 0) OR s.lease_count {<>} COALESCE(f.lease_count, 0)"
	" OR s.expires_from {>} f.first_expiry OR s.waiting {<>} COALESCE(q.waiting, 0)"
	" OR (a.ready IS NOT NULL) {<>} (COALESCE(q.waiting, 0) {>} 0) ORDER BY 1, 2",
	scope_range_types, Scans::whole_tables};

// A task stands in the queue of each of its scopes once, at its turn, while it waits, and in none otherwise.
Statement task_places_statement{
	"SELECT task_id, COALESCE(t.places, 0)::pg_catalog.float8, COALESCE(w.places, 0)::pg_catalog.float8"
	" FROM (SELECT t.task_id, t.priority, t.enqueued_at, (SELECT pg_catalog.count(DISTINCT"
	" pg_catalog.jsonb_build_array(e {->>} 'scope_type', e {->>} 'scope_key'))"
	" FROM pg_catalog.jsonb_array_elements(t.scopes) e) AS places FROM ratelimit.tasks t WHERE t.status {=} 'waiting') t"
	" FULL JOIN (SELECT task_id, priority, enqueued_at, pg_catalog.count(*) AS places FROM ratelimit.waiting"
	" GROUP BY 1, 2, 3) w USING (task_id, priority, enqueued_at)"
	" WHERE COALESCE(t.places, 0) {<>} COALESCE(w.places, 0) ORDER BY 1",
	Scans::whole_tables};

Statement open_attempts_statement{
	"SELECT task_id, t.execution_token IS NOT NULL, COALESCE(a.current, 0)::pg_catalog.float8,"
	" COALESCE(a.others, 0)::pg_catalog.float8 FROM ratelimit.tasks t FULL JOIN (SELECT a.task_id,"
	" pg_catalog.count(*) FILTER (WHERE a.attempt_no {=} t.attempt_no AND t.execution_token IS NOT NULL) AS current,"
	" pg_catalog.count(*) FILTER (WHERE NOT COALESCE(a.attempt_no {=} t.attempt_no AND t.execution_token IS NOT NULL, false))"
	" AS others FROM ratelimit.attempts a LEFT JOIN ratelimit.tasks t ON t.task_id {=} a.task_id"
	" WHERE a.finished_at IS NULL GROUP BY 1) a USING (task_id)"
	" WHERE (t.execution_token IS NOT NULL AND COALESCE(a.current, 0) {=} 0) OR a.others {>} 0 ORDER BY 1",
	Scans::whole_tables};

Statement task_states_statement{
	"SELECT task_id, status {=} 'running', pg_catalog.cardinality(lease_ids)::pg_catalog.float8 FROM ratelimit.tasks"
	" WHERE (status {=} 'waiting' AND lease_ids {<>} '{}') OR (status {=} 'running' AND execution_token IS NULL) ORDER BY 1",
	Scans::whole_tables};

Statement counter_key_statement{
	"SELECT scope_type, scope_key, metric, window_seconds FROM ratelimit.counters"
	" WHERE ROW(scope_type, scope_key, metric, window_seconds) {>} ROW($1, $2, $3, $4)"
	" ORDER BY scope_type, scope_key, metric, window_seconds OFFSET $5 LIMIT 1",
	{TEXTOID, TEXTOID, TEXTOID, INT4OID, INT8OID}};

Statement scope_key_statement{"SELECT scope_type, scope_key FROM ratelimit.scopes"
							  " WHERE ROW(scope_type, scope_key) {>} ROW($1, $2)"
							  " ORDER BY scope_type, scope_key OFFSET $3 LIMIT 1",
	{TEXTOID, TEXTOID, INT8OID}};

Statement counter_text_statement{"SELECT pg_catalog.json_build_array($1, $2, $3, $4)::pg_catalog.text",
	{TEXTOID, TEXTOID, TEXTOID, INT4OID}};
Statement scope_text_statement{"SELECT pg_catalog.json_build_array($1, $2)::pg_catalog.text", {TEXTOID, TEXTOID}};

Statement read_position_statement{
	"SELECT aggregates, scope_type, scope_key, metric, window_seconds FROM ratelimit.repair_position"};

Statement write_position_statement{
	"UPDATE ratelimit.repair_position SET aggregates = $1, scope_type = $2, scope_key = $3, metric = $4,"
	" window_seconds = $5 WHERE ctid {=} ANY (ARRAY(SELECT ctid FROM ratelimit.repair_position FOR UPDATE SKIP LOCKED))",
	{TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID}, Scans::whole_tables};

auto order_of(const AggregateKey &key) noexcept
{
	return std::tie(key.scope_type, key.scope_key, key.metric, key.window_seconds);
}

// The key with as many columns as the kind of aggregate has; all NULL when it is absent.
void add_key(Parameters &parameters, Aggregates aggregates, const std::optional<AggregateKey> &key)
{
	const int columns = aggregates == Aggregates::counters ? 4 : 2;
	if (!key) {
		for (int i = 0; i < columns; i++)
			parameters.add_null();
		return;
	}
	parameters.add(pg::text_datum(key->scope_type)).add(pg::text_datum(key->scope_key));
	if (aggregates == Aggregates::counters)
		parameters.add(pg::text_datum(key->metric)).add(Int32GetDatum(key->window_seconds));
}

Parameters range_parameters(Aggregates aggregates, const KeyRange &range)
{
	Parameters parameters;
	add_key(parameters, aggregates, range.after);
	add_key(parameters, aggregates, range.until);
	return parameters;
}

AggregateKey counter_key(const Rows &rows, std::size_t row)
{
	return {pg::text_view(rows.datum(row, 1)), pg::text_view(rows.datum(row, 2)), pg::text_view(rows.datum(row, 3)),
		rows.int4(row, 4)};
}

AggregateKey scope_key(const Rows &rows, std::size_t row)
{
	return {pg::text_view(rows.datum(row, 1)), pg::text_view(rows.datum(row, 2)), {}, 0};
}

core::Instant instant(const Rows &rows, std::size_t row, int column)
{
	const Datum at = rows.datum(row, column);
	if (TIMESTAMP_IS_NOEND(DatumGetTimestampTz(at)))
		return core::Instant::latest();
	return {pg::timestamp_us(at)};
}

} // namespace

bool operator<(const AggregateKey &a, const AggregateKey &b) noexcept { return order_of(a) < order_of(b); }

bool operator==(const AggregateKey &a, const AggregateKey &b) noexcept { return order_of(a) == order_of(b); }

std::optional<AggregateKey> key_after(
	Aggregates aggregates, const ReadSnapshot &snapshot, const AggregateKey &after, std::int64_t count)
{
	const bool counters = aggregates == Aggregates::counters;
	Parameters parameters;
	add_key(parameters, aggregates, after);
	parameters.add(Int64GetDatum(count - 1));
	const Rows rows = (counters ? counter_key_statement : scope_key_statement).run(snapshot, parameters);
	if (rows.count() == 0)
		return std::nullopt;
	return counters ? counter_key(rows, 0) : scope_key(rows, 0);
}

pg::Vector<CounterDifference> read_counter_differences(const ReadSnapshot &snapshot, const KeyRange &range)
{
	Parameters parameters = range_parameters(Aggregates::counters, range);
	const Rows rows = counter_differences_statement.run(snapshot, parameters);
	pg::Vector<CounterDifference> found;
	found.reserve(rows.count());
	for (std::size_t i = 0; i < rows.count(); i++) {
		CounterDifference difference;
		difference.key = counter_key(rows, i);
		difference.facts.stored = {instant(rows, i, 5), rows.float8(i, 6), rows.float8(i, 7)};
		difference.facts.limit = rows.float8(i, 8);
		difference.facts.open = rows.float8(i, 9);
		found.push_back(difference);
	}
	return found;
}

pg::Vector<UncountedReservations> read_uncounted(const ReadSnapshot &snapshot, const KeyRange &range)
{
	Parameters parameters = range_parameters(Aggregates::counters, range);
	const Rows rows = uncounted_statement.run(snapshot, parameters);
	pg::Vector<UncountedReservations> found;
	found.reserve(rows.count());
	for (std::size_t i = 0; i < rows.count(); i++) {
		UncountedReservations open;
		open.key = counter_key(rows, i);
		open.facts.window_start = instant(rows, i, 5);
		open.facts.reset_at = open.facts.window_start + core::Span::from_seconds(open.key.window_seconds);
		open.facts.open = rows.float8(i, 6);
		open.limit = rows.float8(i, 7);
		if (!rows.is_null(i, 8))
			open.facts.counter_start = instant(rows, i, 8);
		found.push_back(open);
	}
	return found;
}

pg::Vector<ScopeDifference> read_scope_differences(const ReadSnapshot &snapshot, const KeyRange &range)
{
	Parameters parameters = range_parameters(Aggregates::scopes, range);
	const Rows rows = scope_differences_statement.run(snapshot, parameters);
	pg::Vector<ScopeDifference> found;
	found.reserve(rows.count());
	for (std::size_t i = 0; i < rows.count(); i++) {
		ScopeDifference difference;
		difference.key = scope_key(rows, i);
		difference.exists = !rows.is_null(i, 3);
		if (difference.exists)
			difference.facts.stored = {rows.float8(i, 3), rows.int8(i, 4), instant(rows, i, 5)};
		difference.facts.leased = rows.float8(i, 6);
		difference.facts.lease_count = rows.int8(i, 7);
		difference.facts.first_expiry = instant(rows, i, 8);
		difference.facts.largest = rows.float8(i, 9);
		difference.facts.stored_waiting = rows.int4(i, 10);
		difference.facts.waiting = rows.int8(i, 11);
		difference.facts.is_awaited = rows.boolean(i, 12);
		found.push_back(difference);
	}
	return found;
}

pg::Vector<TaskDifference> read_task_differences(const ReadSnapshot &snapshot)
{
	using core::Problem;
	pg::Vector<TaskDifference> found;
	Parameters none;
	const auto id = [](const Rows &rows, std::size_t row) { return pg::text_view(pg::kept_datum(rows.datum(row, 1))); };
	const Rows places = task_places_statement.run(snapshot, none);
	for (std::size_t i = 0; i < places.count(); i++)
		found.push_back({id(places, i), {Problem::task_places, places.float8(i, 2), places.float8(i, 3)}});
	const Rows attempts = open_attempts_statement.run(snapshot, none);
	for (std::size_t i = 0; i < attempts.count(); i++) {
		const bool runs = !attempts.is_null(i, 2) && attempts.boolean(i, 2);
		if (runs && attempts.float8(i, 3) == 0)
			found.push_back({id(attempts, i), {Problem::task_open_attempt, 1, 0}});
		if (attempts.float8(i, 4) > 0)
			found.push_back({id(attempts, i), {Problem::task_stray_attempts, 0, attempts.float8(i, 4)}});
	}
	const Rows states = task_states_statement.run(snapshot, none);
	for (std::size_t i = 0; i < states.count(); i++)
		found.push_back({id(states, i), states.boolean(i, 2) ? core::Finding{Problem::task_token, 1, 0}
		                                                     : core::Finding{Problem::task_lease_ids, 0, states.float8(i, 3)}});
	return found;
}

Datum key_text(Aggregates aggregates, const AggregateKey &key)
{
	Parameters parameters;
	add_key(parameters, aggregates, key);
	return (aggregates == Aggregates::counters ? counter_text_statement : scope_text_statement)
		.run(Access::read, parameters)
		.datum(0, 1);
}

RepairPosition read_repair_position()
{
	RepairPosition position;
	Parameters none;
	const Rows rows = read_position_statement.run(Access::read, none);
	if (rows.count() == 0)
		return position;
	if (pg::text_view(rows.datum(0, 1)) == "scopes")
		position.aggregates = Aggregates::scopes;
	position.after = {pg::text_view(rows.datum(0, 2)), pg::text_view(rows.datum(0, 3)), pg::text_view(rows.datum(0, 4)),
		rows.int4(0, 5)};
	return position;
}

void write_repair_position(const RepairPosition &position)
{
	Parameters parameters;
	parameters.add(pg::text_datum(position.aggregates == Aggregates::counters ? "counters" : "scopes"))
		.add(pg::text_datum(position.after.scope_type))
		.add(pg::text_datum(position.after.scope_key))
		.add(pg::text_datum(position.after.metric))
		.add(Int32GetDatum(position.after.window_seconds));
	(void)write_position_statement.run(Access::write, parameters);
}

} // namespace ratelimit::store
