// Rows that are changed where they stand: no new row version, no transaction id, spent at once.
//
// A row updated in the ordinary way leaves a dead version behind at every call, and while one old snapshot is open
// anywhere nobody may remove them: a hot row then gets slower by the second. The server meets the same trouble with its
// statistics in pg_class, and overwrites those in place (heap_inplace_update). This module does that for tables of the
// extension: it overwrites the leading fixed-width columns of a row under the exclusive lock of its buffer and logs the
// change with the record that the server has for its own, so that crash recovery, standbys, base backups and
// wal_consistency_checking know it already.
//
// What a caller gets: changes of one row are atomic and come one after the other, and everybody who uses this module sees
// the newest state at once, whatever snapshot he has. They are not undone by ROLLBACK. What the row is (its existence and
// its keys) stays ordinary: it is inserted and deleted by SQL, by the rules of MVCC.
//
// What the table must be: a permanent heap with a primary key of at most keys_max text columns; the columns to be
// changed come first, are of fixed width and NOT NULL, and stand in no index; the keys are so short that they are never
// compressed or moved out of line. Nobody may UPDATE it (see below), so triggers must refuse that.
//
//     inplace::Table table(oid, layout, durability);        // locks the table as INSERT would
//     inplace::Search found = table.find(keys, count);      // pins the rows, or says what stands in the way
//     if (found.finding == Finding::busy) table.wait(found);
//     if (found.finding == Finding::live) done = table.change(decide, context);
//     table.close();
//
// Why each step is safe, and against whom
// ---------------------------------------
// Finding. The primary key's index is scanned with SnapshotAny. With a snapshot that is not MVCC, nbtree keeps its pin
// on the leaf page as long as the scan stands on it, and VACUUM, which needs a cleanup lock on every leaf page before it
// may make a heap item reusable, waits for that pin: between reading a place in the index and pinning the heap page the
// place cannot come to mean another row. On the heap page, under its share lock, the item must be a normal one (or lead
// to one by a HOT chain), visible to SnapshotDirty, and carry the keys asked for. SnapshotDirty is what unique checks use: the
// inserter is committed or ourselves, and no deleter is committed or ourselves; an aborted deleter and one who only locks
// the row do not count. It also names a foreign inserter or deleter who is still running; that one is waited for, with
// neither lock nor pin held. A unique index admits no second live row, so the one found is the row. If an insertion
// slipped past the scan, the row looks missing; the caller's INSERT ... ON CONFLICT then does nothing, and he looks again.
//
// Between finding and changing nothing is locked, but the heap page stays pinned. Pruning and VACUUM's first pass move
// tuples and free items only under a cleanup lock, which our pin denies them, so the item number goes on to name the same
// tuple. (VACUUM's second pass frees items under a plain exclusive lock, but only dead ones without a tuple.) What can
// change meanwhile is the tuple's header: somebody deletes or locks it, or freezes it. So the header is compared under
// the exclusive lock with what it was when the row was found live: the same inserter, the same xmax and the same kind of
// xmax. An inserter that was committed, or is ourselves, stays so; an xmax that was aborted or only a lock and has not
// changed is so still. Anything else: look again. This needs no look into pg_xact, which might wait for the disk.
//
// Changing. Several rows may share a page: the distinct buffers are locked in the order of their block numbers, the same
// for everybody, and all are held while the caller decides. The server never waits for a lock on a second heap page of a
// table out of that order, and whoever has no second one to wait for cannot close a circle. Between the first lock and
// the last unlock there are only loads, comparisons, the caller's decision (noexcept, without a call of the server that
// could raise, allocate or wait), stores, and WAL insertion. Holding a buffer lock holds off interrupts.
//
// - Readers. A plain SELECT, ANALYZE, COPY or pg_dump looks at a tuple with a pin alone once it has found it visible, and
//   may see some columns of one state and others of the next. Every column is stored by aligned single stores of at most
//   eight bytes, so that no value by itself is ever torn. Reader, below, copies each row under the share lock.
// - Writing the page out (checkpointer, background writer, backends) takes the share lock: a page on disk never holds half a
//   change, and data checksums are computed over a copy made then. MarkBufferDirty, not the variant for hints, so that the
//   page is written by the next checkpoint whatever its checksums say.
// - Checkpoints. As everywhere: the buffer is dirtied, then the record inserted, then the page's LSN set, in one critical
//   section under the exclusive lock. A checkpoint whose redo pointer comes after our record finds the buffer dirty; one
//   whose redo pointer comes before replays the record. The LSN keeps the page from reaching the disk before the record.
// - Torn pages. XLogInsert adds a full-page image at the first change after a checkpoint, as for any change.
// - Crash. A record is replayed as a whole or not at all: no row is ever half old and half new. Each row has a record of its
//   own, so of a call over several rows the last ones may be forgotten.
// - Standby and promotion. Replay takes the same exclusive lock. The record names no transaction and conflicts with no
//   query. On a standby itself nothing is changed: callers refuse before they come here (pg::require_writes).
// - VACUUM, ANALYZE, pruning: see above; the visibility map stays true, since no tuple becomes visible or invisible.
// - Freezing changes header bits only. Row locks (SELECT ... FOR UPDATE) likewise, and their record carries no column.
// - HOT, UPDATE. heap_update copies the tuple before it takes the buffer lock for good, and would leave the changes made
//   meanwhile in the dead version. Hence UPDATE is refused by triggers that fire in every session_replication_role. The
//   search follows HOT chains all the same, should a superuser have disabled them: then it writes into the living version.
// - DELETE by somebody else: in progress, it is waited for. Changes made before it are gone with the row.
// - VACUUM FULL, CLUSTER, TRUNCATE, ALTER TABLE need AccessExclusiveLock, REINDEX and CREATE INDEX ShareLock: both
//   conflict with the RowExclusiveLock that is taken here and kept to the end of the transaction, so a row is never
//   copied or indexed while it changes. CREATE INDEX and REINDEX CONCURRENTLY do run beside us: no index holds a
//   column that we change, and before the old index goes away they wait for all who may know it by that same lock.
//   The index is taken from the relation's cache entry on every call.
// - Logical decoding does not see changes in place. wal_level = minimal with a table made in the same transaction, and
//   unlogged tables: no record, as the server does it (RelationNeedsWAL).
//
// Durability. Without a transaction id there is no commit record, and COMMIT does not flush: RecordTransactionCommit
// flushes at once only for a transaction that has both written WAL and got an id, and leaves the rest to the WAL writer.
// The change counts from now on, even while the transaction stays open or is rolled back, so the record is reported to the
// WAL writer here (XLogSetAsyncXactLSN) as an asynchronous commit would be: it is on disk after at most three times
// wal_writer_delay. Durability::with_commit gives the transaction an id before anything is changed, the top one, so that
// a rolled-back savepoint does not take it away: then COMMIT writes a record that follows ours, waits for it as
// synchronous_commit says, synchronous standbys included, and ours is safe before the client hears of the commit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "pg/postgres.hpp"

