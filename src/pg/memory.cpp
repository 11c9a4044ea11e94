#include "pg/memory.hpp"

#include "pg/call.hpp"

namespace ratelimit::pg {

RoundMemory::RoundMemory() : outer_call_(call_context)
{
	const MemoryContext parent = call_context;
	context_ = call([=] { return AllocSetContextCreate(parent, "ratelimit round", ALLOCSET_DEFAULT_SIZES); });
}

void RoundMemory::reset()
{
	const MemoryContext context = context_;
	call([=] { MemoryContextReset(context); });
}

void RoundMemory::enter() noexcept
{
	outer_current_ = MemoryContextSwitchTo(context_);
	call_context = context_;
}

void RoundMemory::leave() noexcept
{
	if (outer_current_ == nullptr)
		return;
	call_context = outer_call_;
	MemoryContextSwitchTo(outer_current_);
	outer_current_ = nullptr;
}

} // namespace ratelimit::pg
