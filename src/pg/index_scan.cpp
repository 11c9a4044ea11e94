#include "pg/index_scan.hpp"

#include "pg/catalog.hpp"

namespace ratelimit::pg {

namespace {

// Counts changes of relations and schemas; an IndexName of an older generation is looked up again.
std::uint64_t generation = 1;

// Runs below the guard: plain data only.
void look_up(IndexName &index)
{
	// Taken before the look-up: a change that comes in while it runs leaves the entry stale.
	const std::uint64_t current = generation;
	index.index = get_relname_relid(index.name, get_namespace_oid(catalog::schema_name, false));
	index.table = OidIsValid(index.index) ? IndexGetRelation(index.index, true) : InvalidOid;
	if (!OidIsValid(index.table))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						   errmsg("index \"%s.%s\" does not exist", catalog::schema_name, index.name)));
	index.generation = current;
}

} // namespace

extern "C" {

// Only marks: a callback may run in the middle of anything.
static void ratelimit_relation_changed(Datum, int, uint32) { generation++; }

} // extern "C"

void register_index_callbacks()
{
	CacheRegisterSyscacheCallback(RELNAMENSP, ratelimit_relation_changed, Datum(0));
	CacheRegisterSyscacheCallback(NAMESPACENAME, ratelimit_relation_changed, Datum(0));
}

void ScanKeys::add(StrategyNumber strategy, RegProcedure procedure, Oid collation, Datum value) noexcept
{
	column_ = static_cast<AttrNumber>(column_ + 1);
	ScanKeyEntryInitialize(&keys_[count_++], 0, column_, strategy, InvalidOid, collation, procedure, value);
}

void ScanKeys::add_bound(StrategyNumber strategy, RegProcedure procedure, Datum value) noexcept
{
	if (bounded_)
		column_ = static_cast<AttrNumber>(column_ - 1);
	add(strategy, procedure, InvalidOid, value);
	bounded_ = true;
}

void Reader::lock(IndexName &index)
{
	IndexName *const name = &index;
	call([=] { lock_table(*name); });
}

void Reader::finish()
{
	const Snapshot snapshot = snapshot_;
	call([=] { UnregisterSnapshot(snapshot); }); // none when nothing was scanned
	snapshot_ = nullptr;
}

// Waiting for the lock lets changes come in: the index may have been replaced, or dropped and created again. Under the lock
// it stays, and with it what it says: it is not even set dead by REINDEX CONCURRENTLY.
void Reader::lock_table(IndexName &index)
{
	if (index.generation != generation)
		look_up(index);
	for (;;) {
		const Oid found = index.index;
		const Oid table = index.table;
		LockRelationOid(table, AccessShareLock);
		if (index.generation == generation)
			return;
		look_up(index);
		if (index.index == found && index.table == table)
			return;
		UnlockRelationOid(table, AccessShareLock);
	}
}

RowVersion slot_version(TupleTableSlot *slot) noexcept
{
	const HeapTuple tuple = reinterpret_cast<HeapTupleTableSlot *>(slot)->tuple;
	return {slot->tts_tid, HeapTupleHeaderGetRawXmin(tuple->t_data)};
}

bool slot_is_contended(TupleTableSlot *slot) noexcept
{
	const HeapTupleHeader header = reinterpret_cast<HeapTupleTableSlot *>(slot)->tuple->t_data;
	if ((header->t_infomask & HEAP_XMAX_INVALID) != 0)
		return false;
	if ((header->t_infomask & HEAP_XMAX_IS_MULTI) != 0)
		return true; // several lockers: rare, and the careful way is always right
	const TransactionId locker = HeapTupleHeaderGetRawXmax(header);
	return TransactionIdIsValid(locker) && !TransactionIdIsCurrentTransactionId(locker) && TransactionIdIsInProgress(locker);
}

} // namespace ratelimit::pg
