// The inward door: the server calls C++.
//
// RATELIMIT_FUNCTION(rl_name) opens the body of an SQL function. The exported symbol holds a PendingError, runs the body
// inside a noexcept function that catches everything, and raises only after all C++ frames and the exception object are
// gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "pg/error.hpp"
#include "pg/memory.hpp"
#include "pg/postgres.hpp"

namespace ratelimit::pg {

using Body = Datum (*)(FunctionCallInfo);

// What is being handled right now, in plain data. From within a catch block.
void store_current_exception(PendingError &pending) noexcept;

// Tells the background worker that the extension is in use in this database; once per session.
extern bool first_call_noticed;
void notice_first_call() noexcept;

// Runs the body; any exception ends up in `pending`.
Datum run_catching(Body body, FunctionCallInfo fcinfo, PendingError &pending) noexcept;

// Raises what is pending. Plain data only in this frame.
[[noreturn]] void report(const PendingError &pending);

template <Body body>
Datum entry(FunctionCallInfo fcinfo)
{
	PendingError pending;
	pending.kind = PendingKind::none;
	if (!first_call_noticed)
		notice_first_call();
	const MemoryContext outer_context = call_context;
	call_context = CurrentMemoryContext;
	const Datum result = run_catching(body, fcinfo, pending);
	call_context = outer_context;
	if (pending.kind != PendingKind::none)
		report(pending);
	return result;
}

// The guards that the executor would have given. Raise 25006 on a standby and in a read-only transaction and 25000 in a
// parallel worker, whatever the call would have answered.
void require_writes(const char *function_name);

// The last of them, for functions that only read: a parallel operation has one snapshot and cannot take a fresh one.
void require_own_snapshots(const char *function_name);

// Lets the calling statement be cancelled.
void check_for_interrupts();

// --- results -------------------------------------------------------------------------------------------------------

// A row of `count` columns that is being built; columns are NULL until set.
template <std::size_t count>
struct Columns {
	Datum values[count];
	bool nulls[count];

	Columns() noexcept
	{
		for (std::size_t i = 0; i < count; i++) {
			values[i] = 0;
			nulls[i] = true;
		}
	}
	void set(std::size_t index, Datum value) noexcept
	{
		values[index] = value;
		nulls[index] = false;
	}
	[[nodiscard]] static constexpr std::size_t size() noexcept { return count; }
};

// One row of the function's declared result type.
Datum composite_result(FunctionCallInfo fcinfo, Datum *values, bool *nulls, std::size_t count);

template <std::size_t count>
Datum composite_result(FunctionCallInfo fcinfo, Columns<count> &row)
{
	return composite_result(fcinfo, row.values, row.nulls, count);
}

// The result of a procedure whose only output is of a row type: that row.
Datum composite_output(FunctionCallInfo fcinfo, Datum *values, bool *nulls, std::size_t count);

template <std::size_t count>
Datum composite_output(FunctionCallInfo fcinfo, Columns<count> &row)
{
	return composite_output(fcinfo, row.values, row.nulls, count);
}

// A set of rows, materialised. Rows are added one by one; the caller then returns 0.
class SetResult {
public:
	explicit SetResult(FunctionCallInfo fcinfo);
	void add(Datum *values, bool *nulls, std::size_t count);
	template <std::size_t count>
	void add(Columns<count> &row)
	{
		add(row.values, row.nulls, count);
	}

private:
	ReturnSetInfo *info_;
};

} // namespace ratelimit::pg

// Opens the definition of an SQL function: exported, guarded, body follows in braces with `fcinfo` in scope.
#define RATELIMIT_FUNCTION(name)                                                                                       \
	static Datum name##_body(FunctionCallInfo fcinfo);                                                                 \
	extern "C" {                                                                                                       \
	PGDLLEXPORT Datum name(FunctionCallInfo fcinfo);                                                                   \
	PG_FUNCTION_INFO_V1(name);                                                                                         \
	Datum name(FunctionCallInfo fcinfo)                                                                                \
	{                                                                                                                  \
		return ratelimit::pg::entry<name##_body>(fcinfo);                                                              \
	}                                                                                                                  \
	}                                                                                                                  \
	static Datum name##_body([[maybe_unused]] FunctionCallInfo fcinfo)
