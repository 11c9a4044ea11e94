// HTTP header fields: values worked by hand, and what a structured field may hold.
#include "core/headers.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace ratelimit::core {
namespace {

constexpr std::int64_t second = 1'000'000;
const Instant now{100 * second + 250'000}; // 19.75 s before the minute ends at 120

HeaderDecision window(std::string_view scope_type, std::string_view metric, double limit, double remaining)
{
	HeaderDecision decision;
	decision.ordinal = 1;
	decision.allowed = true;
	decision.scope_type = scope_type;
	decision.metric = metric;
	decision.limit = limit;
	decision.remaining = remaining;
	decision.retry_after_ms = 0;
	decision.window_start = Instant{60 * second};
	decision.reset_at = Instant{120 * second};
	return decision;
}

HeaderFields fields_of(const std::vector<HeaderDecision> &decisions)
{
	return header_fields({decisions.data(), decisions.size()}, now);
}

TEST(Headers, AWindow)
{
	const HeaderFields fields = fields_of({window("key", "rpm", 5, 4)});
	EXPECT_EQ(fields.policy, "\"key:rpm:60\";q=5;w=60");
	EXPECT_EQ(fields.limit, "\"key:rpm:60\";r=4;t=20");
	EXPECT_EQ(fields.retry_after, "");
}

TEST(Headers, ALeaseHasAUnitAndNoWindow)
{
	HeaderDecision lease = window("user", "concurrent", 2, 1);
	lease.window_start.reset();
	lease.reset_at.reset();
	EXPECT_EQ(fields_of({lease}).policy, "\"user:concurrent\";q=2;qu=\"concurrent-requests\"");
	EXPECT_EQ(fields_of({lease}).limit, "\"user:concurrent\";r=1");
	lease.reset_at = now + Span{1};
	EXPECT_EQ(fields_of({lease}).limit, "\"user:concurrent\";r=1;t=1");
	lease.remaining.reset();
	EXPECT_EQ(fields_of({lease}).limit, "");
}

TEST(Headers, WhatHasNoLimitOrWindowIsLeftOut)
{
	HeaderDecision unlimited = window("key", "rpm", 5, 4);
	unlimited.limit.reset();
	HeaderDecision unseen = window("key", "rpm", 5, 4);
	unseen.window_start.reset();
	EXPECT_EQ(fields_of({unlimited, unseen}).policy, "");
	EXPECT_EQ(fields_of({unlimited, unseen}).limit, "");
	EXPECT_EQ(fields_of({}).policy, "");
}

TEST(Headers, NumbersAreWholeAndOfFifteenDigits)
{
	EXPECT_EQ(fields_of({window("k", "m", 5.9, 4.9)}).limit, "\"k:m:60\";r=4;t=20");
	EXPECT_EQ(fields_of({window("k", "m", 0.3, 0.3 - 0.1 - 0.1 - 0.1)}).limit, "\"k:m:60\";r=0;t=20");
	EXPECT_EQ(fields_of({window("k", "m", 3.3, 3.3 - 0.1 - 0.1 - 0.1)}).limit, "\"k:m:60\";r=3;t=20");
	EXPECT_EQ(fields_of({window("k", "m", 1e15, 999'999'999'999'999)}).policy, "\"k:m:60\";q=999999999999999;w=60");
	EXPECT_EQ(fields_of({window("k", "m", -5, -1)}).limit, "\"k:m:60\";r=0;t=20");
}

TEST(Headers, RetryIsTheLongestWaitRoundedUp)
{
	HeaderDecision a = window("k", "a", 5, 0);
	HeaderDecision b = window("k", "b", 5, 0);
	a.retry_after_ms = 19'750;
	EXPECT_EQ(fields_of({a, b}).retry_after, ""); // allowed
	a.allowed = b.allowed = false;
	EXPECT_EQ(fields_of({a, b}).retry_after, "20");
	b.retry_after_ms = 20'001;
	EXPECT_EQ(fields_of({a, b}).retry_after, "21");
	b.retry_after_ms.reset();
	EXPECT_EQ(fields_of({a, b}).retry_after, "");
}

TEST(Headers, NamesAreUniqueAndEscaped)
{
	std::vector<HeaderDecision> decisions(4, window("k", "m", 5, 4));
	for (std::size_t i = 0; i < decisions.size(); i++)
		decisions[i].ordinal = i + 1;
	// A name that looks like the one that the second decision gets.
	decisions[2].scope_type = "k:m";
	decisions[2].metric = "60";
	decisions[2].window_start = Instant{118 * second};
	EXPECT_EQ(fields_of(decisions).policy,
		"\"k:m:60\";q=5;w=60, \"k:m:60:2\";q=5;w=60, \"k:m:60:2:3\";q=5;w=2, \"k:m:60:4\";q=5;w=60");
	EXPECT_EQ(fields_of({window("a\"b\\", "5%\n\xC3\xBC", 5, 4)}).policy, "\"a\\\"b\\\\:5%25%0A%C3%BC:60\";q=5;w=60");
}

TEST(Headers, AnyNameMakesAStringOfPrintableAscii)
{
	std::mt19937_64 random{7};
	for (int round = 0; round < 10'000; round++) {
		std::string name;
		for (std::size_t i = random() % 12; i > 0; i--)
			name += static_cast<char>(random());
		const std::string policy = fields_of({window(name, name, 5, 4)}).policy;
		ASSERT_EQ(policy.front(), '"');
		std::size_t end = 1; // as a parser of structured fields reads the string
		for (; end < policy.size() && policy[end] != '"'; end++) {
			ASSERT_TRUE(policy[end] >= 0x20 && policy[end] < 0x7f);
			if (policy[end] == '\\') {
				end++;
				ASSERT_TRUE(policy[end] == '"' || policy[end] == '\\');
			}
		}
		ASSERT_EQ(policy.substr(end), "\";q=5;w=60");
	}
}

TEST(Headers, OddInstantsAndNumbersAreSafe)
{
	HeaderDecision odd = window("k", "m", std::numeric_limits<double>::infinity(), 1);
	EXPECT_EQ(fields_of({odd}).policy, "");
	odd = window("k", "m", 5, std::numeric_limits<double>::quiet_NaN());
	odd.window_start = Instant::earliest();
	odd.reset_at = Instant::latest();
	EXPECT_EQ(fields_of({odd}).policy, "\"k:m:9223372036855\";q=5;w=9223372036855");
	EXPECT_EQ(fields_of({odd}).limit, "");
	odd.window_start = odd.reset_at;
	EXPECT_EQ(fields_of({odd}).policy, "");
}

} // namespace
} // namespace ratelimit::core
