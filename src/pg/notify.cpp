#include "pg/notify.hpp"

#include "pg/call.hpp"
#include "pg/statistics.hpp"

namespace ratelimit::pg {

namespace {

struct Latched {
	std::int32_t pid;
	SubTransactionId subtransaction; // whose rollback takes it back
};

// In the memory of the current transaction, which ends with it.
Latched *latched = nullptr;
int latched_count = 0;
int latched_capacity = 0;
bool callbacks_registered = false;

void forget_all() noexcept
{
	latched = nullptr;
	latched_count = 0;
	latched_capacity = 0;
}

// Runs after the commit is visible to others. Takes a lock of the server and raises nothing.
void wake_all() noexcept
{
	for (int i = 0; i < latched_count; i++) {
		PGPROC *process = BackendPidGetProc(latched[i].pid);
		if (process != nullptr)
			SetLatch(&process->procLatch);
	}
}

} // namespace

extern "C" {

static void ratelimit_transaction_ends(XactEvent event, void *)
{
	switch (event) {
	case XACT_EVENT_COMMIT:
		wake_all();
		forget_all();
		break;
	case XACT_EVENT_ABORT:
	case XACT_EVENT_PREPARE:
		forget_all();
		break;
	default:
		break;
	}
}

static void ratelimit_subtransaction_ends(SubXactEvent event, SubTransactionId ended, SubTransactionId parent, void *)
{
	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	int kept = 0;
	for (int i = 0; i < latched_count; i++) {
		Latched entry = latched[i];
		if (entry.subtransaction == ended) {
			if (event == SUBXACT_EVENT_ABORT_SUB)
				continue;
			entry.subtransaction = parent;
		}
		latched[kept++] = entry;
	}
	latched_count = kept;
}

} // extern "C"

namespace {

// Room for one more. Registers before anything is collected, so that what is collected is always taken back.
void make_room()
{
	call([] {
		if (!callbacks_registered) {
			RegisterXactCallback(ratelimit_transaction_ends, nullptr);
			RegisterSubXactCallback(ratelimit_subtransaction_ends, nullptr);
			callbacks_registered = true;
		}
		if (latched_count < latched_capacity)
			return;
		const int capacity = latched_capacity == 0 ? 8 : latched_capacity * 2;
		const Size size = static_cast<Size>(capacity) * sizeof(Latched);
		void *const memory =
			latched == nullptr ? MemoryContextAlloc(TopTransactionContext, size) : repalloc(latched, size);
		latched = static_cast<Latched *>(memory);
		latched_capacity = capacity;
	});
}

} // namespace

void notify_admission(const Sleeper &sleeper)
{
	const std::string_view id = sleeper.task_id;
	call([=] {
		char *payload = pnstrdup(id.data(), id.size());
		Async_Notify("ratelimit_admission", payload);
		pfree(payload);
	});
	statistics::add(statistics::Source::rl_admit_wait, {}, {}, statistics::wake_ups);
	if (sleeper.pid)
		wake_at_commit(*sleeper.pid);
}

void wake_at_commit(std::int32_t pid)
{
	make_room();
	latched[latched_count++] = {pid, GetCurrentSubTransactionId()};
}

} // namespace ratelimit::pg
