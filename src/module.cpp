// The library's magic block and what happens when it is loaded; nothing else.
#include "pg/background.hpp"
#include "pg/catalog.hpp"
#include "pg/index_scan.hpp"
#include "pg/postgres.hpp"
#include "pg/settings.hpp"
#include "pg/shared_memory.hpp"

extern "C" {

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

void _PG_init(void)
{
	ratelimit::pg::settings::define_settings();
	ratelimit::pg::catalog::register_callbacks();
	ratelimit::pg::register_index_callbacks();
	// During pg_upgrade nothing may work on the databases beside it.
	if (process_shared_preload_libraries_in_progress && !IsBinaryUpgrade) {
		ratelimit::pg::shared_memory::request();
		ratelimit::pg::background::register_launcher();
	}
}

} // extern "C"
