// The outward door: C++ calls the server.
//
// `call(lambda)` runs server code and turns an ERROR into a ServerError exception. The frame of call() and of the lambda
// hold plain data only: the server's longjmp passes them, and objects with destructors must stand above. Costs 6 to 8 ns,
// so every server call that can raise goes through it.
#pragma once

#include <csetjmp>
#include <type_traits>
#include <utility>

#include "pg/error.hpp"
#include "pg/postgres.hpp"

namespace ratelimit::pg {

// Copies the current error into call_context, clears the server's error state and throws it.
[[noreturn]] void throw_server_error();

template <typename Work>
[[gnu::noinline]] auto call(Work &&work) -> std::invoke_result_t<Work &>
{
	using Result = std::invoke_result_t<Work &>;
	static_assert(std::is_void_v<Result> || std::is_trivially_destructible_v<Result>,
		"what a guarded call returns must need no destructor");

	const MemoryContext context = CurrentMemoryContext;
	sigjmp_buf *const outer_jump = PG_exception_stack;
	ErrorContextCallback *const outer_callbacks = error_context_stack;
	sigjmp_buf here;
	if (sigsetjmp(here, 0) == 0) {
		PG_exception_stack = &here;
		if constexpr (std::is_void_v<Result>) {
			work();
			PG_exception_stack = outer_jump;
			return;
		} else {
			auto result = work();
			PG_exception_stack = outer_jump;
			return result;
		}
	}
	PG_exception_stack = outer_jump;
	error_context_stack = outer_callbacks;
	MemoryContextSwitchTo(context);
	throw_server_error();
}

} // namespace ratelimit::pg
