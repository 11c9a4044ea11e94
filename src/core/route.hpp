// The choice among candidates: the first one that can go, unless the caller has pinned another that can go as well.
#pragma once

#include "core/decision.hpp"
#include "core/view.hpp"

#include <cstddef>
#include <optional>
#include <string_view>

namespace ratelimit::core {

// Whether a limit counts when candidates are compared. Busy slots and queues do not: a candidate is left for full windows
// only.
[[nodiscard]] bool counts_for_route(std::string_view metric) noexcept;

// The verdict of several limits as one: of the limit that has to be waited for the longest, where "never" is longer than
// any wait. The first of them when several are equal; passes when all do.
[[nodiscard]] Verdict longest_wait(const Verdict &a, const Verdict &b) noexcept;

// The place of the candidate to take: the pinned one if it passes, else the first that does; none when none does.
[[nodiscard]] std::optional<std::size_t> choose_candidate(
	View<const Verdict> candidates, std::optional<std::size_t> pinned) noexcept;

} // namespace ratelimit::core
