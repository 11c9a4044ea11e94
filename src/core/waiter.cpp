#include "core/waiter.hpp"

namespace ratelimit::core {

namespace {

Instant last_third(const Waiter &waiter) noexcept
{
	return waiter.lease_expires_at - Span{ceil_divide(waiter.lease_ttl.us, 3)};
}

} // namespace

bool renewal_is_due(const Waiter &waiter, Instant now) noexcept { return last_third(waiter) < now + waiter_poll; }

Span sleep_at_most(const Waiter &waiter, Instant now) noexcept
{
	Span span = std::min(waiter_poll, last_third(waiter) - now);
	if (waiter.deadline)
		span = std::min(span, *waiter.deadline - now);
	return std::max(span, waiter_sleep_min);
}

} // namespace ratelimit::core
