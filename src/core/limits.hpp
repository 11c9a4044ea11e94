// Every bound of the contract, by name. Messages, checks and tests take them from here.
#pragma once

#include "core/units.hpp"

#include <cstddef>
#include <cstdint>

namespace ratelimit::core::limits {

inline constexpr std::size_t name_bytes_max = 512;
inline constexpr std::size_t list_elements_max = 1'000;

inline constexpr std::int32_t seconds_min = 1;
inline constexpr std::int32_t seconds_max = 31'622'400; // 366 days

inline constexpr std::int32_t batch_min = 1;
inline constexpr std::int32_t batch_max = 10'000;

inline constexpr std::int32_t window_seconds_default = 60;
inline constexpr std::int32_t lease_ttl_seconds_default = 120;
inline constexpr double amount_default = 1.0;

// A full window: never ask again sooner than this.
inline constexpr Span window_retry_min = Span::from_seconds(1);

// A saturated concurrency limit: when to ask again.
inline constexpr Span lease_retry_min = Span::from_seconds(1);
inline constexpr Span lease_retry_max = Span::from_seconds(5);

// The admission queue.
inline constexpr std::int32_t queue_limit_max = INT32_MAX;
inline constexpr std::int32_t max_wait_seconds_default = 600;
inline constexpr Span wait_without_queue = Span::from_seconds(24 * 3600); // no scope says how long to wait
// While the extension is switched off and denies.
inline constexpr Span disabled_retry = Span::from_seconds(1);

inline constexpr Span queue_retry_min = Span::from_seconds(1);
inline constexpr Span queue_retry_max = Span::from_seconds(30);
inline constexpr std::int32_t waiter_ttl_seconds_default = 15;
inline constexpr Span defer_min = Span::from_seconds(1);
inline constexpr Span defer_max = Span::from_seconds(60);
inline constexpr Span defer_asked_max = Span::from_seconds(seconds_max); // what rl_defer may be asked for
inline constexpr std::int32_t dispatch_tasks_default = 64;
inline constexpr std::int32_t top_keys_default = 20;

inline constexpr std::int32_t shard_count = 4096;

// Adaptive token buckets.
inline constexpr std::size_t bucket_rules_max = 16;
inline constexpr std::int32_t bucket_requested_max = 10'000;
inline constexpr std::int64_t bucket_cooldown_ms_max = 2'700'000; // 45 minutes; what is claimed beyond is only told
inline constexpr std::int64_t bucket_ramp_ms_min = 1'000;         // between two steps upwards
inline constexpr std::int64_t bucket_slot_retry_ms = 10;          // no slot is free: when to ask again
inline constexpr std::int32_t bucket_lease_ttl_seconds = 300;      // of a permit, where max_concurrency bounds them
inline constexpr double bucket_rate_min = 0.0001;                 // permits per second, where one divides by a rate

static_assert(seconds_min <= window_seconds_default && window_seconds_default <= seconds_max);
static_assert(seconds_min <= lease_ttl_seconds_default && lease_ttl_seconds_default <= seconds_max);
static_assert(lease_retry_min <= lease_retry_max);
static_assert(queue_retry_min <= queue_retry_max && lease_retry_max <= queue_retry_max);
static_assert(defer_min <= defer_max && defer_max <= defer_asked_max);
static_assert(batch_min <= dispatch_tasks_default && dispatch_tasks_default <= batch_max);
static_assert(batch_min <= batch_max);

} // namespace ratelimit::core::limits
