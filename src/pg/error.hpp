// The three shapes of an error on our side of the boundary.
//
// ServerError   an ERROR of the server that arrived as an exception. It must travel on: after it the (sub)transaction has
//               to be aborted. Only the inward guard, a subtransaction wrapper and a worker's round may catch it, so it
//               stands outside std::exception.
// SqlError      an error of ours with SQLSTATE, message, detail and hint.
// PendingError  plain data that outlives all C++ frames; the inward guard raises it.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "pg/postgres.hpp"

namespace ratelimit::pg {

struct ServerError {
	ErrorData *data; // in the memory context of the inward guard; null when copying it ran out of memory
};

struct SqlError {
	int sqlstate;
	std::string message;
	std::string detail;
	std::string hint;
};

enum class PendingKind { none, server, ours };

struct PendingError {
	PendingKind kind;
	ErrorData *data;
	int sqlstate;
	char message[512];
	char detail[1024];
	char *long_detail; // instead, when it is longer; lives as long as the call
	char hint[512];
};
static_assert(std::is_trivially_destructible_v<PendingError> && std::is_standard_layout_v<PendingError>);

} // namespace ratelimit::pg
