// The settings `ratelimit.*`: their values, read anywhere; defined once by define_settings().
#pragma once

#include <optional>

#include "pg/postgres.hpp"

namespace ratelimit::pg::settings {

void define_settings();

// `ratelimit.clock`: the instant that replaces the clock, in microseconds of the server's epoch.
[[nodiscard]] std::optional<TimestampTz> test_clock() noexcept;

// `ratelimit.retention`: how long finished rows are kept, in seconds. 0 = not at all.
[[nodiscard]] int retention_seconds() noexcept;

// `ratelimit.worker_stale_after`: how long a worker counts as live after a heartbeat, in seconds.
[[nodiscard]] int worker_stale_after_seconds() noexcept;

// `ratelimit.waiter_ttl`: how long the waiter of a sync task counts as present after each call, in seconds.
[[nodiscard]] int waiter_ttl_seconds() noexcept;

// `ratelimit.idle_retention`: how long what nobody touches is kept, in seconds.
[[nodiscard]] int idle_retention_seconds() noexcept;

// `ratelimit.reservation_grace`: how long a reservation may still be settled after its window, in seconds.
[[nodiscard]] int reservation_grace_seconds() noexcept;

// `ratelimit.reap_interval` and `ratelimit.recover_interval`: the background worker's, in seconds. 0 = off.
[[nodiscard]] int reap_interval_seconds() noexcept;
[[nodiscard]] int recover_interval_seconds() noexcept;

// `ratelimit.enabled` and `ratelimit.when_disabled`: the off switch, and what is answered while it is off.
enum class WhenDisabled : int { allow, deny, error };
[[nodiscard]] bool enabled() noexcept;
[[nodiscard]] WhenDisabled when_disabled() noexcept;

// `ratelimit.denied_sqlstate`: what rl_enforce raises.
[[nodiscard]] int denied_sqlstate() noexcept;

// `ratelimit.bucket_durable`: whether an acquire takes part in the commit.
[[nodiscard]] bool bucket_durable() noexcept;

} // namespace ratelimit::pg::settings
