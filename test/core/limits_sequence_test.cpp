// Long random lives of a few keys: check, consume, reserve, commit, release and renew, with clocks that stop, jump to
// the very edges and go back, and with other calls that come between a call's look and its locks. Every answer is held
// against the ledger of the plain model, and after every step so are the aggregates that the rows keep.
#include "limits_engine.hpp"
#include "limits_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace ratelimit::core {
namespace {

using model::Ask;
using model::Asks;

constexpr std::int64_t second = 1'000'000;
constexpr double double_max = std::numeric_limits<double>::max();

class Life {
public:
	// `unit` is what amounts are whole multiples of: sums are then either on a limit or far from it.
	Life(std::uint64_t seed, double unit) : random_(seed), unit_(unit)
	{
		now_us_ = (below(2) == 0 ? -1 : 1) * static_cast<std::int64_t>(below(2'000'000'000)) * second;
	}

	void step()
	{
		move_clock();
		const std::uint64_t what = below(10);
		if (what < 6)
			call();
		else if (what < 8)
			settle_some();
		else if (what < 9)
			release_some_leases();
		else
			renew_some();
		if (!testing::Test::HasFatalFailure())
			compare_rows();
	}

	int granted = 0;
	int denied = 0;
	int denied_after_waiting = 0;

private:
	std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

	void move_clock()
	{
		switch (below(10)) {
		case 0:
			return;
		case 1:
			now_us_ -= static_cast<std::int64_t>(below(40)) * second;
			return;
		case 2: // to the reset of a window, or to the microsecond before it
			now_us_ = static_cast<std::int64_t>(model::window_start_us(now_us_, 10)) + 10 * second -
					  static_cast<std::int64_t>(below(2));
			return;
		case 3: // to the expiry of a lease, or to the microsecond before it
			if (!rows_.leases.empty())
				now_us_ = any_of(rows_.leases).second.expires_at.us - static_cast<std::int64_t>(below(2));
			return;
		default:
			now_us_ += static_cast<std::int64_t>(below(3'000'000));
		}
	}

	template <typename Map>
	const typename Map::value_type &any_of(const Map &map)
	{
		return *std::next(map.begin(), static_cast<std::ptrdiff_t>(below(map.size())));
	}

	Asks any_asks()
	{
		static const char *const metrics[] = {"rpm", "tpm", "concurrent", "concurrent", "queue_size"};
		Asks asks;
		const std::uint64_t count = below(3) == 0 ? 2 + below(3) : 1;
		for (std::uint64_t i = 0; i < count; ++i) {
			Ask ask;
			ask.scope_type = "user";
			ask.scope_key = below(2) == 0 ? "7" : "\xC3\xA4";
			ask.metric = metrics[below(20) == 0 ? 4 : below(4)];
			if (below(20) != 0)
				ask.limit = static_cast<double>(below(20) == 0 ? 0 : 1 + below(8)) * unit_;
			ask.amount = static_cast<double>(below(12) == 0 ? 0 : 1 + below(below(6) == 0 ? 9 : 2)) * unit_;
			if (ask.amount > double_max)
				ask.amount = double_max;
			ask.window_seconds = below(4) == 0 ? 30 : 10;
			ask.lease_ttl_seconds = static_cast<std::int32_t>(1 + below(30));
			asks.push_back(ask);
		}
		return asks;
	}

	// A mode that may serve the request.
	Mode any_mode(const Asks &asks)
	{
		const bool leases = std::any_of(asks.begin(), asks.end(), [](const Ask &ask) { return ask.is_lease(); });
		const std::uint64_t which = below(6);
		if (which == 0)
			return Mode::check;
		return which < 3 && !leases ? Mode::consume : Mode::reserve;
	}

	void call()
	{
		const Asks asks = any_asks();
		const Mode mode = any_mode(asks);
		const Instant looked{now_us_};
		if (may_wait(asks) && below(3) == 0)
			now_us_ += static_cast<std::int64_t>(below(6'000'000));
		run(mode, asks, {looked, {now_us_}, [&] { come_between(); }});
	}

	// A single scope is granted in one step and answered as it was found before; all others are decided when the locks
	// are held, so that the wait shows.
	static bool may_wait(const Asks &asks)
	{
		bool leases = false;
		std::set<model::Place> places;
		for (const Ask &ask : asks)
			if (!model::case_alone(ask)) {
				leases = leases || ask.is_lease();
				places.insert(model::place_of(ask));
			}
		return !leases || places.size() > 1;
	}

	void come_between()
	{
		if (below(3) != 0)
			return;
		const Asks asks = any_asks();
		run(any_mode(asks), asks, {{now_us_}, {now_us_}});
	}

	void run(Mode mode, const Asks &asks, const Moment &moment)
	{
		LimitsEngine engine(rows_, mode, asks);
		std::vector<model::Answer> answers = ledger_.answer(asks, moment.looked.us);
		bool waited = false;
		const bool allowed = engine.run({moment.looked, moment.locked, [&] {
											 moment.between();
											 answers = ledger_.answer(asks, moment.locked.us);
											 waited = true;
										 }});
		if (testing::Test::HasFatalFailure())
			return;
		ASSERT_EQ(allowed, model::all_pass(answers));
		ASSERT_TRUE(engine.has_room);
		for (const int id : engine.removed) {
			ASSERT_FALSE(ledger_.is_live(id, moment.locked.us)) << "lease " << id;
			ledger_.forget_lease(id);
		}
		const bool takes = allowed && mode != Mode::check;
		for (std::size_t i = 0; i < asks.size(); ++i) {
			SCOPED_TRACE(testing::Message() << "element " << i);
			compare(engine.outcomes[i], answers[i], takes ? model::sum_of_key(asks, asks[i]) : 0);
			if (testing::Test::HasFatalFailure())
				return;
		}
		if (takes)
			record(mode, asks, answers, engine.outcomes, moment.locked.us);
		granted += takes ? 1 : 0;
		denied += allowed ? 0 : 1;
		denied_after_waiting += !allowed && waited ? 1 : 0;
	}

	void compare(const Outcome &outcome, const model::Answer &answer, long double taken)
	{
		ASSERT_EQ(outcome.verdict.reason, answer.reason);
		ASSERT_EQ(outcome.verdict.retry_after_ms, answer.retry_after_ms);
		const bool looks = answer.kind == ElementKind::window || answer.kind == ElementKind::lease;
		ASSERT_EQ(outcome.looked, looks);
		ASSERT_EQ(outcome.window_start.has_value(), answer.window_start.has_value());
		ASSERT_EQ(outcome.reset_at.has_value(), answer.reset_at.has_value());
		if (answer.window_start) {
			ASSERT_TRUE(outcome.window_start->us == *answer.window_start);
		}
		if (answer.reset_at) {
			ASSERT_TRUE(outcome.reset_at->us == *answer.reset_at);
		}
		if (!looks)
			return;
		ASSERT_TRUE(is_near(outcome.used, answer.used));
		ASSERT_TRUE(is_near(outcome.reserved, answer.reserved));
		ASSERT_TRUE(is_near(outcome.remaining, std::max(0.0L, answer.remaining - taken)));
	}

	// Rounding errors stay far below the unit; what is stored stops at the largest number.
	[[nodiscard]] testing::AssertionResult is_near(double found, long double expected) const
	{
		expected = std::min<long double>(expected, double_max);
		if (std::isfinite(found) && found >= 0 && std::abs(found - expected) <= unit_ * 1e-9L)
			return testing::AssertionSuccess();
		return testing::AssertionFailure() << found << " instead of " << static_cast<double>(expected);
	}

	void record(Mode mode, const Asks &asks, const std::vector<model::Answer> &answers,
		const std::vector<Outcome> &outcomes, std::int64_t now_us)
	{
		for (std::size_t i = 0; i < asks.size(); ++i) {
			const bool reserves = mode == Mode::reserve;
			ASSERT_EQ(outcomes[i].reservation_id.has_value(), reserves && answers[i].kind == ElementKind::window);
			ASSERT_EQ(outcomes[i].lease_id.has_value(), reserves && answers[i].kind == ElementKind::lease);
			if (outcomes[i].reservation_id) {
				ledger_.promise(*outcomes[i].reservation_id, asks[i], now_us);
			} else if (outcomes[i].lease_id) {
				ledger_.lease(*outcomes[i].lease_id, asks[i], now_us);
				ASSERT_EQ(outcomes[i].lease_expires_at->us, ledger_.leases().at(*outcomes[i].lease_id).expires_at_us);
			} else if (answers[i].kind == ElementKind::window) {
				ledger_.spend(asks[i], now_us);
			}
		}
	}

	void settle_some()
	{
		std::map<std::string, double> actual;
		for (const char *metric : {"rpm", "tpm"})
			if (below(3) == 0)
				actual[metric] = std::min((static_cast<double>(below(12)) - 1) * unit_, double_max);
		const bool commits = below(2) == 0;
		for (std::uint64_t i = 0; i < 3 && !rows_.reservations.empty(); ++i) {
			// The newest ones are the ones whose window is still there.
			const int id = rows_.next_id - 1 - static_cast<int>(below(12));
			double spent = 0;
			if (const auto found = rows_.reservations.find(id); found != rows_.reservations.end() && commits) {
				const auto given = actual.find(std::get<2>(found->second.counter));
				spent = given != actual.end() && given->second > 0 ? given->second : found->second.amount;
			}
			const bool settled = settle_reservation(rows_, id, spent);
			ASSERT_EQ(settled, commits ? ledger_.commit(id, actual) : ledger_.release(id)) << "reservation " << id;
		}
	}

	void release_some_leases()
	{
		std::vector<int> ids;
		for (const auto &[id, lease] : rows_.leases)
			if (below(3) == 0)
				ids.push_back(id);
		const std::vector<int> released = release_leases(rows_, ids, {now_us_});
		for (const int id : ids) {
			const bool was_live = ledger_.is_live(id, now_us_);
			ASSERT_EQ(std::count(released.begin(), released.end(), id), was_live ? 1 : 0) << "lease " << id;
			if (was_live)
				ledger_.forget_lease(id);
		}
	}

	void renew_some()
	{
		for (const auto &[id, lease] : rows_.leases)
			if (below(2) == 0) {
				ASSERT_EQ(renew_lease(rows_, id, {now_us_}), ledger_.renew(id, now_us_)) << "lease " << id;
			}
	}

	// Aggregates against what they stand for.
	void compare_rows()
	{
		for (const auto &[place, counter] : rows_.counters) {
			ASSERT_TRUE(is_near(counter.used, ledger_.spent_in(place, counter.start.us)));
			ASSERT_TRUE(is_near(counter.reserved, ledger_.promised_in(place, counter.start.us)));
		}
		ASSERT_EQ(rows_.leases.size(), ledger_.leases().size());
		for (const auto &[place, scope] : rows_.scopes) {
			long double sum = 0;
			std::int64_t count = 0;
			for (const auto &[id, lease] : ledger_.leases()) {
				if (lease.place != place)
					continue;
				sum += lease.amount;
				count++;
				ASSERT_EQ(rows_.leases.at(id).expires_at.us, lease.expires_at_us);
				ASSERT_LE(scope.expires_from.us, lease.expires_at_us) << "lease " << id;
			}
			ASSERT_EQ(scope.lease_count, count);
			ASSERT_TRUE(is_near(scope.leased, sum));
			if (count == 0) {
				ASSERT_EQ(scope.leased, 0);
			}
		}
	}

	std::mt19937_64 random_;
	double unit_;
	std::int64_t now_us_ = 0;
	Rows rows_;
	model::Ledger ledger_;
};

void live(double unit)
{
	int granted = 0;
	int denied = 0;
	int denied_after_waiting = 0;
	for (std::uint64_t seed = 1; seed <= 60; ++seed) {
		Life life(seed, unit);
		for (int step = 0; step < 200; ++step) {
			SCOPED_TRACE(testing::Message() << "unit " << unit << ", seed " << seed << ", step " << step);
			life.step();
			if (testing::Test::HasFatalFailure())
				return;
		}
		granted += life.granted;
		denied += life.denied;
		denied_after_waiting += life.denied_after_waiting;
	}
	// A life that only ever sees one side of a decision proves nothing.
	EXPECT_GT(granted, 1000);
	EXPECT_GT(denied, 1000);
	EXPECT_GT(denied_after_waiting, 20);
}

TEST(LimitsSequence, WholeAmountsAgreeWithTheLedger) { live(1); }
TEST(LimitsSequence, TenthsAgreeWithTheLedger) { live(0.1); }
TEST(LimitsSequence, TinyAmountsAgreeWithTheLedger) { live(1e-300); }
TEST(LimitsSequence, AmountsAtTheEndOfAllNumbersAgreeWithTheLedger) { live(double_max / 8); }

} // namespace
} // namespace ratelimit::core
