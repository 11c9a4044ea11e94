// rl_acquire_bucket and rl_penalize, and what schema ratelimit has beside them: the rows as they are, the reaper's part,
// and the refusal of statements that would take back what was spent.
#include <cmath>
#include <limits>
#include <string>

#include "api/arguments.hpp"
#include "api/bucket_rules.hpp"
#include "api/ids.hpp"
#include "api/lease_scope.hpp"
#include "api/off_switch.hpp"
#include "core/bucket.hpp"
#include "core/limits.hpp"
#include "pg/clock.hpp"
#include "pg/entry.hpp"
#include "pg/error.hpp"
#include "pg/spi.hpp"
#include "pg/statistics.hpp"
#include "store/bucket_store.hpp"

namespace ratelimit::api {

namespace {

namespace limits = core::limits;

constexpr std::string_view bucket_scope_type = "ratelimit.bucket";

using GrantRow = pg::Columns<8>;
using LeaseIds = pg::Vector<core::Uuid>;

std::int32_t int_argument(FunctionCallInfo fcinfo, int index, std::string_view name, std::int32_t absent, std::int32_t min,
	std::int32_t max)
{
	if (PG_ARGISNULL(index))
		return absent;
	const std::int32_t value = PG_GETARG_INT32(index);
	if (value < min || value > max)
		reject(Place{name, {}, 0}, "The value is " + std::to_string(value) + ".",
			max == std::numeric_limits<std::int32_t>::max()
				? "It must be at least " + std::to_string(min) + "."
				: "It must be from " + std::to_string(min) + " to " + std::to_string(max) + ".");
	return value;
}

Datum bucket_id_argument(FunctionCallInfo fcinfo)
{
	const std::string_view id = required_text(fcinfo, 0, "bucket_id");
	return pg::text_datum(check_name(Place{"bucket_id", {}, 0}, id));
}

// --- leases --------------------------------------------------------------------------------------------------------

// Permits of a bucket that bounds how many are out at once: each is a lease in a scope of the bucket's own. The scope is
// locked first, so that nobody else changes its leases while the rows are spent; the leases are written last. An error
// after the spending loses permits, never a slot.
class PermitLeases {
public:
	PermitLeases(std::string_view bucket_id, std::int32_t requested, std::int64_t max_concurrency)
		: max_concurrency_(static_cast<double>(max_concurrency)),
		  scope_(bucket_scope_type, bucket_id, std::min<double>(requested, max_concurrency_), max_concurrency_)
	{
	}

	// Removes expired leases as far as the call needs room, and says how many slots are free.
	[[nodiscard]] std::int64_t lock_and_count()
	{
		lock_scope(scope_, now());
		const core::Instant counted_at = now();
		scope_.row = store::read_scope(scope_.key, counted_at);
		found_ = scope_.stored();
		(void)make_room({&scope_, 1}, counted_at);
		return static_cast<std::int64_t>(std::floor(max_concurrency_ - scope_.stored().leased * (1 - core::amount_tolerance)));
	}

	[[nodiscard]] LeaseIds grant(std::int32_t count)
	{
		const core::Instant granted_at = now();
		const core::Instant expires_at = granted_at + core::Span::from_seconds(limits::bucket_lease_ttl_seconds);
		LeaseIds ids;
		ids.reserve(static_cast<std::size_t>(count));
		for (std::int32_t i = 0; i < count; i++) {
			ids.push_back(new_id(scope_.scope_type, scope_.scope_key));
			add_to_scope(scope_, 1, expires_at);
		}
		write_sums(granted_at);
		for (const core::Uuid &id : ids) {
			store::insert_lease(scope_.key,
				{id, granted_at, expires_at, 1, max_concurrency_, limits::bucket_lease_ttl_seconds, {}, {}});
			pg::check_for_interrupts();
		}
		return ids;
	}

private:
	[[nodiscard]] static core::Instant now() noexcept { return {pg::decision_clock_us()}; }

