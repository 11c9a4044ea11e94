// Aggregates beside the rows under them: those that differ, found by going through whole tables.
//
// The statements leave out what is equal to the last bit, so what comes back is few; whether it differs by more than
// rounding is the core's decision. All of one look is read under one snapshot, so it works on a standby as well.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/verify.hpp"
#include "pg/memory.hpp"
#include "pg/spi.hpp"
#include "store/lease_store.hpp"
#include "store/window_store.hpp"

namespace ratelimit::store {

// The key of an aggregate. Scopes have no metric and no window. Views live until the session ends.
struct AggregateKey {
	std::string_view scope_type;
	std::string_view scope_key;
	std::string_view metric;
	std::int32_t window_seconds = 0;
};

[[nodiscard]] bool operator<(const AggregateKey &a, const AggregateKey &b) noexcept;
[[nodiscard]] bool operator==(const AggregateKey &a, const AggregateKey &b) noexcept;

// Keys after the first, which no key is before, and up to and with the last; without one, to the end.
struct KeyRange {
	AggregateKey after;
	std::optional<AggregateKey> until;
};

enum class Aggregates { counters, scopes };

// The key of the `count`-th aggregate after `after`; absent when there are fewer.
[[nodiscard]] std::optional<AggregateKey> key_after(
	Aggregates aggregates, const pg::ReadSnapshot &snapshot, const AggregateKey &after, std::int64_t count);

struct CounterDifference {
	AggregateKey key;
	core::CounterFacts facts;
};
[[nodiscard]] pg::Vector<CounterDifference> read_counter_differences(const pg::ReadSnapshot &snapshot, const KeyRange &range);

struct UncountedReservations {
	AggregateKey key;
	core::UncountedFacts facts;
	double limit = 0;
};
[[nodiscard]] pg::Vector<UncountedReservations> read_uncounted(const pg::ReadSnapshot &snapshot, const KeyRange &range);

struct ScopeDifference {
	AggregateKey key;
	bool exists = false;
	core::ScopeFacts facts;
};
[[nodiscard]] pg::Vector<ScopeDifference> read_scope_differences(const pg::ReadSnapshot &snapshot, const KeyRange &range);

// A task whose places, attempts or leases are not those of its state.
struct TaskDifference {
	std::string_view task_id;
	core::Finding finding;
};
[[nodiscard]] pg::Vector<TaskDifference> read_task_differences(const pg::ReadSnapshot &snapshot);

// A key as text: a JSON array, since no character of a name has a special meaning.
[[nodiscard]] Datum key_text(Aggregates aggregates, const AggregateKey &key);

// --- where repairing goes on ---------------------------------------------------------------------------------------

struct RepairPosition {
	Aggregates aggregates = Aggregates::counters;
	AggregateKey after;
};

[[nodiscard]] RepairPosition read_repair_position();
// Unless somebody else is moving it.
void write_repair_position(const RepairPosition &position);

} // namespace ratelimit::store
