// Telling waiting tasks that their turn may have come: NOTIFY for clients that listen, the latch for a session that sleeps.
//
// Both are hints. Nothing is told before this transaction commits, and nothing of what a savepoint took back; who is told
// looks for itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "pg/postgres.hpp"

namespace ratelimit::pg {

// Whom to tell: a task, and the process that sleeps for it, if any. A process number comes again: the start tells which.
struct Sleeper {
	std::string_view task_id;
	std::optional<std::int32_t> pid;
	std::optional<std::int64_t> started_at_us;
};

// NOTIFY ratelimit_admission with the task's id, and the latch of the process that sleeps.
void notify_admission(const Sleeper &sleeper);

// Sets the latch of a server process once this transaction has committed. A process that is gone is passed over; one that
// has got its number since is woken for nothing, which every process of the server has to take.
void wake_at_commit(std::int32_t pid);

} // namespace ratelimit::pg