namespace ratelimit::pg::inplace {

inline constexpr std::size_t rows_max = 16;   // changed together
inline constexpr std::size_t width_max = 128; // bytes that are changed of each
inline constexpr int keys_max = 2;

// The shape of a table: the first `width` bytes of its rows are the columns to be changed.
struct Layout {
	std::uint16_t width;
	std::int16_t key_columns[keys_max]; // attribute numbers, in the order of the primary key
};

// The changing columns of a row, as they stand in the tuple.
struct Image {
	alignas(8) char bytes[width_max];
};

struct Key {
	Datum columns[keys_max]; // text
};

enum class Durability { soon, with_commit };

enum class Finding {
	live,    // all rows are pinned
	missing, // there is no such row
	busy,    // a transaction that inserts or deletes it is still running
};

struct [[nodiscard]] Search {
	Finding finding;
	std::size_t row;     // the first that is not live
	std::size_t count;   // how many are pinned
	TransactionId xid;   // whom to wait for
	std::uint32_t token; // an insertion that may still be taken back by itself
	ItemPointerData place;
};

// Decides what becomes of the rows, under their locks: changes the images, and returns whether to store them. May not
// call anything of the server that can raise, allocate or wait.
using Decide = bool (*)(void *context, Image *images, std::size_t count) noexcept;

// A table during one call. Plain data: after an error the server's abort releases what it holds.
class Table {
public:
	Table(Oid table, const Layout &layout, Durability durability);
	void close();
	Table(const Table &) = delete;
	Table &operator=(const Table &) = delete;

