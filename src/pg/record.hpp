// Rows of the extension's named types as values, and JSON made of them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "pg/entry.hpp"
#include "pg/memory.hpp"
#include "pg/postgres.hpp"

namespace ratelimit::pg {

// The elements of an array of any type; NULL ones are absent.
[[nodiscard]] Vector<std::optional<Datum>> array_elements(Datum array);

// The columns of a row.
void read_record(Datum record, Datum *values, bool *nulls, std::size_t count);

template <std::size_t count>
[[nodiscard]] Columns<count> columns_of(Datum record)
{
	Columns<count> columns;
	read_record(record, columns.values, columns.nulls, count);
	return columns;
}

// A row of a type in schema `ratelimit` as a JSON object, with the names of its columns in their order.
[[nodiscard]] std::string record_json(const char *type_name, Datum *values, bool *nulls, std::size_t count);

template <std::size_t count>
[[nodiscard]] std::string record_json(const char *type_name, Columns<count> &row)
{
	return record_json(type_name, row.values, row.nulls, count);
}

// A jsonb object of strings.
struct JsonField {
	std::string_view key;
	std::string_view value;
};
[[nodiscard]] Datum json_object_datum(const JsonField *fields, std::size_t count);

} // namespace ratelimit::pg
