// What is cached of the catalogs: the owner of the extension's schema. Marked stale by an invalidation callback, so DROP
// and CREATE EXTENSION in one session are seen.
#pragma once

#include "pg/postgres.hpp"

namespace ratelimit::pg::catalog {

inline constexpr const char *schema_name = "ratelimit";

void register_callbacks();

// The role that owns schema `ratelimit`, in whose name the extension's own statements run.
[[nodiscard]] Oid owner();

} // namespace ratelimit::pg::catalog
