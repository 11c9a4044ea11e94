// The admission queue twice: an engine that decides with the core's functions as the extension does, and a plain model
// that knows only the rules and looks at everything each time.
#pragma once

#include "core/queue.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace ratelimit::core::queue_test {

struct Task {
	std::string id;
	int priority = 0;
	std::int64_t enqueued_us = 0;
	std::int64_t deadline_us = 0;
	std::optional<std::int64_t> waiter_us;
	std::optional<std::int64_t> aside_us;
	std::vector<int> scopes;
	std::vector<Demand> demands;
	enum class State { waiting, admitted, over } state = State::waiting;

	[[nodiscard]] Turn turn() const { return {priority, {enqueued_us}, id}; }
	[[nodiscard]] Presence presence() const
	{
		Presence presence{Instant{deadline_us}, std::nullopt, std::nullopt};
		if (waiter_us)
			presence.waiter_expires_at = Instant{*waiter_us};
		if (aside_us)
			presence.put_aside_until = Instant{*aside_us};
		return presence;
	}
};

struct Lease {
	double amount;
	std::int64_t expires_us;
};

// All of it; both sides read it, only the engine's answers change it.
struct World {
	std::map<std::string, Task> tasks;
	std::vector<std::map<std::string, Lease>> leases; // per scope, by task
	std::int64_t now_us = 0;

	explicit World(std::size_t scopes) : leases(scopes) {}
};

// --- the engine: heads by order, decisions by the core -------------------------------------------------------------

// Each scope keeps its waiting tasks in order, and where the search for its head begins, as the tables do.
class Engine {
public:
	explicit Engine(World &world) : world_(world), lines_(world.leases.size()), stored_(world.leases.size()) {}

	void enter(const Task &task)
	{
		for (std::size_t i = 0; i < task.scopes.size(); i++) {
			const auto scope = static_cast<std::size_t>(task.scopes[i]);
			stored_[scope] = core::enter(stored_[scope], task.turn());
			if (task.demands[i].fifo)
				lines_[scope].insert(key(task));
		}
	}
	void leave(const Task &task)
	{
		for (const int at : task.scopes) {
			const auto scope = static_cast<std::size_t>(at);
			stored_[scope] = core::leave(stored_[scope]);
			lines_[scope].erase(key(task));
		}
	}
	// A waiter that comes back moves the beginning of the search back.
	void reopen(const Task &task)
	{
		for (const int at : task.scopes) {
			StoredQueue &queue = stored_[static_cast<std::size_t>(at)];
			if (begins_after(queue, task.turn()))
				queue = begin_at(queue, task.turn());
		}
	}
	[[nodiscard]] std::vector<Standing> standings(const Task &task, bool counted)
	{
		std::vector<Standing> result;
		for (const int at : task.scopes) {
			const auto scope = static_cast<std::size_t>(at);
			Standing standing;
			for (const auto &[holder, lease] : world_.leases[scope]) {
				if (!lease_is_live({lease.expires_us}, {world_.now_us}))
					continue;
				standing.active += lease.amount;
				const Instant expiry{lease.expires_us};
				standing.next_expiry = standing.next_expiry ? std::min(*standing.next_expiry, expiry) : expiry;
			}
			standing.waiting = stored_[scope].waiting - (counted ? 1 : 0);
			const Task *head = head_of(scope);
			standing.is_head = head == nullptr || !(head->turn() < task.turn());
			result.push_back(standing);
		}
		return result;
	}
	[[nodiscard]] std::vector<Obstacle> obstacles(const Task &task)
	{
		std::vector<Obstacle> result;
		const std::vector<Standing> states = standings(task, true);
		for (std::size_t i = 0; i < task.demands.size(); i++)
			result.push_back(obstacle_in(task.demands[i], states[i]));
		return result;
	}
	[[nodiscard]] bool can_go(const Task &task)
	{
		const auto all = obstacles(task);
		return !is_put_aside(task.presence(), {world_.now_us}) &&
			   std::all_of(all.begin(), all.end(), [](Obstacle obstacle) { return obstacle == Obstacle::none; });
	}
	[[nodiscard]] std::int64_t waiting(std::size_t scope) const { return stored_[scope].waiting; }

private:
	using Key = std::tuple<int, std::int64_t, std::string>;
	static Key key(const Task &task) { return {task.priority, task.enqueued_us, task.id}; }

