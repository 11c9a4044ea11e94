// Tasks whose time is over: past their deadline, with a waiter that is gone, or admitted and never started.
#pragma once

#include <cstdint>

namespace ratelimit::upkeep {

// Each at most `batch`, the longest overdue first; whatever somebody else holds is left for the next call.
[[nodiscard]] std::int64_t reap_deadlines(std::int64_t batch);
[[nodiscard]] std::int64_t reap_waiters(std::int64_t batch);

} // namespace ratelimit::upkeep
