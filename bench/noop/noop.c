/*
 * Functions that decide nothing: each takes the arguments of one of ours and returns a constant answer of the same
 * type. What they cost is what any C function called this way has to cost.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"
#include "utils/uuid.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(noop_decision);
PG_FUNCTION_INFO_V1(noop_count);
PG_FUNCTION_INFO_V1(noop_grant);

#define DECISION_COLUMNS 18
#define GRANT_COLUMNS 8

/* The row type of the function's result, looked up once for each backend. */
static TupleDesc
result_row(FunctionCallInfo fcinfo, TupleDesc *known, int columns)
{
	if (*known == NULL)
	{
		TupleDesc	row;
		TupleDesc	shared = lookup_rowtype_tupdesc(get_func_rettype(fcinfo->flinfo->fn_oid), -1);
		MemoryContext caller = MemoryContextSwitchTo(CacheMemoryContext);

		row = CreateTupleDescCopy(shared);
		MemoryContextSwitchTo(caller);
		ReleaseTupleDesc(shared);
		if (row->natts != columns)
			elog(ERROR, "the result has %d columns instead of %d", row->natts, columns);
		*known = row;
	}
	return *known;
}

/* (scope_type, scope_key, metric, limit_value, amount, ...) -> ratelimit.decision: granted, with a reservation. */
Datum
noop_decision(PG_FUNCTION_ARGS)
{
	static pg_uuid_t reservation = {{1, 2, 3, 4, 5, 6, 0x70, 8, 0x80, 10, 11, 12, 13, 14, 15, 16}};
	static TupleDesc row = NULL;
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

	return HeapTupleGetDatum(heap_form_tuple(result_row(fcinfo, &row, DECISION_COLUMNS), values, nulls));
}

/* (reservation_ids, actual) -> int */
Datum
noop_count(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(1);
}

/* (bucket_id, rules, requested, observed_successes) -> ratelimit.bucket_grant: one permit, now. */
Datum
noop_grant(PG_FUNCTION_ARGS)
{
	static TupleDesc row = NULL;
	const int64 now_ms = INT64CONST(1900000000000);
	Datum		scheduled[1];
	Datum		values[GRANT_COLUMNS];
	bool		nulls[GRANT_COLUMNS] = {false};

	scheduled[0] = Int64GetDatum(now_ms);
	values[0] = Int32GetDatum(1);	/* granted */
	values[1] = Int64GetDatum(0);	/* wait_ms */
	values[2] = Int64GetDatum(now_ms);	/* server_now_ms */
	values[3] = PointerGetDatum(construct_empty_array(UUIDOID));	/* lease_ids */
	values[4] = PointerGetDatum(construct_array(scheduled, 1, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	values[5] = Float8GetDatum(1000000);	/* effective_rps */
	values[6] = Int64GetDatum(0);	/* cool_until_ms */
	values[7] = Int64GetDatum(0);	/* claimed_retry_at_ms */

	return HeapTupleGetDatum(heap_form_tuple(result_row(fcinfo, &row, GRANT_COLUMNS), values, nulls));
}
