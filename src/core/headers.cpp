#include "core/headers.hpp"

#include "core/request.hpp"

#include <unordered_set>

namespace ratelimit::core {

namespace {

constexpr std::int64_t second_us = 1'000'000;
// The largest integer of a structured field.
constexpr double integer_max = 999'999'999'999'999;

// Whole seconds, rounded up and never negative: whoever waits that long has waited enough.
std::int64_t ceil_seconds(Span span) noexcept { return std::max<std::int64_t>(0, ceil_divide(span.us, second_us)); }

// Whole units, rounded down; an amount that misses a whole number only by rounding counts as that number.
std::string units(double amount)
{
	const double whole = std::floor(amount + std::min(1e-6, amount * amount_tolerance));
	return std::to_string(static_cast<std::int64_t>(std::min(std::max(0.0, whole), integer_max)));
}

// A structured field's string may hold printable ASCII only. Other bytes become %XX, and so does the percent sign, so that
// different names stay different.
void append_escaped(std::string &out, std::string_view text)
{
	constexpr char digits[] = "0123456789ABCDEF";
	for (const char letter : text) {
		const auto byte = static_cast<unsigned char>(letter);
		if (byte < 0x20 || byte > 0x7e || letter == '%') {
			out += '%';
			out += digits[byte >> 4];
			out += digits[byte & 0xf];
		} else {
			if (letter == '"' || letter == '\\')
				out += '\\';
			out += letter;
		}
	}
}

std::string quoted(std::string_view name)
{
	std::string out = "\"";
	append_escaped(out, name);
	out += '"';
	return out;
}

void append_item(std::string &list, const std::string &item)
{
	if (!list.empty())
		list += ", ";
	list += item;
}

bool is_lease(const HeaderDecision &decision) noexcept { return decision.metric == concurrent_metric; }

// The window's length, or 0 for a decision without one.
std::int64_t window_seconds(const HeaderDecision &decision) noexcept
{
	if (is_lease(decision) || !decision.window_start || !decision.reset_at)
		return 0;
	return ceil_seconds(*decision.reset_at - *decision.window_start);
}

bool is_shown(const HeaderDecision &decision) noexcept
{
	return decision.limit && std::isfinite(*decision.limit) && (is_lease(decision) || window_seconds(decision) > 0);
}

// Names each policy once: a name that was used before is made another by its place in the call.
class PolicyNames {
public:
	[[nodiscard]] std::string next(const HeaderDecision &decision)
	{
		std::string name(decision.scope_type);
		name += ':';
		name += decision.metric;
		if (const std::int64_t seconds = window_seconds(decision); seconds > 0)
			name += ':' + std::to_string(seconds);
		while (!used_.insert(name).second)
			name += ':' + std::to_string(decision.ordinal);
		return quoted(name);
	}

private:
	std::unordered_set<std::string> used_;
};

// The longest wait of a denied call; empty when waiting never helps.
std::string retry_after(View<const HeaderDecision> decisions)
{
	bool denied = false;
	std::int64_t longest_ms = 0;
	for (const HeaderDecision &decision : decisions) {
		denied = denied || !decision.allowed;
		if (!decision.retry_after_ms)
			return {};
		longest_ms = std::max(longest_ms, *decision.retry_after_ms);
	}
	return denied ? std::to_string(ceil_seconds(Span::from_ms(longest_ms))) : std::string();
}

} // namespace

HeaderFields header_fields(View<const HeaderDecision> decisions, Instant now)
{
	HeaderFields fields;
	PolicyNames names;
	for (const HeaderDecision &decision : decisions) {
		if (!is_shown(decision))
			continue;
		const std::string name = names.next(decision);

		std::string policy = name + ";q=" + units(*decision.limit);
		if (is_lease(decision))
			policy += ";qu=\"concurrent-requests\"";
		else
			policy += ";w=" + std::to_string(window_seconds(decision));
		append_item(fields.policy, policy);

		if (!decision.remaining || !std::isfinite(*decision.remaining))
			continue;
		std::string limit = name + ";r=" + units(*decision.remaining);
		if (decision.reset_at)
			limit += ";t=" + std::to_string(ceil_seconds(*decision.reset_at - now));
		append_item(fields.limit, limit);
	}
	fields.retry_after = retry_after(decisions);
	return fields;
}

} // namespace ratelimit::core
