#include "pg/wait.hpp"

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>

#include "pg/call.hpp"
#include "pg/entry.hpp"

namespace ratelimit::pg {

namespace {

uint32 wait_event()
{
#if PG_VERSION_NUM >= 170000
	static uint32 event = 0;
	if (event == 0)
		event = WaitEventExtensionNew("RatelimitAdmitWait");
	return event;
#else
	return PG_WAIT_EXTENSION;
#endif
}

bool has_client() noexcept { return MyProcPort != nullptr && MyProcPort->sock != PGINVALID_SOCKET; }

// Where the kernel does not report a closed connection as an event: looks for the end of the stream, which is seen
// unless unread input stands before it.
bool stream_is_open() noexcept
{
	char byte;
	return recv(MyProcPort->sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
}

} // namespace

bool client_is_there()
{
	ResetLatch(MyLatch);
	if (!has_client())
		return true;
	return call([] { return WaitEventSetCanReportClosed() ? pq_check_connection() : stream_is_open(); });
}

void sleep_on_latch(std::int64_t timeout_ms)
{
	const long timeout = static_cast<long>(std::clamp<std::int64_t>(timeout_ms, 1, INT_MAX));
	call([=] {
		int events = WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH;
		const bool reports_closed = has_client() && WaitEventSetCanReportClosed();
		if (reports_closed)
			events |= WL_SOCKET_CLOSED;
		(void)WaitLatchOrSocket(MyLatch, events, reports_closed ? MyProcPort->sock : PGINVALID_SOCKET, timeout, wait_event());
	});
}

void end_without_client()
{
	ClientConnectionLost = true;
	InterruptPending = true;
	check_for_interrupts();
}

} // namespace ratelimit::pg
