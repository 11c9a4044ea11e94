// Bucket rows, which are spent at once.
//
// A row is born by INSERT in the caller's transaction: until that ends, others wait for it, and a rollback takes it away.
// From then on acquires and penalties change it in place (pg/inplace.hpp), seen by everybody and undone by nobody.
//
// A row dies by agreement, so that no permit is granted from a row that is going away. The reaper takes the key's
// heavyweight lock, held to the end of its transaction; marks the row `retired` in place, if it is idle at that moment;
// and deletes it. Who meets a retired row takes that lock as well, which waits for the reaper's end, and looks again: a row
// that is still there was spared by a rollback (or a crash), so he clears the mark and goes on; one that is gone is created
// anew, full, which is what it was when it was retired.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/bucket.hpp"
#include "core/units.hpp"
#include "core/view.hpp"
#include "pg/inplace.hpp"
#include "pg/memory.hpp"
#include "pg/postgres.hpp"

namespace ratelimit::store {

// One rule of a call. The rules of a call stand in the order of the bytes of their ids.
struct BucketRuleKey {
	Datum rule_id;
	core::BucketConfig config;
};

// Asks the rows of all these rules for permits, creating those that are missing. The clock is read under their locks.
[[nodiscard]] core::BucketGrant acquire_permits(
	Datum bucket_id, core::View<const BucketRuleKey> rules, const core::BucketDemand &demand);

// Tells every rule of the bucket about a refusal. Returns how many rows changed.
[[nodiscard]] std::int32_t penalize_bucket(Datum bucket_id, std::int64_t cooldown_ms);

// Deletes rows that are idle, at most `batch`, leaving those that somebody else holds. Returns how many.
[[nodiscard]] std::int32_t delete_idle_buckets(std::int32_t batch, std::int64_t retention_ms);

// The rows as of now, each copied whole.
class BucketReader {
public:
	BucketReader();
	[[nodiscard]] bool next();
	[[nodiscard]] core::BucketState state() const noexcept;
	// Valid until the next one.
	[[nodiscard]] Datum bucket_id() const noexcept { return reader_.key(0); }
	[[nodiscard]] Datum rule_id() const noexcept { return reader_.key(1); }
	void close() { reader_.close(); }

private:
	pg::inplace::Reader reader_;
};

} // namespace ratelimit::store
