// The levels of rl_grant, and what each may call. The only list of them: a routine is known by its name, whatever its
// arguments, and one that does not exist (yet) is nobody's. What stands in no level and is not for PUBLIC is the owner's.
#pragma once

#include <cstdint>
#include <string_view>

namespace ratelimit::api {

using Levels = std::uint8_t;

inline constexpr Levels level_client = 1;
inline constexpr Levels level_worker = 2;
inline constexpr Levels level_operator = 4;
inline constexpr Levels level_monitor = 8;

struct NamedLevel {
	std::string_view name;
	Levels level;
	bool sees_views;
};

inline constexpr NamedLevel named_levels[] = {
	{"client", level_client, false},
	{"worker", level_worker, false},
	{"operator", level_operator, true},
	{"monitor", level_monitor, true},
};

// A worker may what a client may, an operator what a worker and a monitor may.
inline constexpr Levels from_client = level_client | level_worker | level_operator;
inline constexpr Levels from_worker = level_worker | level_operator;
inline constexpr Levels from_monitor = level_monitor | level_operator;

struct LevelsOfRoutine {
	std::string_view routine;
	Levels levels;
};

inline constexpr LevelsOfRoutine levels_of_routines[] = {
	{"rl_acquire_bucket", from_client},
	{"rl_admit", from_client},
	{"rl_admit_wait", from_client},
	{"rl_attach", from_client},
	{"rl_cancel", from_client},
	{"rl_check", from_client | from_monitor},
	{"rl_commit", from_client},
	{"rl_consume", from_client},
	{"rl_defer", from_worker},
	{"rl_dispatch", from_worker},
	{"rl_enforce", from_client},
	{"rl_enqueue", from_client},
	{"rl_finish", from_worker},
	{"rl_headers", from_client},
	{"rl_heartbeat", from_worker},
	{"rl_penalize", from_client},
	{"rl_reap", level_operator},
	{"rl_rebind", from_client},
	{"rl_recover", level_operator},
	{"rl_release", from_client},
	{"rl_renew", from_client},
	{"rl_renew_waiters", from_client},
	{"rl_reserve", from_client},
	{"rl_reset_statistics", level_operator},
	{"rl_resolve", level_operator},
	{"rl_route", from_client | from_monitor},
	{"rl_start", from_worker},
	{"rl_status", from_client | from_monitor},
	{"rl_submission", from_worker},
	{"rl_take_events", from_worker},
	{"rl_top", from_monitor},
	{"rl_verify", from_monitor},
	{"rl_waiting", from_client | from_monitor},
	{"rl_worker_heartbeat", from_worker},
	{"rl_worker_stop", from_worker},
	// What the views call: a view lends its owner's right to its tables, but not to its functions.
	{"bucket_rows", from_monitor},
	{"decision_clock", from_monitor},
	{"queue_rows", from_monitor},
	{"statistics_rows", from_monitor},
	{"worker_rows", from_monitor},
	{"worker_stale_at", from_monitor},
};

// For everybody, and for the owner alone.
inline constexpr std::string_view public_routines[] = {"rl_shard", "rl_version"};
inline constexpr std::string_view owner_routines[] = {"rl_grant", "rl_revoke"};

} // namespace ratelimit::api
