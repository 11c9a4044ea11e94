#include "pg/privileges.hpp"

#include "pg/call.hpp"
#include "pg/catalog.hpp"

namespace ratelimit::pg {

bool may_administer()
{
	const Oid owner = catalog::owner();
	return call([=] { return superuser() || has_privs_of_role(GetUserId(), owner); });
}

bool role_exists(const char *name)
{
	return call([=] { return OidIsValid(get_role_oid(name, true)); });
}

bool role_is_owner(const char *name)
{
	const Oid owner = catalog::owner();
	return call([=] { return get_role_oid(name, true) == owner; });
}

std::string quoted_name(const char *name)
{
	return call([=] { return quote_identifier(name); });
}

std::string qualified_routine(Oid routine)
{
	return call([=] { return static_cast<const char *>(format_procedure_qualified(routine)); });
}

void lock_privileges()
{
	call([] {
		LockDatabaseObject(ExtensionRelationId, get_extension_oid(catalog::schema_name, false), 0, ShareUpdateExclusiveLock);
	});
}

void run_privilege_statement(const std::string &statement)
{
	const char *const text = statement.c_str();
	call([=] {
		const int code = SPI_execute(text, false, 0);
		if (code != SPI_OK_UTILITY)
			elog(ERROR, "could not run \"%s\": %s", text, SPI_result_code_string(code));
	});
}

} // namespace ratelimit::pg
