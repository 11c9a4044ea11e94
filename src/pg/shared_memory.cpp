#include "pg/shared_memory.hpp"

#include <cstring>
#include <type_traits>

#include "pg/call.hpp"
#include "pg/statistics.hpp"

namespace ratelimit::pg::shared_memory {

namespace {

constexpr const char *tranche_name = "ratelimit";

// All fields under `lock`.
struct Shared {
	LWLock *lock;
	Latch *launcher_latch; // null when there is no launcher
	std::int32_t launcher_pid;
	Database databases[databases_max];
};
static_assert(std::is_standard_layout_v<Shared> && std::is_trivially_copyable_v<Shared>);

Shared *shared = nullptr;

// Of this session: whether its transaction creates the extension.
bool creation_pending = false;
bool commit_callback_registered = false;

#if PG_VERSION_NUM >= 150000
shmem_request_hook_type next_request_hook = nullptr;
#endif
shmem_startup_hook_type next_startup_hook = nullptr;

void request_memory()
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(Shared)) + MAXALIGN(statistics::memory_size()));
	RequestNamedLWLockTranche(tranche_name, 2); // the second one for the statistics
}

// Runs a few assignments under the lock. Nothing in them may raise, so no destructor has to release it.
template <typename Work>
void under_lock(LWLockMode mode, Work work) noexcept
{
	LWLockAcquire(shared->lock, mode);
	work();
	LWLockRelease(shared->lock);
}

// The following need the lock.
Database *entry_of(Oid database) noexcept
{
	for (Database &entry : shared->databases)
		if (entry.oid == database)
			return &entry;
	return nullptr;
}

Database *entry_or_new(Oid database) noexcept
{
	if (Database *found = entry_of(database))
		return found;
	Database *free = entry_of(InvalidOid);
	if (free != nullptr) {
		*free = Database{};
		free->oid = database;
	}
	return free;
}

void wake_launcher() noexcept
{
	if (shared->launcher_latch != nullptr)
		SetLatch(shared->launcher_latch);
}

void want_this_database() noexcept
{
	under_lock(LW_EXCLUSIVE, [] {
		if (Database *entry = entry_or_new(MyDatabaseId)) {
			entry->wanted = true;
			wake_launcher();
		}
	});
}

void end(Database &entry) noexcept
{
	entry.rounds++;
	entry.last_round_us = entry.last_round_at != 0 ? GetCurrentTimestamp() - entry.last_round_at : 0;
	entry.last_rows = 0;
	if (entry.worker_pid == MyProcPid)
		entry.worker_pid = 0;
}

} // namespace

extern "C" {

#if PG_VERSION_NUM >= 150000
static void ratelimit_request_memory(void)
{
	if (next_request_hook != nullptr)
		next_request_hook();
	request_memory();
}
#endif

static void ratelimit_attach_memory(void)
{
	if (next_startup_hook != nullptr)
		next_startup_hook();
	shared = nullptr; // after a crash the postmaster makes all of it anew
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	bool found = false;
	shared = static_cast<Shared *>(ShmemInitStruct("ratelimit", sizeof(Shared), &found));
	if (!found) {
		std::memset(shared, 0, sizeof(Shared));
		shared->lock = &GetNamedLWLockTranche(tranche_name)->lock;
	}
	void *const counts = ShmemInitStruct("ratelimit statistics", statistics::memory_size(), &found);
	statistics::attach(counts, &GetNamedLWLockTranche(tranche_name)[1].lock, !found);
	LWLockRelease(AddinShmemInitLock);
}

static void ratelimit_creation_ends(XactEvent event, void *)
{
	if (event == XACT_EVENT_COMMIT && creation_pending)
		want_this_database();
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		creation_pending = false;
}

static void ratelimit_launcher_ends(int, Datum)
{
	under_lock(LW_EXCLUSIVE, [] {
		if (shared->launcher_pid != MyProcPid)
			return;
		shared->launcher_pid = 0;
		shared->launcher_latch = nullptr;
	});
}

static void ratelimit_worker_ends(int, Datum database)
{
	under_lock(LW_EXCLUSIVE, [=] {
		Database *entry = entry_of(DatumGetObjectId(database));
		if (entry != nullptr && entry->worker_pid == MyProcPid)
			entry->worker_pid = 0;
	});
}

} // extern "C"

void request()
{
#if PG_VERSION_NUM >= 150000
	next_request_hook = shmem_request_hook;
	shmem_request_hook = ratelimit_request_memory;
#else
	request_memory();
#endif
	next_startup_hook = shmem_startup_hook;
	shmem_startup_hook = ratelimit_attach_memory;
}

