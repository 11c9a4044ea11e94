#include "pg/inplace.hpp"

#include <algorithm>
#include <cstring>

#include "pg/call.hpp"

namespace ratelimit::pg::inplace {

namespace {

// What of the header says whether xmax deletes the row, only locks it, or is a set of lockers. The hint bits beside them
// may come at any time and change nothing.
constexpr std::uint16_t xmax_kind_bits = HEAP_LOCK_MASK | HEAP_XMAX_LOCK_ONLY | HEAP_XMAX_IS_MULTI | HEAP_MOVED;

std::uint16_t xmax_kind_of(HeapTupleHeader header) noexcept
{
	return static_cast<std::uint16_t>(header->t_infomask & xmax_kind_bits);
}

std::uint16_t keys_updated_of(HeapTupleHeader header) noexcept
{
	return static_cast<std::uint16_t>(header->t_infomask2 & HEAP_KEYS_UPDATED);
}

char *columns_of(HeapTupleHeader header) noexcept { return reinterpret_cast<char *>(header) + header->t_hoff; }

// The table is ours and the keys are short, so a tuple of another shape means a damaged table.
void check_shape(HeapTuple tuple, std::uint16_t width)
{
	const HeapTupleHeader header = tuple->t_data;
	if ((header->t_infomask & HEAP_HASNULL) != 0 || header->t_hoff != MAXALIGN(header->t_hoff) ||
		tuple->t_len < static_cast<uint32>(header->t_hoff) + width)
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED), errmsg_internal("row (%u,%u) has an unexpected shape",
															 ItemPointerGetBlockNumber(&tuple->t_self),
															 static_cast<unsigned>(ItemPointerGetOffsetNumber(&tuple->t_self)))));
}

// Aligned stores of eight bytes, then of one: whoever reads without the lock finds every column whole. The server turns
// strict aliasing off.
void store_columns(char *target, const char *source, std::size_t width) noexcept
{
	std::size_t at = 0;
	for (; at + sizeof(std::uint64_t) <= width; at += sizeof(std::uint64_t)) {
		std::uint64_t word = 0;
		std::memcpy(&word, source + at, sizeof(word));
		__atomic_store_n(reinterpret_cast<std::uint64_t *>(target + at), word, __ATOMIC_RELAXED);
	}
	for (; at < width; at++)
		__atomic_store_n(target + at, source[at], __ATOMIC_RELAXED);
}

// The server's own record of a change in place: the place, and all of the tuple behind its header.
XLogRecPtr log_change(Buffer buffer, OffsetNumber item, char *columns, std::size_t length)
{
	xl_heap_inplace record;
#if PG_VERSION_NUM >= 180000
	// It also carries cache invalidations there, for changes of catalogs. Ours need none.
	std::memset(&record, 0, sizeof(record));
	record.offnum = item;
	record.dbId = MyDatabaseId;
	record.tsId = MyDatabaseTableSpace;
	record.relcacheInitFileInval = false;
	record.nmsgs = 0;
	constexpr std::size_t record_size = MinSizeOfHeapInplace;
#else
	record.offnum = item;
	constexpr std::size_t record_size = SizeOfHeapInplace;
#endif
	XLogBeginInsert();
	XLogRegisterData(reinterpret_cast<char *>(&record), static_cast<uint32>(record_size));
	XLogRegisterBuffer(0, buffer, REGBUF_STANDARD);
	XLogRegisterBufData(0, columns, static_cast<uint32>(length));
	return XLogInsert(RM_HEAP_ID, XLOG_HEAP_INPLACE);
}

} // namespace

Table::Table(Oid table, const Layout &layout, Durability durability)
	: heap_(nullptr), index_(nullptr), layout_(layout), count_(0)
{
	call([this, table, durability] {
		heap_ = table_open(table, RowExclusiveLock);
		const Oid index = RelationGetPrimaryKeyIndex(heap_);
		if (!OidIsValid(index))
			ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
							   errmsg("table \"%s\" has no usable primary key", RelationGetRelationName(heap_))));
		index_ = index_open(index, RowExclusiveLock);
		if (durability == Durability::with_commit)
			(void)GetTopTransactionId();
	});
}

// The locks stay to the end of the transaction, as after any statement.
void Table::close()
{
	call([this] {
		index_close(index_, NoLock);
		table_close(heap_, NoLock);
	});
}

// --- finding -------------------------------------------------------------------------------------------------------

