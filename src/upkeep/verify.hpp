// Whether every aggregate agrees with the rows under it, and making it so.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/verify.hpp"
#include "pg/memory.hpp"
#include "store/verify_store.hpp"

namespace ratelimit::upkeep {

struct Inconsistency {
	store::Aggregates aggregates;
	store::AggregateKey key;
	core::Finding finding;
};

// All of them, as of one snapshot. Writes nothing. Within a session of SPI; views live until it ends.
[[nodiscard]] pg::Vector<Inconsistency> verify();

// Repairs aggregates, at most `count`, going on where the last call stopped. Looks at `count` of them, and when there was
// nothing to repair, goes on until it finds something or has gone round once (`go_round`), or stops (without). Leaves alone
// what somebody else holds. Returns how many were repaired.
enum class Round { until_found, everything };
[[nodiscard]] std::int64_t repair(std::int64_t count, Round round);

} // namespace ratelimit::upkeep
