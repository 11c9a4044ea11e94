// What was read out of recent arguments, per session, found by the bytes of the argument. Bounded: a fixed number of
// places, each for short arguments only; a new entry takes the place of an older one.
//
// An entry is one block of plain bytes without pointers, so that it can be copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "pg/postgres.hpp"

namespace ratelimit::pg {

// For namespace scope: constant-initialised and trivially destructible.
class ParseCache {
public:
	static constexpr std::size_t places = 128;
	static constexpr std::size_t argument_bytes_max = 4096;

	explicit constexpr ParseCache(const char *name) noexcept : name_(name) {}

	// A copy of the block in the memory of the call, or null.
	[[nodiscard]] const char *find(std::string_view argument) const;
	void keep(std::string_view argument, std::string_view block);

private:
	// The argument, and the block behind it at the next multiple of eight bytes.
	struct Place {
		std::uint32_t hash = 0;
		std::uint32_t argument_size = 0;
		std::uint32_t block_size = 0;
		char *bytes = nullptr;
	};

	const char *name_;
	MemoryContext context_ = nullptr;
	Place places_[places] = {};
};

} // namespace ratelimit::pg
