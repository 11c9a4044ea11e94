// HTTP header fields that tell a client about its limits: RateLimit-Policy, RateLimit and Retry-After, as in
// draft-ietf-httpapi-ratelimit-headers-11, written as structured fields (RFC 9651).
#pragma once

#include "core/units.hpp"
#include "core/view.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ratelimit::core {

// One decision, as far as the fields need it. What is absent is not known.
struct HeaderDecision {
	std::size_t ordinal = 0;
	bool allowed = false;
	std::string_view scope_type; // in UTF-8, as the metric
	std::string_view metric;
	std::optional<double> limit;
	std::optional<double> remaining;
	std::optional<std::int64_t> retry_after_ms; // absent when waiting never helps
	std::optional<Instant> window_start;
	std::optional<Instant> reset_at;
};

// The values of the fields; an empty one is left out.
struct HeaderFields {
	std::string policy;
	std::string limit;
	std::string retry_after;
};

// What a client is told at this instant.
[[nodiscard]] HeaderFields header_fields(View<const HeaderDecision> decisions, Instant now);

} // namespace ratelimit::core
