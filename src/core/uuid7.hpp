// Identifiers: UUID version 7 (RFC 9562, section 5.7) whose 12 bits of rand_a carry the shard number of their scope, and
// the shard number itself.
#pragma once

#include "core/units.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit::core {

using Uuid = std::array<std::uint8_t, 16>;

// The time in milliseconds, the shard and 62 random bits (taken from the 8 bytes given).
[[nodiscard]] Uuid make_uuid7(Instant at, std::uint16_t shard, const std::array<std::uint8_t, 8> &random) noexcept;

// The shard that an id carries; absent for a UUID that is not version 7 of the RFC's variant.
[[nodiscard]] std::optional<std::uint16_t> shard_of_id(const Uuid &id) noexcept;

// 0 … 4095: CRC-16/XMODEM of the shard key modulo 4096. The shard key is what stands in `scope_key` between the first `{`
// and the next `}` when that is not empty, as Redis Cluster has it, else scope_type, a NUL byte, scope_key. Both in UTF-8.
[[nodiscard]] std::uint16_t shard_of_scope(std::string_view scope_type, std::string_view scope_key) noexcept;

} // namespace ratelimit::core
