// Core values as rows of the extension's result types.
#pragma once

#include "core/decision.hpp"
#include "core/request.hpp"
#include "core/uuid7.hpp"
#include "pg/entry.hpp"

namespace ratelimit::api {

// What one limit of a call came to.
struct Outcome {
	core::Verdict verdict;
	bool looked = false; // used, reserved, remaining and reset_at are known
	double used = 0;
	double reserved = 0;
	double remaining = 0;
	std::optional<core::Instant> window_start;
	std::optional<core::Instant> reset_at;
	std::optional<core::Uuid> reservation_id;
	std::optional<core::Uuid> lease_id;
	std::optional<core::Instant> lease_expires_at;
};

using DecisionRow = pg::Columns<18>;

[[nodiscard]] DecisionRow decision_row(
	std::size_t ordinal, bool allowed, const core::Element &element, const Outcome &outcome);

} // namespace ratelimit::api
