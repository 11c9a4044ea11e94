// The candidates of rl_route: the jsonb argument and what is wrong with it.
#pragma once

#include <string_view>

#include "api/arguments.hpp"
#include "pg/memory.hpp"
#include "pg/postgres.hpp"

namespace ratelimit::api {

// One candidate of rl_route, with those of its limits that count for the choice.
struct Candidate {
	std::string_view name;
	Elements limits;
};
using Candidates = pg::Vector<Candidate>;

// The candidates of rl_route as jsonb, in the order given. Names are distinct.
[[nodiscard]] Candidates candidates_argument(FunctionCallInfo fcinfo, int index);

} // namespace ratelimit::api
