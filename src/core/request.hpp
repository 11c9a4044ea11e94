// The validated request of one call: its limits, what each of them is, and the distinct keys in lock order.
#pragma once

#include "core/decision.hpp"
#include "core/limits.hpp"
#include "core/view.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit::core {

inline constexpr std::string_view concurrent_metric = "concurrent";
inline constexpr std::string_view queue_size_metric = "queue_size";

// What a limit turns out to be, in the order in which the cases are tried.
enum class ElementKind : std::uint8_t {
	unlimited,  // no limit: not enforced
	queue_size, // belongs to the admission queue: not enforced
	nothing,    // amount 0: nothing to take
	blocked,    // limit 0
	oversized,  // more than the limit can ever hold
	lease,      // a concurrency lease
	window,     // a fixed-window counter
};

inline constexpr std::size_t no_key = SIZE_MAX;

// One limit as the caller gave it. Numbers are in range, names are not blank.
struct Element {
	std::string_view scope_type;
	std::string_view scope_key;
	std::string_view metric;
	std::optional<double> limit;
	double amount = limits::amount_default;
	std::int32_t window_seconds = limits::window_seconds_default;
	std::int32_t lease_ttl_seconds = limits::lease_ttl_seconds_default;
	std::optional<std::string_view> attempt_id;

	// Set by merge_keys().
	ElementKind kind = ElementKind::unlimited;
	std::size_t key = no_key; // place in the keys; none when the element is decided without looking
};

// A distinct counter or scope that has to be looked at. `amount` is the sum over the elements that name it, `limit` the
// smallest of theirs.
struct Key {
	std::string_view scope_type;
	std::string_view scope_key;
	std::string_view metric;         // empty for leases
	std::int32_t window_seconds = 0; // 0 for leases
	bool is_lease = false;
	double amount = 0;
	double limit = 0;
	std::size_t element = 0; // the first element that names it
};

// The lock order within one call: counters, then scopes, each by the bytes of the key.
[[nodiscard]] bool locks_before(const Key &a, const Key &b) noexcept;

// Classifies the elements and writes the distinct keys to look at, in lock order, into `keys`, which has room for as many
// as there are elements. Returns their number.
[[nodiscard]] std::size_t merge_keys(View<Element> elements, Key *keys) noexcept;

// The verdict on an element that is decided without looking at any state.
[[nodiscard]] Verdict verdict_without_looking(ElementKind kind) noexcept;

} // namespace ratelimit::core
