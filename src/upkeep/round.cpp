#include "upkeep/round.hpp"

#include "pg/spi.hpp"
#include "upkeep/reap.hpp"
#include "upkeep/recover.hpp"

namespace ratelimit::upkeep {

namespace {

// Small enough that nobody who wants one of the rows waits for long.
constexpr std::int64_t reap_batch = 500;
constexpr std::int64_t recover_batch = 50;

Progress reap_round()
{
	const Reaped reaped = reap(reap_batch);
	return {reaped.rows(), reaped.more};
}

Progress recover_round()
{
	const Recovery recovery = recover(recover_batch, Round::one_slice);
	return {recovery.rows(), recovery.rows() > 0};
}

} // namespace

Progress round(Chore chore)
{
	Progress progress;
	pg::Session session;
	session.connect();
	progress = chore == Chore::reap ? reap_round() : recover_round();
	session.finish();
	return progress;
}

} // namespace ratelimit::upkeep
