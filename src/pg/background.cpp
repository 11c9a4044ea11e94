#include "pg/background.hpp"

#include <cstring>

#include "pg/call.hpp"
#include "pg/shared_memory.hpp"

namespace ratelimit::pg::background {

namespace {

constexpr const char *library_name = "ratelimit";
constexpr const char *worker_name_prefix = "ratelimit worker for ";
constexpr int launcher_restart_seconds = 5;

// A lock on a table is waited for no longer than this: whoever holds it so long is dropping or rewriting it.
constexpr const char *lock_timeout = "500ms";

uint32 wait_event()
{
#if PG_VERSION_NUM >= 170000
	static uint32 event = 0;
	if (event == 0)
		event = WaitEventExtensionNew("RatelimitLauncherMain");
	return event;
#else
	return PG_WAIT_EXTENSION;
#endif
}

void set_option(const char *name, const char *value)
{
	SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}

} // namespace

void register_launcher()
{
	BackgroundWorker worker;
	std::memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = launcher_restart_seconds;
	strlcpy(worker.bgw_library_name, library_name, sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "rl_launcher_main", sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "ratelimit launcher", sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, "ratelimit launcher", sizeof(worker.bgw_type));
	RegisterBackgroundWorker(&worker);
}

// --- both ----------------------------------------------------------------------------------------------------------

void begin_process()
{
	call_context = TopMemoryContext; // until there is one
	call([] { call_context = AllocSetContextCreate(TopMemoryContext, "ratelimit worker", ALLOCSET_DEFAULT_SIZES); });
}

void abort_transaction()
{
	call([] {
		HOLD_INTERRUPTS();
		AbortOutOfAnyTransaction();
		RESUME_INTERRUPTS();
	});
}

const char *message_of(const PendingError &pending) noexcept
{
	if (pending.kind != PendingKind::server)
		return pending.message;
	return pending.data->message != nullptr ? pending.data->message : "";
}

int sqlstate_of(const PendingError &pending) noexcept
{
	return pending.kind == PendingKind::server ? pending.data->sqlerrcode : pending.sqlstate;
}

void dispose(PendingError &pending) noexcept
{
	if (pending.kind == PendingKind::server)
		FreeErrorData(pending.data);
	pending.kind = PendingKind::none;
}

void log_failure(const char *place, const PendingError &pending)
{
	const PendingError *const error = &pending;
	const bool server = pending.kind == PendingKind::server;
	const char *const detail = server ? pending.data->detail : pending.detail;
	const char *const hint = server ? pending.data->hint : pending.hint;
	const char *const context = server ? pending.data->context : nullptr;
	call([=] {
		ereport(LOG, (errcode(sqlstate_of(*error)),
						 errmsg("ratelimit could not do its work in %s: %s", place, message_of(*error)),
						 detail != nullptr && *detail != '\0' ? errdetail_internal("%s", detail) : 0,
						 hint != nullptr && *hint != '\0' ? errhint("%s", hint) : 0,
						 context != nullptr ? errcontext_msg("%s", context) : 0));
	});
}

void log_recovery(const char *place)
{
	call([=] { ereport(LOG, (errmsg("ratelimit does its work in %s again", place))); });
}

// --- the launcher --------------------------------------------------------------------------------------------------

void begin_launcher()
{
	call([] {
		pqsignal(SIGHUP, SignalHandlerForConfigReload);
		pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
		BackgroundWorkerUnblockSignals();
		BackgroundWorkerInitializeConnection(nullptr, nullptr, 0);
		set_option("application_name", "ratelimit launcher");
		pgstat_report_activity(STATE_IDLE, "waiting for the next round");
	});
}

void reload_if_asked()
{
	if (ConfigReloadPending == 0)
		return;
	ConfigReloadPending = 0;
	call([] { ProcessConfigFile(PGC_SIGHUP); });
}

bool shutdown_is_asked() noexcept { return ShutdownRequestPending != 0; }

void end_launcher() { proc_exit(1); }

void wait_on_latch(std::int64_t timeout_ms)
{
	call([=] {
		(void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, static_cast<long>(timeout_ms), wait_event());
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	});
}

Vector<DatabaseName> connectable_databases()
{
	struct List {
		DatabaseName *names;
		std::size_t count;
	};
	const MemoryContext home = call_context;
	const List list = call([=] {
		StartTransactionCommand();
		(void)GetTransactionSnapshot();
		Relation relation = table_open(DatabaseRelationId, AccessShareLock);
		TableScanDesc scan = table_beginscan_catalog(relation, 0, nullptr);
		std::size_t capacity = 64;
		List found{static_cast<DatabaseName *>(MemoryContextAlloc(home, capacity * sizeof(DatabaseName))), 0};
		for (HeapTuple tuple = heap_getnext(scan, ForwardScanDirection); HeapTupleIsValid(tuple);
			 tuple = heap_getnext(scan, ForwardScanDirection)) {
			const auto *database = reinterpret_cast<Form_pg_database>(GETSTRUCT(tuple));
			// A negative limit other than -1 marks one whose DROP was interrupted.
			if (!database->datallowconn || database->datconnlimit < -1)
				continue;
			if (found.count == capacity) {
				capacity *= 2;
				found.names = static_cast<DatabaseName *>(repalloc(found.names, capacity * sizeof(DatabaseName)));
			}
			found.names[found.count++] = {database->oid, database->datname};
		}
		table_endscan(scan);
		table_close(relation, AccessShareLock);
		CommitTransactionCommand();
		return found;
	});
	Vector<DatabaseName> databases(list.names, list.names + list.count);
	pfree(list.names);
	return databases;
}

DatabaseState state_of_database(Oid database)
{
	return call([=] {
		StartTransactionCommand();
		DatabaseState state = DatabaseState::gone;
		if (SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(database))) {
			// The lock that connecting takes; the commit gives it back.
			LOCKTAG tag;
			SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, database, 0);
			const LockAcquireResult result = LockAcquire(&tag, RowExclusiveLock, false, true);
			state = result == LOCKACQUIRE_NOT_AVAIL ? DatabaseState::held : DatabaseState::free;
		}
		CommitTransactionCommand();
		return state;
	});
}

