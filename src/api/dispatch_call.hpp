// One call of rl_dispatch. See dispatch_call.cpp for its way.
#pragma once

#include <map>
#include <set>

#include "api/admission.hpp"
#include "api/queue_book.hpp"
#include "store/queue_store.hpp"
#include "store/task_store.hpp"

namespace ratelimit::api {

class DispatchCall {
public:
	explicit DispatchCall(std::size_t tasks_max) : tasks_max_(tasks_max), book_(queue_clock()) {}

	// Admits and returns, in order, the tasks whose turn it is.
	[[nodiscard]] pg::Vector<Admission> run();

private:
	// Where the next task to look at may come from: a scope's order, or the tasks that are ordered nowhere.
	struct Source {
		core::Turn turn;  // of its next task, or before it
		core::Turn after; // where the search for its next task begins
		ScopeName scope;
		store::WaitKind kind = store::WaitKind::ordered;
		bool is_task = false;  // the turn is that of a task
		bool returned = false; // a task whose time aside is over, of no scope in particular

		friend bool operator<(const Source &a, const Source &b) noexcept
		{
			return std::tie(a.turn, a.scope, a.kind, a.returned) < std::tie(b.turn, b.scope, b.kind, b.returned);
		}
	};
	struct Planned {
		store::TaskRow task;
		TaskScopes scopes;
	};
	// Until when nothing in a scope can go, for those that are ordered there and those that are not.
	struct Idle {
		std::optional<core::Instant> ordered;
		std::optional<core::Instant> free;
	};
	enum class Step { next, stop };

	void add_source(const ScopeName &scope, const core::Turn &from);
	void add_returned();
	void load_ready();
	[[nodiscard]] Step look_at(const Source &source);
	[[nodiscard]] std::optional<store::Candidate> next_of(const Source &source);
	[[nodiscard]] Step consider(const Source &source, const store::Candidate &candidate);
	[[nodiscard]] bool plan(const store::TaskRow &seen, const TaskScopes &scopes);
	void note_blocked(const Source &source, const store::Candidate &candidate, const ScopeList &list,
		const Standings &standings);
	void note_idle(const Source &source, core::Instant until);
	void admit_planned(pg::Vector<Admission> &admitted);
	[[nodiscard]] ScopeList everything_planned() const;
	void mark_idle_scopes();
	void line_up(std::string_view task_id);

	std::size_t tasks_max_;
	QueueBook book_; // the plan, without locks
	std::set<Source> sources_;
	pg::Vector<store::ReadyScope> ready_; // the next ones, in order
	std::size_t ready_used_ = 0;
	bool ready_exhausted_ = false;
	std::map<ScopeName, Idle> idle_;
	std::set<ScopeName> watched_; // somebody in it waits only for scopes where it is not ordered
	std::set<ScopeName> marked_;  // idle or ready, with everybody in line who is back
	pg::Vector<std::string_view> returned_;
	pg::Vector<Planned> planned_;
};

} // namespace ratelimit::api
