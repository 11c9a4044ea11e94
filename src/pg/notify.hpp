// Telling waiting tasks that their turn may have come. A hint, sent when the transaction commits.
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

// NOTIFY ratelimit_admission with the task's id.
void notify_admission(const Sleeper &sleeper);

} // namespace ratelimit::pg
