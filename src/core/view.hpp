// A pointer and a length: how the core receives arrays whose memory belongs to the caller.
#pragma once

#include <cstddef>

namespace ratelimit::core {

template <typename T>
struct View {
	T *data = nullptr;
	std::size_t size = 0;

	[[nodiscard]] constexpr T *begin() const noexcept { return data; }
	[[nodiscard]] constexpr T *end() const noexcept { return data + size; }
	[[nodiscard]] constexpr T &operator[](std::size_t index) const noexcept { return data[index]; }
	[[nodiscard]] constexpr bool empty() const noexcept { return size == 0; }
};

} // namespace ratelimit::core
