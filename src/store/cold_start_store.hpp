// What a cold start does to whole tables. No client is running then; if one is after all, it waits, since the tables are
// locked against writers until the transaction ends.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/units.hpp"

namespace ratelimit::store {

void lock_tables();
// Each returns how many there were. The sums of the scopes and counters become 0.
[[nodiscard]] std::int64_t release_all_leases(core::Instant now);
[[nodiscard]] std::int64_t release_all_reservations(std::string_view reason, core::Instant now);

} // namespace ratelimit::store
