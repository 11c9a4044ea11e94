// Counters: the row of one fixed-window key.
//
// A row is read under a snapshot of its own, then either replaced in one step if it is still what was read, or locked
// first. The caller holds to the lock order of core/request.
#pragma once

#include <optional>

#include "core/request.hpp"
#include "core/window.hpp"
#include "pg/index_scan.hpp"
#include "pg/memory.hpp"

namespace ratelimit::store {

// The key as parameters, made once per call.
struct CounterKey {
	CounterKey(std::string_view scope_type, std::string_view scope_key, std::string_view metric,
		std::int32_t window_seconds);

	Datum scope_type;
	Datum scope_key;
	Datum metric;
	Datum window_seconds;
};

struct CounterRow {
	core::StoredWindow window;
	core::Instant touched_at;
	pg::RowVersion version;
	bool contended; // another transaction is changing or locking the row
};

// What is written when a call is granted.
struct CounterUpdate {
	core::StoredWindow window;
	double limit;
	core::Instant at;
};

// As committed, or as changed by this transaction. Takes no lock.
[[nodiscard]] std::optional<CounterRow> read_counter(const CounterKey &key);

// Locks the row, waiting for others, and returns its newest version.
[[nodiscard]] std::optional<CounterRow> lock_counter(const CounterKey &key);

// Creates the row. False when it exists by now; waits for a transaction that is creating it.
[[nodiscard]] bool insert_counter(const CounterKey &key, const CounterUpdate &update);

// Replaces the row if it is still what was read; false when it is not. May wait for another transaction to decide that.
[[nodiscard]] bool replace_counter(const CounterRow &found, const CounterUpdate &update);

// Writes a row that this transaction has locked or inserted.
void write_counter(const CounterRow &locked, const CounterUpdate &update);

// Changes the amounts of a locked row, and neither its limit nor its window.
void settle_counter(const CounterRow &locked, const core::StoredWindow &settled, core::Instant at);

// A counter of a current window, with its texts as they are stored; as long as the session.
struct TopCounter {
	Datum scope_type;
	Datum scope_key;
	Datum metric;
	std::int32_t window_seconds;
	double limit;
	double used;
	double reserved;
	double percent_used;
};

// Those nearest to or furthest over their limit.
[[nodiscard]] pg::Vector<TopCounter> read_top_counters(std::int32_t count);

// Takes back a row that this call has inserted.
void delete_counter(const CounterRow &locked);

} // namespace ratelimit::store
