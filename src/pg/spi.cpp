#include "pg/spi.hpp"

#include <cstring>

#include "pg/call.hpp"
#include "pg/catalog.hpp"
#include "pg/error.hpp"
#include "pg/value.hpp"

namespace ratelimit::pg {

namespace {

// While a statement of ours is planned, only index and TID scans are wanted, whatever the session has set: a plan made when
// a table was small must not become a sequential scan of the table that it grows to, and rows are locked in the order of
// the index. Only statements that are meant for whole tables may go through them. These variables are plain bools of the
// server; assigning them cannot raise.
class PlannerScope {
public:
	explicit PlannerScope(Scans scans) noexcept
		: indexscan_(enable_indexscan), tidscan_(enable_tidscan), seqscan_(enable_seqscan), bitmapscan_(enable_bitmapscan),
		  jit_(jit_enabled)
	{
		enable_indexscan = true;
		enable_tidscan = true;
		enable_seqscan = scans == Scans::whole_tables;
		enable_bitmapscan = scans == Scans::whole_tables;
		jit_enabled = false;
	}
	~PlannerScope()
	{
		enable_indexscan = indexscan_;
		enable_tidscan = tidscan_;
		enable_seqscan = seqscan_;
		enable_bitmapscan = bitmapscan_;
		jit_enabled = jit_;
	}
	PlannerScope(const PlannerScope &) = delete;
	PlannerScope &operator=(const PlannerScope &) = delete;

private:
	bool indexscan_;
	bool tidscan_;
	bool seqscan_;
	bool bitmapscan_;
	bool jit_;
};

// Writes the statement's text with `{op}` spelled out. Palloc'd.
char *qualify_operators(const char *text)
{
	StringInfoData out;
	initStringInfo(&out);
	for (const char *at = text; *at != '\0'; at++) {
		const char *close = *at == '{' ? std::strchr(at, '}') : nullptr;
		// Braces of array literals are quoted or empty; an operator consists of these characters only.
		if (close != nullptr && close > at + 1 && std::strspn(at + 1, "+-*/<>=~!@#%^&|`?") == std::size_t(close - at - 1)) {
			appendStringInfo(&out, "OPERATOR(pg_catalog.%.*s)", static_cast<int>(close - at - 1), at + 1);
			at = close;
		} else {
			appendStringInfoChar(&out, *at);
		}
	}
	return out.data;
}

} // namespace

bool writes_see_old_snapshot() noexcept { return IsolationUsesXactSnapshot(); }

void throw_serialization_failure()
{
	throw SqlError{ERRCODE_T_R_SERIALIZATION_FAILURE, "could not serialize access due to concurrent update", "",
		"The transaction might succeed if retried."};
}

void Session::connect()
{
	if (connected_)
		return;
	const Oid owner = catalog::owner();
	call([] {
		if (SPI_connect() != SPI_OK_CONNECT)
			elog(ERROR, "SPI_connect failed");
	});
	GetUserIdAndSecContext(&outer_user_, &outer_context_);
	SetUserIdAndSecContext(owner, outer_context_ | SECURITY_LOCAL_USERID_CHANGE);
	connected_ = true;
}

void Session::finish()
{
	if (!connected_)
		return;
	connected_ = false;
	SetUserIdAndSecContext(outer_user_, outer_context_);
	call([] {
		if (SPI_finish() != SPI_OK_FINISH)
			elog(ERROR, "SPI_finish failed");
	});
}

bool Rows::is_null(std::size_t row, int column) const noexcept
{
	bool null = false;
	(void)heap_getattr(table_->vals[row], column, table_->tupdesc, &null);
	return null;
}

Datum Rows::datum(std::size_t row, int column) const noexcept
{
	bool null = false;
	return heap_getattr(table_->vals[row], column, table_->tupdesc, &null);
}

ItemPointerData Rows::place(std::size_t row, int column) const noexcept
{
	return *reinterpret_cast<ItemPointer>(DatumGetPointer(datum(row, column)));
}

void Rows::release() noexcept
{
	if (table_ != nullptr)
		SPI_freetuptable(table_); // only deletes the rows' memory context
	table_ = nullptr;
}

Parameters &Parameters::add_optional_text(const std::optional<std::string_view> &value)
{
	return value ? add(text_datum(*value)) : add_null();
}

void Statement::prepare()
{
	plan_ = call([this] {
		char *text = qualify_operators(text_);
		SPIPlanPtr plan = SPI_prepare_cursor(text, static_cast<int>(count_), types_, CURSOR_OPT_GENERIC_PLAN);
		if (plan == nullptr)
			elog(ERROR, "could not prepare \"%s\": %s", text, SPI_result_code_string(SPI_result));
		if (SPI_keepplan(plan) != 0)
			elog(ERROR, "could not keep the plan of \"%s\"", text);
		pfree(text);
		return plan;
	});
}

Rows Statement::run(Access access, Parameters &parameters)
{
	if (access == Access::read)
		return read(nullptr, parameters);
	const PlannerScope scope(scans_);
	if (plan_ == nullptr)
		prepare();
	Datum *const values = parameters.values();
	const char *const nulls = parameters.nulls();
	return call([this, values, nulls] {
		const int code = SPI_execute_plan(plan_, values, nulls, false, 0);
		if (code < 0)
			elog(ERROR, "could not run \"%s\": %s", text_, SPI_result_code_string(code));
		return Rows(SPI_tuptable, SPI_processed);
	});
}

Rows Statement::run(const ReadSnapshot &snapshot, Parameters &parameters) { return read(snapshot.get(), parameters); }

Rows Statement::read(Snapshot snapshot, Parameters &parameters)
{
	const PlannerScope scope(scans_);
	if (plan_ == nullptr)
		prepare();
	Datum *const values = parameters.values();
	const char *const nulls = parameters.nulls();
	return call([this, snapshot, values, nulls] {
		const Snapshot used = snapshot != nullptr ? snapshot : GetLatestSnapshot();
		const int code = SPI_execute_snapshot(plan_, values, nulls, used, InvalidSnapshot, true, false, 0);
		if (code < 0)
			elog(ERROR, "could not run \"%s\": %s", text_, SPI_result_code_string(code));
		return Rows(SPI_tuptable, SPI_processed);
	});
}

ReadSnapshot::ReadSnapshot() : snapshot_(call([] { return RegisterSnapshot(GetLatestSnapshot()); })) {}

void ReadSnapshot::finish()
{
	const Snapshot snapshot = snapshot_;
	call([=] { UnregisterSnapshot(snapshot); });
}

} // namespace ratelimit::pg
