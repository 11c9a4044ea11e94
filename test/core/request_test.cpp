// What the limits of one call turn out to be, and the keys to look at in lock order: the decision table by hand, then
// random requests held against the plain model.
#include "core/request.hpp"
#include "limits_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace ratelimit::core {
namespace {

using model::Ask;
using model::Asks;

constexpr double double_max = std::numeric_limits<double>::max();

// A request with its merged keys. The asks must outlive it.
struct Merged {
	explicit Merged(const Asks &asks) : elements(asks.size()), keys(asks.size())
	{
		for (std::size_t i = 0; i < asks.size(); ++i) {
			elements[i].scope_type = asks[i].scope_type;
			elements[i].scope_key = asks[i].scope_key;
			elements[i].metric = asks[i].metric;
			elements[i].limit = asks[i].limit;
			elements[i].amount = asks[i].amount;
			elements[i].window_seconds = asks[i].window_seconds;
			elements[i].lease_ttl_seconds = asks[i].lease_ttl_seconds;
		}
		keys.resize(merge_keys({elements.data(), elements.size()}, keys.data()));
	}

	std::vector<Element> elements;
	std::vector<Key> keys;
};

Ask ask(const char *metric, std::optional<double> limit, double amount)
{
	return {"user", "7", metric, limit, amount, 60, 120};
}

TEST(Request, TheFirstRowOfTheDecisionTableThatAppliesDecides)
{
	constexpr auto none = std::nullopt;
	using Kind = ElementKind;
	const struct {
		const char *metric;
		std::optional<double> limit;
		double amount;
		Kind kind;
	} cases[] = {
		{"rpm", none, 0, Kind::unlimited},
		{"rpm", none, 2, Kind::unlimited},
		{"rpm", 0, 0, Kind::nothing},
		{"rpm", 0, 2, Kind::blocked},
		{"rpm", 1, 0, Kind::nothing},
		{"rpm", 1, 2, Kind::oversized},
		{"rpm", 2, 0, Kind::nothing},
		{"rpm", 2, 2, Kind::window},
		{"queue_size", none, 0, Kind::unlimited},
		{"queue_size", none, 2, Kind::unlimited},
		{"queue_size", 0, 0, Kind::queue_size},
		{"queue_size", 0, 2, Kind::queue_size},
		{"queue_size", 1, 0, Kind::queue_size},
		{"queue_size", 1, 2, Kind::queue_size},
		{"queue_size", 2, 0, Kind::queue_size},
		{"queue_size", 2, 2, Kind::queue_size},
		{"concurrent", none, 0, Kind::unlimited},
		{"concurrent", none, 2, Kind::unlimited},
		{"concurrent", 0, 0, Kind::nothing},
		{"concurrent", 0, 2, Kind::blocked},
		{"concurrent", 1, 0, Kind::nothing},
		{"concurrent", 1, 2, Kind::oversized},
		{"concurrent", 2, 0, Kind::nothing},
		{"concurrent", 2, 2, Kind::lease},
		// Names are compared as given.
		{"Concurrent", 2, 2, Kind::window},
		{"concurrent ", 2, 2, Kind::window},
		{"QUEUE_SIZE", 2, 2, Kind::window},
		// Zero has two signs, and both are zero.
		{"rpm", -0.0, 2, Kind::blocked},
		{"rpm", 2, -0.0, Kind::nothing},
		// The sum of one is tolerated like every other.
		{"rpm", 1e9, 1e9 + 1, Kind::window},
		{"rpm", 1e9, 1e9 + 1.5, Kind::oversized},
		{"rpm", double_max, double_max, Kind::window},
		{"rpm", 5e-324, 1e-323, Kind::oversized},
	};
	for (const auto &row : cases) {
		const Asks asks{ask(row.metric, row.limit, row.amount)};
		const Merged merged(asks);
		SCOPED_TRACE(testing::Message() << row.metric << ", " << row.amount << " of " << row.limit.value_or(-1));
		EXPECT_EQ(merged.elements[0].kind, row.kind);
		EXPECT_EQ(model::case_of(asks, asks[0]), row.kind);
		const bool looks = row.kind == Kind::window || row.kind == Kind::lease;
		EXPECT_EQ(merged.keys.size(), looks ? 1U : 0U);
		EXPECT_EQ(merged.elements[0].key, looks ? 0U : no_key);
	}
}

TEST(Request, WhatIsDecidedWithoutLookingIsDeniedForGoodOrNoObstacle)
{
	EXPECT_TRUE(verdict_without_looking(ElementKind::unlimited).passes());
	EXPECT_TRUE(verdict_without_looking(ElementKind::queue_size).passes());
	EXPECT_TRUE(verdict_without_looking(ElementKind::nothing).passes());
	const Verdict blocked = verdict_without_looking(ElementKind::blocked);
	EXPECT_EQ(blocked.reason, Reason::limit_is_zero);
	EXPECT_FALSE(blocked.retryable());
	const Verdict oversized = verdict_without_looking(ElementKind::oversized);
	EXPECT_EQ(oversized.reason, Reason::amount_exceeds_limit);
	EXPECT_FALSE(oversized.retryable());
}

TEST(Request, ARepeatedKeyAddsUpAndEachElementComparesTheSumWithItsOwnLimit)
{
	const Asks asks{
		ask("rpm", 10, 3), ask("rpm", 5, 3), ask("rpm", 6, 0), ask("rpm", 6, 0.5), ask("rpm", std::nullopt, 9)};
	const Merged merged(asks);
	ASSERT_EQ(merged.keys.size(), 1U);
	EXPECT_EQ(merged.keys[0].amount, 6.5);
	EXPECT_EQ(merged.keys[0].element, 0U);
	EXPECT_EQ(merged.elements[0].kind, ElementKind::window);
	EXPECT_EQ(merged.elements[1].kind, ElementKind::oversized);
	EXPECT_EQ(merged.elements[1].key, no_key);
	EXPECT_EQ(merged.elements[2].kind, ElementKind::nothing);
	EXPECT_EQ(merged.elements[3].kind, ElementKind::oversized);
	EXPECT_EQ(merged.elements[4].kind, ElementKind::unlimited);
}

TEST(Request, ARepeatedKeyKeepsItsSmallestLimit)
{
	const Merged merged({ask("rpm", 10, 1), ask("rpm", 4, 1), ask("rpm", 7, 1)});
	ASSERT_EQ(merged.keys.size(), 1U);
	EXPECT_EQ(merged.keys[0].limit, 4);
	EXPECT_EQ(merged.keys[0].amount, 3);
	for (const Element &element : merged.elements)
		EXPECT_EQ(element.key, 0U);
}

TEST(Request, AKeyWhoseSumFitsNoLimitIsNotLookedAt)
{
	const Merged merged({ask("rpm", 5, 3), ask("rpm", 5.5, 3)});
	EXPECT_TRUE(merged.keys.empty());
	for (const Element &element : merged.elements)
		EXPECT_EQ(element.kind, ElementKind::oversized);
}

TEST(Request, ASumBeyondAllNumbersFitsNoLimit)
{
	const Merged merged({ask("rpm", double_max, double_max), ask("rpm", double_max, double_max)});
	EXPECT_TRUE(merged.keys.empty());
	for (const Element &element : merged.elements)
		EXPECT_EQ(element.kind, ElementKind::oversized);
	const Merged halves({ask("rpm", double_max, double_max / 2), ask("rpm", double_max, double_max / 2)});
	ASSERT_EQ(halves.keys.size(), 1U);
	EXPECT_EQ(halves.keys[0].amount, double_max);
}

TEST(Request, CountersDifferByWindowAndLeasesDoNot)
{
	Asks asks{ask("rpm", 9, 1), ask("rpm", 9, 1), ask("concurrent", 9, 1), ask("concurrent", 9, 1)};
	asks[1].window_seconds = 3600;
	asks[3].window_seconds = 3600;
	const Merged merged(asks);
	ASSERT_EQ(merged.keys.size(), 3U);
	EXPECT_FALSE(merged.keys[0].is_lease);
	EXPECT_EQ(merged.keys[0].window_seconds, 60);
	EXPECT_EQ(merged.keys[1].window_seconds, 3600);
	EXPECT_TRUE(merged.keys[2].is_lease);
	EXPECT_EQ(merged.keys[2].amount, 2);
	EXPECT_EQ(merged.keys[2].metric, "");
	EXPECT_EQ(merged.keys[2].window_seconds, 0);
}

TEST(Request, LocksInTheOrderOfTheBytesCountersBeforeScopes)
{
	using namespace std::string_view_literals;
	// Written in the order in which they must be locked.
	const struct {
		std::string_view scope_type, scope_key, metric;
		std::int32_t window_seconds;
		bool is_lease;
	} ordered[] = {
		{"A", "z", "m", 60, false},
		{"a", "", "m", 60, false},
		{"a", "\0"sv, "m", 60, false},
		{"a", "1", "l", 3600, false},
		{"a", "1", "m", 9, false},
		{"a", "1", "m", 60, false},
		{"a", "1", "m", 3600, false},
		{"a", "1", "m ", 1, false},
		{"a", "1", "m\x7F", 1, false},
		{"a", "1", "m\x80", 1, false},
		{"a", "1", "m\xC3\xA4", 1, false},
		{"a", "1", "m\xFF", 1, false},
		{"a", "10", "a", 1, false},
		{"a", "9", "a", 1, false},
		{"a", "~", "a", 1, false},
		{"a", "\xC3\xA4", "a", 1, false},
		{"aa", "0", "a", 1, false},
		{"b", "0", "a", 1, false},
		{"\xC3\xA4", "0", "a", 1, false},
		{"\xF0\x9F\x90\x98", "0", "a", 1, false},
		{"A", "a", "", 0, true},
		{"a", "a", "", 0, true},
		{"a", "\x7F", "", 0, true},
		{"a", "\x80", "", 0, true},
		{"b", "", "", 0, true},
	};
	const auto key = [](const auto &row) {
		return Key{row.scope_type, row.scope_key, row.metric, row.window_seconds, row.is_lease, 1, 1, 0};
	};
	for (std::size_t i = 0; i < std::size(ordered); ++i)
		for (std::size_t j = 0; j < std::size(ordered); ++j)
			EXPECT_EQ(locks_before(key(ordered[i]), key(ordered[j])), i < j) << i << ", " << j;
}

// A key of the model in an order of its own making: bytes as numbers, compared one by one.
using Bytes = std::vector<unsigned>;
using OrderedKey = std::tuple<int, Bytes, Bytes, Bytes, std::int32_t>;

Bytes bytes_of(std::string_view text)
{
	Bytes bytes;
	for (const char c : text)
		bytes.push_back(static_cast<unsigned char>(c));
	return bytes;
}

OrderedKey ordered_key_of(const Ask &ask)
{
	const auto &[scope_type, scope_key, metric, window_seconds] = model::place_of(ask);
	return {ask.is_lease() ? 1 : 0, bytes_of(scope_type), bytes_of(scope_key), bytes_of(metric), window_seconds};
}

bool is_key_of(const Key &key, const Ask &ask)
{
	return key.is_lease == ask.is_lease() &&
		   model::place_of(ask) == model::Place{std::string(key.scope_type), std::string(key.scope_key),
									   std::string(key.metric), key.window_seconds};
}

void expect_as_in_the_model(const Asks &asks)
{
	const Merged merged(asks);
	std::set<OrderedKey> expected;
	for (std::size_t i = 0; i < asks.size(); ++i) {
		const Element &element = merged.elements[i];
		const ElementKind kind = model::case_of(asks, asks[i]);
		ASSERT_EQ(element.kind, kind) << "element " << i;
		const bool looks = kind == ElementKind::window || kind == ElementKind::lease;
		ASSERT_EQ(element.key != no_key, looks) << "element " << i;
		if (!looks)
			continue;
		expected.insert(ordered_key_of(asks[i]));
		ASSERT_LT(element.key, merged.keys.size());
		const Key &key = merged.keys[element.key];
		ASSERT_TRUE(is_key_of(key, asks[i])) << "element " << i;
		ASSERT_NEAR(key.amount, static_cast<double>(model::sum_of_key(asks, asks[i])), key.amount * 1e-12);
		ASSERT_LE(key.limit, *asks[i].limit);
		ASSERT_LE(key.element, i);
		ASSERT_TRUE(is_key_of(key, asks[key.element]));
	}
	// Every key once, in the order of the model.
	ASSERT_EQ(merged.keys.size(), expected.size());
	std::size_t place = 0;
	for (const OrderedKey &key : expected)
		ASSERT_EQ(ordered_key_of(asks[merged.keys[place++].element]), key) << "key " << place;
}

Asks any_asks(std::mt19937_64 &random, std::size_t count, std::size_t spread)
{
	static const char *const types[] = {"a", "b", "ab", "\xC3\xA4", "\x7F"};
	static const char *const metrics[] = {"rpm", "tpm", "concurrent", "concurrent", "queue_size", "\xE2\x82\xAC"};
	Asks asks;
	for (std::size_t i = 0; i < count; ++i) {
		Ask one;
		one.scope_type = types[random() % std::size(types)];
		one.scope_key = std::string(1, static_cast<char>(random() % 256)) + std::to_string(random() % spread);
		one.metric = metrics[random() % std::size(metrics)];
		if (random() % 8 != 0)
			one.limit = static_cast<double>(random() % 12) / 2;
		one.amount = static_cast<double>(random() % 6) / 2;
		one.window_seconds = random() % 2 == 0 ? 60 : 3600;
		asks.push_back(one);
	}
	// Repeated keys, with limits and amounts of their own.
	for (std::size_t i = 0; i < count; ++i)
		if (random() % 2 == 0) {
			const Ask &other = asks[random() % count];
			asks[i].scope_type = other.scope_type;
			asks[i].scope_key = other.scope_key;
		}
	return asks;
}

TEST(Request, RandomRequestsAreAsInTheModel)
{
	for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
		SCOPED_TRACE(testing::Message() << "seed " << seed);
		std::mt19937_64 random{seed};
		const std::size_t count = random() % 12;
		expect_as_in_the_model(any_asks(random, count, 2));
		if (HasFatalFailure())
			return;
	}
}