	// A scope that this call has created and not used goes again.
	void write_sums(core::Instant at)
	{
		const core::StoredScope left = scope_.stored();
		if (scope_.inserted && left.lease_count == 0)
			store::delete_scope(*scope_.row);
		else if (left.lease_count != found_.lease_count || left.expires_from != found_.expires_from)
			write_scope(scope_, at);
	}

	double max_concurrency_;
	LeaseScope scope_;
	core::StoredScope found_;
};

// --- acquire -------------------------------------------------------------------------------------------------------

core::BucketGrant grant_leased(
	Datum bucket_id, const BucketRules &rules, core::BucketDemand demand, LeaseIds &lease_ids)
{
	pg::Session session;
	session.connect();
	PermitLeases leases(pg::text_view(bucket_id), demand.requested, *rules.max_concurrency);
	demand.free_slots = leases.lock_and_count();
	const core::BucketGrant grant = store::acquire_permits(bucket_id, {rules.rules, rules.count}, demand);
	lease_ids = leases.grant(grant.granted);
	session.finish();
	return grant;
}

core::BucketGrant grant_permits(
	Datum bucket_id, const BucketRules &rules, const core::BucketDemand &demand, LeaseIds &lease_ids)
{
	const std::optional<core::Verdict> verdict = verdict_when_off();
	if (rules.count == 0)
		return core::acquire(nullptr, nullptr, 0, demand, core::Instant{pg::decision_clock_us()}.floor_ms());
	if (verdict)
		return grant_when_off(demand, *verdict);
	if (rules.max_concurrency)
		return grant_leased(bucket_id, rules, demand, lease_ids);
	return store::acquire_permits(bucket_id, {rules.rules, rules.count}, demand);
}

GrantRow grant_row(const core::BucketGrant &grant, const LeaseIds &lease_ids)
{
	pg::SmallVector<std::int64_t, 16> scheduled;
	scheduled.reserve(static_cast<std::size_t>(grant.granted));
	for (std::int32_t i = 0; i < grant.granted; i++)
		scheduled.push_back(grant.scheduled_at_ms(i));

	GrantRow row;
	row.set(0, Int32GetDatum(grant.granted));
	row.set(1, Int64GetDatum(grant.wait_ms));
	row.set(2, Int64GetDatum(grant.server_now_ms));
	row.set(3, pg::uuid_array_datum(lease_ids.data(), lease_ids.size()));
	row.set(4, pg::int8_array_datum(scheduled.data(), scheduled.size()));
	if (grant.effective_rps)
		row.set(5, Float8GetDatum(*grant.effective_rps));
	row.set(6, Int64GetDatum(grant.cool_until_ms));
	row.set(7, Int64GetDatum(grant.claimed_retry_at_ms));
	return row;
}

// --- the rows as they are ------------------------------------------------------------------------------------------

// 0 means never; what lies beyond the server's calendar is infinity.
void set_instant(pg::Columns<15> &row, std::size_t column, std::int64_t ms)
{
	constexpr std::int64_t calendar_end_ms = END_TIMESTAMP / 1000 + pg::server_epoch_us / 1000;
	if (ms == 0)
		return;
	row.set(column, ms < calendar_end_ms ? pg::timestamp_datum(core::Instant::from_ms(ms).us) : TimestampTzGetDatum(DT_NOEND));
}

pg::Columns<15> bucket_row(const store::BucketReader &reader, std::int64_t now_ms)
{
	const core::BucketState state = reader.state();
	pg::Columns<15> row;
	row.set(0, reader.bucket_id());
	row.set(1, reader.rule_id());
	row.set(2, Float8GetDatum(core::tokens_at(state, now_ms)));
	row.set(3, Float8GetDatum(state.capacity));
	row.set(4, Float8GetDatum(state.refill_rps));
	row.set(5, Float8GetDatum(state.base_rps));
	row.set(6, Float8GetDatum(state.min_rps));
	row.set(7, Float8GetDatum(state.max_rps));
	row.set(8, BoolGetDatum(state.ceiling_configured != 0));
	row.set(9, BoolGetDatum(state.backpressure_seen != 0));
	const std::int64_t instants[] = {state.refilled_at_ms, state.next_dispatch_at_ms, state.cool_until_ms,
		state.claimed_retry_at_ms, state.last_ramp_at_ms};
	for (std::size_t i = 0; i < std::size(instants); i++)
		set_instant(row, 10 + i, instants[i]);
	return row;
}

} // namespace

} // namespace ratelimit::api

