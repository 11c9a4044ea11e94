#include "api/candidates.hpp"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "core/route.hpp"
#include "pg/value.hpp"

namespace ratelimit::api {

namespace {

constexpr std::string_view candidate_keys_hint = "Known keys are candidate and limits; both are required.";

// The limits of a candidate that count for the choice; the others are checked as well, and left out.
Elements route_limits(const Place &place, const pg::JsonItem &value)
{
	const std::string path = std::string(place.list) + "[" + std::to_string(place.ordinal) + "].limits";
	Elements limits = json_limits(place, value, path, Mode::check);
	limits.erase(std::remove_if(limits.begin(), limits.end(),
					 [](const core::Element &element) { return !core::counts_for_route(element.metric); }),
		limits.end());
	return limits;
}

Candidate json_candidate(const pg::JsonItem &item, std::string_view list, std::size_t ordinal)
{
	if (item.kind != pg::JsonKind::object)
		reject_element(list, ordinal, item, candidate_keys_hint);
	Candidate candidate;
	bool has_limits = false;
	pg::JsonReader fields(item);
	while (fields.next()) {
		const Place place{fields.key(), list, ordinal};
		if (place.name == "candidate") {
			candidate.name = check_name(place, json_string(place, fields.value()));
		} else if (place.name == "limits") {
			candidate.limits = route_limits(place, fields.value());
			has_limits = true;
		} else {
			reject_key(place, candidate_keys_hint);
		}
	}
	if (candidate.name.empty())
		reject(Place{"candidate", list, ordinal}, "The key is missing.", std::string(candidate_keys_hint));
	if (!has_limits)
		reject(Place{"limits", list, ordinal}, "The key is missing.", std::string(candidate_keys_hint));
	return candidate;
}

} // namespace

Candidates candidates_argument(FunctionCallInfo fcinfo, int index)
{
	constexpr std::string_view name = "candidates";
	const pg::JsonItem root = pg::json_root(required_datum(fcinfo, index, name));
	check_is_list(Place{name, {}, 0}, root);
	Candidates candidates;
	candidates.reserve(pg::json_length(root));
	std::unordered_set<std::string_view> names;
	pg::JsonReader items(root);
	while (items.next()) {
		const std::size_t ordinal = candidates.size() + 1;
		candidates.push_back(json_candidate(items.value(), name, ordinal));
		if (!names.insert(candidates.back().name).second)
			reject(Place{"candidate", name, ordinal}, "The value is \"" + pg::excerpt(candidates.back().name) + "\".",
				"Each candidate may stand in the list once.");
	}
	return candidates;
}

} // namespace ratelimit::api
