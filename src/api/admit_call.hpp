// One call for one task: rl_admit, rl_enqueue, rl_rebind, and each look of rl_admit_wait. See admit_call.cpp for its way.
#pragma once

#include <optional>
#include <string_view>

#include "api/admission.hpp"
#include "api/queue_book.hpp"
#include "api/task_scopes.hpp"
#include "api/task_steps.hpp"
#include "store/task_store.hpp"

namespace ratelimit::api {

enum class Ask { admit, enqueue, rebind };

struct AdmitRequest {
	Ask ask = Ask::admit;
	std::string_view task_id;
	TaskScopes scopes;
	std::optional<core::TaskMode> mode; // absent: as stored, sync for a new task
	std::int32_t priority = 0;
	std::optional<std::string_view> waiter_id; // absent: the task's id
	store::Sleeping sleeping;                  // whom to wake when its turn comes
	std::optional<core::Instant> deadline;     // an earlier one than the task has or the scopes give
};

class AdmitCall {
public:
	explicit AdmitCall(const AdmitRequest &request) noexcept : request_(request) {}

	// Absent when the task to rebind is unknown.
	[[nodiscard]] std::optional<Admission> run();

private:
	// Each answers, or gives nothing when somebody else has changed the task meanwhile: look again.
	using Answer = std::optional<Admission>;

	[[nodiscard]] Answer unknown(core::Instant now, bool is_stored);
	[[nodiscard]] Answer known(const store::TaskRow &task, core::Instant now);
	[[nodiscard]] Admission ended(const store::TaskRow &task, core::Instant now) const;
	[[nodiscard]] Answer waiting(const store::TaskRow &task, core::Instant now);
	[[nodiscard]] Answer poll(store::TaskRow task, const TaskScopes &stored, core::Instant now);
	[[nodiscard]] Answer admit_waiting();
	[[nodiscard]] Answer move_waiting();
	[[nodiscard]] Answer holding(const store::TaskRow &task, core::Instant now);
	[[nodiscard]] Answer replace_numbers(const store::TaskRow &task, core::Instant now);
	[[nodiscard]] Answer lost_lease();
	[[nodiscard]] Answer move_holder();

	[[nodiscard]] std::optional<store::TaskRow> lock_task() const;
	void drop_forgotten(core::Instant now) const;
	[[nodiscard]] ScopeList wanted(QueueBook &book) const;
	[[nodiscard]] store::TaskRow new_task(core::Instant now) const;
	void touch_waiter(store::TaskRow &task, core::Instant now) const;
	[[nodiscard]] Admission settle_in(QueueBook &book, store::TaskRow &task, const ScopeList &list, bool counted);

	const AdmitRequest &request_;
};

} // namespace ratelimit::api
