// The scopes that a task asks for: the jsonb argument of the admission queue's functions, and the same as stored.
#pragma once

#include <string_view>

#include "core/queue.hpp"
#include "pg/memory.hpp"
#include "pg/postgres.hpp"

namespace ratelimit::api {

struct TaskScope {
	std::string_view scope_type;
	std::string_view scope_key;
	core::Demand demand;
};

// In the order given, each scope once.
using ScopeList = pg::Vector<TaskScope>;

struct TaskScopes {
	ScopeList list;
	Datum json = Datum(0); // the same, as it is stored
};

[[nodiscard]] TaskScopes scopes_argument(FunctionCallInfo fcinfo, int index);
[[nodiscard]] TaskScopes stored_scopes(Datum jsonb);

[[nodiscard]] pg::SmallVector<core::Demand, 4> demands_of(const ScopeList &list);

// Whether nothing was asked for: such a task is never an obstacle's victim, and holds nothing.
[[nodiscard]] bool is_unscoped(const ScopeList &list) noexcept;

// Whether both name the same scopes, in whatever order.
[[nodiscard]] bool same_scopes(const ScopeList &a, const ScopeList &b);

} // namespace ratelimit::api
