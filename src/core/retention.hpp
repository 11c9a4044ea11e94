// When what nobody uses any more is deleted.
//
// A row keeps when it was last touched, which changes with each use and so stands in no index. The reaper finds rows by a
// lower bound of that, `idle_from`, which only the reaper changes: it looks at a row whose bound is old enough, and either
// deletes the row or moves the bound up to where it belongs. A row is looked at about once per idle time, however often it
// is touched, and is found at the very instant at which it may go.
#pragma once

#include "core/units.hpp"

#include <algorithm>
#include <optional>

namespace ratelimit::core {

// Where the bound belongs for a row that was touched at `touched_at` and must be kept until `over_at` in any case. Absent
// when the row may go at `now`.
[[nodiscard]] constexpr std::optional<Instant> idle_from(
	Instant touched_at, Instant over_at, Span idle, Instant now) noexcept
{
	const Instant due_at = std::max(touched_at + idle, over_at);
	return due_at <= now ? std::nullopt : std::optional(due_at - idle);
}

// The same for a row that is in use, and is touched when that ends: not before now.
[[nodiscard]] constexpr Instant idle_from_use(Instant now, Span idle) noexcept
{
	return std::max(now, now - idle + Span{1});
}

} // namespace ratelimit::core
