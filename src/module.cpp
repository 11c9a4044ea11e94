// The library's magic block and what happens when it is loaded; nothing else.
#include "pg/catalog.hpp"
#include "pg/index_scan.hpp"
#include "pg/postgres.hpp"
#include "pg/settings.hpp"

extern "C" {

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

void _PG_init(void)
{
	ratelimit::pg::settings::define_settings();
	ratelimit::pg::catalog::register_callbacks();
	ratelimit::pg::register_index_callbacks();
}

} // extern "C"
