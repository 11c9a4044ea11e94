#include "core/lease.hpp"

#include "core/limits.hpp"

namespace ratelimit::core {

StoredScope add_lease(StoredScope scope, double amount, Instant expires_at) noexcept
{
	scope.leased = add_amounts(scope.leased, amount);
	scope.lease_count++;
	scope.expires_from = scope.lease_count == 1 ? expires_at : std::min(scope.expires_from, expires_at);
	return scope;
}

StoredScope remove_leases(StoredScope scope, double amount, std::int64_t count) noexcept
{
	scope.lease_count = std::max<std::int64_t>(0, scope.lease_count - count);
	if (scope.lease_count == 0)
		return StoredScope{};
	scope.leased = subtract_amount(scope.leased, amount);
	return scope;
}

Verdict decide_lease(const ScopeUsage &usage, double amount, double limit, Instant now) noexcept
{
	if (fits(usage.live + amount, limit))
		return Verdict::pass();
	const Span wait = usage.next_expiry ? *usage.next_expiry - now : limits::lease_retry_min;
	return Verdict::later(Reason::concurrency_saturated,
		std::clamp(wait, limits::lease_retry_min, limits::lease_retry_max).ceil_ms());
}

} // namespace ratelimit::core
