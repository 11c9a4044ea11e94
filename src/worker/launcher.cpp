// The launcher: which databases have the extension, when something is due there, and a worker for each round.
//
// It is connected to no database and so cannot look into one. It learns where the extension is from the workers: it sends
// one to each database when it starts, when a database appears, and every ten minutes; and at once where shared memory
// says that somebody has created the extension or has called it. Where the last worker found it, the settings
// `ratelimit.reap_interval` and `recover_interval` say when the next one goes.
#include <algorithm>

#include "pg/background.hpp"
#include "pg/clock.hpp"
#include "pg/entry.hpp"
#include "pg/settings.hpp"
#include "pg/shared_memory.hpp"
#include "worker/database_worker.hpp"
#include "worker/rounds.hpp"

namespace ratelimit::worker {

namespace {

namespace background = pg::background;
namespace shared_memory = pg::shared_memory;

// New databases are noticed within this time, and the launcher never sleeps longer.
constexpr std::int64_t list_interval_ms = 4'000;
constexpr std::int64_t probe_interval_ms = 600'000;
constexpr std::int64_t slot_retry_ms = 1'000;
constexpr std::int64_t held_retry_ms = 1'000;

// Workers at the same time; among them one that only looks whether the extension is there.
constexpr std::size_t workers_max = 3;

struct Known {
	background::DatabaseName database;
	bool installed = false;
	Schedule schedule;
	std::int64_t probe_at_ms = 0;
	background::Worker *worker = nullptr; // the one that is under way
	Chores chores;                        // what it was sent for
	std::int64_t rounds_before = 0;
	std::int64_t held_until_ms = 0; // somebody drops or copies it
	bool listed = true;
};

class Launcher {
public:
	// Does what is due now, and returns how long nothing will be.
	[[nodiscard]] std::int64_t tick(std::int64_t now_ms);

private:
	void collect_ended(std::int64_t now_ms);
	void collect(Known &known, std::int64_t now_ms);
	void take_wishes();
	void refresh_list(std::int64_t now_ms);
	void start_due(std::int64_t now_ms);
	[[nodiscard]] bool start(Known &known, Chores chores, std::int64_t now_ms);
	[[nodiscard]] std::int64_t wait_ms(std::int64_t now_ms) const;
	[[nodiscard]] Known *find(Oid database);

