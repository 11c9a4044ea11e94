#include "core/queue.hpp"

#include <cmath>
#include <iterator>

namespace ratelimit::core {

namespace {

constexpr std::string_view mode_names[] = {"sync", "async"};

template <std::size_t count>
std::optional<std::size_t> place_of(const std::string_view (&names)[count], std::string_view name) noexcept
{
	for (std::size_t i = 0; i < count; i++)
		if (names[i] == name)
			return i;
	return std::nullopt;
}

std::int64_t retry_in(const Standing &standing, Instant now) noexcept
{
	const Span wait = standing.next_expiry ? *standing.next_expiry - now : limits::queue_retry_min;
	return std::clamp(wait, limits::queue_retry_min, limits::queue_retry_max).ceil_ms();
}

// What no state can change: nothing at all is allowed, or more is asked for than ever fits. What workers offer changes.
std::optional<Refusal> refuse_always(View<const Demand> demands) noexcept
{
	for (std::size_t i = 0; i < demands.size; i++) {
		const Demand &demand = demands[i];
		if (demand.from_workers || !demand.limit)
			continue;
		if (*demand.limit <= 0)
			return Refusal{i, Verdict::never(Reason::limit_is_zero), 0};
		if (!fits(demand.amount, *demand.limit))
			return Refusal{i, Verdict::never(Reason::amount_exceeds_limit), 0};
	}
	return std::nullopt;
}

Refusal refuse_for_now(std::size_t scope, Reason reason, const Standing &standing, std::int64_t depth, Instant now) noexcept
{
	return Refusal{scope, Verdict::later(reason, retry_in(standing, now)), depth};
}

// How far the load passes the limit, in whole tasks; 0 while it fits.
std::int64_t virtual_depth(const Demand &demand, const Standing &standing) noexcept
{
	const double load = standing.active + static_cast<double>(standing.waiting) * demand.amount + demand.amount;
	if (fits(load, *demand.limit))
		return 0;
	const double over = std::ceil(load - *demand.limit - *demand.limit * amount_tolerance);
	return over < limits::queue_limit_max ? static_cast<std::int64_t>(over) : limits::queue_limit_max;
}

} // namespace

std::string_view name_of(TaskMode mode) noexcept { return mode_names[static_cast<std::size_t>(mode)]; }

std::optional<TaskMode> task_mode(std::string_view name) noexcept
{
	const auto place = place_of(mode_names, name);
	return place ? std::optional(static_cast<TaskMode>(*place)) : std::nullopt;
}

// At the very instant of a deadline or an expiry the thing is over.
bool is_timed_out(const Presence &presence, Instant now) noexcept { return presence.deadline && now >= *presence.deadline; }

bool is_abandoned(const Presence &presence, Instant now) noexcept
{
	return presence.waiter_expires_at && now >= *presence.waiter_expires_at;
}

bool is_put_aside(const Presence &presence, Instant now) noexcept
{
	return presence.put_aside_until && now < *presence.put_aside_until;
}

bool may_be_head(const Presence &presence, Instant now) noexcept
{
	return !is_timed_out(presence, now) && !is_abandoned(presence, now) && !is_put_aside(presence, now);
}

bool begins_after(const StoredQueue &queue, const Turn &turn) noexcept
{
	return std::tie(turn.priority, turn.enqueued_at.us) < std::tie(queue.head_priority, queue.head_at.us);
}

StoredQueue begin_at(StoredQueue queue, const Turn &turn) noexcept
{
	queue.head_priority = turn.priority;
	queue.head_at = turn.enqueued_at;
	return queue;
}

StoredQueue enter(StoredQueue queue, const Turn &turn) noexcept
{
	if (begins_after(queue, turn))
		queue = begin_at(queue, turn);
	queue.waiting = static_cast<std::int32_t>(std::min<std::int64_t>(limits::queue_limit_max, std::int64_t{queue.waiting} + 1));
	return queue;
}

// When nobody waits any more, everybody who comes is a new head.
StoredQueue leave(StoredQueue queue) noexcept
{
	queue.waiting = std::max(0, queue.waiting - 1);
	return queue.waiting == 0 ? StoredQueue{} : queue;
}

std::string_view name_of(Obstacle obstacle) noexcept
{
	switch (obstacle) {
	case Obstacle::none:
		return "";
	case Obstacle::saturated:
		return "saturated";
	case Obstacle::not_head:
		return "not_head";
	}
	return "";
}

bool is_saturated(const Demand &demand, double active) noexcept
{
	return demand.limit && !fits(active + demand.amount, *demand.limit);
}

Obstacle obstacle_in(const Demand &demand, const Standing &standing) noexcept
{
	if (is_saturated(demand, standing.active))
		return Obstacle::saturated;
	return demand.fifo && !standing.is_head ? Obstacle::not_head : Obstacle::none;
}

std::optional<Refusal> refuse_new(View<const Demand> demands, View<const Standing> standings, Instant now) noexcept
{
	if (const auto refusal = refuse_always(demands))
		return refusal;
	bool any_saturated = false;
	for (std::size_t i = 0; i < demands.size; i++) {
		if (!is_saturated(demands[i], standings[i].active))
			continue;
		any_saturated = true;
		if (demands[i].queue_limit == 0)
			return refuse_for_now(i, Reason::concurrency_saturated, standings[i], standings[i].waiting, now);
	}
	if (!any_saturated)
		return std::nullopt;
	// It would have to wait, and it would wait in all of its scopes.
	for (std::size_t i = 0; i < demands.size; i++)
		if (demands[i].queue_limit && standings[i].waiting >= *demands[i].queue_limit)
			return refuse_for_now(i, Reason::queue_full, standings[i], standings[i].waiting, now);
	return std::nullopt;
}

std::optional<Refusal> refuse_enqueued(View<const Demand> demands, View<const Standing> standings, Instant now) noexcept
{
	if (const auto refusal = refuse_always(demands))
		return refusal;
	for (std::size_t i = 0; i < demands.size; i++) {
		const Demand &demand = demands[i];
		// Before the first worker has come nobody knows what there will be room for.
		if (!demand.limit || !demand.queue_limit || (demand.from_workers && *demand.limit <= 0))
			continue;
		const std::int64_t depth = virtual_depth(demand, standings[i]);
		if (depth <= *demand.queue_limit)
			continue;
		const Reason reason = *demand.queue_limit == 0 ? Reason::concurrency_saturated : Reason::queue_full;
		return refuse_for_now(i, reason, standings[i], depth, now);
	}
	return std::nullopt;
}

Instant fresh_deadline(View<const Demand> demands, Instant now) noexcept
{
	std::optional<Span> shortest;
	for (const Demand &demand : demands) {
		if (demand.queue_limit == 0)
			continue;
		const Span wait = Span::from_seconds(demand.max_wait_seconds);
		shortest = shortest ? std::min(*shortest, wait) : wait;
	}
	return now + shortest.value_or(limits::wait_without_queue);
}

Instant earlier_deadline(const std::optional<Instant> &old, Instant fresh) noexcept
{
	return old ? std::min(*old, fresh) : fresh;
}

std::int64_t poll_after_ms(View<const Demand> demands, View<const Standing> standings, Instant now) noexcept
{
	Span wait = limits::lease_retry_min;
	for (std::size_t i = 0; i < demands.size; i++)
		if (is_saturated(demands[i], standings[i].active) && standings[i].next_expiry)
			wait = std::max(wait, *standings[i].next_expiry - now);
	return std::clamp(wait, limits::lease_retry_min, limits::lease_retry_max).ceil_ms();
}

std::uint32_t fnv1a_32(std::string_view bytes) noexcept
{
	std::uint32_t hash = 2'166'136'261U;
	for (const char byte : bytes) {
		hash ^= static_cast<unsigned char>(byte);
		hash *= 16'777'619U;
	}
	return hash;
}

Span defer_pause(
	std::string_view task_id_utf8, std::int32_t failures, const std::optional<std::int64_t> &retry_after_ms) noexcept
{
	if (retry_after_ms && *retry_after_ms > 0)
		return std::min(Span::from_ms(*retry_after_ms), limits::defer_asked_max);
	constexpr std::int32_t doublings_max = 6; // 2^6 s are over the longest pause
	const std::int64_t seconds = std::min<std::int64_t>(
		60, std::int64_t{1} << std::clamp<std::int32_t>(failures, 0, doublings_max));
	const std::int64_t thousandths = 1000 + static_cast<std::int64_t>(fnv1a_32(task_id_utf8) % 401) - 200;
	return std::clamp(Span::from_ms(seconds * thousandths), limits::defer_min, limits::defer_max);
}

} // namespace ratelimit::core
