// Reading rows by an index without the executor.
//
// The hot reads (a counter by its key, the expiries of a scope) take a quarter of the instructions of the same SELECT
// through SPI, whose cost lies in setting an executor up and tearing it down. What is read is the same: the rows that a
// snapshot of this moment sees, which holds what has been committed and what this transaction has done, never the
// snapshot of the calling statement. Relation locks are kept until the end of the transaction, as the executor keeps them.
//
// Permissions are not looked at: whoever may execute one of our functions may have it read our tables.
#pragma once

#include <cstdint>

#include "pg/call.hpp"
#include "pg/postgres.hpp"

namespace ratelimit::pg {

// An index of the extension, for namespace scope. Its OID is looked up by name again whenever a relation or schema of that
// name may have changed: DROP and CREATE EXTENSION, REINDEX CONCURRENTLY.
struct IndexName {
	const char *name;
	Oid index = InvalidOid;
	Oid table = InvalidOid;
	std::uint64_t generation = 0;

	explicit constexpr IndexName(const char *index_name) noexcept : name(index_name) {}
};

// The conditions of a scan, in the order of the index's columns.
class ScanKeys {
public:
	void equals_text(Datum value) noexcept { add(BTEqualStrategyNumber, F_TEXTEQ, C_COLLATION_OID, value); }
	void equals_int4(Datum value) noexcept { add(BTEqualStrategyNumber, F_INT4EQ, InvalidOid, value); }
	// Conditions on one more timestamptz column; several of them stand on the same column.
	void after(Datum value) noexcept { add_bound(BTGreaterStrategyNumber, F_TIMESTAMPTZ_GT, value); }
	void from(Datum value) noexcept { add_bound(BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, value); }
	void until(Datum value) noexcept { add_bound(BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE, value); }

	[[nodiscard]] ScanKeyData *data() noexcept { return keys_; }
	[[nodiscard]] int count() const noexcept { return count_; }

private:
	void add(StrategyNumber strategy, RegProcedure procedure, Oid collation, Datum value) noexcept;
	void add_bound(StrategyNumber strategy, RegProcedure procedure, Datum value) noexcept;

	ScanKeyData keys_[6];
	int count_ = 0;
	AttrNumber column_ = 0;
	bool bounded_ = false; // the last column has a bound already
};

// One snapshot for one or several scans. It is taken by the first of them, after its table was locked: waiting for that lock
// must not make it an old one. finish() on success; an abort releases it otherwise.
class Reader {
public:
	Reader() noexcept = default;
	// Locks a table that a later scan reads, so that the snapshot will not be older than that lock either.
	void lock(IndexName &index);
	void finish();
	Reader(const Reader &) = delete;
	Reader &operator=(const Reader &) = delete;

	// Calls visit(slot) for each row in the order of the index until it returns false. It runs below the guard: plain
	// data only.
	template <typename Visit>
	void scan(IndexName &index, ScanKeys &keys, Visit visit)
	{
		Snapshot *const snapshot = &snapshot_;
		ScanKeyData *const conditions = keys.data();
		const int count = keys.count();
		IndexName *const name = &index;
		call([=] {
			lock_table(*name);
			if (*snapshot == nullptr)
				*snapshot = RegisterSnapshot(GetLatestSnapshot());
			Relation table = table_open(name->table, NoLock);
			Relation relation = index_open(name->index, AccessShareLock);
			TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(table), &TTSOpsBufferHeapTuple);
			IndexScanDesc scan = index_beginscan(table, relation, *snapshot, count, 0);
			index_rescan(scan, conditions, count, nullptr, 0);
			while (index_getnext_slot(scan, ForwardScanDirection, slot) && visit(slot))
				;
			index_endscan(scan);
			ExecDropSingleTupleTableSlot(slot);
			index_close(relation, NoLock);
			table_close(table, NoLock);
		});
	}

	// Visits the row version at a place of the index's table if the snapshot sees it, and says whether it does. The place may
	// be out of date: the caller looks whether it is the row that it means.
	template <typename Visit>
	[[nodiscard]] bool visit_place(IndexName &index, const ItemPointerData &place, Visit visit)
	{
		Snapshot *const snapshot = &snapshot_;
		IndexName *const name = &index;
		const ItemPointerData at = place;
		return call([=] {
			lock_table(*name);
			if (*snapshot == nullptr)
				*snapshot = RegisterSnapshot(GetLatestSnapshot());
			Relation table = table_open(name->table, NoLock);
			bool found = false;
			if (ItemPointerGetBlockNumber(&at) < RelationGetNumberOfBlocks(table)) {
				TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(table), &TTSOpsBufferHeapTuple);
				ItemPointerData tid = at;
				found = table_tuple_fetch_row_version(table, &tid, *snapshot, slot) && visit(slot);
				ExecDropSingleTupleTableSlot(slot);
			}
			table_close(table, NoLock);
			return found;
		});
	}

private:
	// Finds the index and locks its table, until the end of the transaction. Runs below the guard.
	static void lock_table(IndexName &index);

	Snapshot snapshot_ = nullptr;
};

// A column of a visited row that is NOT NULL.
[[nodiscard]] inline Datum slot_datum(TupleTableSlot *slot, int column) noexcept
{
	slot_getsomeattrs(slot, column);
	return slot->tts_values[column - 1];
}

// Which version of a row it is: its place and the transaction that made it. A row at the same place made by the same
// transaction is the same version.
struct RowVersion {
	ItemPointerData place;
	TransactionId made_by;
};
[[nodiscard]] RowVersion slot_version(TupleTableSlot *slot) noexcept;

// Whether another transaction is changing or locking the visited row right now.
[[nodiscard]] bool slot_is_contended(TupleTableSlot *slot) noexcept;

void register_index_callbacks();

} // namespace ratelimit::pg
