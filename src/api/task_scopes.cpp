#include "api/task_scopes.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "api/arguments.hpp"
#include "core/limits.hpp"
#include "pg/error.hpp"

namespace ratelimit::api {

namespace {

namespace limits = core::limits;

constexpr std::string_view argument = "scopes";
constexpr std::string_view worker_capacity = "worker_capacity";
constexpr std::string_view known_keys =
	"Known keys are scope_type, scope_key, limit, limit_from, amount, lease_ttl_seconds, queue_limit, max_wait_seconds, "
	"fifo, scope_name, metadata and policy.";

struct Parsed {
	TaskScope scope;
	bool has_limit = false;
};

std::int32_t queue_limit(const Place &place, const pg::JsonItem &item)
{
	const double number = json_number(place, item);
	if (!(number >= 0 && number <= limits::queue_limit_max) || number != std::floor(number))
		reject(place, json_detail(item), "It must be a whole number from 0 to 2147483647, or null for no bound.");
	return static_cast<std::int32_t>(number);
}

// Keys of which null means the default.
void set_optional_key(Parsed &parsed, const Place &place, const pg::JsonItem &value)
{
	core::Demand &demand = parsed.scope.demand;
	if (place.name == "amount") {
		demand.amount = check_amount(place, json_number(place, value));
		if (demand.amount <= 0)
			reject(place, json_detail(value), "It must be more than 0.");
	} else if (place.name == "lease_ttl_seconds") {
		demand.lease_ttl_seconds = json_seconds(place, value);
	} else if (place.name == "max_wait_seconds") {
		demand.max_wait_seconds = json_seconds(place, value);
	} else if (place.name == "fifo") {
		if (value.kind != pg::JsonKind::boolean)
			reject(place, json_detail(value), "It must be true or false.");
		demand.fifo = value.boolean;
	} else {
		if (json_string(place, value) != worker_capacity)
			reject(place, json_detail(value), "It must be \"worker_capacity\".");
		demand.from_workers = true;
	}
}

void set_key(Parsed &parsed, const Place &place, const pg::JsonItem &value)
{
	const bool null = value.kind == pg::JsonKind::null;
	if (place.name == "scope_type") {
		parsed.scope.scope_type = check_name(place, json_string(place, value));
	} else if (place.name == "scope_key") {
		parsed.scope.scope_key = check_name(place, json_string(place, value));
	} else if (place.name == "limit") {
		parsed.has_limit = true;
		if (!null)
			parsed.scope.demand.limit = check_amount(place, json_number(place, value));
	} else if (place.name == "queue_limit") {
		parsed.scope.demand.queue_limit = null ? std::nullopt : std::optional(queue_limit(place, value));
	} else if (place.name == "amount" || place.name == "lease_ttl_seconds" || place.name == "max_wait_seconds" ||
			   place.name == "fifo" || place.name == "limit_from") {
		if (!null)
			set_optional_key(parsed, place, value);
	} else if (!is_opaque_key(place.name)) {
		reject_key(place, known_keys);
	}
}

TaskScope parse_scope(const pg::JsonItem &item, std::size_t ordinal)
{
	if (item.kind != pg::JsonKind::object)
		reject_element(argument, ordinal, item, known_keys);
	Parsed parsed;
	pg::JsonReader fields(item);
	while (fields.next())
		set_key(parsed, Place{fields.key(), argument, ordinal}, fields.value());
	for (const auto &[name, value] :
		{std::pair{"scope_type", parsed.scope.scope_type}, std::pair{"scope_key", parsed.scope.scope_key}})
		if (value.empty())
			reject(Place{name, argument, ordinal}, "The key is missing.", "scope_type, scope_key and limit are required.");
	if (!parsed.has_limit && !parsed.scope.demand.from_workers)
		reject(Place{"limit", argument, ordinal}, "The key is missing.",
			"It must be present unless limit_from is; JSON null means not limited.");
	check_own_scope_type(Place{"scope_type", argument, ordinal}, parsed.scope.scope_type);
	return parsed.scope;
}

bool same_name(const TaskScope &a, const TaskScope &b) noexcept
{
	return a.scope_type == b.scope_type && a.scope_key == b.scope_key;
}

bool name_before(const TaskScope *a, const TaskScope *b) noexcept
{
	return std::tie(a->scope_type, a->scope_key) < std::tie(b->scope_type, b->scope_key);
}

using Names = pg::SmallVector<const TaskScope *, 4>;

Names sorted_names(const ScopeList &list)
{
	Names names;
	for (const TaskScope &scope : list)
		names.push_back(&scope);
	std::sort(names.begin(), names.end(), name_before);
	return names;
}

// Who asks for nothing is registered all the same, in a scope of ours without a limit: the dispatcher finds waiting tasks by
// their scopes.
constexpr std::string_view unscoped_type = "ratelimit.queue";
constexpr std::string_view unscoped_key = "unscoped";

TaskScopes unscoped(Datum json)
{
	TaskScope scope{unscoped_type, unscoped_key, {}};
	scope.demand.queue_limit = 0;
	scope.demand.fifo = false;
	TaskScopes scopes;
	scopes.list.push_back(scope);
	scopes.json = json;
	return scopes;
}

TaskScopes parse_scopes(Datum json)
{
	const pg::JsonItem root = pg::json_root(json);
	if (root.kind == pg::JsonKind::null)
		reject_null(Place{argument, {}, 0});
	if (root.kind != pg::JsonKind::array)
		reject(Place{argument, {}, 0}, json_detail(root), "It must be a JSON array of objects.");
	const std::size_t length = pg::json_length(root);
	if (length > limits::list_elements_max)
		reject_length(argument, length);
	if (length == 0)
		return unscoped(json);
	ScopeList all;
	pg::SmallVector<pg::JsonItem, 4> items;
	pg::JsonReader elements(root);
	while (elements.next()) {
		all.push_back(parse_scope(elements.value(), all.size() + 1));
		items.push_back(elements.value());
	}

	// Of several with one name the first counts.
	Names names = sorted_names(all);
	const auto last = std::unique(names.begin(), names.end(), [](const TaskScope *a, const TaskScope *b) { return same_name(*a, *b); });
	if (last == names.end())
		return {std::move(all), json};
	const auto is_first = [&](const TaskScope &scope) {
		return std::none_of(static_cast<const TaskScope *>(all.data()), &scope, [&](const TaskScope &earlier) { return same_name(earlier, scope); });
	};
	TaskScopes scopes;
	pg::SmallVector<pg::JsonItem, 4> kept;
	for (std::size_t i = 0; i < all.size(); i++) {
		if (!is_first(all[i]))
			continue;
		scopes.list.push_back(all[i]);
		kept.push_back(items[i]);
	}
	scopes.json = pg::json_array_datum(kept.data(), kept.size());
	return scopes;
}

} // namespace

TaskScopes scopes_argument(FunctionCallInfo fcinfo, int index)
{
	return parse_scopes(required_datum(fcinfo, index, argument));
}

TaskScopes stored_scopes(Datum jsonb) { return parse_scopes(jsonb); }

pg::SmallVector<core::Demand, 4> demands_of(const ScopeList &list)
{
	pg::SmallVector<core::Demand, 4> demands;
	for (const TaskScope &scope : list)
		demands.push_back(scope.demand);
	return demands;
}

bool is_unscoped(const ScopeList &list) noexcept { return list.size() == 1 && list[0].scope_type == unscoped_type; }

bool same_scopes(const ScopeList &a, const ScopeList &b)
{
	if (a.size() != b.size())
		return false;
	const Names left = sorted_names(a);
	const Names right = sorted_names(b);
	return std::equal(left.begin(), left.end(), right.begin(),
		[](const TaskScope *x, const TaskScope *y) { return same_name(*x, *y); });
}

} // namespace ratelimit::api
