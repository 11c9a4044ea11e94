// Instants, spans and amounts: arithmetic that saturates, division that rounds the way its name says, and the
// tolerant comparison. Random values are held against 128-bit arithmetic, which cannot overflow here.
#include "core/units.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace ratelimit::core {
namespace {

__extension__ using Wide = __int128;

constexpr std::int64_t int64_min = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();
constexpr double double_max = std::numeric_limits<double>::max();

std::int64_t clamp(Wide value)
{
	if (value > int64_max)
		return int64_max;
	return value < int64_min ? int64_min : static_cast<std::int64_t>(value);
}

// Integers of every size, with the edges drawn often.
class Integers {
  public:
	std::int64_t any()
	{
		constexpr std::int64_t edges[] = {int64_min, int64_min + 1, -1, 0, 1, int64_max - 1, int64_max};
		if (random_() % 4 == 0)
			return edges[random_() % std::size(edges)];
		return static_cast<std::int64_t>(random_()) >> (random_() % 64);
	}

	std::int64_t positive()
	{
		return static_cast<std::int64_t>((static_cast<std::uint64_t>(any()) >> 1) | 1);
	}

  private:
	std::mt19937_64 random_{20150901};
};

constexpr int rounds = 100'000;

TEST(Units, SaturatingArithmeticIsExactOrAtTheEdge)
{
	Integers integers;
	for (int round = 0; round < rounds; ++round) {
		const std::int64_t a = integers.any();
		const std::int64_t b = integers.any();
		ASSERT_EQ(saturating_add(a, b), clamp(Wide{a} + b)) << a << " + " << b;
		ASSERT_EQ(saturating_subtract(a, b), clamp(Wide{a} - b)) << a << " - " << b;
		ASSERT_EQ(saturating_multiply(a, b), clamp(Wide{a} * b)) << a << " * " << b;
	}
}

TEST(Units, DivisionRoundsDownAndUp)
{
	Integers integers;
	for (int round = 0; round < rounds; ++round) {
		const std::int64_t dividend = integers.any();
		const std::int64_t divisor = integers.positive();
		const Wide down = floor_divide(dividend, divisor);
		const Wide up = ceil_divide(dividend, divisor);
		ASSERT_LE(down * divisor, dividend);
		ASSERT_GT((down + 1) * divisor, dividend);
		ASSERT_GE(up * divisor, dividend);
		ASSERT_LT((up - 1) * divisor, dividend);
	}
}

TEST(Units, MillisecondsOfInstantsBeforeTheEpochRoundDown)
{
	EXPECT_EQ(Instant{-1}.floor_ms(), -1);
	EXPECT_EQ(Instant{-1000}.floor_ms(), -1);
	EXPECT_EQ(Instant{1999}.floor_ms(), 1);
	EXPECT_EQ((Span{1}.ceil_ms()), 1);
	EXPECT_EQ((Span{-1}.ceil_ms()), 0);
}

TEST(Units, NeverAndForEverStayWhereTheyAre)
{
	EXPECT_EQ(Instant::latest() + Span::from_seconds(1), Instant::latest());
	EXPECT_EQ(Instant::earliest() - Span::from_seconds(1), Instant::earliest());
	EXPECT_EQ((Instant::latest() - Instant::earliest()).us, int64_max);
	EXPECT_EQ(Span::from_seconds(int64_max).us, int64_max);
}

TEST(Units, ThreeTimesATenthFitsThreeTenths)
{
	EXPECT_TRUE(fits(0.1 + 0.1 + 0.1, 0.3));
	EXPECT_FALSE(fits(0.3 * (1 + 2e-9), 0.3));
}

TEST(Units, FitsHasNoHoleAtEitherEnd)
{
	EXPECT_TRUE(fits(0, 0));
	EXPECT_FALSE(fits(std::numeric_limits<double>::denorm_min(), 0));
	EXPECT_TRUE(fits(double_max, double_max));
	EXPECT_FALSE(fits(double_max, double_max / 2));
}

TEST(Units, ToleranceIsRelativeAtEverySize)
{
	std::mt19937_64 random{7};
	std::uniform_real_distribution<double> exponent{-300, 300};
	for (int round = 0; round < rounds; ++round) {
		const double limit = std::pow(10.0, exponent(random));
		ASSERT_TRUE(fits(limit * (1 - 1e-9), limit)) << limit;
		ASSERT_TRUE(fits(limit * (1 + 0.9e-9), limit)) << limit;
		ASSERT_FALSE(fits(limit * (1 + 1.1e-9), limit)) << limit;
	}
}

TEST(Units, AmountsStayFiniteAndNotNegative)
{
	EXPECT_EQ(add_amounts(double_max, double_max), double_max);
	EXPECT_EQ(add_amounts(0.5, 0.25), 0.75);
	EXPECT_EQ(subtract_amount(1, 2), 0);
	EXPECT_EQ(subtract_amount(2, 0.5), 1.5);
}

} // namespace
} // namespace ratelimit::core
