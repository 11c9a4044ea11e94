// Counts of what was decided, waited for and cleaned up, in shared memory: there only when the library was preloaded;
// without it nothing is counted. What the view `ratelimit.statistics` shows.
//
// A place holds the counts of one (database, function, scope type, metric). Places are found without a lock: a place is
// made under the lock, shown last, and never taken away before the server stops; its counts are atomic. When the places
// for names are used up, further names are counted together, as (other). A count is no part of the transaction: what is
// rolled back was decided all the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "pg/memory.hpp"
#include "pg/postgres.hpp"

namespace ratelimit::pg::statistics {

enum class Source : std::uint8_t {
	none, // not counted; and the place that remembers when a database was reset
	rl_check,
	rl_consume,
	rl_reserve,
	rl_enforce,
	rl_admit,
	rl_enqueue,
	rl_admit_wait,
	rl_dispatch,
	rl_acquire_bucket,
	rl_reap,
	rl_recover,
};
[[nodiscard]] std::string_view name_of(Source source) noexcept;

enum Count : int { allowed, denied, waits, wake_ups, reaped, recovered, counts };

// Names that are absent are empty.
void add(Source source, std::string_view scope_type, std::string_view metric, Count count, std::uint64_t times = 1) noexcept;

// Of this database.
struct Row {
	Source source;
	std::string_view scope_type; // in shared memory, where they do not change
	std::string_view metric;
	std::uint64_t values[counts];
	TimestampTz since;
};
[[nodiscard]] Vector<Row> rows();
void reset() noexcept;

// For the library's start: how much shared memory, and its place there; `first` when it has to be made.
[[nodiscard]] std::size_t memory_size() noexcept;
void attach(void *memory, LWLock *lock, bool first) noexcept;

} // namespace ratelimit::pg::statistics
