#include "api/ids.hpp"

#include <array>

#include "pg/clock.hpp"
#include "pg/value.hpp"

namespace ratelimit::api {

core::Uuid new_id(std::string_view scope_type, std::string_view scope_key)
{
	std::array<std::uint8_t, 8> random;
	pg::fill_random(random.data(), random.size());
	const std::uint16_t shard = core::shard_of_scope(pg::to_utf8(scope_type), pg::to_utf8(scope_key));
	return core::make_uuid7({pg::real_clock_us()}, shard, random);
}

} // namespace ratelimit::api
