// What the extension consists of, as the catalog knows it.
#pragma once

#include <string>
#include <string_view>

#include "pg/memory.hpp"
#include "pg/postgres.hpp"

namespace ratelimit::store {

struct Routine {
	Oid oid;
	std::string_view name; // as long as the session
};

// Its functions and procedures, and its views as qualified and quoted names. A session is connected.
[[nodiscard]] pg::Vector<Routine> read_routines();
[[nodiscard]] pg::Vector<std::string_view> read_views();

} // namespace ratelimit::store
