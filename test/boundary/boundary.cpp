// Test functions around the two doors between C++ and the server, for test/t/010_boundary.pl.
//
// A Probe counts how often it was made and destroyed; after any error the two counts must be equal. The functions throw
// each kind of exception from below several frames that hold probes, nest through SPI, and show the server's state that a
// missing piece of the guards would leave behind.
#include <csetjmp>
#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/resource.h>

#include "pg/call.hpp"
#include "pg/entry.hpp"
#include "pg/memory.hpp"
#include "pg/value.hpp"

extern "C" {
PG_MODULE_MAGIC;
}

namespace {

namespace pg = ratelimit::pg;

std::int64_t probes_made = 0;
std::int64_t probes_destroyed = 0;

class Probe {
public:
	Probe() { probes_made++; }
	Probe(const Probe &) { probes_made++; }
	~Probe() { probes_destroyed++; }
	Probe &operator=(const Probe &) = default;

private:
	std::string weight_ = std::string(200, 'x');
};

std::string text_argument(FunctionCallInfo fcinfo, int index) { return std::string(pg::text_view(PG_GETARG_DATUM(index))); }

// The kinds of error, by name.
void raise(std::string_view kind)
{
	const Probe probe;
	pg::Vector<Probe> probes(3);
	if (kind == "server")
		pg::call([] {
			ereport(ERROR, (errcode(ERRCODE_DIVISION_BY_ZERO), errmsg("a message of the server"), errdetail("its detail"),
							   errhint("its hint"), errcontext("its context"), err_generic_string(PG_DIAG_CONSTRAINT_NAME, "its constraint")));
		});
	else if (kind == "ours")
		throw pg::SqlError{ERRCODE_INSUFFICIENT_RESOURCES, "our message", "our detail", "our hint"};
	else if (kind == "bare")
		throw pg::SqlError{ERRCODE_LOCK_NOT_AVAILABLE, "only a message", "", ""};
	else if (kind == "bad_alloc")
		throw std::bad_alloc();
	else if (kind == "runtime_error")
		throw std::runtime_error("what() of the exception");
	else if (kind == "int")
		throw 42;
	else if (kind == "4 TB")
		pg::Vector<char>().reserve(std::size_t(4) << 40);
	else if (kind == "9 EB")
		pg::Vector<double>().reserve(std::size_t(1) << 60);
	else if (kind == "4 TB of the server")
		pg::call([] { (void)MemoryContextAllocHuge(CurrentMemoryContext, std::size_t(4) << 40); });
	else if (kind == "assert")
		pg::Vector<int>().at(1) = 0;
}

[[gnu::noinline]] void raise_below(std::string_view kind, int depth)
{
	const Probe probe;
	const std::string copy(kind);
	if (depth > 0)
		raise_below(copy, depth - 1);
	else
		raise(copy);
	probes_made += 0; // no tail call
}

// An error whose copying runs out of memory: a callback that runs while the error is raised lowers the limit of the
// address space to what is in use, so that the big message cannot be copied.
constexpr std::size_t big_message_bytes = std::size_t(64) << 20;

struct AddressSpaceLimit {
	rlimit outer;
	AddressSpaceLimit() { getrlimit(RLIMIT_AS, &outer); }
	~AddressSpaceLimit() { setrlimit(RLIMIT_AS, &outer); }
};

extern "C" void ratelimit_exhaust_memory(void *)
{
	rlimit limit;
	getrlimit(RLIMIT_AS, &limit);
	limit.rlim_cur = std::size_t(16) << 20; // below what is in use: nothing more can be had
	setrlimit(RLIMIT_AS, &limit);
}

void raise_without_memory_for_a_copy()
{
	const Probe probe;
	const AddressSpaceLimit limit;
	pg::call([] {
		char *message = static_cast<char *>(palloc(big_message_bytes));
		memset(message, 'm', big_message_bytes - 1);
		message[big_message_bytes - 1] = '\0';
		ErrorContextCallback callback;
		callback.callback = ratelimit_exhaust_memory;
		callback.arg = nullptr;
		callback.previous = error_context_stack;
		error_context_stack = &callback;
		ereport(ERROR, (errmsg_internal("%s", message)));
	});
}

void execute(const std::string &query)
{
	const char *text = query.c_str();
	pg::call([=] {
		if (SPI_connect() != SPI_OK_CONNECT)
			elog(ERROR, "SPI_connect failed");
		if (SPI_execute(text, false, 0) < 0)
			elog(ERROR, "SPI_execute failed");
	});
}

void finish() { pg::call([] { SPI_finish(); }); }

} // namespace

