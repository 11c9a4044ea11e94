// Where a task stands, as the functions of the admission queue answer it.
#pragma once

#include <optional>
#include <string_view>

#include "api/queue_book.hpp"
#include "core/queue.hpp"
#include "pg/entry.hpp"
#include "store/task_store.hpp"

namespace ratelimit::api {

// The scope that refuses, with its numbers.
struct RefusedScope {
	TaskScope scope;
	double used = 0;
	std::optional<core::Instant> reset_at;
	std::int64_t queue_depth = 0;
};

struct Blocker {
	std::string_view scope_type;
	std::string_view scope_key;
	core::Obstacle obstacle;
};

struct Admission {
	std::string_view task_id;
	core::TaskMode mode = core::TaskMode::sync;
	std::string_view status;
	bool admitted = false;
	bool newly_admitted = false;
	std::optional<std::string_view> reason;
	std::optional<std::int64_t> retry_after_ms; // absent when asking again never helps
	std::optional<RefusedScope> refused;
	std::int32_t priority = 0;
	std::optional<core::Instant> enqueued_at;
	std::optional<core::Instant> deadline;
	std::optional<core::Instant> admitted_at;
	std::optional<core::Instant> waiter_expires_at;
	pg::Vector<core::Uuid> lease_ids;
	Datum scopes = Datum(0);
	pg::SmallVector<Blocker, 4> blockers;
};

// The task as it is stored. A waiting one past its deadline is timed out, whoever finds it.
[[nodiscard]] Admission admission_of(const store::TaskRow &task, core::Instant now);
// A waiting task, with what it waits for.
[[nodiscard]] Admission waiting_admission(
	const store::TaskRow &task, const ScopeList &list, const Standings &standings, core::Instant now);
// The task, if there is one, was not let in.
[[nodiscard]] Admission refused_admission(
	Admission admission, const ScopeList &list, const Standings &standings, const core::Refusal &refusal);

// What keeps the task from going. One that is put aside, or whose waiter is gone, is no head anywhere.
[[nodiscard]] pg::SmallVector<Blocker, 4> blockers_of(
	const store::TaskRow &task, const ScopeList &list, const Standings &standings, core::Instant now);

using AdmissionRow = pg::Columns<25>;
[[nodiscard]] AdmissionRow admission_row(std::size_t ordinal, const Admission &admission);

} // namespace ratelimit::api
