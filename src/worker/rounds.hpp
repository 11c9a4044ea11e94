// When the background worker has something to do in a database: due times, and a pause that grows after errors.
//
// Pure: the instant is an argument, in milliseconds of a clock that never goes back. Each database has a Schedule of its
// own. A due time follows from when the last round began and from the interval as it is set now, so a changed setting
// holds at once.
#pragma once

#include <cstdint>

namespace ratelimit::worker {

// The two kinds of work. Both may be due in one round.
struct Chores {
	bool reap = false;
	bool recover = false;

	[[nodiscard]] constexpr bool any() const noexcept { return reap || recover; }
};

// How often each is done; 0 means never.
struct Intervals {
	std::int64_t reap_ms = 5'000;
	std::int64_t recover_ms = 15'000;
};

// The pause after the first error in a row; it doubles with each further one.
inline constexpr std::int64_t error_pause_ms_min = 1'000;
inline constexpr std::int64_t error_pause_ms_max = 60'000;

// A round that left work behind goes on after this: long enough for those who wait for the database to be empty.
inline constexpr std::int64_t unfinished_pause_ms = 1'000;

// Nothing is due before then.
inline constexpr std::int64_t no_wait_ms_max = INT64_C(1) << 62;

class Schedule {
public:
	// Whatever is not switched off is due at once, as for a new database.
	void hurry() noexcept { *this = Schedule{}; }

	[[nodiscard]] Chores due(const Intervals &intervals, std::int64_t now_ms) const noexcept;
	// How long nothing is due; no_wait_ms_max when nothing ever will be.
	[[nodiscard]] std::int64_t wait_ms(const Intervals &intervals, std::int64_t now_ms) const noexcept;

	void begin(Chores chores, std::int64_t now_ms) noexcept;
	// `unfinished`: what was done last time has not been done to the end.
	void end_well(Chores unfinished, std::int64_t now_ms) noexcept;
	void end_badly(Chores failed, std::int64_t now_ms) noexcept;

private:
	struct Kind {
		std::int64_t begun_ms = 0;
		bool ever_begun = false;
		bool unfinished = false;
	};
	[[nodiscard]] std::int64_t due_at(const Kind &kind, std::int64_t interval_ms) const noexcept;

	Kind reap_;
	Kind recover_;
	std::int64_t not_before_ms_ = 0;
	int failures_ = 0;
};

// The pause after so many errors in a row, at least one.
[[nodiscard]] std::int64_t error_pause_ms(int failures) noexcept;

} // namespace ratelimit::worker
