#include "store/worker_store.hpp"

namespace ratelimit::store {

// Without workers that report there is no capacity.
double live_worker_capacity(core::Instant) { return 0; }

} // namespace ratelimit::store
