// The server's side of the background worker: processes, signals, transactions and log lines.
//
// Two kinds of process. The launcher is connected to no database, so it never keeps one from being dropped or copied; it
// starts when recovery is over and is started again if it ends. A worker is connected to one database for one round; it is
// never started again by the server.
#pragma once

#include <cstdint>

#include "pg/error.hpp"
#include "pg/memory.hpp"
#include "pg/postgres.hpp"

namespace ratelimit::pg::background {

// Has the server start the launcher; from _PG_init while the server preloads libraries.
void register_launcher();

// --- both ----------------------------------------------------------------------------------------------------------

// Memory for as long as the process lives becomes the call's context.
void begin_process();

// Ends the transaction that an error has left behind, and everything that it held.
void abort_transaction();

// A line in the log about an error, and about its end. `place` says where: database "app".
void log_failure(const char *place, const PendingError &pending);
void log_recovery(const char *place);

// The text of an error, as kept in shared memory.
[[nodiscard]] const char *message_of(const PendingError &pending) noexcept;
[[nodiscard]] int sqlstate_of(const PendingError &pending) noexcept;
// Frees what the error holds.
void dispose(PendingError &pending) noexcept;

// --- the launcher --------------------------------------------------------------------------------------------------

// Signals, and the connection to the shared catalogs.
void begin_launcher();

// Reads the configuration again if the server was told to.
void reload_if_asked();
[[nodiscard]] bool shutdown_is_asked() noexcept;
// The server starts it again, unless it is shutting down itself.
[[noreturn]] void end_launcher();

// Until the latch is set or the time is over. Ends the process when the postmaster is gone.
void wait_on_latch(std::int64_t timeout_ms);

struct DatabaseName {
	Oid oid;
	NameData name;
};

// Those that accept connections.
[[nodiscard]] Vector<DatabaseName> connectable_databases();

// Whether a worker could connect right now: a database that is being dropped or copied is held.
enum class DatabaseState { free, held, gone };
[[nodiscard]] DatabaseState state_of_database(Oid database);

using Worker = BackgroundWorkerHandle;

// Starts a worker for a round in a database; null when the server has no place for another process.
[[nodiscard]] Worker *start_worker(const DatabaseName &database, std::uint32_t chores);
[[nodiscard]] bool has_ended(Worker *worker);
void free_worker(Worker *worker) noexcept;
// The server has no slot for another process; there are more databases than shared memory has places for.
void log_no_slot();
void log_no_room();

// --- a worker ------------------------------------------------------------------------------------------------------

// Signals, and the connection to the database that the launcher chose.
[[nodiscard]] Oid assigned_database() noexcept;
[[nodiscard]] std::uint32_t assigned_chores() noexcept;
void begin_worker(Oid database);
// The database, for the log.
[[nodiscard]] const char *place_of_worker();

// An error after so many milliseconds from now, whatever is being done.
void limit_time(int timeout_ms);

// One transaction, with a snapshot. The text is what pg_stat_activity shows.
void begin_transaction(const char *activity);
void commit_transaction();
// The extension as of now; InvalidOid when it is not there.
[[nodiscard]] Oid installed_extension();

} // namespace ratelimit::pg::background
