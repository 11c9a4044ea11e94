// Arguments of the SQL functions: every check, and every message about bad input.
//
// A bad argument is 22023 unless a better code exists; the message names the argument, the detail gives the value, the
// hint says what is accepted. A NULL where there is no default is 22004.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "core/queue.hpp"
#include "core/request.hpp"
#include "core/uuid7.hpp"
#include "pg/memory.hpp"
#include "pg/postgres.hpp"
#include "pg/value.hpp"

namespace ratelimit::api {

// What a value is, for messages: an argument, or a key of an element of a list.
struct Place {
	std::string_view name;
	std::string_view list;    // the argument that holds the list; empty for a plain argument
	std::size_t ordinal = 0;  // 1-based place in the list

	[[nodiscard]] std::string text() const;
};

[[noreturn]] void reject(const Place &place, const std::string &detail, const std::string &hint);
[[noreturn]] void reject_null(const Place &place);
[[noreturn]] void reject_length(std::string_view argument, std::size_t length);
// A key of a list's element that nobody knows, and an element that is no object; the hint lists the known keys.
[[noreturn]] void reject_key(const Place &place, std::string_view known_keys_hint);
[[noreturn]] void reject_element(
	std::string_view argument, std::size_t ordinal, const pg::JsonItem &element, std::string_view known_keys_hint);

// --- values of JSON keys -------------------------------------------------------------------------------------------

[[nodiscard]] std::string json_detail(const pg::JsonItem &item);
[[nodiscard]] std::string_view json_string(const Place &place, const pg::JsonItem &item);
[[nodiscard]] double json_number(const Place &place, const pg::JsonItem &item);
[[nodiscard]] std::int32_t json_seconds(const Place &place, const pg::JsonItem &item);
// A list of objects that is not too long.
void check_is_list(const Place &place, const pg::JsonItem &item);
// What callers may add to an element for their own use.
[[nodiscard]] bool is_opaque_key(std::string_view key) noexcept;

// --- plain values --------------------------------------------------------------------------------------------------

[[nodiscard]] std::optional<std::string_view> optional_text(FunctionCallInfo fcinfo, int index);
[[nodiscard]] std::string_view required_text(FunctionCallInfo fcinfo, int index, std::string_view name);
[[nodiscard]] Datum required_datum(FunctionCallInfo fcinfo, int index, std::string_view name);

// A name or identifier: not blank, at most 512 bytes of UTF-8.
std::string_view check_name(const Place &place, std::string_view name);
std::optional<std::string_view> check_optional_name(const Place &place, std::optional<std::string_view> name);
// A scope type that a caller may write to: not one of ours.
void check_own_scope_type(const Place &place, std::string_view scope_type);
double check_amount(const Place &place, double amount);
std::int32_t check_seconds(const Place &place, std::int64_t seconds);
std::int32_t check_capacity(const Place &place, std::int32_t capacity);

// `sync` or `async`; absent when NULL.
[[nodiscard]] std::optional<core::TaskMode> mode_argument(FunctionCallInfo fcinfo, int index);
// A bound on how much one call does, 1 to 10,000; NULL is the default.
[[nodiscard]] std::int32_t batch_argument(
	FunctionCallInfo fcinfo, int index, std::string_view name, std::int32_t default_value);

// --- limits --------------------------------------------------------------------------------------------------------

enum class Mode { check, consume, reserve };

using Elements = pg::SmallVector<core::Element, 4>;

// The arguments (scope_type, scope_key, metric, limit_value, amount, window_seconds) and, for reserve,
// (lease_ttl_seconds, task_id, attempt_id, request_id).
[[nodiscard]] core::Element limit_argument(FunctionCallInfo fcinfo, Mode mode);

// A list of limits as jsonb.
[[nodiscard]] Elements limits_argument(FunctionCallInfo fcinfo, int index, Mode mode);

// The same out of another value. `place` is the list itself, `list` what messages about its elements call it.
[[nodiscard]] Elements json_limits(const Place &place, const pg::JsonItem &root, std::string_view list, Mode mode);

// --- lists of ids and amounts --------------------------------------------------------------------------------------

enum class Presence { required, optional };

// The ids of an array, sorted and without repetition. NULL elements are unknown ids and left out; an optional argument
// that is NULL is its default, the empty list.
[[nodiscard]] pg::Vector<core::Uuid> sorted_ids(
	FunctionCallInfo fcinfo, int index, std::string_view name, Presence presence);
// As given, with absent elements for NULL.
[[nodiscard]] pg::Vector<std::optional<core::Uuid>> ids_argument(FunctionCallInfo fcinfo, int index, std::string_view name);

// The texts of an array that is required and has no NULL element, each a name.
[[nodiscard]] pg::Vector<std::string_view> names_argument(FunctionCallInfo fcinfo, int index, std::string_view name);

// What was really spent, by metric.
struct ActualAmount {
	std::string_view metric;
	double amount;
};
[[nodiscard]] pg::Vector<ActualAmount> actual_argument(FunctionCallInfo fcinfo, int index);

} // namespace ratelimit::api
