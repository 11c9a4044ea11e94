// Concurrency leases: the aggregates of a scope over its lease rows, and the verdict with its clamped retry.
#include "core/lease.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

namespace ratelimit::core {
namespace {

constexpr double double_max = std::numeric_limits<double>::max();
constexpr std::int64_t second = 1'000'000;

TEST(Lease, IsLiveUntilTheVeryInstantOfItsExpiry)
{
	EXPECT_TRUE(lease_is_live({100}, {98}));
	EXPECT_TRUE(lease_is_live({100}, {99}));
	EXPECT_FALSE(lease_is_live({100}, {100}));
	EXPECT_FALSE(lease_is_live({100}, {101}));
	EXPECT_TRUE(lease_is_live({-100}, {-101}));
	EXPECT_FALSE(lease_is_live({-100}, {-100}));
	EXPECT_FALSE(lease_is_live(Instant::latest(), Instant::latest()));
}

TEST(Lease, AScopeWithoutLeasesHoldsNothingAndNeverExpires)
{
	const StoredScope empty;
	EXPECT_EQ(empty.leased, 0);
	EXPECT_EQ(empty.lease_count, 0);
	EXPECT_EQ(empty.expires_from, Instant::latest());
}

TEST(Lease, AddingKeepsTheSumTheCountAndTheEarliestExpiry)
{
	StoredScope scope = add_lease({}, 2, {500});
	EXPECT_EQ(scope.leased, 2);
	EXPECT_EQ(scope.lease_count, 1);
	EXPECT_EQ(scope.expires_from.us, 500);
	scope = add_lease(scope, 0.5, {900});
	EXPECT_EQ(scope.leased, 2.5);
	EXPECT_EQ(scope.lease_count, 2);
	EXPECT_EQ(scope.expires_from.us, 500);
	scope = add_lease(scope, 1, {-300});
	EXPECT_EQ(scope.leased, 3.5);
	EXPECT_EQ(scope.lease_count, 3);
	EXPECT_EQ(scope.expires_from.us, -300);
}

TEST(Lease, TheFirstOneSetsTheBoundWhateverWasThereBefore)
{
	EXPECT_EQ(add_lease({0, 0, {100}}, 1, {900}).expires_from.us, 900);
}

TEST(Lease, RemovingKeepsTheBoundWhileAnyIsLeft)
{
	StoredScope scope = add_lease(add_lease(add_lease({}, 1, {500}), 2, {600}), 4, {700});
	scope = remove_leases(scope, 1, 1);
	EXPECT_EQ(scope.leased, 6);
	EXPECT_EQ(scope.lease_count, 2);
	EXPECT_LE(scope.expires_from.us, 600);
	EXPECT_GE(scope.expires_from.us, 500);
	scope = remove_leases(scope, 6, 2);
	EXPECT_EQ(scope.leased, 0);
	EXPECT_EQ(scope.lease_count, 0);
	EXPECT_EQ(scope.expires_from, Instant::latest());
}

TEST(Lease, RemovingNothingChangesNothing)
{
	const StoredScope scope = remove_leases(add_lease({}, 3, {500}), 0, 0);
	EXPECT_EQ(scope.leased, 3);
	EXPECT_EQ(scope.lease_count, 1);
	EXPECT_EQ(scope.expires_from.us, 500);
}

TEST(Lease, SumAndCountNeverGoBelowZero)
{
	const StoredScope two = add_lease(add_lease({}, 1, {500}), 1, {500});
	const StoredScope less = remove_leases(two, 5, 1);
	EXPECT_EQ(less.leased, 0);
	EXPECT_EQ(less.lease_count, 1);
	const StoredScope none = remove_leases(two, 1, 7);
	EXPECT_EQ(none.leased, 0);
	EXPECT_EQ(none.lease_count, 0);
}

TEST(Lease, TheSumIsExactlyZeroWhenTheLastOneGoes)
{
	StoredScope scope;
	for (int i = 0; i < 10; ++i)
		scope = add_lease(scope, 0.1, {i});
	for (int i = 0; i < 10; ++i)
		scope = remove_leases(scope, 0.1, 1);
	EXPECT_EQ(scope.leased, 0);
	scope = add_lease(add_lease({}, 1e300, {1}), 1, {2});
	scope = remove_leases(remove_leases(scope, 1, 1), 1e300, 1);
	EXPECT_EQ(scope.leased, 0);
}

TEST(Lease, TheSumSaturates)
{
	const StoredScope scope = add_lease(add_lease({}, double_max, {1}), double_max, {2});
	EXPECT_EQ(scope.leased, double_max);
	EXPECT_FALSE(decide_lease({scope.leased, Instant{1}}, double_max, double_max, {0}).passes());
}

TEST(Lease, FitsWhenTheLiveSumAndTheAmountStayWithinTheLimit)
{
	const struct {
		double live, amount, limit;
		bool fits;
	} cases[] = {
		{0, 1, 1, true},
		{1, 1, 1, false},
		{2, 1, 3, true},
		{2.5, 1, 3, false},
		{5, 1, 3, false}, // the limit was lowered
		{0.2, 0.1, 0.3, true},
		{0.1 + 0.2, 0.1, 0.3, false},
		{1e9, 1, 1e9, true},
		{1e9, 1.000001, 1e9, false},
		{double_max, double_max, double_max, false},
	};
	for (const auto &row : cases) {
		const Verdict verdict = decide_lease({row.live, Instant{2 * second}}, row.amount, row.limit, {0});
		EXPECT_EQ(verdict.passes(), row.fits) << row.live << " + " << row.amount << " of " << row.limit;
		EXPECT_EQ(verdict.reason, row.fits ? Reason::none : Reason::concurrency_saturated);
		EXPECT_EQ(verdict.retry_after_ms, row.fits ? 0 : 2000);
	}
}

TEST(Lease, TheRetryIsTheNextExpiryBetweenOneAndFiveSeconds)
{
	const struct {
		std::int64_t expiry_us;
		std::int64_t retry_ms;
	} cases[] = {
		{-5 * second, 1000},
		{0, 1000},
		{1, 1000},
		{second - 1, 1000},
		{second, 1000},
		{second + 1, 1001},
		{second + 1000, 1001},
		{2 * second + 500, 2001},
		{5 * second - 1000, 4999},
		{5 * second - 999, 5000},
		{5 * second, 5000},
		{5 * second + 1, 5000},
		{std::numeric_limits<std::int64_t>::max(), 5000},
	};
	for (const std::int64_t now_us : {std::int64_t{0}, std::int64_t{-7'654'321}, std::int64_t{1'709'210'096'000'000}})
		for (const auto &row : cases) {
			const Instant expiry = Instant{now_us} + Span{row.expiry_us};
			EXPECT_EQ(decide_lease({1, expiry}, 1, 1, {now_us}).retry_after_ms, row.retry_ms)
				<< row.expiry_us << " us after " << now_us;
		}
	EXPECT_EQ(decide_lease({1, std::nullopt}, 1, 1, {0}).retry_after_ms, 1000);
	EXPECT_EQ(decide_lease({1, Instant::latest()}, 1, 1, Instant::earliest()).retry_after_ms, 5000);
	EXPECT_EQ(decide_lease({1, Instant::earliest()}, 1, 1, Instant::latest()).retry_after_ms, 1000);
}

struct Held {
	double amount;
	std::int64_t expires_at_us;
};

// The aggregates against the rows themselves.
testing::AssertionResult agrees(const StoredScope &scope, const std::vector<Held> &rows)
{
	long double sum = 0;
	for (const Held &row : rows) {
		sum += row.amount;
		if (row.expires_at_us < scope.expires_from.us)
			return testing::AssertionFailure() << row.expires_at_us << " is before the bound " << scope.expires_from.us;
	}
	if (scope.lease_count != static_cast<std::int64_t>(rows.size()))
		return testing::AssertionFailure() << scope.lease_count << " counted, " << rows.size() << " there";
	if (rows.empty() ? scope.leased != 0 : std::abs(scope.leased - sum) > 1e-9L)
		return testing::AssertionFailure() << scope.leased << " summed, " << static_cast<double>(sum) << " there";
	if (rows.empty() && scope.expires_from != Instant::latest())
		return testing::AssertionFailure() << "a bound without leases";
	return testing::AssertionSuccess();
}

TEST(Lease, AggregatesAgreeWithTheRowsOverRandomLives)
{
	for (std::uint64_t seed = 1; seed <= 200; ++seed) {
		SCOPED_TRACE(testing::Message() << "seed " << seed);
		std::mt19937_64 random{seed};
		StoredScope scope;
		std::vector<Held> rows;
		for (int step = 0; step < 300; ++step) {
			// The life swings between growing and shrinking, so that it comes back to nothing now and then.
			if (random() % 8 < (step / 50 % 2 == 0 ? 5U : 2U)) {
				const Held held{
					static_cast<double>(1 + random() % 50) / 10, static_cast<std::int64_t>(random() % 1000)};
				rows.push_back(held);
				scope = add_lease(scope, held.amount, {held.expires_at_us});
			} else {
				std::shuffle(rows.begin(), rows.end(), random);
				const std::size_t count = std::min<std::size_t>(rows.size(), random() % 4);
				double amount = 0;
				for (std::size_t i = 0; i < count; ++i) {
					amount = add_amounts(amount, rows.back().amount);
					rows.pop_back();
				}
				scope = remove_leases(scope, amount, static_cast<std::int64_t>(count));
			}
			ASSERT_TRUE(agrees(scope, rows)) << "step " << step;
		}
	}
}

} // namespace
} // namespace ratelimit::core
