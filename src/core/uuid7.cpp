#include "core/uuid7.hpp"

#include "core/limits.hpp"

#include <boost/crc.hpp>

namespace ratelimit::core {

namespace {

// What fits the six bytes of the time.
constexpr std::int64_t timestamp_ms_max = 0xFFFF'FFFF'FFFF;

} // namespace

Uuid make_uuid7(Instant at, std::uint16_t shard, const std::array<std::uint8_t, 8> &random) noexcept
{
	const auto ms = static_cast<std::uint64_t>(std::clamp<std::int64_t>(at.floor_ms(), 0, timestamp_ms_max));
	Uuid id{};
	for (int i = 0; i < 6; i++)
		id[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(ms >> (40 - 8 * i));
	id[6] = static_cast<std::uint8_t>(0x70 | ((shard >> 8) & 0x0F));
	id[7] = static_cast<std::uint8_t>(shard & 0xFF);
	for (std::size_t i = 0; i < random.size(); i++)
		id[8 + i] = random[i];
	id[8] = static_cast<std::uint8_t>((id[8] & 0x3F) | 0x80);
	return id;
}

std::optional<std::uint16_t> shard_of_id(const Uuid &id) noexcept
{
	if ((id[6] >> 4) != 7 || (id[8] >> 6) != 2)
		return std::nullopt;
	return static_cast<std::uint16_t>(((id[6] & 0x0F) << 8) | id[7]);
}

std::uint16_t shard_of_scope(std::string_view scope_type, std::string_view scope_key) noexcept
{
	boost::crc_xmodem_t crc;
	const std::size_t open = scope_key.find('{');
	const std::size_t close = open == std::string_view::npos ? open : scope_key.find('}', open + 1);
	if (close != std::string_view::npos && close > open + 1) {
		crc.process_bytes(scope_key.data() + open + 1, close - open - 1);
	} else {
		crc.process_bytes(scope_type.data(), scope_type.size());
		crc.process_byte(0);
		crc.process_bytes(scope_key.data(), scope_key.size());
	}
	return static_cast<std::uint16_t>(crc.checksum() % limits::shard_count);
}

} // namespace ratelimit::core
