#include "store/extension_store.hpp"

#include "pg/spi.hpp"
#include "pg/value.hpp"

namespace ratelimit::store {

namespace {

using pg::Access;
using pg::Parameters;
using pg::Rows;
using pg::Scans;
using pg::Statement;

#define MEMBERS_IN(catalog)                                                                                            \
	" JOIN pg_catalog.pg_depend d ON d.objid {=} o.oid AND d.classid {=} 'pg_catalog." catalog "'::pg_catalog.regclass"  \
	" AND d.deptype {=} 'e' JOIN pg_catalog.pg_extension e ON e.oid {=} d.refobjid"                                      \
	" AND d.refclassid {=} 'pg_catalog.pg_extension'::pg_catalog.regclass WHERE e.extname {=} 'ratelimit'"

Statement routines_statement{"SELECT o.oid, o.proname::pg_catalog.text FROM pg_catalog.pg_proc o" MEMBERS_IN("pg_proc")
							 " ORDER BY o.oid",
	Scans::whole_tables};

Statement views_statement{"SELECT pg_catalog.format('ratelimit.%I', o.relname) FROM pg_catalog.pg_class o"
						  MEMBERS_IN("pg_class") " AND o.relkind {=} 'v' ORDER BY o.oid",
	Scans::whole_tables};

#undef MEMBERS_IN

} // namespace

pg::Vector<Routine> read_routines()
{
	Parameters none;
	const Rows rows = routines_statement.run(Access::read, none);
	pg::Vector<Routine> routines;
	for (std::size_t i = 0; i < rows.count(); i++)
		routines.push_back({DatumGetObjectId(rows.datum(i, 1)), pg::text_view(rows.datum(i, 2))});
	return routines;
}

pg::Vector<std::string_view> read_views()
{
	Parameters none;
	const Rows rows = views_statement.run(Access::read, none);
	pg::Vector<std::string_view> views;
	for (std::size_t i = 0; i < rows.count(); i++)
		views.push_back(pg::text_view(rows.datum(i, 1)));
	return views;
}

} // namespace ratelimit::store