TEST(Request, AThousandElementsAreAsInTheModel)
{
	for (std::uint64_t seed = 1; seed <= 2; ++seed) {
		SCOPED_TRACE(testing::Message() << "seed " << seed);
		std::mt19937_64 random{seed};
		expect_as_in_the_model(any_asks(random, limits::list_elements_max, seed == 1 ? 2 : 1000));
		if (HasFatalFailure())
			return;
	}
}

TEST(Request, AThousandTimesOneKeyIsOneKey)
{
	Asks asks(limits::list_elements_max, ask("rpm", 100, 0.1));
	asks[500].limit = 99.9;
	const Merged merged(asks);
	ASSERT_EQ(merged.keys.size(), 1U);
	EXPECT_NEAR(merged.keys[0].amount, 100, 1e-9);
	EXPECT_EQ(merged.elements[499].kind, ElementKind::window);
	EXPECT_EQ(merged.elements[500].kind, ElementKind::oversized);
}

TEST(Request, AThousandKeysComeOutInOrderWhateverOrderTheyCameIn)
{
	Asks asks;
	for (std::size_t i = 0; i < limits::list_elements_max; ++i) {
		Ask one = ask(i % 3 == 0 ? "concurrent" : "rpm", 1, 1);
		one.scope_key = std::to_string(i);
		asks.push_back(one);
	}
	std::reverse(asks.begin(), asks.end());
	const Merged merged(asks);
	ASSERT_EQ(merged.keys.size(), asks.size());
	for (std::size_t i = 1; i < merged.keys.size(); ++i)
		ASSERT_TRUE(locks_before(merged.keys[i - 1], merged.keys[i])) << i;
}

TEST(Request, AnEmptyRequestHasNoKeys)
{
	const Merged merged(Asks{});
	EXPECT_TRUE(merged.keys.empty());
}

} // namespace
} // namespace ratelimit::core
