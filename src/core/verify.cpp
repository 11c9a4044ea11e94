#include "core/verify.hpp"

#include <cmath>

namespace ratelimit::core {

namespace {

double seconds_of(Instant at) noexcept
{
	return at == Instant::latest() ? std::numeric_limits<double>::infinity() : static_cast<double>(at.us) / 1e6;
}

bool is_amount(double amount) noexcept { return std::isfinite(amount) && amount >= 0; }

} // namespace

std::string_view object_of(Problem problem) noexcept
{
	switch (problem) {
	case Problem::counter_missing:
	case Problem::counter_behind:
	case Problem::counter_reserved:
	case Problem::counter_used:
		return "counter";
	case Problem::scope_missing:
	case Problem::scope_leased:
	case Problem::scope_lease_count:
	case Problem::scope_expires_from:
	case Problem::scope_waiting:
	case Problem::scope_unseen:
		return "scope";
	case Problem::task_places:
	case Problem::task_open_attempt:
	case Problem::task_stray_attempts:
	case Problem::task_lease_ids:
	case Problem::task_token:
		return "task";
	}
	return "";
}

std::string_view text_of(Problem problem) noexcept
{
	switch (problem) {
	case Problem::counter_missing:
		return "missing, though it has open reservations";
	case Problem::counter_behind:
		return "in an older window than an open reservation";
	case Problem::counter_reserved:
		return "reserved is not the sum of its open reservations";
	case Problem::counter_used:
		return "used is not an amount";
	case Problem::scope_missing:
		return "missing, though it has leases";
	case Problem::scope_leased:
		return "leased is not the sum of its leases";
	case Problem::scope_lease_count:
		return "lease_count is not the number of its leases";
	case Problem::scope_expires_from:
		return "expires_from is later than a lease expires";
	case Problem::scope_waiting:
		return "waiting is not the number of its waiting tasks";
	case Problem::scope_unseen:
		return "its waiting tasks are not known to the dispatcher, or there are none";
	case Problem::task_places:
		return "its places in queues are not those of its state and scopes";
	case Problem::task_open_attempt:
		return "it is being executed, and the attempt is not open";
	case Problem::task_stray_attempts:
		return "attempts are open that are not its execution";
	case Problem::task_lease_ids:
		return "it waits and names leases of an admission";
	case Problem::task_token:
		return "it runs without a token";
	}
	return "";
}

// Written so that a NaN is never the same as anything.
bool same_amount(double a, double b, double largest) noexcept
{
	const double scale = std::max({std::abs(a), std::abs(b), std::isfinite(largest) ? std::abs(largest) : 0.0});
	return std::isfinite(a) && std::isfinite(b) && std::abs(a - b) <= scale * amount_tolerance;
}

Findings verify_counter(const CounterFacts &facts) noexcept
{
	Findings findings;
	if (!is_amount(facts.stored.used))
		findings.add({Problem::counter_used, 0, facts.stored.used});
	if (!is_amount(facts.stored.reserved) || !same_amount(facts.stored.reserved, facts.open, facts.limit))
		findings.add({Problem::counter_reserved, facts.open, facts.stored.reserved});
	return findings;
}

Findings verify_uncounted(const UncountedFacts &facts, Instant now) noexcept
{
	Findings findings;
	if (!facts.counter_start) {
		if (now < facts.reset_at)
			findings.add({Problem::counter_missing, facts.open, std::nullopt});
	} else if (*facts.counter_start < facts.window_start) {
		findings.add({Problem::counter_behind, seconds_of(facts.window_start), seconds_of(*facts.counter_start)});
	}
	return findings;
}

Findings verify_scope(const ScopeFacts &facts) noexcept
{
	Findings findings;
	if (!is_amount(facts.stored.leased) || !same_amount(facts.stored.leased, facts.leased, facts.largest))
		findings.add({Problem::scope_leased, facts.leased, facts.stored.leased});
	if (facts.stored.lease_count != facts.lease_count)
		findings.add({Problem::scope_lease_count, static_cast<double>(facts.lease_count),
			static_cast<double>(facts.stored.lease_count)});
	if (facts.stored.expires_from > facts.first_expiry)
		findings.add({Problem::scope_expires_from, seconds_of(facts.first_expiry), seconds_of(facts.stored.expires_from)});
	if (facts.stored_waiting != facts.waiting)
		findings.add({Problem::scope_waiting, static_cast<double>(facts.waiting), static_cast<double>(facts.stored_waiting)});
	if (facts.is_awaited != (facts.waiting > 0))
		findings.add({Problem::scope_unseen, facts.waiting > 0 ? 1.0 : 0.0, facts.is_awaited ? 1.0 : 0.0});
	return findings;
}

} // namespace ratelimit::core
