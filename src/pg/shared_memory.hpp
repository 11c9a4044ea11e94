// What the processes of the background worker share, and what the view `ratelimit.worker_status` shows.
//
// There only when the library was preloaded; everything here then works, and without it says or does nothing. One lock
// protects all of it; it is held for a few assignments. What a dying process could leave behind is taken back by a
// callback: the launcher's latch, the number of a worker that is at work.
#pragma once

#include <cstdint>
#include <optional>

#include "pg/memory.hpp"
#include "pg/postgres.hpp"

namespace ratelimit::pg::shared_memory {

// So many databases can have the extension and be looked after.
inline constexpr int databases_max = 256;

// Asks for the memory; from _PG_init while the server preloads libraries.
void request();

[[nodiscard]] bool is_available() noexcept;

// One database that has the extension, or that a worker is looking at.
struct Database {
	Oid oid;                    // InvalidOid: a free place
	bool wanted;                // somebody made the extension, or called it, and no worker has looked since
	bool installed;             // the last worker that looked found the extension
	std::int32_t worker_pid;    // the worker that is there now, or 0
	std::int64_t rounds;        // that came to an end, well or not
	std::int64_t last_round_us; // how long the last one took
	std::int64_t last_rows;     // what it did
	std::int64_t total_rows;    // since the server started
	TimestampTz last_round_at;  // when it began; 0 before the first
	TimestampTz last_error_at;  // 0 when there was none
	std::int32_t failures;      // in a row
	std::int32_t last_sqlstate;
	std::uint32_t unfinished;   // what the last round did not do to the end, in the worker's own terms
	char last_error[256];
};

// --- for sessions --------------------------------------------------------------------------------------------------

// The extension is created by this transaction, or is called by this session for the first time: the launcher is told, of
// a creation when it is committed.
void extension_is_created();
void extension_is_called() noexcept;

// Copies of all entries; and the launcher's process, 0 when there is none.
[[nodiscard]] Vector<Database> databases();
[[nodiscard]] std::int32_t launcher_pid() noexcept;

// --- for the launcher ----------------------------------------------------------------------------------------------

// This process is the launcher, until it ends.
void become_launcher();

[[nodiscard]] std::optional<Database> find(Oid database) noexcept;
// Makes an entry if there is none, and takes note of the wish. False when there is no place.
[[nodiscard]] bool take(Oid database) noexcept;
// Frees the entry, unless somebody has wanted it since.
void forget(Oid database) noexcept;
// The database is gone: frees the entry.
void drop(Oid database) noexcept;

// --- for workers ---------------------------------------------------------------------------------------------------

// This process is at work in the database, until it ends.
void begin_round(Oid database);
// The extension is not there.
void end_absent(Oid database) noexcept;
// True when the round before had failed.
[[nodiscard]] bool end_round(Oid database, std::int64_t rows, std::uint32_t unfinished) noexcept;

// An error ended the round, or a worker ended without a word. True when it is another error than last time.
[[nodiscard]] bool end_failed(Oid database, bool installed, std::int32_t sqlstate, const char *message) noexcept;

} // namespace ratelimit::pg::shared_memory
