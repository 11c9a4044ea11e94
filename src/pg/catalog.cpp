#include "pg/catalog.hpp"

#include "pg/call.hpp"

namespace ratelimit::pg::catalog {

namespace {

Oid cached_owner = InvalidOid;
Oid cached_buckets = InvalidOid;

} // namespace

extern "C" {

// Only mark: a callback may run in the middle of anything.
static void ratelimit_namespace_changed(Datum, int, uint32)
{
	cached_owner = InvalidOid;
	cached_buckets = InvalidOid;
}

static void ratelimit_relation_changed(Datum, Oid relation)
{
	if (relation == cached_buckets || relation == InvalidOid)
		cached_buckets = InvalidOid;
}

} // extern "C"

void register_callbacks()
{
	CacheRegisterSyscacheCallback(NAMESPACEOID, ratelimit_namespace_changed, Datum(0));
	CacheRegisterRelcacheCallback(ratelimit_relation_changed, Datum(0));
}

Oid owner()
{
	if (cached_owner != InvalidOid)
		return cached_owner;
	cached_owner = call([] {
		const Oid schema = get_namespace_oid(schema_name, false);
		HeapTuple tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(schema));
		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "cache lookup failed for schema %u", schema);
		const Oid found = reinterpret_cast<Form_pg_namespace>(GETSTRUCT(tuple))->nspowner;
		ReleaseSysCache(tuple);
		return found;
	});
	return cached_owner;
}

Oid buckets_table()
{
	if (cached_buckets != InvalidOid)
		return cached_buckets;
	cached_buckets = call([] {
		const Oid table = get_relname_relid("buckets", get_namespace_oid(schema_name, false));
		if (!OidIsValid(table))
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("table \"%s.buckets\" does not exist", schema_name)));
		return table;
	});
	return cached_buckets;
}

} // namespace ratelimit::pg::catalog
