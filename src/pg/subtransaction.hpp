// Work that may fail without ending the transaction: it is done in a subtransaction and rolled back on any error.
#pragma once

#include <exception>

#include "pg/postgres.hpp"

namespace ratelimit::pg {

// One internal subtransaction. Nothing happens in the destructor: the rollback can raise.
class Subtransaction {
public:
	Subtransaction();
	void release();
	void roll_back();
	Subtransaction(const Subtransaction &) = delete;
	Subtransaction &operator=(const Subtransaction &) = delete;

private:
	MemoryContext outer_memory_;
	ResourceOwner outer_owner_;
};

// Runs the work in a subtransaction. Returns the error that it ended with, if any, after the rollback.
template <typename Work>
[[nodiscard]] std::exception_ptr attempt(Work &&work)
{
	Subtransaction subtransaction;
	std::exception_ptr failure;
	try {
		work();
		subtransaction.release();
	} catch (...) {
		failure = std::current_exception();
	}
	if (failure)
		subtransaction.roll_back();
	return failure;
}

} // namespace ratelimit::pg
