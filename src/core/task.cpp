#include "core/task.hpp"

namespace ratelimit::core {

namespace {

using Event = TaskEvent;
using State = TaskStatus;

constexpr std::string_view state_names[task_status_count] = {
	"none", "waiting", "admitted", "running", "succeeded", "failed", "cancelled", "review"};

constexpr std::string_view event_names[task_event_count] = {"enqueue", "admit", "readmit", "start", "lose_lease", "move", "submit",
	"heartbeat", "succeed", "fail", "cancel_running", "cancel", "give_up", "defer_too_late", "time_out", "abandon", "reclaim",
	"recover_requeue", "recover_fail", "recover_review", "cold_start", "resolve_succeed", "resolve_fail", "resolve_cancel",
	"resolve_wait", "forget"};

constexpr std::string_view submission_names[] = {"none", "submitting", "response_received"};

// Everything that changes a task's state. A task may be deleted while it waits for nothing any more, but never in review.
constexpr TaskMove moves[] = {
	{State::none, Event::enqueue, State::waiting},
	{State::none, Event::start, State::running},

	{State::waiting, Event::admit, State::admitted},
	{State::waiting, Event::readmit, State::running},
	{State::waiting, Event::succeed, State::succeeded},
	{State::waiting, Event::fail, State::failed},
	{State::waiting, Event::cancel_running, State::cancelled},
	{State::waiting, Event::cancel, State::cancelled},
	{State::waiting, Event::give_up, State::failed},
	{State::waiting, Event::defer_too_late, State::failed},
	{State::waiting, Event::time_out, State::failed},
	{State::waiting, Event::abandon, State::cancelled},

	{State::admitted, Event::start, State::running},
	{State::admitted, Event::lose_lease, State::waiting},
	{State::admitted, Event::move, State::waiting},
	{State::admitted, Event::cancel, State::cancelled},
	{State::admitted, Event::give_up, State::failed},
	{State::admitted, Event::abandon, State::cancelled},
	{State::admitted, Event::reclaim, State::waiting},
	{State::admitted, Event::cold_start, State::waiting},

	{State::running, Event::move, State::waiting},
	{State::running, Event::succeed, State::succeeded},
	{State::running, Event::fail, State::failed},
	{State::running, Event::cancel_running, State::cancelled},
	{State::running, Event::cancel, State::cancelled},
	{State::running, Event::give_up, State::failed},
	{State::running, Event::recover_requeue, State::waiting},
	{State::running, Event::recover_fail, State::failed},
	{State::running, Event::recover_review, State::review},

	{State::succeeded, Event::forget, State::none},
	{State::failed, Event::forget, State::none},
	{State::cancelled, Event::forget, State::none},

	{State::review, Event::resolve_succeed, State::succeeded},
	{State::review, Event::resolve_fail, State::failed},
	{State::review, Event::resolve_cancel, State::cancelled},
	{State::review, Event::resolve_wait, State::waiting},
};

// Calls that are right and change something else than the state.
struct Stay {
	State state;
	Event event;
};

constexpr Stay stays[] = {
	{State::waiting, Event::move},
	{State::running, Event::submit},
	{State::running, Event::heartbeat},
	// A running task that moved to other scopes waits there and keeps its execution.
	{State::waiting, Event::submit},
	{State::waiting, Event::heartbeat},
};

// Calls that must not be made of a task that is over: it would run twice.
constexpr Stay errors[] = {
	{State::succeeded, Event::start},
	{State::failed, Event::start},
	{State::cancelled, Event::start},
	{State::review, Event::start},
};

using Table = std::array<std::array<TaskStep, task_event_count>, task_status_count>;

constexpr std::size_t index_of(State state) noexcept { return static_cast<std::size_t>(state); }
constexpr std::size_t index_of(Event event) noexcept { return static_cast<std::size_t>(event); }

constexpr Table make_table() noexcept
{
	Table table{};
	for (std::size_t state = 0; state < task_status_count; state++)
		for (std::size_t event = 0; event < task_event_count; event++)
			table[state][event].next = static_cast<State>(state);
	for (const Stay &stay : stays)
		table[index_of(stay.state)][index_of(stay.event)].effect = TaskEffect::stays;
	for (const Stay &error : errors)
		table[index_of(error.state)][index_of(error.event)].effect = TaskEffect::error;
	for (const TaskMove &move : moves)
		table[index_of(move.from)][index_of(move.event)] = {TaskEffect::moves, move.to};
	return table;
}

constexpr Table table = make_table();

// No pair stands in two lists, and every move leads somewhere else.
constexpr bool lists_are_disjoint() noexcept
{
	std::size_t entries = 0;
	for (const auto &row : table)
		for (const TaskStep &step : row)
			entries += step.effect != TaskEffect::refused ? 1 : 0;
	for (const TaskMove &move : moves)
		if (move.from == move.to)
			return false;
	return entries == std::size(moves) + std::size(stays) + std::size(errors);
}

static_assert(lists_are_disjoint());
static_assert(index_of(State::review) + 1 == task_status_count);
static_assert(index_of(Event::forget) + 1 == task_event_count);

} // namespace

std::string_view name_of(TaskStatus state) noexcept { return state_names[index_of(state)]; }

std::string_view name_of(TaskEvent event) noexcept { return event_names[index_of(event)]; }

std::string_view name_of(Submission submission) noexcept
{
	return submission_names[static_cast<std::size_t>(submission)];
}

std::optional<TaskStatus> task_status(std::string_view name) noexcept
{
	for (std::size_t i = index_of(State::waiting); i < task_status_count; i++)
		if (state_names[i] == name)
			return static_cast<State>(i);
	return std::nullopt;
}

std::optional<Submission> submission(std::string_view name) noexcept
{
	for (std::size_t i = 0; i < std::size(submission_names); i++)
		if (submission_names[i] == name)
			return static_cast<Submission>(i);
	return std::nullopt;
}

TaskStep step(TaskStatus state, TaskEvent event) noexcept { return table[index_of(state)][index_of(event)]; }

View<const TaskMove> task_moves() noexcept { return {moves, std::size(moves)}; }

// The service may have done what it was asked to do, and nobody knows by which id to ask it: a second try could do it
// twice. Where the id is known, the next attempt asks by it.
RecoveryVerdict recover(const LostExecution &lost, bool cold_start) noexcept
{
	if (lost.at_most_once && lost.submission != Submission::none && !lost.remote_id_known)
		return {Event::recover_review, code_submission_unknown, code_submission_unknown, false};
	const std::string_view attempt_code = cold_start ? code_server_restarted : code_lease_expired;
	if (lost.async)
		return {Event::recover_requeue, {}, attempt_code, true};
	return {Event::recover_fail, code_server_restarted, attempt_code, true};
}

} // namespace ratelimit::core
