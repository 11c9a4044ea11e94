#include "store/scope_places.hpp"

#include <cstddef>
#include <cstdint>

namespace ratelimit::store {

namespace {

struct ScopePlace {
	std::uint32_t hash;
	bool known;
	ItemPointerData place;
};

// The last ones, by the hash of their keys.
constexpr std::size_t places_count = 64;
ScopePlace places[places_count] = {};

} // namespace

void remember_place(const ScopeKey &key, const ItemPointerData &place) noexcept
{
	places[key.hash % places_count] = {key.hash, true, place};
}

const ItemPointerData *remembered_place(const ScopeKey &key) noexcept
{
	const ScopePlace &place = places[key.hash % places_count];
	return place.known && place.hash == key.hash ? &place.place : nullptr;
}

} // namespace ratelimit::store
