#include "core/request.hpp"

#include <algorithm>
#include <tuple>

namespace ratelimit::core {

namespace {

// The case of the decision table that needs no sum.
ElementKind classify(const Element &element) noexcept
{
	if (!element.limit)
		return ElementKind::unlimited;
	if (element.metric == queue_size_metric)
		return ElementKind::queue_size;
	if (element.amount <= 0)
		return ElementKind::nothing;
	if (*element.limit <= 0)
		return ElementKind::blocked;
	return element.metric == concurrent_metric ? ElementKind::lease : ElementKind::window;
}

Key key_of(const Element &element, std::size_t index) noexcept
{
	Key key;
	key.scope_type = element.scope_type;
	key.scope_key = element.scope_key;
	key.is_lease = element.kind == ElementKind::lease;
	if (!key.is_lease) {
		key.metric = element.metric;
		key.window_seconds = element.window_seconds;
	}
	key.amount = element.amount;
	key.limit = *element.limit;
	key.element = index;
	return key;
}

bool same_key(const Key &a, const Key &b) noexcept { return !locks_before(a, b) && !locks_before(b, a); }

} // namespace

bool locks_before(const Key &a, const Key &b) noexcept
{
	// string_view compares bytes as unsigned, as COLLATE "C" does.
	return std::tie(a.is_lease, a.scope_type, a.scope_key, a.metric, a.window_seconds) <
	       std::tie(b.is_lease, b.scope_type, b.scope_key, b.metric, b.window_seconds);
}

std::size_t merge_keys(View<Element> elements, Key *keys) noexcept
{
	std::size_t count = 0;
	for (std::size_t i = 0; i < elements.size; i++) {
		elements[i].kind = classify(elements[i]);
		elements[i].key = no_key;
		if (elements[i].kind == ElementKind::lease || elements[i].kind == ElementKind::window)
			keys[count++] = key_of(elements[i], i);
	}
	if (count > 1)
		std::sort(keys, keys + count, [](const Key &a, const Key &b) {
			return locks_before(a, b) || (!locks_before(b, a) && a.element < b.element);
		});

	// Equal keys stand side by side: add them up, then see which elements the sum outgrows.
	std::size_t kept = 0;
	for (std::size_t first = 0; first < count;) {
		Key merged = keys[first];
		std::size_t after = first + 1;
		for (; after < count && same_key(merged, keys[after]); after++) {
			merged.amount += keys[after].amount; // not saturated: a sum beyond all numbers fits no limit
			merged.limit = std::min(merged.limit, keys[after].limit);
		}
		bool look = false;
		for (std::size_t i = first; i < after; i++) {
			Element &element = elements[keys[i].element];
			if (fits(merged.amount, *element.limit)) {
				element.key = kept;
				look = true;
			} else {
				element.kind = ElementKind::oversized;
			}
		}
		if (look)
			keys[kept++] = merged;
		first = after;
	}
	return kept;
}

Verdict verdict_without_looking(ElementKind kind) noexcept
{
	switch (kind) {
	case ElementKind::blocked:
		return Verdict::never(Reason::limit_is_zero);
	case ElementKind::oversized:
		return Verdict::never(Reason::amount_exceeds_limit);
	default:
		return Verdict::pass();
	}
}

} // namespace ratelimit::core
