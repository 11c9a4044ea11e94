#include "pg/index_scan.hpp"

#include "pg/catalog.hpp"

namespace ratelimit::pg {

namespace {

// Counts changes of relations and schemas; an IndexName of an older generation is looked up again.
std::uint64_t generation = 1;

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

Reader::Reader() : snapshot_(call([] { return RegisterSnapshot(GetLatestSnapshot()); })) {}

void Reader::finish()
{
	const Snapshot snapshot = snapshot_;
	call([=] { UnregisterSnapshot(snapshot); });
}

void Reader::locate(IndexName &index)
{
	if (index.generation == generation)
		return;
	IndexName *const name = &index;
	call([=] {
		// Taken before the look-up: a change that comes in while it runs leaves the entry stale.
		const std::uint64_t current = generation;
		name->index = get_relname_relid(name->name, get_namespace_oid(catalog::schema_name, false));
		if (!OidIsValid(name->index))
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
							   errmsg("index \"%s.%s\" does not exist", catalog::schema_name, name->name)));
		name->table = IndexGetRelation(name->index, false);
		name->generation = current;
	});
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
