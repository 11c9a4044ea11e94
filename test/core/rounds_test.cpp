// When the background worker works: intervals, unfinished rounds, and the pause that grows after errors.
#include "worker/rounds.hpp"

#include <gtest/gtest.h>

namespace ratelimit::worker {
namespace {

constexpr Intervals intervals{5'000, 15'000};

TEST(Rounds, EverythingIsDueAtOnceInANewDatabase)
{
	const Schedule schedule;
	EXPECT_TRUE(schedule.due(intervals, 0).reap);
	EXPECT_TRUE(schedule.due(intervals, 0).recover);
	EXPECT_EQ(schedule.wait_ms(intervals, 0), 0);
}

TEST(Rounds, EachKindIsDueAnIntervalAfterItBegan)
{
	Schedule schedule;
	schedule.begin({true, true}, 1'000);
	schedule.end_well({}, 1'100);
	EXPECT_EQ(schedule.wait_ms(intervals, 1'100), 4'900);
	EXPECT_FALSE(schedule.due(intervals, 5'999).any());
	EXPECT_TRUE(schedule.due(intervals, 6'000).reap);
	EXPECT_FALSE(schedule.due(intervals, 6'000).recover);
	schedule.begin({true, false}, 14'000);
	schedule.end_well({}, 14'100);
	EXPECT_FALSE(schedule.due(intervals, 15'999).recover);
	EXPECT_TRUE(schedule.due(intervals, 16'000).recover);
	EXPECT_FALSE(schedule.due(intervals, 16'000).reap);
}

TEST(Rounds, AChangedIntervalHoldsAtOnce)
{
	Schedule schedule;
	schedule.begin({true, true}, 0);
	schedule.end_well({}, 10);
	EXPECT_EQ(schedule.wait_ms({3'600'000, 3'600'000}, 2'000), 3'598'000);
	EXPECT_EQ(schedule.wait_ms({3'000, 3'600'000}, 2'000), 1'000);
	EXPECT_TRUE(schedule.due({2'000, 3'600'000}, 2'000).reap);
}

TEST(Rounds, ZeroMeansNever)
{
	Schedule schedule;
	EXPECT_FALSE(schedule.due({0, 15'000}, 100'000).reap);
	EXPECT_TRUE(schedule.due({0, 15'000}, 100'000).recover);
	EXPECT_FALSE(schedule.due({0, 0}, 100'000).any());
	EXPECT_EQ(schedule.wait_ms({0, 0}, 100'000), no_wait_ms_max);
}

TEST(Rounds, AnUnfinishedRoundGoesOnAfterAShortPause)
{
	Schedule schedule;
	schedule.begin({true, true}, 0);
	schedule.end_well({true, false}, 1'200);
	EXPECT_FALSE(schedule.due(intervals, 1'200 + unfinished_pause_ms - 1).any());
	EXPECT_TRUE(schedule.due(intervals, 1'200 + unfinished_pause_ms).reap);
	EXPECT_FALSE(schedule.due(intervals, 1'200 + unfinished_pause_ms).recover);
}

TEST(Rounds, ThePauseAfterErrorsDoublesUpToAMinute)
{
	const std::int64_t expected[] = {1'000, 2'000, 4'000, 8'000, 16'000, 32'000, 60'000, 60'000};
	Schedule schedule;
	std::int64_t now_ms = 0;
	for (const std::int64_t pause_ms : expected) {
		schedule.begin({true, true}, now_ms);
		schedule.end_badly({true, true}, now_ms);
		EXPECT_EQ(schedule.wait_ms(intervals, now_ms), pause_ms);
		EXPECT_FALSE(schedule.due(intervals, now_ms + pause_ms - 1).any());
		now_ms += pause_ms;
		EXPECT_TRUE(schedule.due(intervals, now_ms).reap);
		EXPECT_TRUE(schedule.due(intervals, now_ms).recover);
	}
	EXPECT_EQ(error_pause_ms(1'000'000), error_pause_ms_max);

	schedule.begin({true, true}, now_ms);
	schedule.end_well({}, now_ms);
	EXPECT_EQ(schedule.wait_ms(intervals, now_ms), 5'000);
	schedule.begin({true, false}, now_ms + 5'000);
	schedule.end_badly({true, false}, now_ms + 5'000);
	EXPECT_EQ(schedule.wait_ms(intervals, now_ms + 5'000), error_pause_ms_min);
}

TEST(Rounds, AFailureOfOneKindLeavesTheOtherItsTime)
{
	Schedule schedule;
	schedule.begin({true, true}, 0);
	schedule.end_well({}, 0);
	schedule.begin({true, false}, 5'000);
	schedule.end_badly({true, false}, 5'000);
	EXPECT_TRUE(schedule.due(intervals, 6'000).reap);
	EXPECT_FALSE(schedule.due(intervals, 14'999).recover);
	EXPECT_TRUE(schedule.due(intervals, 15'000).recover);
}

TEST(Rounds, HurryForgetsPausesAndIntervals)
{
	Schedule schedule;
	for (int i = 0; i < 10; i++)
		schedule.end_badly({true, true}, 1'000);
	EXPECT_FALSE(schedule.due(intervals, 1'001).any());
	schedule.hurry();
	EXPECT_TRUE(schedule.due(intervals, 1'001).reap);
	EXPECT_TRUE(schedule.due(intervals, 1'001).recover);
}

} // namespace
} // namespace ratelimit::worker
