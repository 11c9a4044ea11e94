#include "worker/rounds.hpp"

#include <algorithm>

namespace ratelimit::worker {

std::int64_t error_pause_ms(int failures) noexcept
{
	std::int64_t pause_ms = error_pause_ms_min;
	for (int i = 1; i < failures && pause_ms < error_pause_ms_max; i++)
		pause_ms *= 2;
	return std::min(pause_ms, error_pause_ms_max);
}

std::int64_t Schedule::due_at(const Kind &kind, std::int64_t interval_ms) const noexcept
{
	if (interval_ms <= 0)
		return no_wait_ms_max;
	if (!kind.ever_begun || kind.unfinished)
		return not_before_ms_;
	return std::max(not_before_ms_, kind.begun_ms + interval_ms);
}

Chores Schedule::due(const Intervals &intervals, std::int64_t now_ms) const noexcept
{
	return {due_at(reap_, intervals.reap_ms) <= now_ms, due_at(recover_, intervals.recover_ms) <= now_ms};
}

std::int64_t Schedule::wait_ms(const Intervals &intervals, std::int64_t now_ms) const noexcept
{
	const std::int64_t at = std::min(due_at(reap_, intervals.reap_ms), due_at(recover_, intervals.recover_ms));
	return at == no_wait_ms_max ? no_wait_ms_max : std::max<std::int64_t>(0, at - now_ms);
}

void Schedule::begin(Chores chores, std::int64_t now_ms) noexcept
{
	const auto begin_kind = [now_ms](Kind &kind, bool chosen) {
		if (chosen)
			kind = {now_ms, true, false};
	};
	begin_kind(reap_, chores.reap);
	begin_kind(recover_, chores.recover);
}

void Schedule::end_well(Chores unfinished, std::int64_t now_ms) noexcept
{
	failures_ = 0;
	not_before_ms_ = now_ms + unfinished_pause_ms;
	reap_.unfinished = unfinished.reap;
	recover_.unfinished = unfinished.recover;
}

void Schedule::end_badly(Chores failed, std::int64_t now_ms) noexcept
{
	failures_ = std::min(failures_ + 1, 1'000);
	not_before_ms_ = now_ms + error_pause_ms(failures_);
	reap_.unfinished = reap_.unfinished || failed.reap;
	recover_.unfinished = recover_.unfinished || failed.recover;
}

} // namespace ratelimit::worker
