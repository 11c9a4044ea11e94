// Sleeping on the process latch, and whether the client is still there.
//
// The order in a loop is: client_is_there(), which resets the latch, then look, then sleep. A latch that is set in between
// stays set, so the sleep ends at once and nothing is missed. A latch may be set for no reason of ours at all: that costs a
// look.
#pragma once

#include <cstdint>

#include "pg/postgres.hpp"

namespace ratelimit::pg {

// Resets the latch. False when the client has closed its connection; true without a client.
[[nodiscard]] bool client_is_there();

// Sleeps until the latch is set, the client has closed its connection, or the time is over. Ends the process when the
// postmaster is gone. Handles no interrupts: the caller does.
void sleep_on_latch(std::int64_t timeout_ms);

// Ends a session whose client is gone, as the server does by itself when it notices.
void end_without_client();

} // namespace ratelimit::pg
