#include "pg/notify.hpp"

#include "pg/call.hpp"

namespace ratelimit::pg {

void notify_admission(const Sleeper &sleeper)
{
	const std::string_view id = sleeper.task_id;
	call([=] {
		char *payload = pnstrdup(id.data(), id.size());
		Async_Notify("ratelimit_admission", payload);
		pfree(payload);
	});
}

} // namespace ratelimit::pg
