#include "api/bucket_rules.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>

#include "api/arguments.hpp"
#include "pg/error.hpp"
#include "pg/memory.hpp"
#include "pg/parse_cache.hpp"
#include "pg/value.hpp"

namespace ratelimit::api {

namespace {

namespace limits = core::limits;

constexpr std::string_view list_name = "rules";
constexpr std::string_view keys_hint =
	"Known keys are rule_id, requests_per_window, window_ms, max_concurrency and adaptive_max_rps.";

// One rule as read, and as the block below keeps it.
struct ReadRule {
	core::BucketRule rule;
	core::BucketConfig config;
};

// --- reading jsonb -------------------------------------------------------------------------------------------------

std::int64_t whole_number(const Place &place, const pg::JsonItem &item, std::string_view accepted)
{
	constexpr double int64_end = 9223372036854775808.0;
	const double number = json_number(place, item);
	if (number != std::floor(number) || !(number >= -int64_end && number < int64_end))
		reject(place, json_detail(item), std::string(accepted));
	return static_cast<std::int64_t>(number);
}

constexpr std::string_view window_accepted = "It must be a whole number of milliseconds, at least 1.";
constexpr std::string_view concurrency_accepted = "It must be a whole number, at least 0, or null for no bound.";

void set_key(core::BucketRule &rule, const Place &place, const pg::JsonItem &value)
{
	const bool null = value.kind == pg::JsonKind::null;
	if (place.name == "rule_id") {
		rule.rule_id = check_name(place, json_string(place, value));
	} else if (place.name == "requests_per_window") {
		if (null)
			reject_null(place);
		rule.requests_per_window = json_number(place, value);
	} else if (place.name == "window_ms") {
		if (null)
			reject_null(place);
		rule.window_ms = whole_number(place, value, window_accepted);
	} else if (place.name == "max_concurrency") {
		if (!null)
			rule.max_concurrency = whole_number(place, value, concurrency_accepted);
	} else if (place.name == "adaptive_max_rps") {
		rule.adaptive_max_rps_given = true;
		if (!null)
			rule.adaptive_max_rps = json_number(place, value);
	} else {
		throw pg::SqlError{ERRCODE_INVALID_PARAMETER_VALUE,
			"unknown key in element " + std::to_string(place.ordinal) + " of argument \"rules\"",
			"The key is \"" + pg::excerpt(place.name) + "\".", std::string(keys_hint)};
	}
}

[[noreturn]] void reject_number(std::string_view name, std::size_t ordinal, double value, const std::string &accepted)
{
	reject(Place{name, list_name, ordinal}, "The value is " + pg::number_text(value) + ".", accepted);
}

void check_problem(core::BucketRuleProblem problem, const core::BucketRule &rule, std::size_t ordinal)
{
	using Problem = core::BucketRuleProblem;
	switch (problem) {
	case Problem::none:
		return;
	case Problem::requests_per_window_out_of_range:
		reject_number("requests_per_window", ordinal, rule.requests_per_window, "It must be greater than 0.");
	case Problem::window_ms_out_of_range:
		reject(Place{"window_ms", list_name, ordinal}, "The value is " + std::to_string(rule.window_ms) + ".",
			std::string(window_accepted));
	case Problem::max_concurrency_out_of_range:
		reject(Place{"max_concurrency", list_name, ordinal}, "The value is " + std::to_string(*rule.max_concurrency) + ".",
			std::string(concurrency_accepted));
	case Problem::adaptive_max_rps_out_of_range:
		reject_number("adaptive_max_rps", ordinal, *rule.adaptive_max_rps,
			"It must be greater than 0, or null for no ceiling of its own.");
	case Problem::capacity_not_finite:
		reject_number("requests_per_window", ordinal, rule.requests_per_window, "It must be in the range of double precision.");
	case Problem::base_not_finite:
		reject_number("requests_per_window", ordinal, rule.requests_per_window,
			"requests_per_window / window_ms * 1000 must be in the range of double precision.");
	case Problem::max_not_finite:
		if (rule.adaptive_max_rps)
			reject_number("adaptive_max_rps", ordinal, *rule.adaptive_max_rps, "It must be in the range of double precision.");
		reject_number("requests_per_window", ordinal, rule.requests_per_window,
			"The ceiling, 25 times the base rate, must be in the range of double precision.");
	}
}

ReadRule read_rule(const pg::JsonItem &item, std::size_t ordinal)
{
	if (item.kind != pg::JsonKind::object)
		throw pg::SqlError{ERRCODE_INVALID_PARAMETER_VALUE,
			"element " + std::to_string(ordinal) + " of argument \"rules\" is not an object", json_detail(item),
			"Each element must be a JSON object. " + std::string(keys_hint)};
	ReadRule read;
	bool has_requests = false;
	bool has_window = false;
	pg::JsonReader fields(item);
	while (fields.next()) {
		set_key(read.rule, Place{fields.key(), list_name, ordinal}, fields.value());
		has_requests = has_requests || fields.key() == "requests_per_window";
		has_window = has_window || fields.key() == "window_ms";
	}
	// An id that was given is not blank, so an empty one is missing.
	for (const auto &[name, given] : {std::pair{"rule_id", !read.rule.rule_id.empty()},
			 std::pair{"requests_per_window", has_requests}, std::pair{"window_ms", has_window}})
		if (!given)
			reject(Place{name, list_name, ordinal}, "The key is missing.",
				"rule_id, requests_per_window and window_ms are required.");
	const core::BucketConfiguration known = core::configuration_of(read.rule);
	check_problem(known.problem, read.rule, ordinal);
	read.config = known.config;
	return read;
}

using ReadRules = pg::SmallVector<ReadRule, 4>;

ReadRules read_rules(Datum argument)
{
	const pg::JsonItem root = pg::json_root(argument);
	if (root.kind == pg::JsonKind::null)
		reject_null(Place{list_name, {}, 0});
	if (root.kind != pg::JsonKind::array)
		reject(Place{list_name, {}, 0}, json_detail(root), "It must be a JSON array of objects.");
	const std::size_t length = pg::json_length(root);
	if (length > limits::bucket_rules_max)
		throw pg::SqlError{ERRCODE_PROGRAM_LIMIT_EXCEEDED, "too many elements in argument \"rules\"",
			"It has " + std::to_string(length) + " elements.", "At most 16 rules are accepted."};
	ReadRules rules;
	pg::JsonReader items(root);
	while (items.next())
		rules.push_back(read_rule(items.value(), rules.size() + 1));
	std::sort(rules.begin(), rules.end(),
		[](const ReadRule &a, const ReadRule &b) { return a.rule.rule_id < b.rule.rule_id; });
	for (std::size_t i = 1; i < rules.size(); i++)
		if (rules[i].rule.rule_id == rules[i - 1].rule.rule_id)
			reject(Place{list_name, {}, 0}, "The rule_id \"" + pg::excerpt(rules[i].rule.rule_id) + "\" stands there twice.",
				"Give each rule of a call an id of its own.");
	return rules;
}

// --- the block: rules as the cache keeps them ----------------------------------------------------------------------

// One piece of memory that can be copied: the header, the rules, their ids as values of type text.
struct KeptRule {
	core::BucketConfig config;
	std::uint32_t rule_id_at; // from the beginning of the block
};

struct Kept {
	std::uint32_t count;
	bool bounded;
	std::int64_t max_concurrency;
};

constexpr std::size_t aligned(std::size_t size) noexcept { return (size + 7) & ~std::size_t{7}; }

std::size_t size_of(const ReadRules &rules) noexcept
{
	std::size_t size = aligned(sizeof(Kept)) + rules.size() * sizeof(KeptRule);
	for (const ReadRule &read : rules)
		size += aligned(pg::text_size(read.rule.rule_id));
	return size;
}

void fill(char *block, const ReadRules &rules) noexcept
{
	Kept kept{static_cast<std::uint32_t>(rules.size()), false, 0};
	std::size_t rule_at = aligned(sizeof(Kept));
	std::size_t text_at = rule_at + rules.size() * sizeof(KeptRule);
	for (const ReadRule &read : rules) {
		const KeptRule rule{read.config, static_cast<std::uint32_t>(text_at)};
		std::memcpy(block + rule_at, &rule, sizeof(rule));
		pg::write_text(block + text_at, read.rule.rule_id);
		rule_at += sizeof(KeptRule);
		text_at += aligned(pg::text_size(read.rule.rule_id));
		if (!read.rule.max_concurrency)
			continue;
		kept.max_concurrency =
			kept.bounded ? std::min(kept.max_concurrency, *read.rule.max_concurrency) : *read.rule.max_concurrency;
		kept.bounded = true;
	}
	std::memcpy(block, &kept, sizeof(kept));
}

BucketRules rules_in(const char *block) noexcept
{
	Kept kept;
	std::memcpy(&kept, block, sizeof(kept));
	BucketRules found;
	found.count = kept.count;
	if (kept.bounded)
		found.max_concurrency = kept.max_concurrency;
	for (std::size_t i = 0; i < found.count; i++) {
		KeptRule rule;
		std::memcpy(&rule, block + aligned(sizeof(Kept)) + i * sizeof(KeptRule), sizeof(rule));
		found.rules[i] = {pg::text_at(block + rule.rule_id_at), rule.config};
	}
	return found;
}

pg::ParseCache cache{"ratelimit bucket rules"};

} // namespace

BucketRules bucket_rules_argument(FunctionCallInfo fcinfo, int index)
{
	const Datum argument = pg::detoasted(required_datum(fcinfo, index, list_name));
	const std::string_view bytes = pg::bytes_of(argument);
	// The block is copied into the call's memory: what the call runs may call us again and drop it from the cache.
	if (const char *const known = cache.find(bytes))
		return rules_in(known);
	const ReadRules rules = read_rules(argument);
	const std::size_t size = size_of(rules);
	char *const block = pg::ContextAllocator<char>().allocate(size);
	fill(block, rules);
	cache.keep(bytes, {block, size});
	return rules_in(block);
}

} // namespace ratelimit::api
