#include "pg/clock.hpp"

#include "pg/settings.hpp"

namespace ratelimit::pg {

std::int64_t real_clock_us() noexcept { return GetCurrentTimestamp() + server_epoch_us; }

std::int64_t decision_clock_us() noexcept
{
	const std::optional<TimestampTz> replaced = settings::test_clock();
	return replaced ? *replaced + server_epoch_us : real_clock_us();
}

std::int64_t process_start_us() noexcept { return MyStartTimestamp + server_epoch_us; }

} // namespace ratelimit::pg
