// The application's workers: who has sent a heartbeat, and how much they can take on together.
//
// A worker is live while its last heartbeat is younger than `ratelimit.worker_stale_after` and it was not stopped. Nothing
// but the row of one worker is ever locked here, so this may be called while holding any other lock.
#pragma once

#include <cstdint>
#include <optional>

#include "core/units.hpp"
#include "pg/postgres.hpp"

namespace ratelimit::store {

struct WorkerRow {
	core::Instant heartbeat_at;
	bool stopped;
};

// Locks the worker's row, waiting for others.
[[nodiscard]] std::optional<WorkerRow> lock_worker(Datum worker_id);
// A new worker; false when it exists by now.
[[nodiscard]] bool insert_worker(Datum worker_id, core::Instant at, std::optional<std::int32_t> capacity);
// A heartbeat of a locked worker, which revives it; never moves its last one back. Returns the heartbeat that is stored.
[[nodiscard]] core::Instant beat_worker(Datum worker_id, core::Instant at, std::optional<std::int32_t> capacity);
void stop_worker(Datum worker_id);

// When a worker becomes stale, and whether it is live.
[[nodiscard]] core::Instant stale_at(core::Instant heartbeat_at) noexcept;
[[nodiscard]] bool worker_is_live(const WorkerRow &worker, core::Instant now) noexcept;

// The live workers as of `now`, committed or of this transaction: how many there are, and the sum of their capacities.
struct WorkerCapacity {
	std::int64_t workers = 0;
	double capacity = 0;
};
[[nodiscard]] WorkerCapacity live_workers(core::Instant now);
[[nodiscard]] double live_worker_capacity(core::Instant now);

} // namespace ratelimit::store
