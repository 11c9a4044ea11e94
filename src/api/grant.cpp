// rl_grant and rl_revoke: EXECUTE on the functions of a level, and what the views need. They issue GRANT and REVOKE, so a
// dump carries what they did as it carries every privilege.
#include <string>

#include "api/arguments.hpp"
#include "api/levels.hpp"
#include "pg/entry.hpp"
#include "pg/privileges.hpp"
#include "pg/spi.hpp"
#include "store/extension_store.hpp"

namespace ratelimit::api {

namespace {

const NamedLevel &level_argument(FunctionCallInfo fcinfo, int index)
{
	const std::string_view name = required_text(fcinfo, index, "level");
	for (const NamedLevel &level : named_levels)
		if (level.name == name)
			return level;
	reject({"level", {}, 0}, "The value is \"" + pg::excerpt(name) + "\".",
		"Levels are client, worker, operator and monitor.");
}

const char *role_argument(FunctionCallInfo fcinfo, int index)
{
	const char *const name = NameStr(*DatumGetName(required_datum(fcinfo, index, "role")));
	if (!pg::role_exists(name))
		throw pg::SqlError{ERRCODE_UNDEFINED_OBJECT, std::string("role \"") + name + "\" does not exist", "",
			"Create the role first; PUBLIC is no role."};
	if (pg::role_is_owner(name))
		reject({"role", {}, 0}, std::string("The value is \"") + name + "\".",
			"It must not be the owner of the extension, who may call everything.");
	return name;
}

void require_administrator(const char *function_name)
{
	pg::require_writes(function_name);
	if (!pg::may_administer())
		throw pg::SqlError{ERRCODE_INSUFFICIENT_PRIVILEGE, std::string("permission denied for function ") + function_name, "",
			"Only the owner of the extension and superusers may call it."};
}

Levels levels_of(std::string_view routine)
{
	for (const LevelsOfRoutine &known : levels_of_routines)
		if (known.routine == routine)
			return known.levels;
	return 0;
}

// Names for a statement, separated by commas.
void append(std::string &list, std::string_view name)
{
	if (!list.empty())
		list += ", ";
	list += name;
}

std::string views()
{
	std::string list;
	for (const std::string_view view : store::read_views())
		append(list, view);
	return list;
}

// All of them, or those of a level.
std::string routines(Levels level)
{
	std::string list;
	for (const store::Routine &routine : store::read_routines())
		if (level == 0 || (levels_of(routine.name) & level) != 0)
			append(list, pg::qualified_routine(routine.oid));
	return list;
}

void revoke_all(const std::string &role)
{
	pg::run_privilege_statement("REVOKE ALL ON ROUTINE " + routines(0) + " FROM " + role + " CASCADE");
	pg::run_privilege_statement("REVOKE ALL ON TABLE " + views() + " FROM " + role + " CASCADE");
	pg::run_privilege_statement("REVOKE ALL ON SCHEMA ratelimit FROM " + role + " CASCADE");
}

void grant_level(const std::string &role, const NamedLevel &level)
{
	pg::run_privilege_statement("GRANT USAGE ON SCHEMA ratelimit TO " + role);
	pg::run_privilege_statement("GRANT EXECUTE ON ROUTINE " + routines(level.level) + " TO " + role);
	if (level.sees_views)
		pg::run_privilege_statement("GRANT SELECT ON TABLE " + views() + " TO " + role);
}

void change(const char *role, const NamedLevel *level)
{
	pg::Session session;
	session.connect();
	pg::lock_privileges();
	const std::string quoted = pg::quoted_name(role);
	revoke_all(quoted);
	if (level != nullptr)
		grant_level(quoted, *level);
	session.finish();
}

void add_row(pg::SetResult &result, std::string_view level, std::string_view routine)
{
	pg::Columns<2> row;
	row.set(0, pg::text_datum(level));
	row.set(1, pg::text_datum(routine));
	result.add(row);
}

Datum level_rows(FunctionCallInfo fcinfo)
{
	pg::SetResult result(fcinfo);
	for (const LevelsOfRoutine &known : levels_of_routines)
		for (const NamedLevel &level : named_levels)
			if ((known.levels & level.level) != 0)
				add_row(result, level.name, known.routine);
	for (const std::string_view routine : public_routines)
		add_row(result, "public", routine);
	for (const std::string_view routine : owner_routines)
		add_row(result, "owner", routine);
	return Datum(0);
}

} // namespace

} // namespace ratelimit::api

namespace api = ratelimit::api;

RATELIMIT_FUNCTION(rl_grant)
{
	api::require_administrator("rl_grant");
	const api::NamedLevel &level = api::level_argument(fcinfo, 1);
	api::change(api::role_argument(fcinfo, 0), &level);
	return Datum(0);
}

RATELIMIT_FUNCTION(rl_revoke)
{
	api::require_administrator("rl_revoke");
	api::change(api::role_argument(fcinfo, 0), nullptr);
	return Datum(0);
}

RATELIMIT_FUNCTION(rl_level_rows) { return api::level_rows(fcinfo); }
