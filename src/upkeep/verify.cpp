#include "upkeep/verify.hpp"

#include "pg/clock.hpp"
#include "pg/entry.hpp"
#include "pg/value.hpp"

namespace ratelimit::upkeep {

namespace {

using store::Aggregates;

core::Instant read_clock() noexcept { return {pg::decision_clock_us()}; }

void add_findings(pg::Vector<Inconsistency> &found, Aggregates aggregates, const store::AggregateKey &key,
	const core::Findings &findings)
{
	if (findings.empty())
		return;
	const Datum text = store::key_text(aggregates, key);
	for (const core::Finding &finding : findings)
		found.push_back(
			{core::object_of(finding.problem), text, core::text_of(finding.problem), finding.expected, finding.found});
}

core::Findings findings_of(const store::ScopeDifference &scope) noexcept
{
	if (scope.exists)
		return core::verify_scope(scope.facts);
	core::Findings findings;
	findings.add({core::Problem::scope_missing, scope.facts.leased, std::nullopt});
	return findings;
}

} // namespace

pg::Vector<Inconsistency> verify()
{
	pg::Vector<Inconsistency> found;
	pg::ReadSnapshot snapshot;
	const core::Instant now = read_clock();
	const store::KeyRange all{};
	for (const auto &counter : store::read_counter_differences(snapshot, all))
		add_findings(found, Aggregates::counters, counter.key, core::verify_counter(counter.facts));
	for (const auto &open : store::read_uncounted(snapshot, all))
		add_findings(found, Aggregates::counters, open.key, core::verify_uncounted(open.facts, now));
	for (const auto &scope : store::read_scope_differences(snapshot, all))
		add_findings(found, Aggregates::scopes, scope.key, findings_of(scope));
	for (const auto &[task_id, finding] : store::read_task_differences(snapshot))
		found.push_back({core::object_of(finding.problem), pg::text_datum(task_id), core::text_of(finding.problem),
			finding.expected, finding.found});
	snapshot.finish();
	return found;
}

} // namespace ratelimit::upkeep
