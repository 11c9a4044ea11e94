// SPI: one session per call, saved plans, typed parameters, rows read in place.
//
// Snapshots. `read` runs under a snapshot taken for that statement alone, never the caller's, at every isolation level: a
// denial then rests on the newest committed state. `write` runs under what the server gives a statement of the
// transaction: a fresh snapshot in READ COMMITTED, the transaction's own above, where a row that changed since raises 40001.
//
// Errors. Nothing here cleans up after an error: the exception travels to the inward guard, and the abort of the
// (sub)transaction releases the SPI connection, the snapshot and the user id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "pg/postgres.hpp"

namespace ratelimit::pg {

// Whether `write` runs under the transaction's own snapshot.
[[nodiscard]] bool writes_see_old_snapshot() noexcept;

// 40001, as for a row that changed since the snapshot: for one that `read` finds and `write` does not, since it was made
// after the snapshot.
[[noreturn]] void throw_serialization_failure();

// A connection to SPI under the owner's user id, so that EXECUTE on the functions suffices. Made by the first connect(), so
// that a call which is answered without SPI does not pay for it; finish() on success.
class Session {
public:
	Session() noexcept = default;
	void connect();
	void finish();
	Session(const Session &) = delete;
	Session &operator=(const Session &) = delete;

private:
	bool connected_ = false;
	Oid outer_user_ = InvalidOid;
	int outer_context_ = 0;
};

// The rows of one statement. Valid until the session is finished or the rows are released.
class Rows {
public:
	Rows() noexcept = default;
	Rows(SPITupleTable *table, std::uint64_t affected) noexcept : table_(table), affected_(affected) {}

	[[nodiscard]] std::size_t count() const noexcept { return table_ != nullptr ? table_->numvals : 0; }
	[[nodiscard]] std::uint64_t affected() const noexcept { return affected_; }

	// Columns count from 1. A plain getter expects a value that is not NULL.
	[[nodiscard]] bool is_null(std::size_t row, int column) const noexcept;
	[[nodiscard]] Datum datum(std::size_t row, int column) const noexcept;
	[[nodiscard]] double float8(std::size_t row, int column) const noexcept { return DatumGetFloat8(datum(row, column)); }
	[[nodiscard]] std::int32_t int4(std::size_t row, int column) const noexcept { return DatumGetInt32(datum(row, column)); }
	[[nodiscard]] std::int64_t int8(std::size_t row, int column) const noexcept { return DatumGetInt64(datum(row, column)); }
	[[nodiscard]] bool boolean(std::size_t row, int column) const noexcept { return DatumGetBool(datum(row, column)); }

	// A ctid.
	[[nodiscard]] ItemPointerData place(std::size_t row, int column) const noexcept;

	// Frees the rows early; for loops.
	void release() noexcept;

private:
	SPITupleTable *table_ = nullptr;
	std::uint64_t affected_ = 0;
};

enum class Access { read, write };

// Which plans a statement may get: those that find rows by an index, or also those that go through whole tables.
enum class Scans { by_index, whole_tables };

// One snapshot for several statements that read. finish() on success; an abort releases it otherwise.
class ReadSnapshot {
public:
	ReadSnapshot();
	void finish();
	[[nodiscard]] Snapshot get() const noexcept { return snapshot_; }
	ReadSnapshot(const ReadSnapshot &) = delete;
	ReadSnapshot &operator=(const ReadSnapshot &) = delete;

private:
	Snapshot snapshot_;
};

inline constexpr std::size_t parameters_max = 26;

// The values of a statement's parameters, added in order.
class Parameters {
public:
	Parameters &add(Datum value) noexcept
	{
		values_[count_] = value;
		nulls_[count_] = ' ';
		count_++;
		return *this;
	}
	Parameters &add_null() noexcept
	{
		values_[count_] = Datum(0);
		nulls_[count_] = 'n';
		count_++;
		return *this;
	}
	Parameters &add_optional_text(const std::optional<std::string_view> &value);
	[[nodiscard]] std::size_t size() const noexcept { return count_; }
	[[nodiscard]] Datum *values() noexcept { return values_; }
	[[nodiscard]] const char *nulls() const noexcept { return nulls_; }

private:
	std::size_t count_ = 0;
	Datum values_[parameters_max];
	char nulls_[parameters_max];
};

// A statement and its saved plan, for namespace scope: constant-initialised and trivially destructible.
//
// In the text `{=}` stands for OPERATOR(pg_catalog.=), likewise with every other operator, since the text may be analysed
// again under any search_path. The plan is prepared on first use and kept for the life of the backend; the plan cache
// analyses it anew from its text when a table it names has changed or was dropped and created again.
class Statement {
public:
	template <std::size_t count>
	constexpr Statement(const char *sql, const Oid (&types)[count], Scans scans = Scans::by_index) noexcept
		: text_(sql), count_(count), scans_(scans)
	{
		static_assert(count <= parameters_max);
		for (std::size_t i = 0; i < count; i++)
			types_[i] = types[i];
	}
	explicit constexpr Statement(const char *sql, Scans scans = Scans::by_index) noexcept : text_(sql), scans_(scans) {}

	Rows run(Access access, Parameters &parameters);
	// Reads under a given snapshot.
	Rows run(const ReadSnapshot &snapshot, Parameters &parameters);

private:
	void prepare();
	Rows read(Snapshot snapshot, Parameters &parameters); // null: one of this moment

	const char *text_;
	std::size_t count_ = 0;
	Scans scans_ = Scans::by_index;
	Oid types_[parameters_max] = {};
	SPIPlanPtr plan_ = nullptr;
};

} // namespace ratelimit::pg
