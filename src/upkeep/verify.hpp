// Whether every aggregate agrees with the rows under it, and making it so.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/verify.hpp"
#include "pg/memory.hpp"
#include "store/verify_store.hpp"

namespace ratelimit::upkeep {

struct Inconsistency {
	std::string_view object;
	Datum key; // text: of a task its id, else a JSON array
	std::string_view problem;
	double expected;
	std::optional<double> found;
};

// All of them, as of one snapshot. Writes nothing. Within a session of SPI; views live until it ends.
[[nodiscard]] pg::Vector<Inconsistency> verify();

// Repairs aggregates, at most `count`, going on where the last call stopped: looks at `count` of them; and, when there was
// nothing to repair there, goes on until it finds something or has gone round once (`until_found`); or looks at all of them
// (`everything`). Leaves alone what somebody else holds. Returns how many were repaired.
enum class Round { one_slice, until_found, everything };
[[nodiscard]] std::int64_t repair(std::int64_t count, Round round);

// Repairs tasks whose places, attempts or leases are not those of their state, at most `count`.
[[nodiscard]] std::int64_t repair_tasks(std::int64_t count);

} // namespace ratelimit::upkeep