	pg::Vector<Known> known_;
	std::int64_t list_at_ms_ = 0;
	std::int64_t slots_at_ms_ = 0; // none was free before then
	bool slots_missed_ = false;    // and the log says so
	bool places_missed_ = false;   // the same for the places in shared memory
	std::size_t under_way_ = 0;
	std::size_t probes_ = 0;
	std::size_t turn_ = 0; // where to begin looking for who is due, so that all get their turn
};

Intervals intervals() noexcept
{
	return {std::int64_t{pg::settings::reap_interval_seconds()} * 1'000,
		std::int64_t{pg::settings::recover_interval_seconds()} * 1'000};
}

Known *Launcher::find(Oid database)
{
	for (Known &known : known_)
		if (known.database.oid == database)
			return &known;
	return nullptr;
}

void Launcher::collect_ended(std::int64_t now_ms)
{
	for (Known &known : known_)
		if (known.worker != nullptr && background::has_ended(known.worker))
			collect(known, now_ms);
}

// What the worker has left in shared memory. One that ended without a word was refused by the server or killed.
void Launcher::collect(Known &known, std::int64_t now_ms)
{
	background::free_worker(known.worker);
	known.worker = nullptr;
	under_way_--;
	if (!known.installed)
		probes_--;
	known.probe_at_ms = now_ms + probe_interval_ms;
	const Oid database = known.database.oid;
	const auto entry = shared_memory::find(database);
	if (!entry)
		return;
	if (entry->rounds == known.rounds_before) {
		(void)shared_memory::end_failed(database, false, ERRCODE_INTERNAL_ERROR,
			"the worker ended before it could say how its round went; see the server's log");
		known.schedule.end_badly(known.chores, now_ms);
		if (!known.installed)
			known.probe_at_ms = now_ms + known.schedule.wait_ms(intervals(), now_ms);
	} else if (entry->failures > 0) {
		known.installed = entry->installed;
		known.schedule.end_badly(known.chores, now_ms);
		if (!known.installed)
			known.probe_at_ms = now_ms + known.schedule.wait_ms(intervals(), now_ms);
	} else {
		known.installed = entry->installed;
		known.schedule.end_well(unpack(entry->unfinished), now_ms);
		if (!known.installed)
			shared_memory::forget(database);
	}
}

// A database in which the extension was made is looked at before its time.
void Launcher::take_wishes()
{
	for (const shared_memory::Database &entry : shared_memory::databases()) {
		if (!entry.wanted)
			continue;
		Known *known = find(entry.oid);
		if (known == nullptr) {
			list_at_ms_ = 0; // it is newer than the list
			continue;
		}
		if (known->worker != nullptr)
			continue; // that one may have come too early
		known->schedule.hurry();
		known->probe_at_ms = 0;
	}
}

void Launcher::refresh_list(std::int64_t now_ms)
{
	if (now_ms < list_at_ms_)
		return;
	list_at_ms_ = now_ms + list_interval_ms;
	for (Known &known : known_)
		known.listed = false;
	for (const background::DatabaseName &database : background::connectable_databases()) {
		if (Known *known = find(database.oid)) {
			known->listed = true;
			known->database = database; // it may have been renamed
		} else {
			Known added;
			added.database = database;
			known_.push_back(added);
		}
	}
	for (const shared_memory::Database &entry : shared_memory::databases()) {
		const Known *known = find(entry.oid);
		if ((known == nullptr || !known->listed) && (known == nullptr || known->worker == nullptr))
			shared_memory::drop(entry.oid);
	}
	known_.erase(std::remove_if(known_.begin(), known_.end(),
					 [](const Known &known) { return !known.listed && known.worker == nullptr; }),
		known_.end());
}

void Launcher::start_due(std::int64_t now_ms)
{
	const Intervals now_set = intervals();
	const std::size_t first = turn_;
	for (std::size_t i = 0; i < known_.size(); i++) {
		if (under_way_ >= workers_max || now_ms < slots_at_ms_)
			return;
		const std::size_t place = (first + i) % known_.size();
		Known &known = known_[place];
		if (known.worker != nullptr || !known.listed || now_ms < known.held_until_ms)
			continue;
		Chores chores{now_set.reap_ms > 0, now_set.recover_ms > 0};
		if (known.installed) {
			chores = known.schedule.due(now_set, now_ms);
			if (!chores.any())
				continue;
		} else if (now_ms < known.probe_at_ms || probes_ > 0) {
			continue;
		}
		if (start(known, chores, now_ms))
			turn_ = place + 1;
	}
}

bool Launcher::start(Known &known, Chores chores, std::int64_t now_ms)
{
	const Oid database = known.database.oid;
	switch (background::state_of_database(database)) {
	case background::DatabaseState::free:
		break;
	case background::DatabaseState::held:
		known.held_until_ms = now_ms + held_retry_ms;
		return false;
	case background::DatabaseState::gone:
		known.listed = false;
		list_at_ms_ = now_ms;
		return false;
	}
	if (!shared_memory::take(database)) {
		known.installed = false;
		known.probe_at_ms = now_ms + probe_interval_ms;
		if (!places_missed_)
			background::log_no_room();
		places_missed_ = true;
		return false;
	}
	const auto entry = shared_memory::find(database);
	known.rounds_before = entry ? entry->rounds : 0;
	known.worker = background::start_worker(known.database, pack(chores));
	if (known.worker == nullptr) {
		slots_at_ms_ = now_ms + slot_retry_ms;
		if (!slots_missed_)
			background::log_no_slot();
		slots_missed_ = true;
		return false;
	}
	slots_missed_ = false;
	known.chores = chores;
	known.schedule.begin(chores, now_ms);
	under_way_++;
	if (!known.installed)
		probes_++;
	return true;
}

std::int64_t Launcher::wait_ms(std::int64_t now_ms) const
{
	std::int64_t wait = std::max<std::int64_t>(0, list_at_ms_ - now_ms);
	for (const Known &known : known_) {
		if (known.worker != nullptr || under_way_ >= workers_max)
			continue; // the end of a worker sets the latch
		const std::int64_t held_ms = known.held_until_ms - now_ms;
		if (known.installed)
			wait = std::min(wait, std::max(held_ms, known.schedule.wait_ms(intervals(), now_ms)));
		else if (probes_ == 0)
			wait = std::min(wait, std::max({held_ms, known.probe_at_ms - now_ms, std::int64_t{0}}));
	}
	return std::max({wait, slots_at_ms_ - now_ms, std::int64_t{1}});
}

std::int64_t Launcher::tick(std::int64_t now_ms)
{
	collect_ended(now_ms);
	take_wishes();
	refresh_list(now_ms);
	take_wishes();
	start_due(now_ms);
	return wait_ms(now_ms);
}

// One pass of the loop; an error costs a pause and one line in the log per change.
class Loop {
public:
	void pass() noexcept
	{
		pg::PendingError pending;
		pending.kind = pg::PendingKind::none;
		try {
			background::reload_if_asked();
			if (background::shutdown_is_asked())
				background::end_launcher();
			const std::int64_t wait_ms = launcher_.tick(pg::monotonic_clock_ms());
			failures_ = 0;
			background::wait_on_latch(wait_ms);
		} catch (...) {
			pg::store_current_exception(pending);
		}
		if (pending.kind != pg::PendingKind::none)
			recover_from(pending);
	}

private:
	void recover_from(pg::PendingError &pending) noexcept
	{
		try {
			background::abort_transaction();
			if (failures_++ == 0 || background::sqlstate_of(pending) != last_sqlstate_)
				background::log_failure("its launcher", pending);
			last_sqlstate_ = background::sqlstate_of(pending);
			background::dispose(pending);
			background::wait_on_latch(error_pause_ms(failures_));
		} catch (...) {
			background::end_launcher(); // the server starts it again
		}
	}

	Launcher launcher_;
	int failures_ = 0;
	int last_sqlstate_ = 0;
};

void run_launcher() noexcept
{
	try {
		background::begin_process();
		background::begin_launcher();
		shared_memory::become_launcher();
	} catch (...) {
		background::end_launcher();
	}
	Loop loop;
	for (;;)
		loop.pass();
}

} // namespace

} // namespace ratelimit::worker

extern "C" {

PGDLLEXPORT void rl_launcher_main(Datum);

void rl_launcher_main(Datum) { ratelimit::worker::run_launcher(); }

} // extern "C"
