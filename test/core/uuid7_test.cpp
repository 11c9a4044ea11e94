// Identifiers and shard numbers: published vectors, the layout bit by bit, and the shard's CRC held against the one
// that goes bit by bit through the polynomial. The shard of a scope must never change: routers everywhere compute it.
#include "core/uuid7.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>

namespace ratelimit::core {
namespace {

using Random = std::array<std::uint8_t, 8>;

constexpr Random zeros{};
constexpr Random ones{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};

std::uint64_t milliseconds_of(const Uuid &id)
{
	std::uint64_t ms = 0;
	for (std::size_t i = 0; i < 6; ++i)
		ms = ms * 256 + id[i];
	return ms;
}

// CRC-16/XMODEM: polynomial x^16 + x^12 + x^5 + 1, from 0, highest bit first, nothing reflected or inverted.
std::uint16_t crc_by_bits(std::string_view bytes)
{
	unsigned crc = 0;
	for (const char byte : bytes)
		for (int bit = 7; bit >= 0; --bit) {
			const unsigned in = (static_cast<unsigned char>(byte) >> bit) & 1U;
			const unsigned out = (crc >> 15) & 1U;
			crc = ((crc << 1) & 0xFFFFU) ^ ((in ^ out) != 0 ? 0x1021U : 0U);
		}
	return static_cast<std::uint16_t>(crc);
}

TEST(Uuid7, IsTheExampleOfTheRfc)
{
	// RFC 9562, appendix A.6: 017F22E2-79B0-7CC3-98C4-DC0C0C07398F.
	const Uuid expected{0x01, 0x7F, 0x22, 0xE2, 0x79, 0xB0, 0x7C, 0xC3, 0x98, 0xC4, 0xDC, 0x0C, 0x0C, 0x07, 0x39, 0x8F};
	const Random random{0x18, 0xC4, 0xDC, 0x0C, 0x0C, 0x07, 0x39, 0x8F};
	EXPECT_EQ(make_uuid7(Instant::from_ms(1'645'557'742'000), 0xCC3, random), expected);
	EXPECT_EQ(shard_of_id(expected), 0xCC3);
}

TEST(Uuid7, VersionAndVariantStandWhateverTheRest)
{
	constexpr std::uint16_t shards[] = {0, 1, 0x0FF, 0x100, 0xF00, 0xFFF};
	for (const Random &random : {zeros, ones})
		for (const std::uint16_t shard : shards) {
			const Uuid id = make_uuid7(Instant::from_ms(0xFFFF'FFFF'FFFF), shard, random);
			EXPECT_EQ(id[6] >> 4, 7);
			EXPECT_EQ(id[8] >> 6, 2);
			EXPECT_EQ(id[8] & 0x3F, random[0] & 0x3F);
			for (std::size_t i = 1; i < random.size(); ++i)
				EXPECT_EQ(id[8 + i], random[i]);
			EXPECT_EQ(shard_of_id(id), shard);
		}
}

TEST(Uuid7, CarriesEveryShard)
{
	for (std::uint16_t shard = 0; shard < 4096; ++shard) {
		ASSERT_EQ(shard_of_id(make_uuid7(Instant::from_ms(1'700'000'000'000), shard, zeros)), shard);
		ASSERT_EQ(shard_of_id(make_uuid7(Instant::from_ms(0), shard, ones)), shard);
	}
}

TEST(Uuid7, CarriesTheMillisecondRoundedDownAndStaysInItsSixBytes)
{
	EXPECT_EQ(milliseconds_of(make_uuid7({1'645'557'742'000'999}, 0, ones)), 1'645'557'742'000);
	EXPECT_EQ(milliseconds_of(make_uuid7({1'645'557'742'001'000}, 0, ones)), 1'645'557'742'001);
	EXPECT_EQ(milliseconds_of(make_uuid7({999}, 0, ones)), 0);
	EXPECT_EQ(milliseconds_of(make_uuid7({-1}, 0, ones)), 0);
	EXPECT_EQ(milliseconds_of(make_uuid7(Instant::earliest(), 0, ones)), 0);
	EXPECT_EQ(milliseconds_of(make_uuid7(Instant::from_ms(0xFFFF'FFFF'FFFF), 0, ones)), 0xFFFF'FFFF'FFFF);
	// What lies beyond must not begin again at zero: ids would sort before all others.
	EXPECT_EQ(milliseconds_of(make_uuid7(Instant::from_ms(0x1'0000'0000'0000), 0, ones)), 0xFFFF'FFFF'FFFF);
	EXPECT_EQ(milliseconds_of(make_uuid7(Instant::latest(), 0, ones)), 0xFFFF'FFFF'FFFF);
}

TEST(Uuid7, SortsByTheMillisecondFirst)
{
	constexpr std::uint64_t seed = 9562;
	SCOPED_TRACE(testing::Message() << "seed " << seed);
	std::mt19937_64 random{seed};
	for (int round = 0; round < 20'000; ++round) {
		const auto ms = static_cast<std::int64_t>(random() >> (17 + random() % 40));
		const auto later_ms = ms + 1 + static_cast<std::int64_t>(random() % 1000);
		ASSERT_LT(make_uuid7(Instant::from_ms(ms), 0xFFF, ones), make_uuid7(Instant::from_ms(later_ms), 0, zeros))
			<< ms;
	}
}

TEST(Uuid7, OtherUuidsHaveNoShard)
{
	const Uuid id = make_uuid7(Instant::from_ms(1'645'557'742'000), 0xABC, ones);
	for (unsigned version = 0; version < 16; ++version)
		for (unsigned variant = 0; variant < 4; ++variant) {
			Uuid other = id;
			other[6] = static_cast<std::uint8_t>((version << 4) | (id[6] & 0x0FU));
			other[8] = static_cast<std::uint8_t>((variant << 6) | (id[8] & 0x3FU));
			EXPECT_EQ(shard_of_id(other).has_value(), version == 7 && variant == 2) << version << ", " << variant;
		}
	EXPECT_FALSE(shard_of_id(Uuid{}).has_value());
}

TEST(Shard, IsTheCrcOfThePublishedVectors)
{
	EXPECT_EQ(crc_by_bits("123456789"), 0x31C3);
	EXPECT_EQ(shard_of_scope("any", "{123456789}"), 0x31C3 % 4096);
	// The slots of Redis Cluster are the same CRC modulo 16384: 12182, 11058 and 2515 in its documentation.
	EXPECT_EQ(shard_of_scope("any", "{foo}"), 12'182 % 4096);
	EXPECT_EQ(shard_of_scope("any", "{somekey}"), 11'058 % 4096);
	EXPECT_EQ(shard_of_scope("any", "foo{hash_tag}"), 2515);
}

TEST(Shard, HashesTheTagWhenThereIsOneAndTypeAndKeyOtherwise)
{
	const struct {
		std::string_view scope_key;
		std::optional<std::string_view> tag;
	} cases[] = {
		{"", std::nullopt},
		{"plain", std::nullopt},
		{"{user1000}.following", "user1000"},
		{"a{b}c", "b"},
		{"{a}{b}", "a"},
		{"{a}}", "a"},
		{"{{a}}", "{a"},
		{"x{ }y", " "},
		{"}{a}", "a"},
		{"}a{b}", "b"},
		{"{}", std::nullopt},
		{"{}{a}", std::nullopt},
		{"x{}y{a}", std::nullopt},
		{"}{", std::nullopt},
		{"{", std::nullopt},
		{"}", std::nullopt},
		{"{open", std::nullopt},
		{"close}", std::nullopt},
		{"a}b{c", std::nullopt},
		{"{\xC3\xA4}", "\xC3\xA4"},
		{"\xF0\x9F\x90\x98", std::nullopt},
	};
	for (const auto &row : cases)
		for (const std::string_view scope_type : {"", "api_key", "t\xC3\xBC"}) {
			std::string hashed(scope_type);
			hashed.push_back('\0');
			hashed += row.scope_key;
			if (row.tag)
				hashed = *row.tag;
			EXPECT_EQ(shard_of_scope(scope_type, row.scope_key), crc_by_bits(hashed) % 4096)
				<< scope_type << ", " << row.scope_key;
		}
}

TEST(Shard, ATagInTheTypeIsNone)
{
	EXPECT_NE(shard_of_scope("{a}", "k"), shard_of_scope("{a}", "l"));
	EXPECT_EQ(shard_of_scope("{a}", "{k}x"), shard_of_scope("{b}", "{k}y"));
}

TEST(Shard, TypeAndKeyDoNotRunIntoEachOther)
{
	EXPECT_NE(shard_of_scope("ab", "c"), shard_of_scope("a", "bc"));
	EXPECT_NE(shard_of_scope("abc", ""), shard_of_scope("", "abc"));
}

TEST(Shard, AgreesWithTheBitwiseCrcForRandomKeys)
{
	constexpr std::uint64_t seed = 0x1021;
	SCOPED_TRACE(testing::Message() << "seed " << seed);
	std::mt19937_64 random{seed};
	for (int round = 0; round < 5000; ++round) {
		std::string key(random() % 40, '\0');
		for (char &byte : key)
			byte = random() % 4 == 0 ? "{}"[random() % 2] : static_cast<char>(random() % 256);
		std::string hashed = std::string("t") + '\0' + key;
		const std::size_t open = key.find('{');
		if (open != std::string::npos) {
			const std::string after = key.substr(open + 1);
			const std::size_t length = after.find('}');
			if (length != std::string::npos && length > 0)
				hashed = after.substr(0, length);
		}
		ASSERT_EQ(shard_of_scope("t", key), crc_by_bits(hashed) % 4096) << testing::PrintToString(key);
	}
}

} // namespace
} // namespace ratelimit::core
