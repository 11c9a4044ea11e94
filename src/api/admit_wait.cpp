// CALL rl_admit_wait: asks for a slot and sleeps until the task's turn.
//
// The task is enqueued by the code of rl_admit in the transaction of the CALL, which is committed. Then, in a loop: is the
// client still there (which resets the latch), is it the task's turn, sleep. While it sleeps the session has neither a
// snapshot nor a transaction id. Whoever makes room sets its latch when he commits; what nobody wakes it for, it notices by
// looking every five seconds. The look reads without a lock and writes only when it is the task's turn, its deadline has
// passed or the waiter's lease has to be renewed.
//
// Errors. A look runs in a subtransaction, so whatever it ends with, the transaction around it is sound. Any error that
// ends the wait (a cancel, a statement timeout) rolls that transaction back first; then the task is taken out of the queue
// in a transaction of its own, and only then the error goes on. A terminated session leaves the task to its waiter lease.
#include <string>

#include "api/admit_call.hpp"
#include "api/arguments.hpp"
#include "api/task_steps.hpp"
#include "core/waiter.hpp"
#include "pg/clock.hpp"
#include "pg/entry.hpp"
#include "pg/error.hpp"
#include "pg/settings.hpp"
#include "pg/spi.hpp"
#include "pg/subtransaction.hpp"
#include "pg/transaction.hpp"
#include "pg/value.hpp"
#include "pg/wait.hpp"

namespace ratelimit::api {

namespace {

constexpr std::int64_t retry_after_conflict_ms = 50;
constexpr int give_up_tries_max = 3;

// Unique to the call, also across restarts of the server.
std::string new_waiter_id()
{
	static std::int64_t calls = 0; // in this process
	calls++;
	return "rl_admit_wait:" + std::to_string(MyProcPid) + ":" + std::to_string(pg::process_start_us()) + ":" +
		   std::to_string(calls);
}

// Whether a new transaction may get through where this one could not.
bool is_conflict(const std::exception_ptr &failure)
{
	const auto is_conflict_state = [](int sqlstate) {
		return sqlstate == ERRCODE_T_R_SERIALIZATION_FAILURE || sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED;
	};
	try {
		std::rethrow_exception(failure);
	} catch (const pg::ServerError &error) {
		return error.data != nullptr && is_conflict_state(error.data->sqlerrcode);
	} catch (const pg::SqlError &error) {
		return is_conflict_state(error.sqlstate);
	} catch (...) {
		return false;
	}
}

// Ends a waiting task, whose row is locked.
Admission leave_queue(store::TaskRow &task, core::TaskEvent event, std::string_view code)
{
	const TaskScopes scopes = stored_scopes(task.scopes);
	QueueBook book(queue_clock());
	book.add(scopes.list);
	book.lock_all();
	mark_entered(book, scopes.list, true);
	book.leave(task.turn(), scopes.list);
	end_task(task, event, code, book.now());
	save_task(task, book.now());
	book.write();
	book.wake_next();
	return admission_of(task, book.now());
}

using Durability = pg::TransactionControl::Durability;

class WaitCall {
public:
	WaitCall(FunctionCallInfo fcinfo, AdmitRequest &request, std::optional<core::Span> max_wait);
	[[nodiscard]] Datum run();

private:
	template <typename Work>
	[[nodiscard]] std::exception_ptr in_transaction(pg::RoundMemory &memory, Work &&work);

	void enqueue();
	[[nodiscard]] std::exception_ptr wait_once();
	void look();
	void ask();
	[[nodiscard]] bool may_go(const store::TaskRow &task, core::Instant now) const;
	void renew();
	void remember(const store::TaskRow &task);
	void give_up();

	[[nodiscard]] bool is_ours(const store::TaskRow &task) const noexcept { return task.waiter_id == waiter_id_; }
	[[nodiscard]] Admission elsewhere(const store::TaskRow &task, core::Instant now) const;
	[[nodiscard]] Admission forgotten() const;
	void answer(const Admission &admission);

