#include "upkeep/round.hpp"

#include "pg/spi.hpp"
#include "upkeep/reap.hpp"

namespace ratelimit::upkeep {

namespace {

// Small enough that nobody who wants one of the rows waits for long.
constexpr std::int64_t reap_batch = 500;

Progress reap_round()
{
	const Reaped reaped = reap(reap_batch);
	return {reaped.rows(), reaped.more};
}

} // namespace

Progress round(Chore chore)
{
	Progress progress;
	pg::Session session;
	session.connect();
	if (chore == Chore::reap)
		progress = reap_round();
	session.finish();
	return progress;
}

} // namespace ratelimit::upkeep
