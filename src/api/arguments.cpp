#include "api/arguments.hpp"

#include <algorithm>
#include <cmath>

#include "core/limits.hpp"
#include "pg/error.hpp"

namespace ratelimit::api {

namespace {

using core::Element;
namespace limits = core::limits;

constexpr std::string_view own_scope_prefix = "ratelimit.";

constexpr std::string_view limit_keys_hint =
	"Known keys are scope_type, scope_key, metric, limit, amount, window_seconds, lease_ttl_seconds, attempt_id, "
	"scope_name, metadata and policy.";

bool is_blank(std::string_view name) noexcept { return name.find_first_not_of(" \t\n\v\f\r") == std::string_view::npos; }

std::string quoted(std::string_view value)
{
	std::string text = "The value is \"";
	text += pg::excerpt(value);
	text += "\".";
	return text;
}

std::string number_detail(double number) { return "The value is " + pg::number_text(number) + "."; }

// --- keys of a limit --------------------------------------------------------------------------------------------------

// A metric that the function cannot serve.
void check_metric(const Place &place, const Element &element, Mode mode)
{
	if (mode == Mode::consume && element.metric == core::concurrent_metric)
		reject(place, quoted(element.metric), "Concurrency is held and given back: use rl_reserve and rl_release.");
}

// Sets one key of a limit. `has_limit` tells whether the key "limit" was met.
void set_limit_key(Element &element, bool &has_limit, const Place &place, const pg::JsonItem &value)
{
	const bool null = value.kind == pg::JsonKind::null;
	if (place.name == "scope_type") {
		element.scope_type = check_name(place, json_string(place, value));
	} else if (place.name == "scope_key") {
		element.scope_key = check_name(place, json_string(place, value));
	} else if (place.name == "metric") {
		element.metric = check_name(place, json_string(place, value));
	} else if (place.name == "limit") {
		has_limit = true;
		if (!null)
			element.limit = check_amount(place, json_number(place, value));
	} else if (place.name == "amount") {
		if (!null)
			element.amount = check_amount(place, json_number(place, value));
	} else if (place.name == "window_seconds") {
		if (!null)
			element.window_seconds = json_seconds(place, value);
	} else if (place.name == "lease_ttl_seconds") {
		if (!null)
			element.lease_ttl_seconds = json_seconds(place, value);
	} else if (place.name == "attempt_id") {
		if (!null)
			element.attempt_id = check_name(place, json_string(place, value));
	} else if (!is_opaque_key(place.name)) {
		reject_key(place, limit_keys_hint);
	}
}

Element json_limit(const pg::JsonItem &item, std::string_view list, std::size_t ordinal, Mode mode)
{
	if (item.kind != pg::JsonKind::object)
		reject_element(list, ordinal, item, limit_keys_hint);
	Element element;
	bool has_limit = false;
	pg::JsonReader fields(item);
	while (fields.next())
		set_limit_key(element, has_limit, Place{fields.key(), list, ordinal}, fields.value());

	// A name that was given is not blank, so an empty one is missing.
	for (const auto &[name, value] : {std::pair{"scope_type", element.scope_type}, std::pair{"scope_key", element.scope_key},
			 std::pair{"metric", element.metric}})
		if (value.empty())
			reject(Place{name, list, ordinal}, "The key is missing.", "scope_type, scope_key, metric and limit are required.");
	if (!has_limit)
		reject(Place{"limit", list, ordinal}, "The key is missing.", "It must be present; JSON null means unlimited.");
	if (mode != Mode::check)
		check_own_scope_type(Place{"scope_type", list, ordinal}, element.scope_type);
	check_metric(Place{"metric", list, ordinal}, element, mode);
	return element;
}

} // namespace

// --- messages ------------------------------------------------------------------------------------------------------

std::string Place::text() const
{
	if (list.empty())
		return "argument \"" + std::string(name) + "\"";
	return "key \"" + std::string(name) + "\" in element " + std::to_string(ordinal) + " of argument \"" + std::string(list) +
	       "\"";
}

void reject(const Place &place, const std::string &detail, const std::string &hint)
{
	throw pg::SqlError{ERRCODE_INVALID_PARAMETER_VALUE, "invalid value for " + place.text(), detail, hint};
}

void reject_null(const Place &place)
{
	throw pg::SqlError{ERRCODE_NULL_VALUE_NOT_ALLOWED, place.text() + " must not be null", "The value is NULL.",
		"Give a value that is not NULL."};
}

void reject_length(std::string_view argument, std::size_t length)
{
	throw pg::SqlError{ERRCODE_PROGRAM_LIMIT_EXCEEDED, "too many elements in argument \"" + std::string(argument) + "\"",
		"It has " + std::to_string(length) + " elements.", "At most 1000 are accepted; use several calls."};
}

void reject_key(const Place &place, std::string_view known_keys_hint)
{
	throw pg::SqlError{ERRCODE_INVALID_PARAMETER_VALUE,
		"unknown key in element " + std::to_string(place.ordinal) + " of argument \"" + std::string(place.list) + "\"",
		"The key is \"" + pg::excerpt(place.name) + "\".", std::string(known_keys_hint)};
}

void reject_element(
	std::string_view argument, std::size_t ordinal, const pg::JsonItem &element, std::string_view known_keys_hint)
{
	throw pg::SqlError{ERRCODE_INVALID_PARAMETER_VALUE,
		"element " + std::to_string(ordinal) + " of argument \"" + std::string(argument) + "\" is not an object",
		json_detail(element), "Each element must be a JSON object. " + std::string(known_keys_hint)};
}

// --- values of JSON keys -------------------------------------------------------------------------------------------

std::string json_detail(const pg::JsonItem &item) { return "The value is " + pg::json_text(item) + "."; }

std::string_view json_string(const Place &place, const pg::JsonItem &item)
{
	if (item.kind == pg::JsonKind::null)
		reject_null(place);
	if (item.kind != pg::JsonKind::string)
		reject(place, json_detail(item), "It must be a JSON string.");
	return item.string;
}

double json_number(const Place &place, const pg::JsonItem &item)
{
	if (item.kind != pg::JsonKind::number)
		reject(place, json_detail(item), "It must be a JSON number.");
	return pg::json_double(item);
}

std::int32_t json_seconds(const Place &place, const pg::JsonItem &item)
{
	const double seconds = json_number(place, item);
	if (!(seconds >= limits::seconds_min && seconds <= limits::seconds_max) || seconds != std::floor(seconds))
		reject(place, json_detail(item), "It must be a whole number of seconds from 1 to 31622400.");
	return static_cast<std::int32_t>(seconds);
}

void check_is_list(const Place &place, const pg::JsonItem &item)
{
	if (item.kind == pg::JsonKind::null)
		reject_null(place);
	if (item.kind != pg::JsonKind::array)
		reject(place, json_detail(item), "It must be a JSON array of objects.");
	if (const std::size_t length = pg::json_length(item); length > limits::list_elements_max)
		reject_length(place.name, length);
}

bool is_opaque_key(std::string_view key) noexcept { return key == "scope_name" || key == "metadata" || key == "policy"; }

// --- plain values --------------------------------------------------------------------------------------------------

std::optional<std::string_view> optional_text(FunctionCallInfo fcinfo, int index)
{
	if (PG_ARGISNULL(index))
		return std::nullopt;
	return pg::text_view(PG_GETARG_DATUM(index));
}

Datum required_datum(FunctionCallInfo fcinfo, int index, std::string_view name)
{
	if (PG_ARGISNULL(index))
		reject_null(Place{name, {}, 0});
	return PG_GETARG_DATUM(index);
}

std::string_view required_text(FunctionCallInfo fcinfo, int index, std::string_view name)
{
	return pg::text_view(required_datum(fcinfo, index, name));
}

std::string_view check_name(const Place &place, std::string_view name)
{
	if (is_blank(name))
		reject(place, quoted(name), "It must not be empty or consist of white space only.");
	// Most names are so short that no encoding makes them longer than the bound.
	if (name.size() > limits::name_bytes_max / 4) {
		const std::size_t bytes = pg::to_utf8(name).size();
		if (bytes > limits::name_bytes_max)
			reject(place, "The value \"" + pg::excerpt(name) + "\" has " + std::to_string(bytes) + " bytes.",
				"At most 512 bytes of UTF-8 are accepted.");
	}
	return name;
}

std::optional<std::string_view> check_optional_name(const Place &place, std::optional<std::string_view> name)
{
	if (name)
		check_name(place, *name);
	return name;
}

void check_own_scope_type(const Place &place, std::string_view scope_type)
{
	if (scope_type.substr(0, own_scope_prefix.size()) == own_scope_prefix)
		reject(place, quoted(scope_type), "Scope types that begin with \"ratelimit.\" are reserved for the extension.");
}

double check_amount(const Place &place, double amount)
{
	if (!std::isfinite(amount) || amount < 0)
		reject(place, number_detail(amount), "It must be finite and not negative.");
	return amount;
}

std::int32_t check_seconds(const Place &place, std::int64_t seconds)
{
	if (seconds < limits::seconds_min || seconds > limits::seconds_max)
		reject(place, "The value is " + std::to_string(seconds) + ".", "It must be from 1 to 31622400 seconds.");
	return static_cast<std::int32_t>(seconds);
}

std::int32_t check_capacity(const Place &place, std::int32_t capacity)
{
	if (capacity < 0)
		reject(place, "The value is " + std::to_string(capacity) + ".", "It must not be negative.");
	return capacity;
}

std::optional<core::TaskMode> mode_argument(FunctionCallInfo fcinfo, int index)
{
	const std::optional<std::string_view> name = optional_text(fcinfo, index);
	if (!name)
		return std::nullopt;
	const std::optional<core::TaskMode> mode = core::task_mode(*name);
	if (!mode)
		reject(Place{"mode", {}, 0}, quoted(*name), "It must be \"sync\" or \"async\", or NULL.");
	return mode;
}

std::int32_t batch_argument(FunctionCallInfo fcinfo, int index, std::string_view name, std::int32_t default_value)
{
	if (PG_ARGISNULL(index))
		return default_value;
	const std::int32_t batch = PG_GETARG_INT32(index);
	if (batch < limits::batch_min || batch > limits::batch_max)
		reject(Place{name, {}, 0}, "The value is " + std::to_string(batch) + ".", "It must be from 1 to 10000.");
	return batch;
}

// --- limits --------------------------------------------------------------------------------------------------------

Element limit_argument(FunctionCallInfo fcinfo, Mode mode)
{
	const auto place = [](std::string_view name) { return Place{name, {}, 0}; };
	Element element;
	element.scope_type = check_name(place("scope_type"), required_text(fcinfo, 0, "scope_type"));
	element.scope_key = check_name(place("scope_key"), required_text(fcinfo, 1, "scope_key"));
	element.metric = check_name(place("metric"), required_text(fcinfo, 2, "metric"));
	if (!PG_ARGISNULL(3))
		element.limit = check_amount(place("limit_value"), PG_GETARG_FLOAT8(3));
	if (!PG_ARGISNULL(4))
		element.amount = check_amount(place("amount"), PG_GETARG_FLOAT8(4));
	if (!PG_ARGISNULL(5))
		element.window_seconds = check_seconds(place("window_seconds"), PG_GETARG_INT32(5));
	if (mode == Mode::reserve) {
		if (!PG_ARGISNULL(6))
			element.lease_ttl_seconds = check_seconds(place("lease_ttl_seconds"), PG_GETARG_INT32(6));
		element.attempt_id = check_optional_name(place("attempt_id"), optional_text(fcinfo, 8));
	}
	if (mode != Mode::check)
		check_own_scope_type(place("scope_type"), element.scope_type);
	check_metric(place("metric"), element, mode);
	return element;
}

Elements json_limits(const Place &place, const pg::JsonItem &root, std::string_view list, Mode mode)
{
	check_is_list(place, root);
	Elements elements;
	elements.reserve(pg::json_length(root));
	pg::JsonReader items(root);
	while (items.next())
		elements.push_back(json_limit(items.value(), list, elements.size() + 1, mode));
	return elements;
}

Elements limits_argument(FunctionCallInfo fcinfo, int index, Mode mode)
{
	constexpr std::string_view name = "limits";
	return json_limits(Place{name, {}, 0}, pg::json_root(required_datum(fcinfo, index, name)), name, mode);
}

// --- lists of ids and amounts --------------------------------------------------------------------------------------

pg::Vector<std::optional<core::Uuid>> ids_argument(FunctionCallInfo fcinfo, int index, std::string_view name)
{
	const Datum array = required_datum(fcinfo, index, name);
	const std::size_t length = pg::array_length(array);
	if (length > limits::list_elements_max)
		reject_length(name, length);
	return pg::uuid_array(array);
}

pg::Vector<core::Uuid> sorted_ids(FunctionCallInfo fcinfo, int index, std::string_view name, Presence presence)
{
	pg::Vector<core::Uuid> ids;
	if (presence == Presence::optional && PG_ARGISNULL(index))
		return ids;
	for (const std::optional<core::Uuid> &id : ids_argument(fcinfo, index, name))
		if (id)
			ids.push_back(*id);
	std::sort(ids.begin(), ids.end());
	ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
	return ids;
}

pg::Vector<std::string_view> names_argument(FunctionCallInfo fcinfo, int index, std::string_view name)
{
	const Datum array = required_datum(fcinfo, index, name);
	const std::size_t length = pg::array_length(array);
	if (length > limits::list_elements_max)
		reject_length(name, length);
	pg::Vector<std::string_view> names;
	for (const std::optional<std::string_view> &element : pg::text_array(array)) {
		if (!element)
			throw pg::SqlError{ERRCODE_NULL_VALUE_NOT_ALLOWED,
				"argument \"" + std::string(name) + "\" must not contain nulls",
				"Element " + std::to_string(names.size() + 1) + " is NULL.", "Leave it out, or give a value that is not NULL."};
		names.push_back(check_name(Place{name, {}, 0}, *element));
	}
	return names;
}

pg::Vector<ActualAmount> actual_argument(FunctionCallInfo fcinfo, int index)
{
	constexpr std::string_view name = "actual";
	pg::Vector<ActualAmount> amounts;
	if (PG_ARGISNULL(index))
		return amounts;
	const pg::JsonItem root = pg::json_root(PG_GETARG_DATUM(index));
	if (root.kind == pg::JsonKind::null)
		return amounts;
	if (root.kind != pg::JsonKind::object)
		reject(Place{name, {}, 0}, json_detail(root), "It must be a JSON object that maps metrics to amounts.");
	const std::size_t length = pg::json_length(root);
	if (length > limits::list_elements_max)
		reject_length(name, length);
	pg::JsonReader fields(root);
	while (fields.next()) {
		const pg::JsonItem &value = fields.value();
		if (value.kind == pg::JsonKind::null)
			continue;
		const std::string detail = "The metric is \"" + pg::excerpt(fields.key()) + "\", its value " + pg::json_text(value) + ".";
		if (value.kind != pg::JsonKind::number)
			reject(Place{name, {}, 0}, detail, "The amount of each metric must be a JSON number.");
		const double amount = pg::json_double(value);
		if (!std::isfinite(amount))
			reject(Place{name, {}, 0}, detail, "The amount of each metric must be in the range of double precision.");
		amounts.push_back({fields.key(), amount});
	}
	return amounts;
}

} // namespace ratelimit::api
