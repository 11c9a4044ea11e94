// Transactions of a procedure's own: for a procedure that commits while it runs.
//
// After commit() or roll_back() a new transaction has begun, without a snapshot: nothing is held back while the procedure
// sleeps. Nothing that belongs to a transaction may be kept across one, and call_context survives.
#pragma once

#include "pg/postgres.hpp"

namespace ratelimit::pg {

// Raises 25001 where the procedure may not commit: inside a transaction block, a function or a block with an exception
// handler.
void require_own_transaction(FunctionCallInfo fcinfo, const char *procedure_name);

// The connection to SPI over which transactions are ended. finish() on success.
class TransactionControl {
public:
	TransactionControl();
	// Raises what the commit raises; then, too, a new transaction has begun. What a crash may undo need not wait for the
	// disk or a standby.
	enum class Durability { as_set, none };
	void commit(Durability durability = Durability::as_set);
	// After an error as well, unless that left statements of SPI open.
	void roll_back();
	void finish();
	TransactionControl(const TransactionControl &) = delete;
	TransactionControl &operator=(const TransactionControl &) = delete;
};

// A snapshot of the transaction for reading values that are stored out of line. finish() before the transaction ends; an
// abort releases it otherwise.
class ActiveSnapshot {
public:
	ActiveSnapshot();
	void finish();
	ActiveSnapshot(const ActiveSnapshot &) = delete;
	ActiveSnapshot &operator=(const ActiveSnapshot &) = delete;
};

} // namespace ratelimit::pg