	FunctionCallInfo fcinfo_;
	AdmitRequest &request_;
	std::optional<core::Span> max_wait_;
	std::string waiter_id_;
	pg::TransactionControl control_;
	pg::RoundMemory round_;
	core::Waiter waiter_;
	Durability durability_ = Durability::as_set; // of what the look has written
	bool client_is_gone_ = false;
	bool look_again_ = false; // before sleeping
	std::optional<Datum> result_;
};

WaitCall::WaitCall(FunctionCallInfo fcinfo, AdmitRequest &request, std::optional<core::Span> max_wait)
	: fcinfo_(fcinfo), request_(request), max_wait_(max_wait), waiter_id_(new_waiter_id())
{
	request_.mode = core::TaskMode::sync;
	request_.waiter_id = waiter_id_;
	request_.sleeping = {MyProcPid, core::Instant{pg::process_start_us()}};
}

Datum WaitCall::run()
{
	enqueue();
	while (!result_) {
		std::exception_ptr failure = wait_once();
		if (failure && is_conflict(failure))
			failure = nullptr;
		if (!failure && !client_is_gone_)
			continue;
		give_up();
		if (client_is_gone_)
			pg::end_without_client();
		std::rethrow_exception(failure);
	}
	control_.finish();
	return *result_;
}

// Runs the work in a transaction of its own, with memory of its own. What fails leaves a new transaction behind.
template <typename Work>
std::exception_ptr WaitCall::in_transaction(pg::RoundMemory &memory, Work &&work)
{
	memory.reset();
	memory.enter();
	std::exception_ptr failure = pg::attempt([&] {
		pg::ActiveSnapshot snapshot;
		pg::Session session;
		session.connect();
		work();
		session.finish();
		snapshot.finish();
	});
	memory.leave();
	if (failure)
		return failure;
	try {
		control_.commit(durability_);
	} catch (...) {
		failure = std::current_exception();
	}
	return failure;
}

// In the transaction of the CALL: an error undoes it all.
void WaitCall::enqueue()
{
	const bool one_try = max_wait_ && max_wait_->us <= 0;
	if (max_wait_ && !one_try)
		request_.deadline = queue_clock() + *max_wait_;
	pg::Session session;
	session.connect();
	const std::optional<Admission> admission = AdmitCall(request_).run();
	const bool waits = admission->status == core::name_of(core::TaskStatus::waiting);
	if (!waits) {
		answer(*admission);
	} else if (std::optional<store::TaskRow> task = lock_known_task(request_.task_id); one_try) {
		answer(leave_queue(*task, core::TaskEvent::time_out, core::code_queue_timeout));
	} else {
		remember(*task);
		// Changes nothing yet, but the plan of the renewal is made now, and not by each sleeper in the middle of its sleep.
		store::keep_waiter(task->task_id, waiter_id_, waiter_.lease_expires_at);
	}
	session.finish();
	request_.deadline.reset(); // it is stored
	control_.commit();
}

// One turn of the loop. Whatever it ends with, a sound transaction is left.
std::exception_ptr WaitCall::wait_once()
{
	std::exception_ptr failure;
	try {
		client_is_gone_ = !pg::client_is_there();
		if (client_is_gone_)
			return nullptr;
		pg::check_for_interrupts();
		failure = in_transaction(round_, [this] { look(); });
		if (failure && is_conflict(failure))
			pg::sleep_on_latch(retry_after_conflict_ms);
		else if (!failure && !result_ && !look_again_)
			pg::sleep_on_latch(core::sleep_at_most(waiter_, queue_clock()).ceil_ms());
	} catch (...) {
		failure = std::current_exception();
	}
	if (failure) {
		result_.reset();
		control_.roll_back();
	}
	return failure;
}

// --- looking -------------------------------------------------------------------------------------------------------

// What may wait for others comes first: waiting resets the latch, so what is told meanwhile is found only by looking after.
void WaitCall::look()
{
	look_again_ = false;
	durability_ = Durability::none;
	if (core::renewal_is_due(waiter_, queue_clock()))
		renew();
	const std::optional<store::TaskRow> task = store::read_task(request_.task_id);
	const core::Instant now = queue_clock();
	if (!task)
		return answer(forgotten());
	if (task->status != core::TaskStatus::waiting || !is_ours(*task))
		return answer(elsewhere(*task, now));
	remember(*task);
	if (core::is_timed_out(task->presence, now) || core::is_abandoned(task->presence, now) || may_go(*task, now))
		ask();
}

// A crash ends all waiters, so the renewal need not survive one. It does nothing for a task that has ended or whose place
// was taken over.
void WaitCall::renew()
{
	store::keep_waiter(request_.task_id, waiter_id_,
		queue_clock() + core::Span::from_seconds(pg::settings::waiter_ttl_seconds()));
}

// With the task locked, so that nobody takes its place over meanwhile.
void WaitCall::ask()
{
	durability_ = Durability::as_set;
	look_again_ = true;
	const core::Instant now = queue_clock();
	const std::optional<store::TaskRow> task = lock_known_task(request_.task_id);
	if (!task)
		return answer(forgotten());
	if (task->status != core::TaskStatus::waiting || !is_ours(*task))
		return answer(elsewhere(*task, now));
	// Under the scopes that it has by now: somebody may have moved it.
	AdmitRequest request = request_;
	request.scopes = stored_scopes(task->scopes);
	const std::optional<Admission> admission = AdmitCall(request).run();
	if (admission->status != core::name_of(core::TaskStatus::waiting))
		answer(*admission);
}

// Whether it looks like the task's turn; decided again under locks.
bool WaitCall::may_go(const store::TaskRow &task, core::Instant now) const
{
	QueueBook book(now);
	TaskScopes scopes = stored_scopes(task.scopes);
	book.resolve(scopes.list);
	mark_entered(book, scopes.list, true);
	const Standings standings = book.standings(task.turn(), scopes.list);
	for (const TaskScope &scope : scopes.list)
		if (core::begins_after(book.look(scope).queue(), task.turn()))
			return true; // the search for heads has passed it over
	return blockers_of(task, scopes.list, standings, now).empty();
}

void WaitCall::remember(const store::TaskRow &task)
{
	waiter_.deadline = task.presence.deadline;
	waiter_.lease_ttl = core::Span::from_seconds(pg::settings::waiter_ttl_seconds());
	waiter_.lease_expires_at = task.presence.waiter_expires_at.value_or(core::Instant::latest());
}

// --- answers -------------------------------------------------------------------------------------------------------

// The task has ended, or its place belongs to a later call: whatever that has come to, this one goes on waiting.
Admission WaitCall::elsewhere(const store::TaskRow &task, core::Instant now) const
{
	Admission admission = admission_of(task, now);
	if (is_ours(task) || !admission.admitted)
		return admission;
	admission.status = core::name_of(core::TaskStatus::waiting);
	admission.admitted = false;
	admission.admitted_at.reset();
	admission.lease_ids.clear();
	admission.retry_after_ms = core::limits::lease_retry_min.ceil_ms();
	return admission;
}

// Ended, and not kept (ratelimit.retention).
Admission WaitCall::forgotten() const
{
	Admission admission;
	admission.task_id = request_.task_id;
	admission.mode = core::TaskMode::sync;
	admission.status = core::name_of(core::TaskStatus::cancelled);
	admission.priority = request_.priority;
	admission.scopes = request_.scopes.json;
	return admission;
}

// Keeps the row in the memory of the call.
void WaitCall::answer(const Admission &admission)
{
	AdmissionRow row = admission_row(1, admission);
	const pg::ContextScope scope(round_.outer());
	result_ = pg::composite_output(fcinfo_, row);
}

// --- giving up -----------------------------------------------------------------------------------------------------

// Takes the task out of the queue. What fails here is not told, since the error that ended the wait is: then the waiter's
// lease ends it.
void WaitCall::give_up()
{
	durability_ = Durability::as_set;
	pg::RoundMemory memory; // the error that ended the wait lives in the other one
	for (int tries = 0; tries < give_up_tries_max; tries++) {
		const std::exception_ptr failure = in_transaction(memory, [this] {
			std::optional<store::TaskRow> task = lock_known_task(request_.task_id);
			if (task && task->status == core::TaskStatus::waiting && is_ours(*task))
				(void)leave_queue(*task, core::TaskEvent::abandon, core::code_client_disconnected);
		});
		if (!failure || !is_conflict(failure))
			return;
	}
}

Datum admit_wait(FunctionCallInfo fcinfo)
{
	pg::require_writes("rl_admit_wait");
	pg::require_own_transaction(fcinfo, "rl_admit_wait");
	AdmitRequest request;
	request.task_id = check_name({"task_id", {}, 0}, required_text(fcinfo, 0, "task_id"));
	request.scopes = scopes_argument(fcinfo, 1);
	std::optional<core::Span> max_wait;
	if (!PG_ARGISNULL(2))
		max_wait = core::Span{pg::interval_us(PG_GETARG_DATUM(2))};
	if (!PG_ARGISNULL(3))
		request.priority = PG_GETARG_INT32(3);
	return WaitCall(fcinfo, request, max_wait).run();
}

} // namespace

} // namespace ratelimit::api

RATELIMIT_FUNCTION(rl_admit_wait) { return ratelimit::api::admit_wait(fcinfo); }
