// The admission queue: single rules, then 100,000 random sequences against a plain model.
#include "queue_model.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace ratelimit::core {
namespace {

using namespace queue_test;

constexpr Instant now = Instant::from_ms(1'000'000);

template <std::size_t count>
View<const Demand> view(const Demand (&demands)[count])
{
	return {demands, count};
}
template <std::size_t count>
View<const Standing> view(const Standing (&standings)[count])
{
	return {standings, count};
}

Demand slot(double limit, std::optional<std::int32_t> queue_limit = 0, double amount = 1)
{
	Demand demand;
	demand.limit = limit;
	demand.queue_limit = queue_limit;
	demand.amount = amount;
	return demand;
}

TEST(Queue, PriorityBeatsAgeBeatsId)
{
	const Turn turns[] = {{-1, {9}, "z"}, {0, {1}, "z"}, {0, {2}, "a"}, {0, {2}, "b"}, {0, {2}, "\xc3\xa9"}, {7, {0}, "a"}};
	for (std::size_t i = 0; i < std::size(turns); i++)
		for (std::size_t j = 0; j < std::size(turns); j++)
			EXPECT_EQ(turns[i] < turns[j], i < j) << i << " " << j;
}

TEST(Queue, AScopeKnowsHowManyWaitAndWhereToBegin)
{
	const Turn first{0, {5}, "b"};
	StoredQueue queue;
	EXPECT_TRUE(begins_after(queue, {0, {9}, "z"}));
	queue = enter(queue, {0, {9}, "z"});
	EXPECT_EQ(queue.waiting, 1);
	EXPECT_EQ(queue.head_at, Instant{9});
	queue = enter(queue, first);
	EXPECT_EQ(queue.head_at, Instant{5});
	// Who comes later, or at that very place, moves nothing.
	EXPECT_FALSE(begins_after(queue, {0, {5}, "a"}));
	queue = enter(queue, {0, {7}, "c"});
	queue = enter(queue, {1, {1}, "d"});
	EXPECT_EQ(queue.waiting, 4);
	EXPECT_EQ(queue.head_priority, 0);
	EXPECT_EQ(queue.head_at, Instant{5});
	EXPECT_TRUE(begins_after(queue, {-1, {8}, "e"}));
	queue = leave(leave(leave(queue)));
	EXPECT_EQ(queue.waiting, 1);
	EXPECT_EQ(queue.head_at, Instant{5});
	// When the last has left, nobody is passed over by where it began.
	queue = leave(queue);
	EXPECT_EQ(queue.waiting, 0);
	EXPECT_EQ(queue.head_at, Instant::latest());
	EXPECT_TRUE(begins_after(queue, {std::numeric_limits<std::int32_t>::max(), {1}, "f"}));
	EXPECT_EQ(leave(queue).waiting, 0);
	queue.waiting = limits::queue_limit_max;
	EXPECT_EQ(enter(queue, first).waiting, limits::queue_limit_max);
}

TEST(Queue, AtTheInstantOfADeadlineOrAnExpiryItIsOver)
{
	const Span tick{1};
	EXPECT_FALSE(is_timed_out({now + tick, {}, {}}, now));
	EXPECT_TRUE(is_timed_out({now, {}, {}}, now));
	EXPECT_FALSE(is_abandoned({{}, now + tick, {}}, now));
	EXPECT_TRUE(is_abandoned({{}, now, {}}, now));
	EXPECT_TRUE(is_put_aside({{}, {}, now + tick}, now));
	EXPECT_FALSE(is_put_aside({{}, {}, now}, now));
	EXPECT_TRUE(may_be_head({{}, {}, {}}, now));
	EXPECT_FALSE(may_be_head({now, {}, {}}, now));
	EXPECT_FALSE(may_be_head({{}, now, {}}, now));
	EXPECT_FALSE(may_be_head({{}, {}, now + tick}, now));
}

TEST(Queue, TheFirstScopeThatRefusesIsNamed)
{
	const Demand demands[] = {slot(1), slot(0), slot(1, 0, 2)};
	const Standing full[] = {{1, {}, 0, true}, {}, {}};
	EXPECT_EQ(refuse_new(view(demands), view(full), now)->scope, 1U);
	EXPECT_EQ(refuse_new(view(demands), view(full), now)->verdict.reason, Reason::limit_is_zero);
	EXPECT_FALSE(refuse_new(view(demands), view(full), now)->verdict.retryable());
	const Demand waits[] = {slot(1, 2), slot(5, 3), slot(1)};
	const Standing queues[] = {{1, {}, 1, true}, {0, now + Span::from_seconds(40), 3, true}, {}};
	EXPECT_EQ(refuse_new(view(waits), view(queues), now)->scope, 1U);
	EXPECT_EQ(refuse_new(view(waits), view(queues), now)->verdict.reason, Reason::queue_full);
	EXPECT_EQ(refuse_new(view(waits), view(queues), now)->verdict.retry_after_ms, 30'000);
	EXPECT_EQ(refuse_new(view(waits), view(queues), now)->queue_depth, 3);
}

TEST(Queue, RetryIsTheNextExpiryBetweenOneAndThirtySeconds)
{
	const Demand demands[] = {slot(1)};
	const auto retry = [&](std::optional<Instant> expiry) {
		const Standing standings[] = {{1, expiry, 0, true}};
		return refuse_new(view(demands), view(standings), now)->verdict.retry_after_ms;
	};
	EXPECT_EQ(retry(std::nullopt), 1'000);
	EXPECT_EQ(retry(now + Span::from_ms(1)), 1'000);
	EXPECT_EQ(retry(now + Span{2'500'001}), 2'501);
	EXPECT_EQ(retry(now + Span::from_seconds(31)), 30'000);
}

TEST(Queue, VirtualDepthCountsWhoWaits)
{
	const Standing standings[] = {{1, {}, 4, true}};
	const auto depth = [&](double limit, std::int32_t queue_limit, double amount) {
		const Demand demands[] = {slot(limit, queue_limit, amount)};
		const auto refusal = refuse_enqueued(view(demands), view(standings), now);
		return refusal ? refusal->queue_depth : -1;
	};
	EXPECT_EQ(depth(6, 0, 1), -1); // 1 + 4 + 1 fits 6
	EXPECT_EQ(depth(5, 0, 1), 1);
	EXPECT_EQ(depth(5, 1, 1), -1);
	EXPECT_EQ(depth(3, 2, 1), 3);
	EXPECT_EQ(depth(1, 3, 0.5), -1); // 1 + 2 + 0.5 - 1 = 2.5, so 3
	EXPECT_EQ(depth(1, 2, 0.5), 3);
	EXPECT_EQ(depth(1e300, 0, 1e300), limits::queue_limit_max);
}

TEST(Queue, WithoutWorkersTheScopeIsSaturatedButNoReasonToRefuseTheDispatcher)
{
	Demand pool = slot(0);
	pool.from_workers = true;
	const Demand demands[] = {pool};
	const Standing standings[] = {{}};
	EXPECT_EQ(obstacle_in(pool, {}), Obstacle::saturated);
	EXPECT_EQ(refuse_new(view(demands), view(standings), now)->verdict.reason, Reason::concurrency_saturated);
	EXPECT_FALSE(refuse_enqueued(view(demands), view(standings), now));
	pool.limit = 1;
	pool.amount = 2; // more than there is: saturation, not a reason never to ask again
	EXPECT_EQ(obstacle_in(pool, {}), Obstacle::saturated);
}

TEST(Queue, DeadlineIsTheShortestWaitWhereSomebodyMayWait)
{
	Demand demands[] = {slot(1), slot(1, 5), slot(1, std::nullopt)};
	demands[0].max_wait_seconds = 5;
	demands[1].max_wait_seconds = 60;
	demands[2].max_wait_seconds = 50;
	EXPECT_EQ(fresh_deadline(view(demands), now), now + Span::from_seconds(50));
	EXPECT_EQ(fresh_deadline({demands, 1}, now), now + Span::from_seconds(86'400));
	EXPECT_EQ(fresh_deadline({demands, 0}, now), now + Span::from_seconds(86'400));
	EXPECT_EQ(earlier_deadline(now, now + Span{1}), now);
	EXPECT_EQ(earlier_deadline(now + Span{2}, now + Span{1}), now + Span{1});
	EXPECT_EQ(earlier_deadline(std::nullopt, now), now);
}

TEST(Queue, DeferDoublesAndSpreads)
{
	EXPECT_EQ(fnv1a_32(""), 0x811c9dc5U);
	EXPECT_EQ(fnv1a_32("a"), 0xe40c292cU);
	EXPECT_EQ(fnv1a_32("foobar"), 0xbf9cf968U);
	// "c": 3859557458 modulo 401 is 227, so 1.027 times.
	EXPECT_EQ(defer_pause("c", 0, std::nullopt), Span::from_ms(1'027));
	EXPECT_EQ(defer_pause("c", 5, std::nullopt), Span::from_ms(32'864));
	EXPECT_EQ(defer_pause("c", 6, std::nullopt), limits::defer_max);
	EXPECT_EQ(defer_pause("c", 2'000'000'000, 0), limits::defer_max);
	EXPECT_EQ(defer_pause("c", 9, 250), Span::from_ms(250));
	EXPECT_EQ(defer_pause("c", 9, INT64_MAX), limits::defer_asked_max);
	for (int i = 0; i < 1'000; i++) {
		const Span pause = defer_pause("task-" + std::to_string(i), i % 8, -1);
		EXPECT_TRUE(pause >= limits::defer_min && pause <= limits::defer_max);
	}
}

TEST(Queue, NamesReadBack)
{
	for (const auto status : {TaskStatus::waiting, TaskStatus::admitted, TaskStatus::running, TaskStatus::succeeded,
			 TaskStatus::failed, TaskStatus::cancelled, TaskStatus::review})
		EXPECT_EQ(task_status(name_of(status)), status);
	EXPECT_EQ(task_mode("async"), TaskMode::async);
	EXPECT_FALSE(task_mode("Sync"));
	EXPECT_FALSE(task_status("denied"));
}

// --- against the model -----------------------------------------------------------------------------------------------

class Sequence {
public:
	explicit Sequence(std::uint64_t seed) : random_(seed), world_(scope_count), engine_(world_), model_(world_) {}

	void run(int steps)
	{
		for (int i = 0; i < steps && !::testing::Test::HasFatalFailure(); i++) {
			world_.now_us += static_cast<std::int64_t>(random_() % 3'000'000);
			switch (random_() % 8) {
			case 0:
			case 1:
			case 2:
				ask(random_() % 2 == 0);
				break;
			case 3:
				release();
				break;
			case 4:
				renew();
				break;
			case 5:
				put_aside();
				break;
			case 6:
				cancel();
				break;
			default:
				dispatch();
			}
			check();
		}
	}

private:
	static constexpr std::size_t scope_count = 3;

	Task make_task()
	{
		Task task;
		task.id = "t" + std::to_string(random_() % 1'000'000);
		task.priority = static_cast<int>(random_() % 3) - 1;
		task.enqueued_us = world_.now_us;
		for (int scope = 0; scope < static_cast<int>(scope_count); scope++) {
			if (random_() % 2 == 0)
				continue;
			Demand demand;
			if (random_() % 8 != 0)
				demand.limit = limits_[static_cast<std::size_t>(scope)] * (random_() % 16 == 0 ? 0 : 1);
			demand.amount = random_() % 4 == 0 ? 2 : 1;
			demand.queue_limit = random_() % 4 == 0 ? std::nullopt : std::optional(static_cast<std::int32_t>(random_() % 5));
			demand.max_wait_seconds = static_cast<std::int32_t>(5 + random_() % 30);
			demand.lease_ttl_seconds = static_cast<std::int32_t>(2 + random_() % 20);
			demand.fifo = random_() % 6 != 0;
			task.scopes.push_back(scope);
			task.demands.push_back(demand);
		}
		if (random_() % 2 == 0)
			task.waiter_us = world_.now_us + 8'000'000;
		task.deadline_us = fresh_deadline({task.demands.data(), task.demands.size()}, {world_.now_us}).us;
		return task;
	}
	void ask(bool enqueue)
	{
		Task task = make_task();
		if (world_.tasks.count(task.id) > 0)
			return;
		const std::vector<Standing> states = engine_.standings(task, false);
		const View<const Demand> demands{task.demands.data(), task.demands.size()};
		const View<const Standing> standings{states.data(), states.size()};
		const auto refusal = enqueue ? refuse_enqueued(demands, standings, {world_.now_us})
		                             : refuse_new(demands, standings, {world_.now_us});
		ASSERT_EQ(refusal ? std::string(name_of(refusal->verdict.reason)) : "", model_.denial(task, enqueue));
		if (refusal)
			return;
		world_.tasks.emplace(task.id, task);
		engine_.enter(world_.tasks.at(task.id));
		if (!enqueue)
			try_to_go(world_.tasks.at(task.id));
	}
	void try_to_go(Task &task)
	{
		const bool goes = engine_.can_go(task);
		ASSERT_EQ(goes, model_.can_go(task)) << task.id;
		if (!goes)
			return;
		engine_.leave(task);
		task.state = Task::State::admitted;
		for (std::size_t i = 0; i < task.scopes.size(); i++) {
			if (!task.demands[i].limit)
				continue;
			world_.leases[static_cast<std::size_t>(task.scopes[i])][task.id] = {
				task.demands[i].amount, world_.now_us + task.demands[i].lease_ttl_seconds * 1'000'000};
			// No scope is overfilled.
			ASSERT_LE(model_.active(task.scopes[i]), *task.demands[i].limit + 1e-9);
		}
	}
	// In order, whoever can go: as the dispatcher walks. Afterwards nobody who can go is left.
	void dispatch()
	{
		std::vector<Task *> order;
		for (auto &[id, task] : world_.tasks)
			if (task.state == Task::State::waiting && model_.present(task))
				order.push_back(&task);
		std::sort(order.begin(), order.end(), [](const Task *a, const Task *b) { return a->turn() < b->turn(); });
		for (Task *task : order)
			try_to_go(*task);
		for (Task *task : order)
			ASSERT_TRUE(task->state == Task::State::admitted || !model_.can_go(*task)) << task->id << " is left waiting";
	}
	Task *any(Task::State state)
	{
		std::vector<Task *> found;
		for (auto &[id, task] : world_.tasks)
			if (task.state == state)
				found.push_back(&task);
		return found.empty() ? nullptr : found[random_() % found.size()];
	}
	void release()
	{
		if (Task *task = any(Task::State::admitted)) {
			for (auto &leases : world_.leases)
				leases.erase(task->id);
			world_.tasks.erase(task->id);
		}
	}
	void renew()
	{
		Task *task = any(Task::State::waiting);
		if (task == nullptr || !task->waiter_us)
			return;
		task->waiter_us = world_.now_us + 8'000'000;
		engine_.reopen(*task);
		if (!is_timed_out(task->presence(), {world_.now_us}))
			try_to_go(*task);
	}
	void put_aside()
	{
		if (Task *task = any(Task::State::waiting))
			task->aside_us = world_.now_us + static_cast<std::int64_t>(random_() % 9'000'000);
	}
	void cancel()
	{
		if (Task *task = any(Task::State::waiting)) {
			engine_.leave(*task);
			world_.tasks.erase(task->id);
		}
	}
	void check()
	{
		for (std::size_t scope = 0; scope < scope_count; scope++)
			ASSERT_EQ(engine_.waiting(scope), model_.waiting(static_cast<int>(scope)));
		for (auto &[id, task] : world_.tasks)
			if (task.state == Task::State::waiting && model_.present(task)) {
				ASSERT_EQ(engine_.can_go(task), model_.can_go(task)) << id;
			}
	}

	std::mt19937_64 random_;
	World world_;
	Engine engine_;
	Model model_;
	const double limits_[scope_count] = {1, 2, 4};
};

TEST(Queue, AgreesWithThePlainModelOverRandomSequences)
{
	constexpr int sequences = 100'000;
	for (int seed = 0; seed < sequences && !HasFatalFailure(); seed++) {
		SCOPED_TRACE(seed);
		Sequence(static_cast<std::uint64_t>(seed)).run(12 + seed % 12);
	}
}

} // namespace
} // namespace ratelimit::core
