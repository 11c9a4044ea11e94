// Adaptive token buckets: how many permits now, when each of them may go out, and what a refusal teaches.
//
// A rule is a token bucket: it holds at most `capacity` tokens, gains `refill_rps` tokens a second, and a permit costs
// one. That is the meter of RFC 2697 (Heinanen and Guerin, "A Single Rate Three Color Marker", 1999) without its
// colours, and the leaky bucket of ITU-T I.371 (the generic cell rate algorithm) seen from the other side: both admit
// at most capacity + rate * time over any stretch of time. Permits are then spread over the time to come, as the leaky
// bucket spaces cells: every permit carries the instant at which it may go out.
//
// The rate adapts, since the true limit of a provider is seldom known. A refusal (HTTP 429) halves it, successes under
// demand add a constant: additive increase, multiplicative decrease, the rule for which Chiu and Jain ("Analysis of the
// Increase and Decrease Algorithms for Congestion Avoidance in Computer Networks", Computer Networks and ISDN Systems
// 17, 1989) showed that many clients who know nothing of each other end up with fair shares of an unknown limit. Until
// the first refusal it doubles, the slow start of Jacobson ("Congestion Avoidance and Control", SIGCOMM 1988).
//
// A bucket may have several rules; all must agree, and all pay. Example, 3 requests per 10 s:
//
//     const BucketConfiguration known = configuration_of({"per_key", 3, 10'000, {}, false, {}});
//     if (known.problem != BucketRuleProblem::none) ...
//     BucketState row = new_row(known.config, clock_ms);
//     const BucketGrant grant = acquire(&row, &known.config, 1, {5, 0, {}}, clock_ms);
//     grant.granted == 3; grant.scheduled_at_ms(1) == clock_ms + 4'167;
//
// Guarantees. Every function is noexcept, allocates nothing, knows no clock and keeps nothing between calls: it may run
// while a buffer is locked. Its memory is its arguments'. Thread-safe as long as no two threads share a state. What
// comes from storage is never trusted: any bits in a BucketState are a defined start (see there). Only the caller's
// own arguments are checked, and a violated check ends the process.
//
// Units. Instants are whole milliseconds since 1970, as the contract states them, 0 meaning "never"; so a clock before
// 1970 counts as 1970. Rates are permits per second, amounts of tokens are permits and may be fractions: a poll every
// millisecond loses none. Sums of instants saturate.
#pragma once

#include "core/limits.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

namespace ratelimit::core {

// One rule as a call states it.
struct BucketRule {
	std::string_view rule_id;
	double requests_per_window = 0;              // > 0
	std::int64_t window_ms = 0;                  // > 0
	std::optional<std::int64_t> max_concurrency; // >= 0; absent: no cap
	bool adaptive_max_rps_given = false;         // the key is present, even if its value is NULL
	std::optional<double> adaptive_max_rps;      // > 0; absent: no ceiling of its own
};

// What a rule asks of its row. Finite, not negative, min_rps <= base_rps <= max_rps.
struct BucketConfig {
	double capacity = 1; // permits, at least 1
	double base_rps = 0; // where the rate starts
	double min_rps = 0;  // what refusals never go below: an eighth of the base, at least 0.01 unless the base is less
	double max_rps = 0;  // what successes never go above
	bool configures_ceiling = false; // max_rps is meant, not merely derived: it replaces the stored one
};

// Why a rule is no good: first the values by themselves, then what follows from them.
enum class BucketRuleProblem : std::uint8_t {
	none,
	requests_per_window_out_of_range,
	window_ms_out_of_range,
	max_concurrency_out_of_range,
	adaptive_max_rps_out_of_range,
	capacity_not_finite,
	base_not_finite,
	max_not_finite,
};

// `config` is of use only where there is no problem.
struct [[nodiscard]] BucketConfiguration {
	BucketConfig config;
	BucketRuleProblem problem = BucketRuleProblem::none;
};

// Rules whose id begins like this learn up to 25 times their base without being told a ceiling.
inline constexpr std::string_view bucket_default_prefix = "default:";

BucketConfiguration configuration_of(const BucketRule &rule) noexcept;

// The row of one (bucket, rule). Fixed width, and in the order of its columns (float8 * 6, int8 * 6, bool * 2), so that
// a row can be copied out and back as one piece of bucket_state_bytes. A flag is false at 0, else true.
//
// A reader without the lock may see some fields of one state and the others of the next. Every such mix is a start
// that breaks nothing, as every field says something by itself:
// - configuration: the next acquire compares field by field and writes all of it anew, a never configured ceiling too;
// - tokens and refill beyond their bounds are brought back by the same step, before anything is granted;
// - tokens of before a grant with refilled_at of after it (or the reverse): at most one capacity is given twice;
// - instants only ever bound from below, one by one: the largest counts. One that lags is as if its event were unknown;
// - flags: a ceiling or a penalty not yet seen is learned again.
struct BucketState {
	double capacity = 1;   // permits
	double base_rps = 0;   // see BucketConfig
	double min_rps = 0;    // "
	double max_rps = 0;    // " of the newest call that configured it, else the base
	double tokens = 0;     // permits as of refilled_at_ms, in [0, capacity]
	double refill_rps = 0; // what has been learned, in [min_rps, max_rps]

