// The choice among candidates: the table of cases, and random candidates against a rule that is written the other way
// round.
#include "core/route.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ratelimit::core {
namespace {

const Verdict passes = Verdict::pass();
const Verdict soon = Verdict::later(Reason::window_exhausted, 1'000);
const Verdict late = Verdict::later(Reason::window_exhausted, 60'000);
const Verdict blocked = Verdict::never(Reason::limit_is_zero);
const Verdict oversized = Verdict::never(Reason::amount_exceeds_limit);

bool same(const Verdict &a, const Verdict &b) { return a.reason == b.reason && a.retry_after_ms == b.retry_after_ms; }

std::optional<std::size_t> choose(const std::vector<Verdict> &candidates, std::optional<std::size_t> pinned = {})
{
	return choose_candidate({candidates.data(), candidates.size()}, pinned);
}

TEST(Route, SlotsAndQueuesDoNotCount)
{
	EXPECT_FALSE(counts_for_route("concurrent"));
	EXPECT_FALSE(counts_for_route("queue_size"));
	EXPECT_TRUE(counts_for_route("rpm"));
	EXPECT_TRUE(counts_for_route("concurrent "));
	EXPECT_TRUE(counts_for_route("Concurrent"));
}

TEST(Route, TheLimitWithTheLongestWaitSpeaks)
{
	EXPECT_TRUE(same(longest_wait(passes, passes), passes));
	EXPECT_TRUE(same(longest_wait(passes, soon), soon));
	EXPECT_TRUE(same(longest_wait(soon, passes), soon));
	EXPECT_TRUE(same(longest_wait(soon, late), late));
	EXPECT_TRUE(same(longest_wait(late, soon), late));
	EXPECT_TRUE(same(longest_wait(late, blocked), blocked));
	EXPECT_TRUE(same(longest_wait(blocked, late), blocked));
	EXPECT_TRUE(same(longest_wait(passes, oversized), oversized));
	// Of equal ones the first.
	EXPECT_TRUE(same(longest_wait(blocked, oversized), blocked));
	EXPECT_TRUE(same(longest_wait(oversized, blocked), oversized));
	EXPECT_TRUE(same(longest_wait(soon, Verdict::later(Reason::concurrency_saturated, 1'000)), soon));
}

TEST(Route, TheFirstThatPassesIsChosen)
{
	EXPECT_EQ(choose({}), std::nullopt);
	EXPECT_EQ(choose({passes}), 0);
	EXPECT_EQ(choose({soon}), std::nullopt);
	EXPECT_EQ(choose({soon, passes, passes}), 1);
	EXPECT_EQ(choose({blocked, late, soon}), std::nullopt);
}

TEST(Route, ThePinnedOneComesBeforeTheOrder)
{
	EXPECT_EQ(choose({passes, passes}, 1), 1);
	EXPECT_EQ(choose({passes, passes}, 0), 0);
	EXPECT_EQ(choose({passes, soon}, 1), 0);
	EXPECT_EQ(choose({soon, blocked, passes}, 1), 2);
	EXPECT_EQ(choose({soon, blocked}, 1), std::nullopt);
	EXPECT_EQ(choose({}, 0), std::nullopt);
	EXPECT_EQ(choose({passes}, 7), 0);
}

TEST(Route, RandomCandidates)
{
	std::mt19937_64 random{42};
	const Verdict kinds[] = {passes, soon, late, blocked, oversized};
	for (int round = 0; round < 100'000; round++) {
		std::vector<Verdict> candidates(random() % 6);
		for (Verdict &candidate : candidates)
			candidate = kinds[random() % std::size(kinds)];
		const std::optional<std::size_t> pinned =
			random() % 2 == 0 ? std::nullopt : std::optional<std::size_t>(random() % 6);
		const std::optional<std::size_t> chosen = choose(candidates, pinned);

		const auto can_go = [&](std::size_t i) { return i < candidates.size() && candidates[i].passes(); };
		const bool any = std::any_of(candidates.begin(), candidates.end(), [](const Verdict &v) { return v.passes(); });
		ASSERT_EQ(chosen.has_value(), any);
		if (!chosen)
			continue;
		ASSERT_TRUE(can_go(*chosen));
		if (pinned && can_go(*pinned)) {
			ASSERT_EQ(*chosen, *pinned);
		} else {
			for (std::size_t i = 0; i < *chosen; i++)
				ASSERT_FALSE(can_go(i));
		}
	}
}

} // namespace
} // namespace ratelimit::core
