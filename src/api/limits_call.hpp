// One call over limits: check, consume or reserve. See limits_call.cpp for its way.
#pragma once

#include <optional>
#include <string_view>

#include "api/arguments.hpp"
#include "api/lease_scope.hpp"
#include "api/rows.hpp"
#include "core/window.hpp"
#include "pg/spi.hpp"
#include "store/request_store.hpp"
#include "store/window_store.hpp"

namespace ratelimit::api {

// One counter during a call.
struct CounterScope {
	explicit CounterScope(const core::Key &from)
		: window_seconds(from.window_seconds), amount(from.amount), limit(from.limit),
		  key(from.scope_type, from.scope_key, from.metric, from.window_seconds)
	{
	}

	std::int32_t window_seconds;
	double amount; // what the call asks for in all
	double limit;  // the smallest limit it names
	store::CounterKey key;
	std::optional<store::CounterRow> row;
	core::Window window; // as of the instant of the decision
	bool inserted = false;
};

class LimitsCall {
public:
	LimitsCall(Mode mode, Elements &elements, std::optional<std::string_view> task_id,
		std::optional<std::string_view> request_id);
	LimitsCall(const LimitsCall &) = delete;
	LimitsCall &operator=(const LimitsCall &) = delete;

	// Decides, and writes what is granted. Returns whether the whole call is allowed.
	[[nodiscard]] bool run();
	[[nodiscard]] const Outcome &outcome(std::size_t element) const noexcept { return outcomes_[element]; }

private:
	[[nodiscard]] bool find_answer();
	void look();
	[[nodiscard]] bool decide();
	[[nodiscard]] bool grant();
	[[nodiscard]] bool grant_in_one_step();
	[[nodiscard]] core::Window charged(const CounterScope &counter) const noexcept;
	[[nodiscard]] bool grant_counter_in_one_step();
	[[nodiscard]] bool grant_lease_in_one_step();
	[[nodiscard]] bool grant_under_locks();
	[[nodiscard]] bool remove_expired();
	void refresh_scopes();
	void deny_unremovable();
	void lock_all();
	void undo_insertions();
	void make_ids();
	void write_counters();
	void write_leases();
	void insert_reservations();
	void insert_leases();
	[[nodiscard]] std::optional<bool> replay();
	[[nodiscard]] bool claim_or_replay(bool &replayed);
	[[nodiscard]] CounterScope &counter_of(const core::Element &element) noexcept { return counters_[element.key]; }
	[[nodiscard]] LeaseScope &scope_of(const core::Element &element) noexcept
	{
		return scopes_[element.key - counters_.size()];
	}
	[[nodiscard]] core::View<core::Element> elements() noexcept { return {elements_.data(), elements_.size()}; }

	Mode mode_;
	Elements &elements_;
	std::optional<std::string_view> task_id_;
	std::optional<std::string_view> request_id_;
	pg::Session session_;
	core::Instant now_;
	pg::SmallVector<CounterScope, 4> counters_; // in lock order
	pg::SmallVector<LeaseScope, 2> scopes_;     // in lock order, locked after the counters
	pg::SmallVector<Outcome, 4> outcomes_;      // one per element
	pg::Vector<store::GivenIds> given_;         // one per element, once ids are made
};

} // namespace ratelimit::api
