#include "core/route.hpp"

#include "core/request.hpp"

namespace ratelimit::core {

bool counts_for_route(std::string_view metric) noexcept
{
	return metric != concurrent_metric && metric != queue_size_metric;
}

Verdict longest_wait(const Verdict &a, const Verdict &b) noexcept
{
	if (a.passes() || b.passes())
		return a.passes() ? b : a;
	if (!a.retry_after_ms || !b.retry_after_ms)
		return a.retry_after_ms ? b : a;
	return *b.retry_after_ms > *a.retry_after_ms ? b : a;
}

std::optional<std::size_t> choose_candidate(View<const Verdict> candidates, std::optional<std::size_t> pinned) noexcept
{
	if (pinned && *pinned < candidates.size && candidates[*pinned].passes())
		return pinned;
	for (std::size_t i = 0; i < candidates.size; i++)
		if (candidates[i].passes())
			return i;
	return std::nullopt;
}

} // namespace ratelimit::core