	std::int64_t refilled_at_ms = 0;      // up to when tokens were credited: the newest acquire
	std::int64_t next_dispatch_at_ms = 0; // before it no further permit goes out
	std::int64_t cool_until_ms = 0;       // before it nothing is granted, at most 45 min after the newest penalty
	std::int64_t claimed_retry_at_ms = 0; // what the newest refusal claimed, however far away: only told
	std::int64_t last_ramp_at_ms = 0;     // the newest step upwards
	std::int64_t penalized_at_ms = 0;     // the newest penalty

	std::uint8_t ceiling_configured = 0; // some call has configured the ceiling: max_rps outlives calls that do not
	std::uint8_t backpressure_seen = 0;  // a penalty, ever: from then on the rate climbs by steps, not by doubling
};

inline constexpr std::size_t bucket_state_bytes = offsetof(BucketState, backpressure_seen) + 1;

static_assert(std::is_trivially_copyable_v<BucketState> && std::is_standard_layout_v<BucketState>);
static_assert(offsetof(BucketState, refilled_at_ms) == 6 * sizeof(double), "six columns float8 come first");
static_assert(offsetof(BucketState, ceiling_configured) == 12 * 8, "then six columns int8");
static_assert(bucket_state_bytes == 12 * 8 + 2, "then two columns bool; the struct's padding is not stored");

// A row that nobody has used: full, at its base rate.
[[nodiscard]] BucketState new_row(const BucketConfig &config, std::int64_t clock_ms) noexcept;

// Whether the row has something to take over: the configuration differs, this call is the first to configure the
// ceiling (which must be remembered, even if its value is the same), or a field is out of its bounds.
[[nodiscard]] bool needs_configure(const BucketState &state, const BucketConfig &config) noexcept;

// Takes the configuration over and keeps what was learned. Afterwards needs_configure is false.
//
// Where a stored ceiling lies below the new minimum (a call that does not configure the ceiling raised the base more
// than eightfold), no rate lies between the two, and the ceiling wins.
void configure(BucketState &state, const BucketConfig &config) noexcept;

// What a call wants.
struct BucketDemand {
	std::int32_t requested = 1;          // permits, 1 ... limits::bucket_requested_max
	std::int64_t observed_successes = 0; // since the last call; only whether there were any counts
	// The smallest max_concurrency - live permits of the rules that have a cap; absent if none has, below 0 if a cap
	// was lowered.
	std::optional<std::int64_t> free_slots;
};

// What it gets.
struct [[nodiscard]] BucketGrant {
	std::int32_t granted = 0;
	std::int64_t wait_ms = 0;             // from server_now_ms: when to ask again; 0 when something was granted
	std::int64_t server_now_ms = 0;       // the clock as it was given, even where it lags behind the rows
	std::optional<double> effective_rps;  // the slowest rule's rate after this call; absent without rules
	std::int64_t cool_until_ms = 0;       // the latest of the rules
	std::int64_t claimed_retry_at_ms = 0; // the latest of the rules, 0 when there was none

	std::int64_t first_ms = 0;    // when the first permit may go out
	std::int32_t burst = 1;       // so many go out together; no larger than any call's grant can be
	std::int64_t interval_ms = 0; // from one burst to the next

	// When permit `index`, counted from 0, may go out.
	[[nodiscard]] std::int64_t scheduled_at_ms(std::int32_t index) const noexcept;
};

// Asks all the rules' rows for permits at once and changes them in place: configuration, refill, grant, ramp.
// configs[i] belongs to states[i]; no row may stand there twice.
//
// A clock that was set back gives nothing: the newest refilled_at of the rows is the earliest now there is. wait_ms
// counts from the clock itself, so a call repeated after it is not too early again.
BucketGrant acquire(BucketState *states, const BucketConfig *configs, std::size_t count, const BucketDemand &demand,
	std::int64_t clock_ms) noexcept;

// A refusal came back: halves the rate unless the row is cooling already, empties it, and grants nothing for
// `cooldown_ms` (at most 45 min). To be called for every rule of the bucket. Returns whether the row changed: a
// cooldown of 0 or less says nothing.
bool penalize(BucketState &state, std::int64_t cooldown_ms, std::int64_t clock_ms) noexcept;

// The tokens as of now, without changing anything.
[[nodiscard]] double tokens_at(const BucketState &state, std::int64_t clock_ms) noexcept;

// Whether the row may be forgotten: full, not cooling, no permit still to go out, and for `retention_ms` neither asked
// nor penalized. A new row in its place grants and schedules the same, only from the base rate on.
[[nodiscard]] bool is_idle(const BucketState &state, std::int64_t clock_ms, std::int64_t retention_ms) noexcept;

} // namespace ratelimit::core