Worker *start_worker(const DatabaseName &database, std::uint32_t chores)
{
	const Oid oid = database.oid;
	const char *const name = NameStr(database.name);
	const MemoryContext home = call_context;
	return call([=] {
		BackgroundWorker worker;
		std::memset(&worker, 0, sizeof(worker));
		worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
		worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
		worker.bgw_restart_time = BGW_NEVER_RESTART;
		strlcpy(worker.bgw_library_name, library_name, sizeof(worker.bgw_library_name));
		strlcpy(worker.bgw_function_name, "rl_database_worker_main", sizeof(worker.bgw_function_name));
		snprintf(worker.bgw_name, sizeof(worker.bgw_name), "%s%s", worker_name_prefix, name);
		strlcpy(worker.bgw_type, "ratelimit worker", sizeof(worker.bgw_type));
		worker.bgw_main_arg = ObjectIdGetDatum(oid);
		std::memcpy(worker.bgw_extra, &chores, sizeof(chores));
		worker.bgw_notify_pid = MyProcPid;
		const MemoryContext outer = MemoryContextSwitchTo(home);
		BackgroundWorkerHandle *handle = nullptr;
		const bool registered = RegisterDynamicBackgroundWorker(&worker, &handle);
		MemoryContextSwitchTo(outer);
		return registered ? handle : nullptr;
	});
}

bool has_ended(Worker *worker)
{
	return call([=] {
		pid_t pid;
		const BgwHandleStatus status = GetBackgroundWorkerPid(worker, &pid);
		return status == BGWH_STOPPED || status == BGWH_POSTMASTER_DIED;
	});
}

void free_worker(Worker *worker) noexcept { pfree(worker); }

void log_no_slot()
{
	call([] {
		ereport(LOG, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						 errmsg("ratelimit found no free slot for a background worker and goes on trying"),
						 errhint("Consider increasing max_worker_processes.")));
	});
}

void log_no_room()
{
	call([] {
		ereport(LOG, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						 errmsg("the background worker of ratelimit looks after at most %d databases", shared_memory::databases_max),
						 errhint("Call rl_reap() and rl_recover() from a scheduler in the others.")));
	});
}

// --- a worker ------------------------------------------------------------------------------------------------------

Oid assigned_database() noexcept { return DatumGetObjectId(MyBgworkerEntry->bgw_main_arg); }

std::uint32_t assigned_chores() noexcept
{
	std::uint32_t chores = 0;
	std::memcpy(&chores, MyBgworkerEntry->bgw_extra, sizeof(chores));
	return chores;
}

// Settings of the database hold here too, but for those that would keep the worker from its work. Nothing that it does has
// to be on disk before it goes on: what a crash undoes is done again.
void begin_worker(Oid database)
{
	call([=] {
		pqsignal(SIGHUP, SignalHandlerForConfigReload);
		pqsignal(SIGTERM, die);
		BackgroundWorkerUnblockSignals();
		BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
		set_option("application_name", MyBgworkerEntry->bgw_name);
		set_option("default_transaction_read_only", "off");
		set_option("default_transaction_isolation", "read committed");
		set_option("synchronous_commit", "off");
		set_option("lock_timeout", lock_timeout);
		set_option("search_path", "pg_catalog");
	});
}

const char *place_of_worker()
{
	// The worker's name ends with that of the database, and reading it needs no transaction.
	return call([] { return psprintf("database \"%s\"", MyBgworkerEntry->bgw_name + std::strlen(worker_name_prefix)); });
}

void limit_time(int timeout_ms)
{
	call([=] { enable_timeout_after(STATEMENT_TIMEOUT, timeout_ms); });
}

void begin_transaction(const char *activity)
{
	call([=] {
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());
		pgstat_report_activity(STATE_RUNNING, activity);
	});
}

void commit_transaction()
{
	call([] {
		PopActiveSnapshot();
		CommitTransactionCommand();
		pgstat_report_stat(true);
		pgstat_report_activity(STATE_IDLE, nullptr);
	});
}

Oid installed_extension()
{
	return call([] { return get_extension_oid("ratelimit", true); });
}

} // namespace ratelimit::pg::background