bool Table::has_keys(HeapTuple tuple, const Key &key, int key_count) const
{
	for (int i = 0; i < key_count; i++) {
		bool null = false;
		const Datum stored = heap_getattr(tuple, layout_.key_columns[i], RelationGetDescr(heap_), &null);
		const auto *a = reinterpret_cast<const varlena *>(DatumGetPointer(stored));
		const auto *b = reinterpret_cast<const varlena *>(DatumGetPointer(key.columns[i]));
		if (null || VARATT_IS_EXTERNAL(a) || VARATT_IS_COMPRESSED(a) || VARSIZE_ANY_EXHDR(a) != VARSIZE_ANY_EXHDR(b) ||
			std::memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(b)) != 0)
			return false;
	}
	return true;
}

// The next row of the scan that is live or busy. True when it is live: `row` is pinned then. False at the end of the
// scan, or when a transaction must be waited for.
bool Table::next_live(IndexScanDesc scan, const Key &key, int key_count, Row &row, Search &search) const
{
	ItemPointer at = nullptr;
	while ((at = index_getnext_tid(scan, ForwardScanDirection)) != nullptr) {
		ItemPointerData place = *at;
		HeapTupleData tuple;
		SnapshotData dirty;
		InitDirtySnapshot(dirty);
		const Buffer buffer = ReadBuffer(heap_, ItemPointerGetBlockNumber(&place));
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		const bool visible = heap_hot_search_buffer(&place, heap_, buffer, &dirty, &tuple, nullptr, true);
		const bool ours = visible && has_keys(&tuple, key, key_count);
		if (ours) {
			row.buffer = buffer;
			row.place = place;
			row.inserter = HeapTupleHeaderGetRawXmin(tuple.t_data);
			row.xmax = HeapTupleHeaderGetRawXmax(tuple.t_data);
			row.xmax_kind = xmax_kind_of(tuple.t_data);
			row.keys_updated = keys_updated_of(tuple.t_data);
		}
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
		if (ours)
			check_shape(&tuple, layout_.width); // what it looks at never changes
		if (ours && !TransactionIdIsValid(dirty.xmin) && !TransactionIdIsValid(dirty.xmax))
			return true;
		ReleaseBuffer(buffer);
		if (!ours)
			continue; // a version that is dead
		search.finding = Finding::busy;
		search.xid = TransactionIdIsValid(dirty.xmin) ? dirty.xmin : dirty.xmax;
		search.token = TransactionIdIsValid(dirty.xmin) ? dirty.speculativeToken : 0;
		search.place = place;
		return false;
	}
	search.finding = Finding::missing;
	return false;
}

Search Table::find(const Key *keys, std::size_t count)
{
	return call([this, keys, count] {
		Search search = {Finding::live, 0, 0, InvalidTransactionId, 0, {}};
		IndexScanDesc scan = index_beginscan(heap_, index_, SnapshotAny, keys_max, 0);
		for (; search.row < count; search.row++) {
			ScanKeyData scan_keys[keys_max];
			for (int i = 0; i < keys_max; i++)
				ScanKeyInit(&scan_keys[i], static_cast<AttrNumber>(i + 1), BTEqualStrategyNumber, F_TEXTEQ,
					keys[search.row].columns[i]);
			index_rescan(scan, scan_keys, keys_max, nullptr, 0);
			if (!next_live(scan, keys[search.row], keys_max, rows_[search.row], search))
				break;
			count_ = search.row + 1;
		}
		index_endscan(scan);
		if (search.finding != Finding::live)
			unpin(count_);
		search.count = count_;
		return search;
	});
}

Search Table::find_from(const Key &key)
{
	const Key *const from = &key;
	return call([this, from] {
		Search search = {Finding::live, 0, 0, InvalidTransactionId, 0, {}};
		const bool first = DatumGetPointer(from->columns[1]) == nullptr;
		ScanKeyData scan_keys[keys_max];
		ScanKeyInit(&scan_keys[0], 1, BTEqualStrategyNumber, F_TEXTEQ, from->columns[0]);
		if (!first)
			ScanKeyInit(&scan_keys[1], 2, BTGreaterStrategyNumber, F_TEXT_GT, from->columns[1]);
		const int key_count = first ? 1 : 2;
		IndexScanDesc scan = index_beginscan(heap_, index_, SnapshotAny, key_count, 0);
		index_rescan(scan, scan_keys, key_count, nullptr, 0);
		while (search.row < rows_max && next_live(scan, *from, 1, rows_[search.row], search))
			count_ = ++search.row;
		index_endscan(scan);
		if (search.finding == Finding::busy)
			unpin(count_);
		else
			search.finding = Finding::live;
		search.count = count_;
		return search;
	});
}

