// The rules of rl_acquire_bucket, checked, sorted and turned into what the core and the store take.
//
// A caller sends the same few texts again and again, and reading jsonb costs more than deciding: the rules of recent
// calls are kept per session, found by their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/bucket.hpp"
#include "core/limits.hpp"
#include "pg/postgres.hpp"
#include "store/bucket_store.hpp"

namespace ratelimit::api {

// In the order of the bytes of the ids. Plain data; the ids live as long as the call.
struct BucketRules {
	std::size_t count = 0;
	store::BucketRuleKey rules[core::limits::bucket_rules_max];
	std::optional<std::int64_t> max_concurrency; // the smallest of the rules that have one
};

[[nodiscard]] BucketRules bucket_rules_argument(FunctionCallInfo fcinfo, int index);

} // namespace ratelimit::api
