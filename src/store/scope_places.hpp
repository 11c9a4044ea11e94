// Where this session has last written the rows of scopes.
//
// A transaction that writes one row many times leaves as many versions behind, to which the index leads one after the other;
// the place leads to the newest at once. Only a hint: who follows it looks what stands there.
#pragma once

#include "pg/postgres.hpp"
#include "store/lease_store.hpp"

namespace ratelimit::store {

void remember_place(const ScopeKey &key, const ItemPointerData &place) noexcept;
// Null when it is not known.
[[nodiscard]] const ItemPointerData *remembered_place(const ScopeKey &key) noexcept;

} // namespace ratelimit::store