	const Task *head_of(std::size_t scope)
	{
		StoredQueue &queue = stored_[scope];
		bool moved = false;
		for (auto at = lines_[scope].lower_bound({queue.head_priority, queue.head_at.us, ""}); at != lines_[scope].end(); ++at) {
			const Task &task = world_.tasks.at(std::get<2>(*at));
			const Presence presence = task.presence();
			const Instant now{world_.now_us};
			if (is_timed_out(presence, now) || is_abandoned(presence, now))
				continue;
			if (!moved)
				queue = begin_at(queue, task.turn());
			moved = true;
			if (may_be_head(presence, now))
				return &task;
		}
		return nullptr;
	}

	World &world_;
	std::vector<std::set<Key>> lines_; // the ordered ones
	std::vector<StoredQueue> stored_;
};

// --- the model: the rules in the words of the contract, nothing remembered -------------------------------------------

class Model {
public:
	explicit Model(const World &world) : world_(world) {}

	[[nodiscard]] double active(int scope) const
	{
		double sum = 0;
		for (const auto &[task, lease] : world_.leases[static_cast<std::size_t>(scope)])
			if (lease.expires_us > world_.now_us)
				sum += lease.amount;
		return sum;
	}
	[[nodiscard]] std::int64_t waiting(int scope) const
	{
		return std::count_if(world_.tasks.begin(), world_.tasks.end(), [&](const auto &entry) {
			const Task &task = entry.second;
			return task.state == Task::State::waiting && std::count(task.scopes.begin(), task.scopes.end(), scope) > 0;
		});
	}
	[[nodiscard]] bool present(const Task &task) const
	{
		return task.deadline_us > world_.now_us && (!task.waiter_us || *task.waiter_us > world_.now_us) &&
			   (!task.aside_us || *task.aside_us <= world_.now_us);
	}
	[[nodiscard]] bool is_head(const Task &task, int scope) const
	{
		for (const auto &[id, other] : world_.tasks) {
			if (other.state != Task::State::waiting || id == task.id || !present(other) || !comes_before(other, task))
				continue;
			for (std::size_t i = 0; i < other.scopes.size(); i++)
				if (other.scopes[i] == scope && other.demands[i].fifo)
					return false;
		}
		return true;
	}
	[[nodiscard]] bool saturated(const Demand &demand, int scope) const
	{
		return demand.limit && active(scope) + demand.amount > *demand.limit + 1e-9;
	}
	[[nodiscard]] bool can_go(const Task &task) const
	{
		if (task.aside_us && *task.aside_us > world_.now_us)
			return false;
		for (std::size_t i = 0; i < task.scopes.size(); i++)
			if (saturated(task.demands[i], task.scopes[i]) || (task.demands[i].fifo && !is_head(task, task.scopes[i])))
				return false;
		return true;
	}
	// The reason of a denial; empty when the task is let in.
	[[nodiscard]] std::string denial(const Task &task, bool enqueue) const
	{
		for (const Demand &demand : task.demands) {
			if (demand.limit && *demand.limit == 0)
				return "limit_is_zero";
			if (demand.limit && demand.amount > *demand.limit)
				return "amount_exceeds_limit";
		}
		return enqueue ? denial_of_enqueue(task) : denial_of_admit(task);
	}

private:
	static bool comes_before(const Task &a, const Task &b)
	{
		if (a.priority != b.priority)
			return a.priority < b.priority;
		if (a.enqueued_us != b.enqueued_us)
			return a.enqueued_us < b.enqueued_us;
		return a.id < b.id;
	}
	[[nodiscard]] std::string denial_of_admit(const Task &task) const
	{
		bool any = false;
		for (std::size_t i = 0; i < task.scopes.size(); i++) {
			const bool full = saturated(task.demands[i], task.scopes[i]);
			any = any || full;
			if (full && task.demands[i].queue_limit && *task.demands[i].queue_limit == 0)
				return "concurrency_saturated";
		}
		for (std::size_t i = 0; any && i < task.scopes.size(); i++)
			if (task.demands[i].queue_limit && waiting(task.scopes[i]) >= *task.demands[i].queue_limit)
				return "queue_full";
		return "";
	}
	[[nodiscard]] std::string denial_of_enqueue(const Task &task) const
	{
		for (std::size_t i = 0; i < task.scopes.size(); i++) {
			const Demand &demand = task.demands[i];
			if (!demand.limit || !demand.queue_limit)
				continue;
			const double over = active(task.scopes[i]) +
								static_cast<double>(waiting(task.scopes[i])) * demand.amount + demand.amount - *demand.limit;
			if (over > 1e-9 && std::ceil(over - 1e-9) > *demand.queue_limit)
				return *demand.queue_limit == 0 ? "concurrency_saturated" : "queue_full";
		}
		return "";
	}

	const World &world_;
};

} // namespace ratelimit::core::queue_test
