// Reservations: amounts promised in a window, until they are settled and, for `ratelimit.retention`, after.
#pragma once

#include <optional>
#include <string_view>

#include "core/units.hpp"
#include "core/uuid7.hpp"
#include "pg/memory.hpp"
#include "pg/postgres.hpp"
#include "store/window_store.hpp"

namespace ratelimit::store {

struct NewReservation {
	core::Uuid id;
	core::Instant created_at;
	core::Instant window_start;
	core::Instant reset_at;
	double amount;
	double limit;
	std::optional<std::string_view> task_id;
	std::optional<std::string_view> attempt_id;
};

void insert_reservation(const CounterKey &key, const NewReservation &reservation);

// A reservation that is still reserved, as committed or changed by this transaction. Views live until the session ends.
struct OpenReservation {
	core::Uuid id;
	std::string_view scope_type;
	std::string_view scope_key;
	std::string_view metric;
	std::int32_t window_seconds;
	core::Instant window_start;
	double amount;
};

// Those of the ids that are still reserved, in no particular order. Takes no lock.
[[nodiscard]] pg::Vector<OpenReservation> read_open_reservations(Datum reservation_ids);

// The same for those that carry a task's id.
[[nodiscard]] pg::Vector<OpenReservation> read_open_reservations_of_task(std::string_view task_id);

// How a reservation ends. `actual` is absent for a release.
struct Settlement {
	std::optional<double> actual;
	std::optional<std::string_view> reason;
	core::Instant at;
	bool keep; // false deletes the row at once
};

// False when somebody else has settled it meanwhile. Locks the row.
[[nodiscard]] bool settle_reservation(const core::Uuid &id, const Settlement &settlement);

// As committed, or as made by this transaction; whatever its status. Takes no lock.
[[nodiscard]] bool reservation_exists(const core::Uuid &id);

// Locks one reservation and sets its attempt; false when it is unknown.
[[nodiscard]] bool attach_reservation(const core::Uuid &id, Datum attempt_id);

} // namespace ratelimit::store