	// Finds the rows with these keys, all of them or none: what is pinned stays so until change().
	Search find(const Key *keys, std::size_t count);

	// Finds the rows that share the first key column, in the order of the second, beginning after key.columns[1]
	// (null pointer: at the first). At most rows_max; fewer: there are no more.
	Search find_from(const Key &key);

	// The second key column of a row that find_from() has found; valid until change().
	[[nodiscard]] Datum second_key(std::size_t row) const;

	// Waits for whoever stands in the way. Nothing is pinned.
	void wait(const Search &obstacle);

	// Locks the rows, decides, stores, logs, unpins. False when one of them is not what was found any more: nothing was
	// decided then.
	[[nodiscard]] bool change(Decide decide, void *context);

	// The heavyweight lock that belongs to a key: whoever is about to delete a row in agreement with those who change it
	// holds it to the end of his transaction.
	void lock_key(const Key &key);
	[[nodiscard]] bool try_lock_key(const Key &key);
	void unlock_key(const Key &key);

private:
	// A row that was found live: where, and what its header said.
	struct Row {
		Buffer buffer;
		ItemPointerData place;
		TransactionId inserter;
		TransactionId xmax;
		std::uint16_t xmax_kind;
		std::uint16_t keys_updated;
	};

	[[nodiscard]] bool next_live(IndexScanDesc scan, const Key &key, int key_count, Row &row, Search &search) const;
	[[nodiscard]] bool has_keys(HeapTuple tuple, const Key &key, int key_count) const;
	[[nodiscard]] HeapTupleHeader unchanged_tuple(const Row &row) const;
	[[nodiscard]] XLogRecPtr store(const Row &row, const Image &image) const;
	[[nodiscard]] std::size_t distinct_buffers(Buffer *buffers) const;
	void unpin(std::size_t count) noexcept;
	[[nodiscard]] std::uint32_t key_hash(const Key &key) const;

	Relation heap_;
	Relation index_;
	Layout layout_;
	Row rows_[rows_max];
	std::size_t count_;
};
static_assert(std::is_trivially_destructible_v<Table>);

// Reads all rows that are visible to a fresh snapshot; each is copied under the share lock of its buffer, so that no
// two states of it mix.
class Reader {
public:
	Reader(Oid table, const Layout &layout);
	// Valid until the next one.
	[[nodiscard]] bool next();
	[[nodiscard]] const Image &image() const noexcept { return image_; }
	[[nodiscard]] Datum key(int index) const noexcept { return keys_[index]; }
	void close();
	Reader(const Reader &) = delete;
	Reader &operator=(const Reader &) = delete;

private:
	Relation heap_;
	Layout layout_;
	Snapshot snapshot_;
	TableScanDesc scan_;
	TupleTableSlot *slot_;
	HeapTupleData tuple_;
	char *copy_; // room for any tuple
	Image image_;
	Datum keys_[keys_max];
};
static_assert(std::is_trivially_destructible_v<Reader>);

} // namespace ratelimit::pg::inplace
