#include "pg/call.hpp"

#include "pg/memory.hpp"

namespace ratelimit::pg {

namespace {

// Below a second setjmp, since copying can itself run out of memory. Returns null then.
[[gnu::noinline]] ErrorData *copy_error() noexcept
{
	sigjmp_buf *const outer_jump = PG_exception_stack;
	ErrorContextCallback *const outer_callbacks = error_context_stack;
	ErrorData *volatile copy = nullptr;
	sigjmp_buf here;
	if (sigsetjmp(here, 0) == 0) {
		PG_exception_stack = &here;
		copy = CopyErrorData();
	}
	PG_exception_stack = outer_jump;
	error_context_stack = outer_callbacks;
	FlushErrorState();
	return copy;
}

} // namespace

void throw_server_error()
{
	ErrorData *copy = nullptr;
	{
		const ContextScope scope(call_context);
		copy = copy_error();
	}
	throw ServerError{copy};
}

} // namespace ratelimit::pg
