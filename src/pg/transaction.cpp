#include "pg/transaction.hpp"

#include <string>

#include "pg/call.hpp"
#include "pg/error.hpp"

namespace ratelimit::pg {

namespace {

// A plain int of the server; assigning it cannot raise.
class DurabilityScope {
public:
	explicit DurabilityScope(TransactionControl::Durability durability) noexcept : outer_(synchronous_commit)
	{
		if (durability == TransactionControl::Durability::none)
			synchronous_commit = SYNCHRONOUS_COMMIT_OFF;
	}
	~DurabilityScope() { synchronous_commit = outer_; }
	DurabilityScope(const DurabilityScope &) = delete;
	DurabilityScope &operator=(const DurabilityScope &) = delete;

private:
	int outer_;
};

} // namespace

void require_own_transaction(FunctionCallInfo fcinfo, const char *procedure_name)
{
	const Node *const context = fcinfo->context;
	const bool atomic =
		context == nullptr || !IsA(context, CallContext) || reinterpret_cast<const CallContext *>(context)->atomic;
	if (atomic || IsSubTransaction())
		throw SqlError{ERRCODE_ACTIVE_SQL_TRANSACTION,
			std::string(procedure_name) + " cannot run inside a transaction block",
			"It commits while it waits.",
			"CALL it by itself, outside of BEGIN, functions and blocks with an EXCEPTION clause; inside a transaction, ask "
			"rl_admit again and again."};
}

TransactionControl::TransactionControl()
{
	call([] {
		if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
			elog(ERROR, "SPI_connect_ext failed");
	});
}

void TransactionControl::commit(Durability durability)
{
	const DurabilityScope scope(durability);
	call([] { SPI_commit(); });
}

void TransactionControl::roll_back()
{
	call([] { SPI_rollback(); });
}

void TransactionControl::finish()
{
	call([] {
		if (SPI_finish() != SPI_OK_FINISH)
			elog(ERROR, "SPI_finish failed");
	});
}

ActiveSnapshot::ActiveSnapshot()
{
	call([] { PushActiveSnapshot(GetTransactionSnapshot()); });
}

void ActiveSnapshot::finish()
{
	call([] { PopActiveSnapshot(); });
}

} // namespace ratelimit::pg