namespace api = ratelimit::api;
namespace core = ratelimit::core;
namespace pg = ratelimit::pg;
namespace store = ratelimit::store;

RATELIMIT_FUNCTION(rl_acquire_bucket)
{
	pg::require_writes("rl_acquire_bucket");
	const Datum bucket_id = api::bucket_id_argument(fcinfo);
	const api::BucketRules rules = api::bucket_rules_argument(fcinfo, 1);
	core::BucketDemand demand;
	demand.requested = api::int_argument(fcinfo, 2, "requested", 1, 1, core::limits::bucket_requested_max);
	demand.observed_successes =
		api::int_argument(fcinfo, 3, "observed_successes", 0, 0, std::numeric_limits<std::int32_t>::max());
	api::LeaseIds lease_ids;
	const core::BucketGrant grant = api::grant_permits(bucket_id, rules, demand, lease_ids);
	pg::statistics::add(pg::statistics::Source::rl_acquire_bucket, api::bucket_scope_type, {},
		grant.granted > 0 ? pg::statistics::allowed : pg::statistics::denied);
	api::GrantRow row = api::grant_row(grant, lease_ids);
	return pg::composite_result(fcinfo, row);
}

RATELIMIT_FUNCTION(rl_penalize)
{
	pg::require_writes("rl_penalize");
	const Datum bucket_id = api::bucket_id_argument(fcinfo);
	const std::int64_t cooldown_ms = DatumGetInt64(api::required_datum(fcinfo, 1, "cooldown_ms"));
	return Int32GetDatum(store::penalize_bucket(bucket_id, cooldown_ms));
}

RATELIMIT_FUNCTION(rl_reap_buckets)
{
	pg::require_writes("ratelimit.reap_buckets");
	const std::int32_t batch =
		api::int_argument(fcinfo, 0, "batch", 500, core::limits::batch_min, core::limits::batch_max);
	const std::int64_t retention_ms = DatumGetInt64(api::required_datum(fcinfo, 1, "retention_ms"));
	if (retention_ms < 0 || retention_ms > core::limits::seconds_max * 1000LL)
		api::reject({"retention_ms", {}, 0}, "The value is " + std::to_string(retention_ms) + ".",
			"It must be from 0 to 31622400000.");
	return Int32GetDatum(store::delete_idle_buckets(batch, retention_ms));
}

RATELIMIT_FUNCTION(rl_bucket_rows)
{
	pg::SetResult result(fcinfo);
	const std::int64_t now_ms = core::Instant{pg::decision_clock_us()}.floor_ms();
	store::BucketReader reader;
	while (reader.next()) {
		pg::Columns<15> row = api::bucket_row(reader, now_ms);
		result.add(row);
		pg::check_for_interrupts();
	}
	reader.close();
	return Datum(0);
}

RATELIMIT_FUNCTION(rl_refuse_rewrite)
{
	throw pg::SqlError{ERRCODE_FEATURE_NOT_SUPPORTED, "rows of table \"ratelimit.buckets\" cannot be updated or truncated",
		"They are changed in place, at once and for everybody: an UPDATE or TRUNCATE would lose what is spent beside it.",
		"Use rl_acquire_bucket and rl_penalize, or DELETE the rows of a bucket to forget it."};
}
