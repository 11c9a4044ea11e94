#include "pg/subtransaction.hpp"

#include "pg/call.hpp"

namespace ratelimit::pg {

Subtransaction::Subtransaction() : outer_memory_(CurrentMemoryContext), outer_owner_(CurrentResourceOwner)
{
	call([] { BeginInternalSubTransaction(nullptr); });
	MemoryContextSwitchTo(outer_memory_);
}

void Subtransaction::release()
{
	call([] { ReleaseCurrentSubTransaction(); });
	MemoryContextSwitchTo(outer_memory_);
	CurrentResourceOwner = outer_owner_;
}

void Subtransaction::roll_back()
{
	call([] { RollbackAndReleaseCurrentSubTransaction(); });
	MemoryContextSwitchTo(outer_memory_);
	CurrentResourceOwner = outer_owner_;
}

} // namespace ratelimit::pg
