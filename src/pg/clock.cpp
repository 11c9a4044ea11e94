#include "pg/clock.hpp"

#include <chrono>

#include "pg/settings.hpp"

namespace ratelimit::pg {

std::int64_t real_clock_us() noexcept { return GetCurrentTimestamp() + server_epoch_us; }

std::int64_t decision_clock_us() noexcept
{
	const std::optional<TimestampTz> replaced = settings::test_clock();
	return replaced ? *replaced + server_epoch_us : real_clock_us();
}

std::int64_t process_start_us() noexcept { return MyStartTimestamp + server_epoch_us; }

std::int64_t monotonic_clock_ms() noexcept
{
	using namespace std::chrono;
	return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

} // namespace ratelimit::pg
