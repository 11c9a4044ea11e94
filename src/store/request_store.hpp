// Requests: granted calls of rl_reserve that carried a request_id.
#pragma once

#include <optional>
#include <string_view>

#include "core/request.hpp"
#include "core/uuid7.hpp"
#include "pg/memory.hpp"
#include "pg/postgres.hpp"

namespace ratelimit::store {

// The ids that one limit of the call was given.
struct GivenIds {
	std::optional<core::Uuid> reservation_id;
	std::optional<core::Uuid> lease_id;
};

// A remembered call: whether it asked for the same, and what it was given.
struct Remembered {
	bool same;
	std::size_t different_element; // first element that differs, when not the same
	pg::Vector<GivenIds> given;
};

// As committed, or as made by this transaction. Takes no lock.
[[nodiscard]] std::optional<Remembered> read_request(std::string_view request_id, core::View<core::Element> elements);

// Claims the id. False when somebody has it; waits for a transaction that is claiming it.
[[nodiscard]] bool claim_request(std::string_view request_id, core::View<core::Element> elements,
	const pg::Vector<GivenIds> &given, core::Instant at);

// Takes back a claim of this transaction.
void forget_request(std::string_view request_id);

} // namespace ratelimit::store
