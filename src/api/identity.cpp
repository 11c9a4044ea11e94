// rl_shard and rl_version.
#include "api/arguments.hpp"
#include "core/uuid7.hpp"
#include "pg/entry.hpp"
#include "pg/value.hpp"

#ifndef RATELIMIT_VERSION
#error "RATELIMIT_VERSION comes from ratelimit.control by way of the Makefile"
#endif

RATELIMIT_FUNCTION(rl_shard_of_scope)
{
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1)) {
		fcinfo->isnull = true;
		return Datum(0);
	}
	const std::string_view scope_type = ratelimit::api::required_text(fcinfo, 0, "scope_type");
	const std::string_view scope_key = ratelimit::api::required_text(fcinfo, 1, "scope_key");
	return Int32GetDatum(
		ratelimit::core::shard_of_scope(ratelimit::pg::to_utf8(scope_type), ratelimit::pg::to_utf8(scope_key)));
}

RATELIMIT_FUNCTION(rl_shard_of_id)
{
	if (PG_ARGISNULL(0)) {
		fcinfo->isnull = true;
		return Datum(0);
	}
	const auto shard = ratelimit::core::shard_of_id(ratelimit::pg::uuid_bytes(PG_GETARG_DATUM(0)));
	if (!shard)
		ratelimit::api::reject({"id", {}, 0}, "The value is " + ratelimit::pg::uuid_text(PG_GETARG_DATUM(0)) + ".",
			"It must be a UUID of version 7; the ids that this extension makes carry a shard number.");
	return Int32GetDatum(*shard);
}

RATELIMIT_FUNCTION(rl_version) { return ratelimit::pg::text_datum(RATELIMIT_VERSION); }
