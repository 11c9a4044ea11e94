#include "pg/settings.hpp"

#include <cstdint>
#include <cstdlib>

namespace ratelimit::pg::settings {

namespace {

// Owned by the server; the initial values equal the boot values below.
char *clock_text = nullptr;
int retention = 3600;
int worker_stale_after = 60;
int waiter_ttl = 15;
int idle_retention = 86'400;
int reservation_grace = 3600;
int reap_interval = 5;
int recover_interval = 15;

constexpr int interval_seconds_max = 86'400;
bool durable_buckets = false;

// What the check hook of `ratelimit.clock` hands to the assign hook.
const TimestampTz *clock_value = nullptr;

void *allocate_extra(std::size_t size)
{
#if PG_VERSION_NUM >= 160000
	return guc_malloc(LOG, size);
#else
	return std::malloc(size); // the server frees it with free()
#endif
}

// Parses without raising: a check hook also runs while configuration files are read, outside any transaction.
bool parse_timestamptz(char *text, TimestampTz *result)
{
	char buffer[MAXDATELEN + MAXDATEFIELDS];
	char *fields[MAXDATEFIELDS];
	int field_types[MAXDATEFIELDS];
	int field_count = 0;
	int kind = 0;
	struct pg_tm broken_down;
	fsec_t fraction = 0;
	int zone = 0;

	if (ParseDateTime(text, buffer, sizeof(buffer), fields, field_types, MAXDATEFIELDS, &field_count) != 0)
		return false;
#if PG_VERSION_NUM >= 160000
	DateTimeErrorExtra extra;
	if (DecodeDateTime(fields, field_types, field_count, &kind, &broken_down, &fraction, &zone, &extra) != 0)
		return false;
#else
	if (DecodeDateTime(fields, field_types, field_count, &kind, &broken_down, &fraction, &zone) != 0)
		return false;
#endif
	if (kind == DTK_EPOCH) {
		*result = SetEpochTimestamp();
		return true;
	}
	return kind == DTK_DATE && tm2timestamp(&broken_down, fraction, &zone, result) == 0;
}

// What is stored lies up to a window or a TTL, at most 366 days each, before or after the instant of a decision: all of it
// must be a timestamp too.
constexpr std::int64_t clock_margin_us = 367 * USECS_PER_DAY;

bool is_usable_clock(TimestampTz at) noexcept
{
	return at >= MIN_TIMESTAMP + clock_margin_us && at < END_TIMESTAMP - clock_margin_us;
}

} // namespace

extern "C" {

static bool ratelimit_check_clock(char **value, void **extra, GucSource)
{
	if (*value == nullptr || **value == '\0')
		return true;
	TimestampTz parsed = 0;
	if (!parse_timestamptz(*value, &parsed) || !is_usable_clock(parsed)) {
		GUC_check_errdetail("It must be empty, for the real clock, or a finite timestamp with time zone, more than a year from "
							"the first and the last one.");
		return false;
	}
	auto *kept = static_cast<TimestampTz *>(allocate_extra(sizeof(TimestampTz)));
	if (kept == nullptr)
		return false;
	*kept = parsed;
	*extra = kept;
	return true;
}

static void ratelimit_assign_clock(const char *, void *extra)
{
	clock_value = static_cast<const TimestampTz *>(extra);
}

} // extern "C"

void define_settings()
{
	DefineCustomStringVariable("ratelimit.clock", "Replaces the clock that decisions are made by.",
		"A timestamp with time zone, for tests; empty means the real clock. Identifiers always use the real clock.",
		&clock_text, "", PGC_SUSET, 0, ratelimit_check_clock, ratelimit_assign_clock, nullptr);
	DefineCustomIntVariable("ratelimit.retention", "Keeps finished reservations, requests and tasks for this long.",
		"Zero deletes a reservation in the moment in which it is settled or released.", &retention, 3600, 0, INT_MAX / 1000,
		PGC_SUSET, GUC_UNIT_S, nullptr, nullptr, nullptr);
	DefineCustomIntVariable("ratelimit.worker_stale_after", "Counts a worker as live for this long after its last heartbeat.",
		"A worker sends heartbeats with rl_worker_heartbeat.", &worker_stale_after, 60, 1, 31'622'400, PGC_SUSET, GUC_UNIT_S,
		nullptr, nullptr, nullptr);
	DefineCustomBoolVariable("ratelimit.bucket_durable", "Makes each acquire and each penalty of a bucket part of the commit.",
		"Off, they wait neither for the disk nor for a standby: a crash forgets at most those of the last three times "
		"wal_writer_delay.",
		&durable_buckets, false, PGC_SUSET, 0, nullptr, nullptr, nullptr);
	DefineCustomIntVariable("ratelimit.waiter_ttl", "Takes the waiter of a sync task for gone when it has not asked for this long.",
		"Each call for the task, and rl_renew_waiters, begin it anew.", &waiter_ttl, 15, 1, 31622400, PGC_SUSET, GUC_UNIT_S,
		nullptr, nullptr, nullptr);

	DefineCustomIntVariable("ratelimit.idle_retention", "Keeps what nobody has touched for this long.",
		"Counters whose window is over, scopes and buckets that hold nothing, workers that were not heard of, and admitted tasks without leases that nobody starts.",
		&idle_retention, 86'400, 0, INT_MAX / 1000, PGC_SUSET, GUC_UNIT_S, nullptr, nullptr, nullptr);
	DefineCustomIntVariable("ratelimit.reservation_grace",
		"Releases reservations that nobody has settled so long after their window was over.",
		"The reaper does it, with the reason \"expired\".", &reservation_grace, 3600, 0, INT_MAX / 1000, PGC_SUSET,
		GUC_UNIT_S, nullptr, nullptr, nullptr);
	DefineCustomIntVariable("ratelimit.reap_interval", "How often the background worker removes what is over.",
		"Zero switches it off; rl_reap() does the same on demand.", &reap_interval, 5, 0, interval_seconds_max,
		PGC_SIGHUP, GUC_UNIT_S, nullptr, nullptr, nullptr);
	DefineCustomIntVariable("ratelimit.recover_interval", "How often the background worker recovers what was lost.",
		"Zero switches it off; rl_recover() does the same on demand.", &recover_interval, 15, 0, interval_seconds_max,
		PGC_SIGHUP, GUC_UNIT_S, nullptr, nullptr, nullptr);

#if PG_VERSION_NUM >= 150000
	MarkGUCPrefixReserved("ratelimit");
#else
	EmitWarningsOnPlaceholders("ratelimit");
#endif
}

std::optional<TimestampTz> test_clock() noexcept
{
	return clock_value != nullptr ? std::optional<TimestampTz>(*clock_value) : std::nullopt;
}

int retention_seconds() noexcept { return retention; }

int worker_stale_after_seconds() noexcept { return worker_stale_after; }

int waiter_ttl_seconds() noexcept { return waiter_ttl; }

int idle_retention_seconds() noexcept { return idle_retention; }

int reservation_grace_seconds() noexcept { return reservation_grace; }

int reap_interval_seconds() noexcept { return reap_interval; }

int recover_interval_seconds() noexcept { return recover_interval; }

bool bucket_durable() noexcept { return durable_buckets; }

} // namespace ratelimit::pg::settings