bool is_available() noexcept { return shared != nullptr; }

void extension_is_created()
{
	if (!is_available())
		return;
	call([] {
		if (!commit_callback_registered)
			RegisterXactCallback(ratelimit_creation_ends, nullptr);
		commit_callback_registered = true;
		creation_pending = true;
	});
}

// A database that is looked after needs nothing, and one where workers fail keeps its pause.
void extension_is_called() noexcept
{
	if (!is_available())
		return;
	under_lock(LW_EXCLUSIVE, [] {
		Database *entry = entry_or_new(MyDatabaseId);
		if (entry != nullptr && !entry->installed && entry->failures == 0 && !entry->wanted) {
			entry->wanted = true;
			wake_launcher();
		}
	});
}

Vector<Database> databases()
{
	Vector<Database> copies;
	if (!is_available())
		return copies;
	copies.resize(databases_max);
	Database *const target = copies.data();
	std::size_t count = 0;
	under_lock(LW_SHARED, [&] {
		for (const Database &entry : shared->databases)
			if (OidIsValid(entry.oid))
				target[count++] = entry;
	});
	copies.resize(count);
	return copies;
}

std::int32_t launcher_pid() noexcept
{
	std::int32_t pid = 0;
	if (is_available())
		under_lock(LW_SHARED, [&] { pid = shared->launcher_pid; });
	return pid;
}

void become_launcher()
{
	call([] { before_shmem_exit(ratelimit_launcher_ends, Datum(0)); });
	under_lock(LW_EXCLUSIVE, [] {
		shared->launcher_pid = MyProcPid;
		shared->launcher_latch = MyLatch;
	});
}

std::optional<Database> find(Oid database) noexcept
{
	std::optional<Database> copy;
	under_lock(LW_SHARED, [&] {
		if (const Database *entry = entry_of(database))
			copy = *entry;
	});
	return copy;
}

bool take(Oid database) noexcept
{
	bool taken = false;
	under_lock(LW_EXCLUSIVE, [&] {
		if (Database *entry = entry_or_new(database)) {
			entry->wanted = false;
			taken = true;
		}
	});
	return taken;
}

void forget(Oid database) noexcept
{
	under_lock(LW_EXCLUSIVE, [=] {
		Database *entry = entry_of(database);
		if (entry != nullptr && !entry->wanted)
			entry->oid = InvalidOid;
	});
}

void drop(Oid database) noexcept
{
	under_lock(LW_EXCLUSIVE, [=] {
		if (Database *entry = entry_of(database))
			entry->oid = InvalidOid;
	});
}

void begin_round(Oid database)
{
	call([=] { before_shmem_exit(ratelimit_worker_ends, ObjectIdGetDatum(database)); });
	under_lock(LW_EXCLUSIVE, [=] {
		if (Database *entry = entry_of(database)) {
			entry->worker_pid = MyProcPid;
			entry->last_round_at = GetCurrentTimestamp();
		}
	});
}

void end_absent(Oid database) noexcept
{
	under_lock(LW_EXCLUSIVE, [=] {
		if (Database *entry = entry_of(database)) {
			end(*entry);
			entry->installed = false;
			entry->failures = 0;
		}
	});
}

bool end_round(Oid database, std::int64_t rows, std::uint32_t unfinished) noexcept
{
	bool had_failed = false;
	under_lock(LW_EXCLUSIVE, [&] {
		Database *entry = entry_of(database);
		if (entry == nullptr)
			return;
		had_failed = entry->failures > 0;
		end(*entry);
		entry->installed = true;
		entry->failures = 0;
		entry->last_rows = rows;
		entry->total_rows += rows;
		entry->unfinished = unfinished;
	});
	return had_failed;
}

bool end_failed(Oid database, bool installed, std::int32_t sqlstate, const char *message) noexcept
{
	bool is_new = true;
	under_lock(LW_EXCLUSIVE, [&] {
		Database *entry = entry_of(database);
		if (entry == nullptr)
			return;
		is_new = entry->failures == 0 || entry->last_sqlstate != sqlstate ||
			std::strncmp(entry->last_error, message, sizeof(entry->last_error) - 1) != 0;
		end(*entry);
		entry->installed = entry->installed || installed;
		entry->failures++;
		entry->last_error_at = GetCurrentTimestamp();
		entry->last_sqlstate = sqlstate;
		strlcpy(entry->last_error, message, sizeof(entry->last_error));
	});
	return is_new;
}

} // namespace ratelimit::pg::shared_memory
