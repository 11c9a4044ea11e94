// New identifiers.
#pragma once

#include <string_view>

#include "core/uuid7.hpp"

namespace ratelimit::api {

// An id that carries the shard of its scope, made by the real clock.
[[nodiscard]] core::Uuid new_id(std::string_view scope_type, std::string_view scope_key);

} // namespace ratelimit::api