Datum Table::second_key(std::size_t row) const
{
	const Row *const found = &rows_[row];
	return call([this, found] {
		HeapTupleData tuple;
		tuple.t_self = found->place;
		tuple.t_tableOid = RelationGetRelid(heap_);
		bool null = false;
		// Keys never change, and the pin keeps the tuple where it is: no lock is needed to read one.
		const Page page = BufferGetPage(found->buffer);
		const ItemId item = PageGetItemId(page, ItemPointerGetOffsetNumber(&found->place));
		tuple.t_data = reinterpret_cast<HeapTupleHeader>(PageGetItem(page, item));
		tuple.t_len = ItemIdGetLength(item);
		return heap_getattr(&tuple, layout_.key_columns[1], RelationGetDescr(heap_), &null);
	});
}

void Table::wait(const Search &obstacle)
{
	const Search *const by = &obstacle;
	call([this, by] {
		ItemPointerData place = by->place;
		if (by->token != 0)
			SpeculativeInsertionWait(by->xid, by->token);
		else
			XactLockTableWait(by->xid, heap_, &place, XLTW_FetchUpdated);
	});
}

// --- changing ------------------------------------------------------------------------------------------------------

// The row's tuple if it is still what was found, else null. Under the exclusive lock.
HeapTupleHeader Table::unchanged_tuple(const Row &row) const
{
	const Page page = BufferGetPage(row.buffer);
	const ItemId item = PageGetItemId(page, ItemPointerGetOffsetNumber(&row.place));
	if (!ItemIdIsNormal(item))
		return nullptr;
	const auto header = reinterpret_cast<HeapTupleHeader>(PageGetItem(page, item));
	const bool same = HeapTupleHeaderGetRawXmin(header) == row.inserter &&
					  HeapTupleHeaderGetRawXmax(header) == row.xmax && xmax_kind_of(header) == row.xmax_kind &&
					  keys_updated_of(header) == row.keys_updated;
	return same ? header : nullptr;
}

// In a critical section, under the exclusive lock.
XLogRecPtr Table::store(const Row &row, const Image &image) const
{
	const Page page = BufferGetPage(row.buffer);
	const OffsetNumber number = ItemPointerGetOffsetNumber(&row.place);
	const ItemId item = PageGetItemId(page, number);
	const auto header = reinterpret_cast<HeapTupleHeader>(PageGetItem(page, item));

	store_columns(columns_of(header), image.bytes, layout_.width);
	MarkBufferDirty(row.buffer);
	if (!RelationNeedsWAL(heap_))
		return InvalidXLogRecPtr;
	const XLogRecPtr record = log_change(row.buffer, number, columns_of(header), ItemIdGetLength(item) - header->t_hoff);
	PageSetLSN(page, record);
	return record;
}

// The buffers of the rows, each once, in the order of their blocks.
std::size_t Table::distinct_buffers(Buffer *buffers) const
{
	for (std::size_t i = 0; i < count_; i++)
		buffers[i] = rows_[i].buffer;
	std::sort(buffers, buffers + count_, [](Buffer a, Buffer b) { return BufferGetBlockNumber(a) < BufferGetBlockNumber(b); });
	return static_cast<std::size_t>(std::unique(buffers, buffers + count_) - buffers);
}

bool Table::change(Decide decide, void *context)
{
	return call([this, decide, context] {
		Buffer buffers[rows_max];
		Image before[rows_max];
		Image after[rows_max];
		const std::size_t buffer_count = distinct_buffers(buffers);
		XLogRecPtr last_record = InvalidXLogRecPtr;
		bool unchanged = true;

		// Nothing from here to the last unlock raises, allocates, waits for anything but WAL insertion, or runs user code.
		for (std::size_t i = 0; i < buffer_count; i++)
			LockBuffer(buffers[i], BUFFER_LOCK_EXCLUSIVE);
		for (std::size_t i = 0; i < count_ && unchanged; i++) {
			const HeapTupleHeader header = unchanged_tuple(rows_[i]);
			unchanged = header != nullptr;
			if (unchanged)
				std::memcpy(before[i].bytes, columns_of(header), layout_.width);
		}
		if (unchanged) {
			for (std::size_t i = 0; i < count_; i++)
				std::memcpy(after[i].bytes, before[i].bytes, layout_.width);
			if (decide(context, after, count_)) {
				START_CRIT_SECTION();
				for (std::size_t i = 0; i < count_; i++)
					if (std::memcmp(before[i].bytes, after[i].bytes, layout_.width) != 0)
						last_record = std::max(last_record, store(rows_[i], after[i]));
				END_CRIT_SECTION();
			}
		}
		for (std::size_t i = buffer_count; i > 0; i--)
			LockBuffer(buffers[i - 1], BUFFER_LOCK_UNLOCK);

		unpin(count_);
		if (last_record != InvalidXLogRecPtr)
			XLogSetAsyncXactLSN(last_record);
		return unchanged;
	});
}

