// Values of the server as C++ values and back. Views point into the server's memory and live as long as the call.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "pg/memory.hpp"
#include "pg/postgres.hpp"

namespace ratelimit::pg {

using UuidBytes = std::array<std::uint8_t, 16>;

// --- text ----------------------------------------------------------------------------------------------------------

[[nodiscard]] std::string_view text_view(Datum datum);
[[nodiscard]] Datum text_datum(std::string_view text);
// Whether two texts are the same bytes. Neither is compressed or out of line.
[[nodiscard]] bool same_text(Datum a, Datum b) noexcept;

// A value of type text in memory of the caller: how much it takes, writing it there, and using it.
[[nodiscard]] std::size_t text_size(std::string_view text) noexcept;
void write_text(char *target, std::string_view text) noexcept;
[[nodiscard]] Datum text_at(const char *written) noexcept;

// The text in UTF-8. The same view when the database's encoding is UTF-8 already, or SQL_ASCII, which does not know what its
// bytes mean: there they are taken as they are.
[[nodiscard]] std::string_view to_utf8(std::string_view text);

// A value for the DETAIL of an error: cut to a readable length at a character boundary.
[[nodiscard]] std::string excerpt(std::string_view text);

// The shortest text that reads back as the same number.
[[nodiscard]] std::string number_text(double number);

// A copy of a text, jsonb or array that outlives the session, for rows that are returned.
[[nodiscard]] Datum kept_datum(Datum varlena);

// --- uuid ----------------------------------------------------------------------------------------------------------

[[nodiscard]] UuidBytes uuid_bytes(Datum datum) noexcept;
[[nodiscard]] Datum uuid_datum(const UuidBytes &bytes);
[[nodiscard]] std::string uuid_text(Datum datum);
void fill_random(std::uint8_t *bytes, std::size_t count);

// --- timestamptz, microseconds since the Unix epoch ---------------------------------------------------------------

[[nodiscard]] std::int64_t timestamp_us(Datum datum) noexcept;
[[nodiscard]] Datum timestamp_datum(std::int64_t unix_us) noexcept;

// The same for values of which the smallest and the largest stand for -infinity and infinity.
[[nodiscard]] std::int64_t instant_us(Datum datum) noexcept;
[[nodiscard]] Datum instant_datum(std::int64_t unix_us) noexcept;

// The length of an interval, with months of 30 days.
[[nodiscard]] std::int64_t interval_us(Datum datum) noexcept;

// --- arrays --------------------------------------------------------------------------------------------------------

// The number of elements, before anything is copied.
[[nodiscard]] std::size_t array_length(Datum array);
// NULL elements are absent.
[[nodiscard]] Vector<std::optional<UuidBytes>> uuid_array(Datum array);
[[nodiscard]] Vector<std::optional<std::string_view>> text_array(Datum array);
[[nodiscard]] Datum uuid_array_datum(const UuidBytes *ids, std::size_t count);

[[nodiscard]] Datum place_array_datum(const ItemPointerData *places, std::size_t count);
[[nodiscard]] Datum int8_array_datum(const std::int64_t *numbers, std::size_t count);

// --- jsonb ---------------------------------------------------------------------------------------------------------

enum class JsonKind { null, boolean, number, string, array, object };

// One JSON value. Containers are opened with the readers below.
struct JsonItem {
	JsonKind kind = JsonKind::null;
	bool boolean = false;
	std::string_view string;
	Numeric number = nullptr;
	JsonbContainer *container = nullptr;
	std::size_t container_bytes = 0;
};

// The value unpacked, and its bytes: equal bytes are equal values.
[[nodiscard]] Datum detoasted(Datum varlena);
[[nodiscard]] std::string_view bytes_of(Datum detoasted) noexcept;

[[nodiscard]] JsonItem json_root(Datum jsonb);
[[nodiscard]] std::size_t json_length(const JsonItem &container);

// A number as double; infinite when it is out of range.
[[nodiscard]] double json_double(const JsonItem &number);
// As text, for messages.
[[nodiscard]] std::string json_text(const JsonItem &item);

// Whether two jsonb values are stored alike.
[[nodiscard]] bool json_identical(Datum a, Datum b);
// An array of these containers.
[[nodiscard]] Datum json_array_datum(const JsonItem *items, std::size_t count);
// An array of `count` objects with the same keys and string values, the values of one object after the other.
[[nodiscard]] Datum json_objects_datum(
	const std::string_view *keys, std::size_t key_count, const std::string_view *values, std::size_t count);

// Walks the elements of an array or the fields of an object: `while (reader.next()) ...`.
class JsonReader {
public:
	explicit JsonReader(const JsonItem &container);
	[[nodiscard]] bool next();
	[[nodiscard]] std::string_view key() const noexcept { return key_; }
	[[nodiscard]] const JsonItem &value() const noexcept { return value_; }

private:
	JsonbIterator *iterator_ = nullptr;
	std::string_view key_;
	JsonItem value_;
};

} // namespace ratelimit::pg
