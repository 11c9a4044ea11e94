#include "pg/catalog.hpp"

#include "pg/call.hpp"

namespace ratelimit::pg::catalog {

namespace {

Oid cached_owner = InvalidOid;

} // namespace

extern "C" {

// Only marks: a callback may run in the middle of anything.
static void ratelimit_namespace_changed(Datum, int, uint32) { cached_owner = InvalidOid; }

} // extern "C"

void register_callbacks() { CacheRegisterSyscacheCallback(NAMESPACEOID, ratelimit_namespace_changed, Datum(0)); }

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

} // namespace ratelimit::pg::catalog
