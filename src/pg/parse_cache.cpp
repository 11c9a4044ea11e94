#include "pg/parse_cache.hpp"

#include <cstring>

#include "pg/call.hpp"
#include "pg/memory.hpp"

namespace ratelimit::pg {

namespace {

std::uint32_t hash_of(std::string_view argument) noexcept
{
	return hash_bytes(reinterpret_cast<const unsigned char *>(argument.data()), static_cast<int>(argument.size()));
}

} // namespace

const char *ParseCache::find(std::string_view argument) const
{
	if (argument.size() > argument_bytes_max)
		return nullptr;
	const std::uint32_t hash = hash_of(argument);
	const Place &place = places_[hash % places];
	if (place.bytes == nullptr || place.hash != hash || place.argument_size != argument.size() ||
		std::memcmp(place.bytes, argument.data(), argument.size()) != 0)
		return nullptr;
	char *const copy = ContextAllocator<char>().allocate(place.block_size);
	std::memcpy(copy, place.bytes + MAXALIGN(place.argument_size), place.block_size);
	return copy;
}

void ParseCache::keep(std::string_view argument, std::string_view block)
{
	if (argument.size() > argument_bytes_max)
		return;
	if (context_ == nullptr)
		context_ = call([this] { return AllocSetContextCreateInternal(TopMemoryContext, name_, ALLOCSET_DEFAULT_SIZES); });
	const std::size_t block_at = MAXALIGN(argument.size());
	char *const bytes = ContextAllocator<char>(context_).allocate(block_at + block.size());
	std::memcpy(bytes, argument.data(), argument.size());
	std::memcpy(bytes + block_at, block.data(), block.size());

	const std::uint32_t hash = hash_of(argument);
	Place &place = places_[hash % places];
	if (place.bytes != nullptr)
		pfree(place.bytes);
	place = {hash, static_cast<std::uint32_t>(argument.size()), static_cast<std::uint32_t>(block.size()), bytes};
}

} // namespace ratelimit::pg
