#include "pg/statistics.hpp"

#include <cstring>
#include <type_traits>

namespace ratelimit::pg::statistics {

namespace {

constexpr std::size_t places_max = 2048; // so that most searches end at once, a power of two
constexpr std::uint32_t named_max = 1024;
constexpr std::uint32_t used_max = 1280; // with those for other names and for resets
constexpr std::size_t name_bytes_max = 512;
constexpr std::string_view other = "(other)";

struct Place {
	pg_atomic_uint32 is_shown; // the fields up to the names are final once it is 1
	std::uint32_t hash;
	Oid database;
	Source source;
	std::uint16_t scope_type_bytes;
	std::uint16_t metric_bytes;
	char names[2 * name_bytes_max];
	pg_atomic_uint64 values[counts];
	pg_atomic_uint64 since; // a TimestampTz
};

struct Memory {
	LWLock *lock; // of making places and of resets
	TimestampTz made_at;
	pg_atomic_uint32 used;
	Place places[places_max];
};
static_assert(std::is_standard_layout_v<Memory> && std::is_trivially_copyable_v<Memory>);
static_assert((places_max & (places_max - 1)) == 0 && named_max < used_max && used_max < places_max);

Memory *memory = nullptr;
Place *last_place = nullptr; // that this process has counted in: most sessions ask about the same limit again

struct Key {
	Oid database;
	Source source;
	std::string_view scope_type;
	std::string_view metric;
	std::uint32_t hash;
};

std::uint32_t hash_of(std::string_view text) noexcept
{
	return hash_bytes(reinterpret_cast<const unsigned char *>(text.data()), static_cast<int>(text.size()));
}

Key key_of(Source source, std::string_view scope_type, std::string_view metric) noexcept
{
	const std::uint32_t names = hash_combine(hash_of(scope_type), hash_of(metric));
	const std::uint32_t hash = hash_combine(names, MyDatabaseId * 31 + static_cast<std::uint32_t>(source));
	return {MyDatabaseId, source, scope_type, metric, hash};
}

std::string_view scope_type_of(const Place &place) noexcept { return {place.names, place.scope_type_bytes}; }
std::string_view metric_of(const Place &place) noexcept
{
	return {place.names + place.scope_type_bytes, place.metric_bytes};
}

bool matches(const Place &place, const Key &key) noexcept
{
	return place.hash == key.hash && place.database == key.database && place.source == key.source &&
		scope_type_of(place) == key.scope_type && metric_of(place) == key.metric;
}

// The place of the key, or the free one where it would stand. There always is a free one.
Place &search(const Key &key, bool &found) noexcept
{
	std::size_t at = key.hash & (places_max - 1);
	for (;; at = (at + 1) & (places_max - 1)) {
		Place &place = memory->places[at];
		if (pg_atomic_read_u32(&place.is_shown) == 0) {
			found = false;
			return place;
		}
		pg_read_barrier(); // what is shown is read after the sign that it is
		if (matches(place, key)) {
			found = true;
			return place;
		}
	}
}

// Under the lock.
TimestampTz since_of_database() noexcept
{
	bool found = false;
	const Place &reset = search(key_of(Source::none, {}, {}), found);
	return found ? static_cast<TimestampTz>(pg_atomic_read_u64(const_cast<pg_atomic_uint64 *>(&reset.since))) : memory->made_at;
}

// Null when there is no room.
Place *make(const Key &key, std::uint32_t used_at_most) noexcept
{
	if (pg_atomic_read_u32(&memory->used) >= used_at_most)
		return nullptr;
	LWLockAcquire(memory->lock, LW_EXCLUSIVE);
	bool found = false;
	Place *place = &search(key, found);
	if (!found && pg_atomic_read_u32(&memory->used) < used_at_most) {
		place->hash = key.hash;
		place->database = key.database;
		place->source = key.source;
		place->scope_type_bytes = static_cast<std::uint16_t>(key.scope_type.size());
		place->metric_bytes = static_cast<std::uint16_t>(key.metric.size());
		std::memcpy(place->names, key.scope_type.data(), key.scope_type.size());
		std::memcpy(place->names + key.scope_type.size(), key.metric.data(), key.metric.size());
		pg_atomic_write_u64(&place->since, static_cast<std::uint64_t>(since_of_database()));
		pg_atomic_fetch_add_u32(&memory->used, 1);
		pg_write_barrier();
		pg_atomic_write_u32(&place->is_shown, 1);
		found = true;
	}
	LWLockRelease(memory->lock);
	return found ? place : nullptr;
}

Place *find_or_make(const Key &key, std::uint32_t used_at_most) noexcept
{
	bool found = false;
	Place &place = search(key, found);
	return found ? &place : make(key, used_at_most);
}

} // namespace

std::string_view name_of(Source source) noexcept
{
	constexpr std::string_view names[] = {"", "rl_check", "rl_consume", "rl_reserve", "rl_enforce", "rl_admit", "rl_enqueue",
		"rl_admit_wait", "rl_dispatch", "rl_acquire_bucket", "rl_reap", "rl_recover"};
	return names[static_cast<std::size_t>(source)];
}

void add(Source source, std::string_view scope_type, std::string_view metric, Count count, std::uint64_t times) noexcept
{
	if (memory == nullptr || source == Source::none || times == 0)
		return;
	if (last_place != nullptr && last_place->source == source && last_place->database == MyDatabaseId &&
		scope_type_of(*last_place) == scope_type && metric_of(*last_place) == metric) {
		pg_atomic_fetch_add_u64(&last_place->values[count], static_cast<std::int64_t>(times));
		return;
	}
	Place *place = nullptr;
	if (scope_type.size() <= name_bytes_max && metric.size() <= name_bytes_max)
		place = find_or_make(key_of(source, scope_type, metric), named_max);
	if (place == nullptr)
		place = find_or_make(key_of(source, other, other), used_max);
	if (place == nullptr)
		return;
	pg_atomic_fetch_add_u64(&place->values[count], static_cast<std::int64_t>(times));
	last_place = place;
}

Vector<Row> rows()
{
	Vector<Row> found;
	if (memory == nullptr)
		return found;
	for (Place &place : memory->places) {
		if (pg_atomic_read_u32(&place.is_shown) == 0)
			continue;
		pg_read_barrier();
		if (place.database != MyDatabaseId || place.source == Source::none)
			continue;
		Row row{place.source, scope_type_of(place), metric_of(place), {}, static_cast<TimestampTz>(pg_atomic_read_u64(&place.since))};
		std::uint64_t sum = 0;
		for (int i = 0; i < counts; i++)
			sum += row.values[i] = pg_atomic_read_u64(&place.values[i]);
		if (sum > 0)
			found.push_back(row);
	}
	return found;
}

void reset() noexcept
{
	if (memory == nullptr)
		return;
	(void)find_or_make(key_of(Source::none, {}, {}), used_max); // whose time is that of the reset
	const auto now = static_cast<std::uint64_t>(GetCurrentTimestamp());
	LWLockAcquire(memory->lock, LW_EXCLUSIVE);
	for (Place &place : memory->places) {
		if (pg_atomic_read_u32(&place.is_shown) == 0 || place.database != MyDatabaseId)
			continue;
		for (pg_atomic_uint64 &value : place.values)
			pg_atomic_write_u64(&value, 0);
		pg_atomic_write_u64(&place.since, now);
	}
	LWLockRelease(memory->lock);
}

std::size_t memory_size() noexcept { return sizeof(Memory); }

void attach(void *shared, LWLock *lock, bool first) noexcept
{
	memory = static_cast<Memory *>(shared);
	last_place = nullptr;
	if (!first)
		return;
	memory->lock = lock;
	memory->made_at = GetCurrentTimestamp();
	pg_atomic_init_u32(&memory->used, 0);
	for (Place &place : memory->places) {
		pg_atomic_init_u32(&place.is_shown, 0);
		for (pg_atomic_uint64 &value : place.values)
			pg_atomic_init_u64(&value, 0);
		pg_atomic_init_u64(&place.since, 0);
	}
}

} // namespace ratelimit::pg::statistics