// Releasing a pin that we hold cannot raise.
void Table::unpin(std::size_t count) noexcept
{
	for (std::size_t i = 0; i < count; i++)
		ReleaseBuffer(rows_[i].buffer);
	count_ = 0;
}

// --- the lock of a key ---------------------------------------------------------------------------------------------

// Two keys with one hash share a lock, which delays somebody now and then and harms nobody.
std::uint32_t Table::key_hash(const Key &key) const
{
	std::uint32_t hash = 0;
	for (const Datum column : key.columns) {
		const auto *text = reinterpret_cast<const varlena *>(DatumGetPointer(column));
		hash = hash_combine(hash, hash_bytes(reinterpret_cast<const unsigned char *>(VARDATA_ANY(text)),
									  static_cast<int>(VARSIZE_ANY_EXHDR(text))));
	}
	return hash;
}

// As the lock of an object of the class that the table is: nobody else uses that, and pg_locks shows the table.
void Table::lock_key(const Key &key)
{
	const Oid hash = key_hash(key);
	call([this, hash] { LockDatabaseObject(RelationGetRelid(heap_), hash, 0, ExclusiveLock); });
}

bool Table::try_lock_key(const Key &key)
{
	const Oid hash = key_hash(key);
	return call([this, hash] { return ConditionalLockDatabaseObject(RelationGetRelid(heap_), hash, 0, ExclusiveLock); });
}

void Table::unlock_key(const Key &key)
{
	const Oid hash = key_hash(key);
	call([this, hash] { UnlockDatabaseObject(RelationGetRelid(heap_), hash, 0, ExclusiveLock); });
}

// --- reading -------------------------------------------------------------------------------------------------------

Reader::Reader(Oid table, const Layout &layout)
	: heap_(nullptr), layout_(layout), snapshot_(nullptr), scan_(nullptr), slot_(nullptr), copy_(nullptr)
{
	call([this, table] {
		heap_ = table_open(table, AccessShareLock);
		snapshot_ = RegisterSnapshot(GetLatestSnapshot());
		scan_ = table_beginscan(heap_, snapshot_, 0, nullptr);
		slot_ = table_slot_create(heap_, nullptr);
		copy_ = static_cast<char *>(palloc(BLCKSZ));
	});
}

bool Reader::next()
{
	return call([this] {
		if (!table_scan_getnextslot(scan_, ForwardScanDirection, slot_))
			return false;
		// The slot keeps the page pinned, so its pointer stays good.
		const auto *found = reinterpret_cast<BufferHeapTupleTableSlot *>(slot_);
		tuple_ = *found->base.tuple;
		LockBuffer(found->buffer, BUFFER_LOCK_SHARE);
		std::memcpy(copy_, tuple_.t_data, tuple_.t_len);
		LockBuffer(found->buffer, BUFFER_LOCK_UNLOCK);
		tuple_.t_data = reinterpret_cast<HeapTupleHeader>(copy_);
		check_shape(&tuple_, layout_.width);
		std::memcpy(image_.bytes, columns_of(tuple_.t_data), layout_.width);
		for (int i = 0; i < keys_max; i++) {
			bool null = false;
			keys_[i] = heap_getattr(&tuple_, layout_.key_columns[i], RelationGetDescr(heap_), &null);
		}
		return true;
	});
}

void Reader::close()
{
	call([this] {
		ExecDropSingleTupleTableSlot(slot_);
		table_endscan(scan_);
		UnregisterSnapshot(snapshot_);
		table_close(heap_, AccessShareLock);
	});
}

} // namespace ratelimit::pg::inplace