// boundary_raise(kind text, depth int) -> text: raises, or returns its first argument when the kind is unknown.
RATELIMIT_FUNCTION(boundary_raise)
{
	const std::string kind = text_argument(fcinfo, 0);
	raise_below(kind, PG_GETARG_INT32(1));
	return pg::text_datum(kind);
}

// boundary_raise_text(sqlstate text, message text, detail text, hint text)
RATELIMIT_FUNCTION(boundary_raise_text)
{
	const Probe probe;
	const std::string state = text_argument(fcinfo, 0);
	throw pg::SqlError{MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4]), text_argument(fcinfo, 1),
		text_argument(fcinfo, 2), text_argument(fcinfo, 3)};
}

RATELIMIT_FUNCTION(boundary_raise_uncopied)
{
	raise_without_memory_for_a_copy();
	return 0;
}

// boundary_nest(query text, kind text) -> text: runs the query through SPI, which may call these functions again, then
// raises. Fails when the guards of the inner call have not restored what the outer one relies on.
RATELIMIT_FUNCTION(boundary_nest)
{
	const Probe probe;
	const MemoryContext context = pg::call_context;
	sigjmp_buf *const jump = PG_exception_stack;
	pg::Vector<Probe> kept(3);
	execute(text_argument(fcinfo, 0));
	if (pg::call_context != context || PG_exception_stack != jump)
		throw std::logic_error("the inner call has not restored the outer one's state");
	kept.resize(100);
	raise(text_argument(fcinfo, 1));
	finish();
	return pg::text_datum("done");
}

// boundary_probes() -> bool: as many destroyed as made. Starts again from 0.
RATELIMIT_FUNCTION(boundary_probes)
{
	const bool balanced = probes_made > 0 && probes_made == probes_destroyed;
	probes_made = 0;
	probes_destroyed = 0;
	return BoolGetDatum(balanced);
}

// boundary_in_flight() -> bool: the C++ runtime still believes that an exception is being handled.
RATELIMIT_FUNCTION(boundary_in_flight)
{
	return BoolGetDatum(std::current_exception() != nullptr || std::uncaught_exceptions() != 0);
}

// boundary_holdoff() -> bool: something holds interrupts off.
RATELIMIT_FUNCTION(boundary_holdoff)
{
	return BoolGetDatum(InterruptHoldoffCount != 0 || QueryCancelHoldoffCount != 0 || CritSectionCount != 0);
}

// boundary_returns_set(rows int, kind text) -> SETOF (a int, b text): raises after so many rows.
RATELIMIT_FUNCTION(boundary_returns_set)
{
	const Probe probe;
	pg::SetResult result(fcinfo);
	for (int i = 0; i < PG_GETARG_INT32(0); i++) {
		pg::Columns<2> row;
		row.set(0, Int32GetDatum(i));
		row.set(1, pg::text_datum("some text to fill the memory there is"));
		result.add(row);
	}
	raise(text_argument(fcinfo, 1));
	return 0;
}

// boundary_loop(): never ends by itself; interrupts are checked through the guard.
RATELIMIT_FUNCTION(boundary_loop)
{
	const Probe probe;
	for (;;)
		pg::check_for_interrupts();
}

// boundary_wait(seconds float8): waits in the server, below a guard and a probe.
RATELIMIT_FUNCTION(boundary_wait)
{
	const Probe probe;
	const Datum seconds = PG_GETARG_DATUM(0);
	pg::call([=] { DirectFunctionCall1(pg_sleep, seconds); });
	return 0;
}
