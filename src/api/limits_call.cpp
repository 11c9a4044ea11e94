// One call over limits.
//
// 1. Look: every distinct key is read under a snapshot taken for that read alone. The core decides. A denial ends here:
//    nothing was locked, written or waited for, and the committed state proves it.
// 2. Grant, one key: the row is replaced in one statement if it is still what was read; the server compares again after
//    it has waited for a concurrent transaction. Then the clock is read again: should a new window have begun meanwhile, the row is ours by
//    now and step 3 decides anew.
// 3. Grant, several keys, or when step 2 found a change: all rows are locked, counters before scopes, each in the order
//    of the bytes of the key; the clock is read once all locks are held; rows are read again and the core decides again
//    by the same function. A denial here was only known after waiting: it changes nothing and keeps the locks.
//
// A request_id is looked up first, claimed before anything is locked, and looked up once more before a denial is
// returned. Reservations and leases are inserted last: nobody can know their ids before the transaction commits.
#include "api/limits_call.hpp"

#include <algorithm>

#include "api/ids.hpp"
#include "api/off_switch.hpp"
#include "core/check.hpp"
#include "pg/clock.hpp"
#include "pg/entry.hpp"
#include "pg/value.hpp"
#include "store/reservation_store.hpp"

namespace ratelimit::api {

namespace {

core::Instant read_clock() noexcept { return {pg::decision_clock_us()}; }

} // namespace

LimitsCall::LimitsCall(Mode mode, Elements &elements, std::optional<std::string_view> task_id,
	std::optional<std::string_view> request_id)
	: mode_(mode), elements_(elements), task_id_(task_id), request_id_(request_id)
{
	pg::SmallVector<core::Key, 4> keys(elements.size());
	const std::size_t count = core::merge_keys(this->elements(), keys.data());
	const auto first_lease =
		std::find_if(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(count), [](const core::Key &key) { return key.is_lease; });
	const std::size_t counters = static_cast<std::size_t>(first_lease - keys.begin());
	counters_.reserve(counters);
	scopes_.reserve(count - counters);
	for (std::size_t i = 0; i < count; i++) {
		RATELIMIT_CHECK(i == 0 || core::locks_before(keys[i - 1], keys[i]));
		if (keys[i].is_lease)
			scopes_.emplace_back(keys[i].scope_type, keys[i].scope_key, keys[i].amount, keys[i].limit);
		else
			counters_.emplace_back(keys[i]);
	}
	outcomes_.resize(elements.size());
}

bool LimitsCall::run()
{
	if (const std::optional<core::Verdict> verdict = verdict_when_off()) {
		for (Outcome &outcome : outcomes_)
			outcome.verdict = *verdict;
		return outcomes_.empty() || verdict->passes();
	}
	const bool allowed = find_answer();
	session_.finish();
	return allowed;
}

bool LimitsCall::find_answer()
{
	if (request_id_)
		if (const std::optional<bool> known = replay())
			return *known;
	look();
	if (mode_ == Mode::check)
		return decide();
	if (!decide()) {
		// A call with the same id may have been granted while this one looked.
		if (request_id_)
			if (const std::optional<bool> known = replay())
				return *known;
		return false;
	}
	return grant();
}

// --- looking and deciding ------------------------------------------------------------------------------------------

void LimitsCall::look()
{
	for (CounterScope &counter : counters_)
		counter.row = store::read_counter(counter.key);
	now_ = read_clock();
	for (LeaseScope &scope : scopes_)
		scope.row = store::read_scope(scope.key, now_);
}

// Fills the outcomes as of now_ from what was read; the core's verdict on each element.
bool LimitsCall::decide()
{
	for (CounterScope &counter : counters_)
		counter.window = core::current_window(
			counter.row ? std::optional(counter.row->window) : std::nullopt, now_, counter.window_seconds);

	bool allowed = true;
	for (std::size_t i = 0; i < elements_.size(); i++) {
		const core::Element &element = elements_[i];
		Outcome &outcome = outcomes_[i];
		outcome = Outcome{};
		if (element.key == core::no_key) {
			outcome.verdict = core::verdict_without_looking(element.kind);
		} else if (element.kind == core::ElementKind::window) {
			const CounterScope &counter = counter_of(element);
			outcome.verdict = core::decide_window(counter.window, counter.amount, *element.limit, now_);
			outcome.looked = true;
			outcome.used = counter.window.used;
			outcome.reserved = counter.window.reserved;
			outcome.remaining = core::remaining(counter.window, *element.limit);
			outcome.window_start = counter.window.start;
			outcome.reset_at = counter.window.reset_at;
		} else {
			const LeaseScope &scope = scope_of(element);
			const core::ScopeUsage usage = scope.usage();
			outcome.verdict = core::decide_lease(usage, scope.amount, *element.limit, now_);
			outcome.looked = true;
			outcome.used = usage.live;
			outcome.remaining = core::subtract_amount(*element.limit, usage.live);
			outcome.reset_at = usage.next_expiry;
		}
		allowed = allowed && outcome.verdict.passes();
	}
	return allowed;
}

// --- granting ------------------------------------------------------------------------------------------------------

bool LimitsCall::grant()
{
	session_.connect();
	make_ids();
	if (request_id_) {
		bool replayed = false;
		const bool allowed = claim_or_replay(replayed);
		if (replayed)
			return allowed;
	}
	if (!grant_in_one_step() && !grant_under_locks()) {
		if (request_id_)
			store::forget_request(*request_id_);
		return false;
	}
	if (mode_ == Mode::reserve) {
		insert_reservations();
		insert_leases();
	}
	for (std::size_t i = 0; i < elements_.size(); i++) {
		if (elements_[i].key == core::no_key)
			continue;
		const bool window = elements_[i].kind == core::ElementKind::window;
		const double taken = window ? counter_of(elements_[i]).amount : scope_of(elements_[i]).amount;
		outcomes_[i].remaining = core::subtract_amount(outcomes_[i].remaining, taken);
	}
	return true;
}

bool LimitsCall::grant_in_one_step()
{
	if (counters_.size() == 1 && scopes_.empty())
		return grant_counter_in_one_step();
	if (counters_.empty() && scopes_.size() == 1)
		return grant_lease_in_one_step();
	return counters_.empty() && scopes_.empty();
}

// The counter's window after what the call asks for was spent or promised.
core::Window LimitsCall::charged(const CounterScope &counter) const noexcept
{
	return mode_ == Mode::consume ? core::consume(counter.window, counter.amount)
	                              : core::reserve(counter.window, counter.amount);
}

bool LimitsCall::grant_counter_in_one_step()
{
	CounterScope &counter = counters_[0];
	const core::Window after = charged(counter);
	const store::CounterUpdate update{after.stored(), counter.limit, now_};
	if (!counter.row) {
		if (!store::insert_counter(counter.key, update))
			return false;
	} else if (counter.row->contended || !store::replace_counter(*counter.row, update)) {
		return false;
	}

	// The statement may have waited: the window it was decided in must still be the current one.
	now_ = read_clock();
	if (core::current_window(after.stored(), now_, counter.window_seconds).start == after.start)
		return true;
	const std::optional<store::CounterRow> written = store::lock_counter(counter.key);
	RATELIMIT_CHECK(written.has_value());
	const core::Window fresh = core::current_window(written->window, now_, counter.window_seconds);
	counter.row = written;
	counter.row->window = fresh.stored();
	const bool fits_still = decide(); // a new window is empty, and the amount is within the limit
	RATELIMIT_CHECK(fits_still);
	write_counters();
	return true;
}

bool LimitsCall::grant_lease_in_one_step()
{
	LeaseScope &scope = scopes_[0];
	// What has expired must be removed under the lock before it counts as free.
	if (scope.row && (scope.row->contended || !core::lease_is_live(scope.row->scope.expires_from, now_)))
		return false;
	core::StoredScope after = scope.stored();
	for (const core::Element &element : elements_)
		if (element.key != core::no_key)
			after = core::add_lease(after, element.amount, now_ + core::Span::from_seconds(element.lease_ttl_seconds));
	const bool written = scope.row ? store::replace_scope(*scope.row, after, now_)
	                               : store::insert_scope(scope.key, after, now_);
	// The leases begin now, even if the statement waited; but never before the bound that was written with it.
	if (written)
		now_ = std::max(now_, read_clock());
	return written;
}

bool LimitsCall::grant_under_locks()
{
	lock_all();
	if (!decide() || !remove_expired()) {
		undo_insertions();
		return false;
	}
	write_counters();
	write_leases();
	return true;
}

// Makes room for the leases; false when there is none after all.
bool LimitsCall::remove_expired()
{
	if (scopes_.empty())
		return true;
	const Room room = make_room({scopes_.data(), scopes_.size()}, now_);
	if (!room.fits) {
		deny_unremovable();
	} else if (!room.as_seen) {
		refresh_scopes(); // used and remaining count what was renewed
		const bool fits_still = decide();
		RATELIMIT_CHECK(fits_still);
	}
	return room.fits;
}

// Stores the sums of what was removed and reads what is live now.
void LimitsCall::refresh_scopes()
{
	for (LeaseScope &scope : scopes_) {
		write_scope(scope, now_);
		scope.row = store::read_scope(scope.key, now_);
	}
}

// What looked expired was renewed while this call waited, or is held locked by somebody who may renew it: it does not
// count as free.
void LimitsCall::deny_unremovable()
{
	const auto has_room = [](const LeaseScope &scope) {
		return core::fits(scope.stored().leased + scope.amount, scope.limit);
	};
	pg::SmallVector<bool, 4> unremovable;
	for (const LeaseScope &scope : scopes_)
		unremovable.push_back(!has_room(scope));
	refresh_scopes();
	(void)decide();
	for (std::size_t i = 0; i < elements_.size(); i++)
		if (elements_[i].kind == core::ElementKind::lease && outcomes_[i].verdict.passes() &&
			unremovable[elements_[i].key - counters_.size()])
			outcomes_[i].verdict =
				core::Verdict::later(core::Reason::concurrency_saturated, core::limits::lease_retry_min.ceil_ms());
}

void LimitsCall::lock_all()
{
	const core::Instant before = read_clock();
	for (CounterScope &counter : counters_) {
		while (!(counter.row = store::lock_counter(counter.key))) {
			core::Window empty = core::current_window(std::nullopt, before, counter.window_seconds);
			if (store::insert_counter(counter.key, {empty.stored(), counter.limit, before}))
				counter.inserted = true;
			pg::check_for_interrupts();
		}
	}
	for (LeaseScope &scope : scopes_)
		lock_scope(scope, before);
	now_ = read_clock();
	for (LeaseScope &scope : scopes_)
		scope.row = store::read_scope(scope.key, now_);
}

// A denied call leaves no row behind that it has created.
void LimitsCall::undo_insertions()
{
	for (const CounterScope &counter : counters_)
		if (counter.inserted)
			store::delete_counter(*counter.row);
	for (const LeaseScope &scope : scopes_)
		if (scope.inserted && scope.row->scope.lease_count == 0)
			store::delete_scope(*scope.row);
}

void LimitsCall::write_counters()
{
	for (const CounterScope &counter : counters_)
		store::write_counter(*counter.row, {charged(counter).stored(), counter.limit, now_});
}

void LimitsCall::write_leases()
{
	for (const core::Element &element : elements_)
		if (element.kind == core::ElementKind::lease)
			add_to_scope(scope_of(element), element.amount, now_ + core::Span::from_seconds(element.lease_ttl_seconds));
	for (const LeaseScope &scope : scopes_)
		write_scope(scope, now_);
}

// --- ids, reservations and leases ----------------------------------------------------------------------------------

void LimitsCall::make_ids()
{
	given_.resize(elements_.size());
	if (mode_ != Mode::reserve)
		return;
	for (std::size_t i = 0; i < elements_.size(); i++) {
		const core::Element &element = elements_[i];
		if (element.key == core::no_key)
			continue;
		const core::Uuid id = new_id(element.scope_type, element.scope_key);
		(element.kind == core::ElementKind::window ? given_[i].reservation_id : given_[i].lease_id) = id;
	}
}

void LimitsCall::insert_reservations()
{
	for (std::size_t i = 0; i < elements_.size(); i++) {
		const core::Element &element = elements_[i];
		if (!given_[i].reservation_id)
			continue;
		const CounterScope &counter = counter_of(element);
		store::insert_reservation(counter.key,
			{*given_[i].reservation_id, now_, counter.window.start, counter.window.reset_at, element.amount,
				*element.limit, task_id_, element.attempt_id});
		outcomes_[i].reservation_id = given_[i].reservation_id;
	}
}

void LimitsCall::insert_leases()
{
	for (std::size_t i = 0; i < elements_.size(); i++) {
		const core::Element &element = elements_[i];
		if (!given_[i].lease_id)
			continue;
		const core::Instant expires_at = now_ + core::Span::from_seconds(element.lease_ttl_seconds);
		store::insert_lease(scope_of(element).key,
			{*given_[i].lease_id, now_, expires_at, element.amount, *element.limit, element.lease_ttl_seconds, task_id_,
				element.attempt_id});
		outcomes_[i].lease_id = given_[i].lease_id;
		outcomes_[i].lease_expires_at = expires_at;
	}
}

// --- repeated requests ---------------------------------------------------------------------------------------------

// The answer to a call whose id is known: allowed, the same ids, the rest as found now.
std::optional<bool> LimitsCall::replay()
{
	session_.connect();
	const std::optional<store::Remembered> remembered = store::read_request(*request_id_, elements());
	if (!remembered)
		return std::nullopt;
	if (!remembered->same) {
		const std::size_t i = remembered->different_element;
		throw pg::SqlError{ERRCODE_INVALID_PARAMETER_VALUE, "invalid value for argument \"request_id\"",
			"The request \"" + pg::excerpt(*request_id_) + "\" was granted with other limits; the first difference is at element " +
				std::to_string(i + 1) + (i < elements_.size() ? ", metric \"" + pg::excerpt(elements_[i].metric) + "\"." : "."),
			"Repeat a request with the same scope_type, scope_key, metric, window_seconds and amount of every limit, or use a "
			"new request_id."};
	}
	look();
	(void)decide();
	pg::Vector<core::Uuid> lease_ids;
	for (std::size_t i = 0; i < elements_.size(); i++) {
		outcomes_[i].verdict = core::Verdict::pass();
		outcomes_[i].reservation_id = remembered->given[i].reservation_id;
		outcomes_[i].lease_id = remembered->given[i].lease_id;
		if (outcomes_[i].lease_id)
			lease_ids.push_back(*outcomes_[i].lease_id);
	}
	for (const store::LeaseRow &lease : store::read_leases({lease_ids.data(), lease_ids.size()}))
		for (Outcome &outcome : outcomes_)
			if (outcome.lease_id == lease.id && core::lease_is_live(lease.expires_at, now_))
				outcome.lease_expires_at = lease.expires_at;
	return true;
}

// Claims the id before anything is locked. When somebody else has it by now, answers as they were answered.
bool LimitsCall::claim_or_replay(bool &replayed)
{
	while (!store::claim_request(*request_id_, elements(), given_, now_)) {
		if (const std::optional<bool> known = replay()) {
			replayed = true;
			return *known;
		}
		pg::check_for_interrupts(); // the other claim was undone: try again
	}
	return true;
}

} // namespace ratelimit::api
