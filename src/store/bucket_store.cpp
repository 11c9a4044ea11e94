#include "store/bucket_store.hpp"

#include <cstring>

#include "core/check.hpp"
#include "pg/catalog.hpp"
#include "pg/clock.hpp"
#include "pg/entry.hpp"
#include "pg/settings.hpp"
#include "pg/spi.hpp"
#include "pg/value.hpp"

namespace ratelimit::store {

namespace {

using pg::Access;
using pg::Parameters;
using pg::Rows;
using pg::Statement;
using pg::inplace::Finding;
using pg::inplace::Image;
using pg::inplace::Key;
using pg::inplace::Search;
using pg::inplace::Table;

// The columns of ratelimit.buckets: those of core::BucketState in their order, `retired`, then the keys.
constexpr std::size_t retired_at = core::bucket_state_bytes;
constexpr std::size_t row_width = retired_at + 1;
constexpr pg::inplace::Layout layout = {row_width, {16, 17}};
static_assert(row_width <= pg::inplace::width_max);
static_assert(core::limits::bucket_rules_max <= pg::inplace::rows_max);

#define STATE_COLUMNS                                                                                                      \
	"capacity, base_rps, min_rps, max_rps, tokens, refill_rps, refilled_at_ms, next_dispatch_at_ms, cool_until_ms,"    \
	" claimed_retry_at_ms, last_ramp_at_ms, penalized_at_ms, ceiling_configured, backpressure_seen"

Statement insert_statement{"INSERT INTO ratelimit.buckets (bucket_id, rule_id, retired, " STATE_COLUMNS ")"
						   " VALUES ($1, $2, false, $3, $4, $5, $6, $7, $8, $9, $10, 0, 0, 0, 0, $11, false)"
						   " ON CONFLICT DO NOTHING",
	{TEXTOID, TEXTOID, FLOAT8OID, FLOAT8OID, FLOAT8OID, FLOAT8OID, FLOAT8OID, FLOAT8OID, INT8OID, INT8OID, BOOLOID}};

// The conditions are those of core::is_idle, which looks again under the row's lock. A row lock keeps others from
// deleting the row and acquires from nothing; rows that somebody holds are left alone.
Statement pick_idle_statement{
	"SELECT ctid, bucket_id, rule_id FROM ratelimit.buckets"
	" WHERE GREATEST(refilled_at_ms, penalized_at_ms) {<=} ($1 {-} $2) AND cool_until_ms {<=} $1"
	" AND next_dispatch_at_ms {<=} $1"
	" AND (tokens {+} (((($1 {-} refilled_at_ms)::pg_catalog.float8) {/} 1000) {*} refill_rps)) {>=} capacity"
	" LIMIT $3 FOR UPDATE SKIP LOCKED",
	{INT8OID, INT8OID, INT4OID}};

Statement delete_statement{"DELETE FROM ratelimit.buckets WHERE ctid {=} ANY ($1) AND retired", {TIDARRAYOID}};

std::int64_t clock_ms() noexcept { return core::Instant{pg::decision_clock_us()}.floor_ms(); }

pg::inplace::Durability durability() noexcept
{
	return pg::settings::bucket_durable() ? pg::inplace::Durability::with_commit : pg::inplace::Durability::soon;
}

core::BucketState state_of(const Image &image) noexcept
{
	core::BucketState state;
	std::memcpy(static_cast<void *>(&state), image.bytes, core::bucket_state_bytes);
	return state;
}

void set_state(Image &image, const core::BucketState &state) noexcept
{
	std::memcpy(image.bytes, &state, core::bucket_state_bytes);
	// What is stored as a boolean column is 0 or 1.
	image.bytes[offsetof(core::BucketState, ceiling_configured)] = state.ceiling_configured != 0 ? 1 : 0;
	image.bytes[offsetof(core::BucketState, backpressure_seen)] = state.backpressure_seen != 0 ? 1 : 0;
}

bool is_retired(const Image &image) noexcept { return image.bytes[retired_at] != 0; }

// The first retired row, if any: nothing may be taken from it before revive() has been there.
std::optional<std::size_t> first_retired(const Image *images, std::size_t count) noexcept
{
	for (std::size_t i = 0; i < count; i++)
		if (is_retired(images[i]))
			return i;
	return std::nullopt;
}

bool decide_revive(void *, Image *images, std::size_t) noexcept
{
	images[0].bytes[retired_at] = 0;
	return true;
}

// Waits for the reaper of a retired row to end, and clears the mark if the row is still there. Until then no other reaper
// can have taken the lock; afterwards one may, and then we come here again.
void revive(Table &table, const Key &key)
{
	table.lock_key(key);
	while (table.find(&key, 1).finding == Finding::live && !table.change(decide_revive, nullptr))
		pg::check_for_interrupts();
	table.unlock_key(key);
}

// --- birth ---------------------------------------------------------------------------------------------------------

// Waits for whoever is creating the row, and does nothing when it exists then.
void insert_row(Datum bucket_id, const BucketRuleKey &rule)
{
	const core::BucketState row = core::new_row(rule.config, clock_ms());
	pg::Session session;
	session.connect();
	Parameters parameters;
	parameters.add(bucket_id).add(rule.rule_id);
	for (const double number : {row.capacity, row.base_rps, row.min_rps, row.max_rps, row.tokens, row.refill_rps})
		parameters.add(Float8GetDatum(number));
	parameters.add(Int64GetDatum(row.refilled_at_ms))
		.add(Int64GetDatum(row.next_dispatch_at_ms))
		.add(BoolGetDatum(row.ceiling_configured != 0));
	(void)insert_statement.run(Access::write, parameters);
	session.finish();
}

// --- acquire -------------------------------------------------------------------------------------------------------

struct Acquisition {
	const core::BucketConfig *configs;
	const core::BucketDemand *demand;
	std::optional<std::size_t> retired;
	core::BucketGrant grant;
};

bool decide_acquire(void *context, Image *images, std::size_t count) noexcept
{
	auto &acquisition = *static_cast<Acquisition *>(context);
	acquisition.retired = first_retired(images, count);
	if (acquisition.retired)
		return false;
	core::BucketState states[pg::inplace::rows_max];
	for (std::size_t i = 0; i < count; i++)
		states[i] = state_of(images[i]);
	acquisition.grant = core::acquire(states, acquisition.configs, count, *acquisition.demand, clock_ms());
	for (std::size_t i = 0; i < count; i++)
		set_state(images[i], states[i]);
	return true;
}

// --- penalty -------------------------------------------------------------------------------------------------------

struct Penalty {
	std::int64_t cooldown_ms;
	std::optional<std::size_t> retired;
	std::int32_t changed;
};

bool decide_penalize(void *context, Image *images, std::size_t count) noexcept
{
	auto &penalty = *static_cast<Penalty *>(context);
	penalty.retired = first_retired(images, count);
	if (penalty.retired)
		return false;
	const std::int64_t now_ms = clock_ms();
	penalty.changed = 0;
	for (std::size_t i = 0; i < count; i++) {
		core::BucketState state = state_of(images[i]);
		penalty.changed += core::penalize(state, penalty.cooldown_ms, now_ms) ? 1 : 0;
		set_state(images[i], state);
	}
	return true;
}

// A copy of a key that stands in a page.
Datum copied(Datum text) { return pg::text_datum(pg::text_view(text)); }

// --- death ---------------------------------------------------------------------------------------------------------

struct Retirement {
	std::int64_t retention_ms;
	bool retired;
};

bool decide_retire(void *context, Image *images, std::size_t) noexcept
{
	auto &retirement = *static_cast<Retirement *>(context);
	retirement.retired = core::is_idle(state_of(images[0]), clock_ms(), retirement.retention_ms);
	if (retirement.retired)
		images[0].bytes[retired_at] = 1;
	return retirement.retired;
}

// Whether the row is retired now. The key's lock is held to the end of the transaction.
bool retire(Table &table, const Key &key, std::int64_t retention_ms)
{
	if (!table.try_lock_key(key))
		return false;
	Retirement retirement{retention_ms, false};
	for (;;) {
		if (table.find(&key, 1).finding != Finding::live)
			return false;
		if (table.change(decide_retire, &retirement))
			return retirement.retired;
		pg::check_for_interrupts();
	}
}

} // namespace

core::BucketGrant acquire_permits(
	Datum bucket_id, core::View<const BucketRuleKey> rules, const core::BucketDemand &demand)
{
	RATELIMIT_CHECK(rules.size >= 1);
	RATELIMIT_CHECK(rules.size <= pg::inplace::rows_max);
	Key keys[pg::inplace::rows_max];
	core::BucketConfig configs[pg::inplace::rows_max];
	for (std::size_t i = 0; i < rules.size; i++) {
		keys[i] = {{bucket_id, rules[i].rule_id}};
		configs[i] = rules[i].config;
	}
	Acquisition acquisition{configs, &demand, {}, {}};
	Table table(pg::catalog::buckets_table(), layout, durability());
	for (;;) {
		const Search found = table.find(keys, rules.size);
		if (found.finding == Finding::live && table.change(decide_acquire, &acquisition)) {
			if (!acquisition.retired)
				break;
			revive(table, keys[*acquisition.retired]);
		} else if (found.finding == Finding::busy) {
			table.wait(found);
		} else if (found.finding == Finding::missing) {
			insert_row(bucket_id, rules[found.row]);
		}
		pg::check_for_interrupts();
	}
	table.close();
	return acquisition.grant;
}

std::int32_t penalize_bucket(Datum bucket_id, std::int64_t cooldown_ms)
{
	if (cooldown_ms <= 0)
		return 0;
	std::int32_t changed = 0;
	Key from = {{bucket_id, Datum(0)}};
	Table table(pg::catalog::buckets_table(), layout, durability());
	Penalty penalty{cooldown_ms, {}, 0};
	Datum ids[pg::inplace::rows_max] = {};
	for (;;) {
		pg::check_for_interrupts();
		const Search found = table.find_from(from);
		if (found.finding == Finding::busy) {
			table.wait(found);
			continue;
		}
		if (found.count == 0)
			break;
		for (std::size_t i = 0; i < found.count; i++)
			ids[i] = copied(table.second_key(i));
		if (!table.change(decide_penalize, &penalty))
			continue;
		if (penalty.retired) {
			revive(table, {{bucket_id, ids[*penalty.retired]}});
			continue;
		}
		changed += penalty.changed;
		if (found.count < pg::inplace::rows_max)
			break;
		from.columns[1] = ids[found.count - 1];
	}
	table.close();
	return changed;
}

std::int32_t delete_idle_buckets(std::int32_t batch, std::int64_t retention_ms)
{
	pg::Session session;
	session.connect();
	Parameters parameters;
	parameters.add(Int64GetDatum(clock_ms())).add(Int64GetDatum(retention_ms)).add(Int32GetDatum(batch));
	const Rows picked = pick_idle_statement.run(Access::write, parameters);
	pg::Vector<ItemPointerData> retired;
	if (picked.count() > 0) {
		Table table(pg::catalog::buckets_table(), layout, durability());
		for (std::size_t i = 0; i < picked.count(); i++) {
			if (retire(table, {{picked.datum(i, 2), picked.datum(i, 3)}}, retention_ms))
				retired.push_back(picked.place(i, 1));
			pg::check_for_interrupts();
		}
		table.close();
	}
	std::uint64_t deleted = 0;
	if (!retired.empty()) {
		Parameters places;
		places.add(pg::place_array_datum(retired.data(), retired.size()));
		deleted = delete_statement.run(Access::write, places).affected();
	}
	session.finish();
	return static_cast<std::int32_t>(deleted);
}

BucketReader::BucketReader() : reader_(pg::catalog::buckets_table(), layout) {}

bool BucketReader::next() { return reader_.next(); }

core::BucketState BucketReader::state() const noexcept { return state_of(reader_.image()); }

} // namespace ratelimit::store
