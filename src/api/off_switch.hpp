// The off switch, `ratelimit.enabled`: what the functions that decide answer while it is off.
#pragma once

#include <optional>

#include "core/bucket.hpp"
#include "core/decision.hpp"

namespace ratelimit::api {

struct Admission;
struct AdmitRequest;

// Absent while the switch is on. Off: what every limit of every call says, a pass or a denial; or an ERROR. Asked after the
// arguments were checked and before anything is looked at.
[[nodiscard]] std::optional<core::Verdict> verdict_when_off();

// The same as the answers of the queue and of a bucket. Nothing is stored, and the task need not be known.
[[nodiscard]] Admission admission_when_off(const AdmitRequest &request, const core::Verdict &verdict);
[[nodiscard]] core::BucketGrant grant_when_off(const core::BucketDemand &demand, const core::Verdict &verdict);

} // namespace ratelimit::api
