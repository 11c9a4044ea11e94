// Identifiers that the extension makes.
#pragma once

#include <string_view>

#include "core/uuid7.hpp"

namespace ratelimit::api {

// A new id, by the real clock, that carries the shard of the scope.
[[nodiscard]] core::Uuid new_id(std::string_view scope_type, std::string_view scope_key);

} // namespace ratelimit::api
