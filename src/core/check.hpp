// The core's assertion: states what must hold between caller and callee.
//
// A violated check is a bug of ours, never of a user, so it throws: the guard at the boundary turns it into
// SQLSTATE XX000 with the text of the condition, and nothing has been written by then. Inside noexcept functions it
// ends the process, which the unit tests see at once.
#pragma once

#include <stdexcept>

namespace ratelimit::core {

struct CheckFailed : std::logic_error {
	using std::logic_error::logic_error;
};

} // namespace ratelimit::core

#define RATELIMIT_CHECK(condition)                                                                                     \
	do {                                                                                                               \
		if (!(condition))                                                                                              \
			throw ::ratelimit::core::CheckFailed("check failed: " #condition);                                         \
	} while (false)
