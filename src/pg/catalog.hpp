// What is cached of the catalogs: the owner of the extension's schema, and the table of the buckets. Marked stale by
// invalidation callbacks, so DROP and CREATE EXTENSION in one session are seen.
#pragma once

#include "pg/postgres.hpp"

namespace ratelimit::pg::catalog {

inline constexpr const char *schema_name = "ratelimit";

void register_callbacks();

// The role that owns schema `ratelimit`, in whose name the extension's own statements run.
[[nodiscard]] Oid owner();

// The table `ratelimit.buckets`.
[[nodiscard]] Oid buckets_table();

} // namespace ratelimit::pg::catalog
