// What is done in a database from time to time, by the background worker or by rl_reap() and rl_recover().
#pragma once

#include <cstdint>

namespace ratelimit::upkeep {

enum class Chore { reap, recover };

struct Progress {
	std::int64_t rows = 0; // changed or deleted
	bool more = false;     // there is more of it to do right away
};

// One bounded step of a chore, within the transaction of the caller. Waits for no row that somebody else holds.
[[nodiscard]] Progress round(Chore chore);

} // namespace ratelimit::upkeep
