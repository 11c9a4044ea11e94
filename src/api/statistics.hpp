// Counts decisions for the view `ratelimit.statistics`: what each limit or scope of a call came to.
#pragma once

#include "api/admission.hpp"
#include "api/queue_book.hpp"
#include "api/rows.hpp"
#include "core/request.hpp"
#include "pg/statistics.hpp"

namespace ratelimit::api {

// A granted call counts for each of its limits, a denied one for those that deny.
inline void count_outcome(
	pg::statistics::Source source, const core::Element &element, bool allowed, const Outcome &outcome) noexcept
{
	if (allowed || !outcome.verdict.passes())
		pg::statistics::add(source, element.scope_type, element.metric,
			allowed ? pg::statistics::allowed : pg::statistics::denied);
}

// An admission counts for each of its scopes, a refusal for the scope that refuses; a task that goes on waiting for none.
void count_admission(pg::statistics::Source source, const Admission &admission, const ScopeList &scopes) noexcept;

} // namespace ratelimit::api
