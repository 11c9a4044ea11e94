// Application workers.
#pragma once

#include "core/units.hpp"

namespace ratelimit::store {

// The summed capacity of the workers that are live at `now`.
[[nodiscard]] double live_worker_capacity(core::Instant now);

} // namespace ratelimit::store
