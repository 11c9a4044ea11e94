#include "pg/entry.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>

#include "pg/call.hpp"
#include "pg/shared_memory.hpp"

namespace ratelimit::pg {

MemoryContext call_context = nullptr;
bool first_call_noticed = false;

namespace {

// Copies text into a fixed buffer, cut at a character boundary. Raises nothing: the encoding's length functions only
// read.
template <std::size_t capacity>
void store_text(char (&buffer)[capacity], std::string_view text) noexcept
{
	std::size_t length = text.size();
	if (length > capacity - 1)
		length = static_cast<std::size_t>(
			pg_mbcliplen(text.data(), static_cast<int>(text.size()), static_cast<int>(capacity - 1)));
	std::memcpy(buffer, text.data(), length);
	buffer[length] = '\0';
}

void fill(PendingError &pending, int sqlstate, std::string_view message, std::string_view detail,
	std::string_view hint) noexcept
{
	pending.kind = PendingKind::ours;
	pending.sqlstate = sqlstate;
	store_text(pending.message, message);
	store_text(pending.detail, detail);
	store_text(pending.hint, hint);
	// What is made for programs to read must not be cut. Without memory it is.
	pending.long_detail = nullptr;
	if (detail.size() < sizeof(pending.detail) || call_context == nullptr)
		return;
	pending.long_detail = static_cast<char *>(MemoryContextAllocExtended(call_context, detail.size() + 1, MCXT_ALLOC_NO_OOM));
	if (pending.long_detail != nullptr) {
		std::memcpy(pending.long_detail, detail.data(), detail.size());
		pending.long_detail[detail.size()] = '\0';
	}
}

} // namespace

void store_current_exception(PendingError &pending) noexcept
{
	try {
		throw;
	} catch (const ServerError &error) {
		if (error.data != nullptr) {
			pending.kind = PendingKind::server;
			pending.data = error.data;
		} else {
			fill(pending, ERRCODE_OUT_OF_MEMORY, "out of memory", "An error could not be copied.", "");
		}
	} catch (const SqlError &error) {
		fill(pending, error.sqlstate, error.message, error.detail, error.hint);
	} catch (const std::bad_alloc &) {
		fill(pending, ERRCODE_OUT_OF_MEMORY, "out of memory", "Failed while deciding on a rate limit.", "");
	} catch (const std::exception &error) {
		fill(pending, ERRCODE_INTERNAL_ERROR, "internal error in ratelimit", error.what(),
			"This is a bug. Please report it with the statement that caused it.");
	} catch (...) {
		fill(pending, ERRCODE_INTERNAL_ERROR, "internal error in ratelimit", "unknown exception",
			"This is a bug. Please report it with the statement that caused it.");
	}
}

[[gnu::noinline]] Datum run_catching(Body body, FunctionCallInfo fcinfo, PendingError &pending) noexcept
{
	try {
		return body(fcinfo);
	} catch (...) {
		store_current_exception(pending);
	}
	return 0;
}

void notice_first_call() noexcept
{
	first_call_noticed = true;
	shared_memory::extension_is_called();
}

void report(const PendingError &pending)
{
	if (pending.kind == PendingKind::server)
		ReThrowError(pending.data);
	const char *const detail = pending.long_detail != nullptr ? pending.long_detail : pending.detail;
	ereport(ERROR,
		(errcode(pending.sqlstate), errmsg_internal("%s", pending.message),
			detail[0] != '\0' ? errdetail_internal("%s", detail) : 0,
			pending.hint[0] != '\0' ? errhint("%s", pending.hint) : 0));
	pg_unreachable();
}

void require_writes(const char *function_name)
{
	if (RecoveryInProgress())
		throw SqlError{ERRCODE_READ_ONLY_SQL_TRANSACTION, std::string("cannot execute ") + function_name + "() during recovery",
			"This server is a standby; decisions are made on the primary.",
			"Connect to the primary, for example with target_session_attrs=read-write."};
	if (XactReadOnly)
		throw SqlError{ERRCODE_READ_ONLY_SQL_TRANSACTION,
			std::string("cannot execute ") + function_name + "() in a read-only transaction", "",
			"Call it in a READ WRITE transaction."};
	require_own_snapshots(function_name);
}

void require_own_snapshots(const char *function_name)
{
	if (IsInParallelMode())
		throw SqlError{ERRCODE_INVALID_TRANSACTION_STATE,
			std::string("cannot execute ") + function_name + "() during a parallel operation", "",
			"Leave the function marked PARALLEL UNSAFE, as the extension creates it."};
}

void check_for_interrupts()
{
	if (INTERRUPTS_PENDING_CONDITION())
		call([] { ProcessInterrupts(); });
}

Datum composite_result(FunctionCallInfo fcinfo, Datum *values, bool *nulls, std::size_t count)
{
	return call([=] {
		// A named row type is found in the type cache; OUT columns have to be put together from the catalog.
		const Oid type = get_func_rettype(fcinfo->flinfo->fn_oid);
		TupleDesc desc;
		if (type == RECORDOID) {
			if (get_call_result_type(fcinfo, nullptr, &desc) != TYPEFUNC_COMPOSITE)
				elog(ERROR, "function must be declared to return a row");
			desc = BlessTupleDesc(desc);
		} else {
			desc = lookup_rowtype_tupdesc(type, -1);
		}
		if (desc->natts != static_cast<int>(count))
			elog(ERROR, "result type has %d columns instead of %d", desc->natts, static_cast<int>(count));
		const Datum result = HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
		if (type != RECORDOID)
			ReleaseTupleDesc(desc);
		return result;
	});
}

Datum composite_output(FunctionCallInfo fcinfo, Datum *values, bool *nulls, std::size_t count)
{
	return call([=] {
		TupleDesc outputs;
		if (get_call_result_type(fcinfo, nullptr, &outputs) != TYPEFUNC_COMPOSITE || outputs->natts != 1)
			elog(ERROR, "procedure must be declared to have one output");
		outputs = BlessTupleDesc(outputs);
		const TupleDesc desc = lookup_rowtype_tupdesc(TupleDescAttr(outputs, 0)->atttypid, -1);
		if (desc->natts != static_cast<int>(count))
			elog(ERROR, "result type has %d columns instead of %d", desc->natts, static_cast<int>(count));
		Datum row = HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
		ReleaseTupleDesc(desc);
		bool null = false;
		return HeapTupleGetDatum(heap_form_tuple(outputs, &row, &null));
	});
}

SetResult::SetResult(FunctionCallInfo fcinfo) : info_(reinterpret_cast<ReturnSetInfo *>(fcinfo->resultinfo))
{
	call([=] { InitMaterializedSRF(fcinfo, 0); });
}

void SetResult::add(Datum *values, bool *nulls, std::size_t count)
{
	ReturnSetInfo *const info = info_;
	call([=] {
		if (info->setDesc->natts != static_cast<int>(count))
			elog(ERROR, "result type has %d columns instead of %d", info->setDesc->natts, static_cast<int>(count));
		tuplestore_putvalues(info->setResult, info->setDesc, values, nulls);
	});
}

} // namespace ratelimit::pg
