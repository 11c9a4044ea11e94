// A worker lives for one round: it connects, does what is due in short transactions, says how it went and ends. It stays
// no longer than two seconds, since a database with somebody in it cannot be dropped or copied.
#include "worker/database_worker.hpp"

#include "pg/background.hpp"
#include "pg/clock.hpp"
#include "pg/entry.hpp"
#include "pg/shared_memory.hpp"
#include "pg/wait.hpp"
#include "upkeep/round.hpp"

namespace ratelimit::worker {

namespace {

namespace background = pg::background;
namespace shared_memory = pg::shared_memory;

// No transaction is begun after the first; an error ends whatever still runs after the second.
constexpr std::int64_t work_ms_max = 1'000;
constexpr int round_ms_max = 1'800;
constexpr int looks_again_max = 5;
constexpr std::int64_t look_again_ms = 40;

struct Done {
	Oid extension = InvalidOid; // as found at first
	std::int64_t rows = 0;
	Chores unfinished;

	[[nodiscard]] bool installed() const noexcept { return extension != InvalidOid; }
};

Oid look_for_extension()
{
	background::begin_transaction("looking for extension ratelimit");
	const Oid extension = background::installed_extension();
	background::commit_transaction();
	return extension;
}

// Goes on until there is no more of it, or the time is over. True when it was done to the end.
bool do_chore(upkeep::Chore chore, const char *activity, std::int64_t until_ms, Done &done)
{
	while (pg::monotonic_clock_ms() < until_ms) {
		background::begin_transaction(activity);
		const upkeep::Progress progress = upkeep::round(chore);
		background::commit_transaction();
		done.rows += progress.rows;
		if (!progress.more)
			return true;
	}
	return false;
}

void work(Chores chores, Done &done)
{
	const std::int64_t until_ms = pg::monotonic_clock_ms() + work_ms_max;
	done.extension = look_for_extension();
	if (!done.installed())
		return;
	if (chores.recover)
		done.unfinished.recover = !do_chore(upkeep::Chore::recover, "recovering what was lost", until_ms, done);
	if (chores.reap)
		done.unfinished.reap = !do_chore(upkeep::Chore::reap, "removing what is over", until_ms, done);
}

// After an error: it may only mean that somebody has dropped the extension meanwhile, or dropped it and made it anew.
enum class Since { same, dropped, replaced };

Since look_again(Oid extension) noexcept
{
	if (extension == InvalidOid)
		return Since::same;
	pg::PendingError pending;
	pending.kind = pg::PendingKind::none;
	try {
		const Oid now = look_for_extension();
		return now == extension ? Since::same : now == InvalidOid ? Since::dropped : Since::replaced;
	} catch (...) {
		pg::store_current_exception(pending);
	}
	try {
		background::abort_transaction();
	} catch (...) {
		pg::store_current_exception(pending);
	}
	return Since::same;
}

void report_failure(Oid database, const Done &done, const pg::PendingError &pending)
{
	background::abort_transaction();
	Since since = look_again(done.extension);
	// Whoever drops the extension may have held a table for which the round gave up; he goes on now.
	const bool gave_up = background::sqlstate_of(pending) == ERRCODE_LOCK_NOT_AVAILABLE;
	for (int looks = 0; gave_up && since == Since::same && looks < looks_again_max; looks++) {
		pg::sleep_on_latch(look_again_ms);
		since = look_again(done.extension);
	}
	if (since == Since::dropped)
		shared_memory::end_absent(database);
	else if (since == Since::replaced)
		(void)shared_memory::end_round(database, done.rows, pack(done.unfinished));
	else if (shared_memory::end_failed(
				 database, done.installed(), background::sqlstate_of(pending), background::message_of(pending)))
		background::log_failure(background::place_of_worker(), pending);
}

void run_round(Oid database) noexcept
{
	pg::PendingError pending;
	pending.kind = pg::PendingKind::none;
	Done done;
	try {
		background::begin_process();
		background::begin_worker(database);
		shared_memory::begin_round(database);
		background::limit_time(round_ms_max);
		work(unpack(background::assigned_chores()), done);
	} catch (...) {
		pg::store_current_exception(pending);
	}
	try {
		if (pending.kind != pg::PendingKind::none)
			report_failure(database, done, pending);
		else if (!done.installed())
			shared_memory::end_absent(database);
		else if (shared_memory::end_round(database, done.rows, pack(done.unfinished)))
			background::log_recovery(background::place_of_worker());
	} catch (...) {
		pg::store_current_exception(pending); // the process ends in any case
	}
}

} // namespace

} // namespace ratelimit::worker

extern "C" {

PGDLLEXPORT void rl_database_worker_main(Datum);

void rl_database_worker_main(Datum)
{
	ratelimit::worker::run_round(ratelimit::pg::background::assigned_database());
}

} // extern "C"
