// The life of a task: every event in every state, what always holds, the diagram in the docs, and what recovery decides.
#include "core/task.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <string>

namespace ratelimit::core {
namespace {

template <typename Enum>
Enum at(std::size_t index)
{
	return static_cast<Enum>(index);
}

// The same table a second time, by hand and the other way round: a line per event, a letter per state in the order none,
// waiting, admitted, running, succeeded, failed, cancelled, review. '.': refused, '=': allowed and stays, '!': an error,
// another letter: where it leads (n, w, a, r, s, f, c, v for review).
const std::map<std::string, std::string> expected = {
	{"enqueue",         "w......."},
	{"admit",           ".a......"},
	{"readmit",         ".r......"},
	{"start",           "r.r.!!!!"},
	{"lose_lease",      "..w....."},
	{"move",            ".=ww...."},
	{"submit",          ".=.=...."},
	{"heartbeat",       ".=.=...."},
	{"succeed",         ".s.s...."},
	{"fail",            ".f.f...."},
	{"cancel_running",  ".c.c...."},
	{"cancel",          ".ccc...."},
	{"give_up",         ".fff...."},
	{"defer_too_late",  ".f......"},
	{"time_out",        ".f......"},
	{"abandon",         ".cc....."},
	{"reclaim",         "..w....."},
	{"recover_requeue", "...w...."},
	{"recover_fail",    "...f...."},
	{"recover_review",  "...v...."},
	{"cold_start",      "..w....."},
	{"resolve_succeed", ".......s"},
	{"resolve_fail",    ".......f"},
	{"resolve_cancel",  ".......c"},
	{"resolve_wait",    ".......w"},
	{"forget",          "....nnn."},
};

// Nothing is done for it any more. A task in review counts as finished, but it may come back.
constexpr bool is_over(TaskStatus state) noexcept
{
	return state == TaskStatus::succeeded || state == TaskStatus::failed || state == TaskStatus::cancelled ||
		state == TaskStatus::review;
}

char letter_of(TaskStatus state)
{
	constexpr char letters[] = "nwarsfcv";
	return letters[static_cast<std::size_t>(state)];
}

TEST(Task, EveryEventInEveryState)
{
	ASSERT_EQ(expected.size(), task_event_count);
	for (std::size_t e = 0; e < task_event_count; e++) {
		const auto event = at<TaskEvent>(e);
		const auto row = expected.find(std::string(name_of(event)));
		ASSERT_NE(row, expected.end()) << name_of(event);
		ASSERT_EQ(row->second.size(), task_status_count);
		for (std::size_t s = 0; s < task_status_count; s++) {
			const auto state = at<TaskStatus>(s);
			const TaskStep found = step(state, event);
			const char wanted = row->second[s];
			const auto where = std::string(name_of(event)) + " in " + std::string(name_of(state));
			EXPECT_EQ(found.allowed(), wanted != '.' && wanted != '!') << where;
			if (wanted == '.') {
				EXPECT_EQ(found, (TaskStep{TaskEffect::refused, state})) << where;
			} else if (wanted == '!') {
				EXPECT_EQ(found, (TaskStep{TaskEffect::error, state})) << where;
			} else if (wanted == '=') {
				EXPECT_EQ(found, (TaskStep{TaskEffect::stays, state})) << where;
			} else {
				EXPECT_EQ(found.effect, TaskEffect::moves) << where;
				EXPECT_EQ(letter_of(found.next), wanted) << where;
			}
		}
	}
}

TEST(Task, TheListOfMovesIsTheTable)
{
	std::set<std::pair<std::size_t, std::size_t>> listed;
	for (const TaskMove &move : task_moves()) {
		EXPECT_EQ(step(move.from, move.event), (TaskStep{TaskEffect::moves, move.to}));
		EXPECT_TRUE(listed.emplace(static_cast<std::size_t>(move.from), static_cast<std::size_t>(move.event)).second);
	}
	for (std::size_t s = 0; s < task_status_count; s++)
		for (std::size_t e = 0; e < task_event_count; e++)
			EXPECT_EQ(step(at<TaskStatus>(s), at<TaskEvent>(e)).effect == TaskEffect::moves, listed.count({s, e}) == 1);
}

// A task that is over runs no more, but for one in review that somebody puts back.
TEST(Task, WhatIsOverStaysOver)
{
	for (std::size_t s = 0; s < task_status_count; s++) {
		const auto state = at<TaskStatus>(s);
		for (std::size_t e = 0; e < task_event_count; e++) {
			const auto event = at<TaskEvent>(e);
			const TaskStep found = step(state, event);
			if (!is_over(state) || found.effect != TaskEffect::moves)
				continue;
			const bool resolved = state == TaskStatus::review;
			EXPECT_TRUE(resolved || (event == TaskEvent::forget && found.next == TaskStatus::none)) << name_of(state);
		}
	}
	EXPECT_FALSE(step(TaskStatus::review, TaskEvent::forget).allowed()) << "a task in review is never deleted by its age";
}

TEST(Task, EveryStateIsReachedAndLeft)
{
	std::set<std::size_t> reached;
	std::set<std::size_t> left;
	for (const TaskMove &move : task_moves()) {
		reached.insert(static_cast<std::size_t>(move.to));
		left.insert(static_cast<std::size_t>(move.from));
	}
	EXPECT_EQ(reached.size(), task_status_count);
	EXPECT_EQ(left.size(), task_status_count);
}

// Nothing runs without a start, and what ran is settled by the end of the run.
TEST(Task, OnlyAStartRuns)
{
	for (const TaskMove &move : task_moves())
		EXPECT_EQ(move.to == TaskStatus::running, move.event == TaskEvent::start || move.event == TaskEvent::readmit);
}

TEST(Task, NamesReadBack)
{
	for (std::size_t s = 1; s < task_status_count; s++)
		EXPECT_EQ(task_status(name_of(at<TaskStatus>(s))), at<TaskStatus>(s));
	EXPECT_EQ(task_status("none"), std::nullopt);
	EXPECT_EQ(task_status("Waiting"), std::nullopt);
	EXPECT_EQ(task_status(""), std::nullopt);
	for (std::size_t i = 0; i < 3; i++)
		EXPECT_EQ(submission(name_of(at<Submission>(i))), at<Submission>(i));
	EXPECT_EQ(submission("sent"), std::nullopt);
}

// The diagram of docs/tasks.md, between ```mermaid and ```, has exactly the moves of the table: lines "from --> to: event".
TEST(Task, TheDiagramShowsTheTable)
{
	std::ifstream file(RATELIMIT_DOCS "/tasks.md");
	ASSERT_TRUE(file) << "cannot read tasks.md";
	std::multiset<std::string> drawn;
	bool inside = false;
	for (std::string line; std::getline(file, line);) {
		if (line.rfind("```", 0) == 0)
			inside = line == "```mermaid";
		else if (inside && line.find("-->") != std::string::npos)
			drawn.insert(line.substr(line.find_first_not_of(" \t")));
	}
	const auto node = [](TaskStatus state) { return state == TaskStatus::none ? "[*]" : std::string(name_of(state)); };
	std::multiset<std::string> wanted;
	for (const TaskMove &move : task_moves())
		wanted.insert(node(move.from) + " --> " + node(move.to) + ": " + std::string(name_of(move.event)));
	EXPECT_EQ(drawn, wanted);
}

// --- recovery ------------------------------------------------------------------------------------------------------

TEST(Task, RecoveryOfEveryKindOfExecution)
{
	for (const bool cold : {false, true}) {
		for (const bool async : {false, true}) {
			for (const bool once : {false, true}) {
				for (std::size_t s = 0; s < 3; s++) {
					for (const bool known : {false, true}) {
						const RecoveryVerdict verdict = recover({async, once, at<Submission>(s), known}, cold);
						const bool review = once && s > 0 && !known;
						EXPECT_TRUE(step(TaskStatus::running, verdict.event).allowed());
						EXPECT_EQ(verdict.event,
							review    ? TaskEvent::recover_review
								: async ? TaskEvent::recover_requeue
										: TaskEvent::recover_fail);
						EXPECT_EQ(verdict.attempt_retryable, !review);
						EXPECT_EQ(verdict.task_code,
							review    ? "upstream_submission_unknown"
								: async ? ""
										: "server_restarted");
						EXPECT_EQ(verdict.attempt_code,
							review   ? "upstream_submission_unknown"
								: cold ? "server_restarted"
									   : "execution_lease_expired");
					}
				}
			}
		}
	}
}

} // namespace
} // namespace ratelimit::core
