/*
 * Functions that decide nothing: each takes the arguments of one of ours and returns a constant answer of the same
 * type. What they cost is what any C function called this way has to cost.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"
#include "utils/uuid.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(noop_decision);
PG_FUNCTION_INFO_V1(noop_count);

#define DECISION_COLUMNS 18

/* The row type of the function's result, looked up once for each backend. */
static TupleDesc
result_row(FunctionCallInfo fcinfo)
{
	static TupleDesc row = NULL;

	if (row == NULL)
	{
		TupleDesc	shared = lookup_rowtype_tupdesc(get_func_rettype(fcinfo->flinfo->fn_oid), -1);
		MemoryContext caller = MemoryContextSwitchTo(CacheMemoryContext);

		row = CreateTupleDescCopy(shared);
		MemoryContextSwitchTo(caller);
		ReleaseTupleDesc(shared);
		if (row->natts != DECISION_COLUMNS)
			elog(ERROR, "ratelimit.decision has %d columns instead of %d", row->natts, DECISION_COLUMNS);
	}
	return row;
}

/* (scope_type, scope_key, metric, limit_value, amount, ...) -> ratelimit.decision: granted, with a reservation. */
Datum
noop_decision(PG_FUNCTION_ARGS)
{
	static pg_uuid_t reservation = {{1, 2, 3, 4, 5, 6, 0x70, 8, 0x80, 10, 11, 12, 13, 14, 15, 16}};
	const int64 window_start = INT64CONST(700000000000000);
	Datum		values[DECISION_COLUMNS] = {0};
	bool		nulls[DECISION_COLUMNS] = {false};

	values[0] = Int32GetDatum(1);	/* ordinal */
	values[1] = BoolGetDatum(true); /* allowed */
	nulls[2] = true;			/* reason */
	values[3] = BoolGetDatum(true); /* retryable */
	values[4] = Int64GetDatum(0);	/* retry_after_ms */
	for (int i = 0; i < 5; i++) /* scope_type, scope_key, metric, limit_value, amount */
		values[5 + i] = PG_GETARG_DATUM(i);
	values[10] = Float8GetDatum(17);	/* used */
	values[11] = Float8GetDatum(4); /* reserved */
	values[12] = Float8GetDatum(78);	/* remaining */
	values[13] = Int64GetDatum(window_start);
	values[14] = Int64GetDatum(window_start + INT64CONST(60000000));	/* reset_at */
	values[15] = UUIDPGetDatum(&reservation);
	nulls[16] = true;			/* lease_id */
	nulls[17] = true;			/* lease_expires_at */

	return HeapTupleGetDatum(heap_form_tuple(result_row(fcinfo), values, nulls));
}

/* (reservation_ids, actual) -> int */
Datum
noop_count(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(1);
}
