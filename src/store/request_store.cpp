#include "store/request_store.hpp"

#include <algorithm>

#include "pg/call.hpp"
#include "pg/spi.hpp"
#include "pg/value.hpp"

namespace ratelimit::store {

namespace {

using pg::Access;
using pg::Parameters;
using pg::Rows;
using pg::Statement;

Statement read_statement{"SELECT scope_types, scope_keys, metrics, window_seconds, amounts, reservation_ids, lease_ids"
						 " FROM ratelimit.requests WHERE request_id {=} $1",
	{TEXTOID}};

Statement claim_statement{"INSERT INTO ratelimit.requests (request_id, created_at, kept_from, scope_types, scope_keys, metrics,"
						  " window_seconds, amounts, reservation_ids, lease_ids)"
						  " VALUES ($1, $2, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING",
	{TEXTOID, TIMESTAMPTZOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, INT4ARRAYOID, FLOAT8ARRAYOID, UUIDARRAYOID,
		UUIDARRAYOID}};

Statement forget_statement{"DELETE FROM ratelimit.requests WHERE request_id {=} $1", {TEXTOID}};

// The elements' texts, numbers and ids as arrays.
using Texts = pg::Vector<std::string_view>;

struct Columns {
	Texts scope_types;
	Texts scope_keys;
	Texts metrics;
	pg::Vector<Datum> window_seconds;
	pg::Vector<Datum> amounts;

	explicit Columns(core::View<core::Element> elements)
	{
		for (const core::Element &element : elements) {
			scope_types.push_back(element.scope_type);
			scope_keys.push_back(element.scope_key);
			metrics.push_back(element.metric);
			window_seconds.push_back(Int32GetDatum(element.window_seconds));
			amounts.push_back(Float8GetDatum(element.amount));
		}
	}
};

Datum text_array_datum(const Texts &texts)
{
	const std::string_view *const data = texts.data();
	const std::size_t count = texts.size();
	return pg::call([=] {
		auto *values = static_cast<Datum *>(palloc(sizeof(Datum) * (count + 1)));
		for (std::size_t i = 0; i < count; i++)
			values[i] =
				PointerGetDatum(cstring_to_text_with_len(data[i].data(), static_cast<int>(data[i].size())));
		return PointerGetDatum(construct_array(values, static_cast<int>(count), TEXTOID, -1, false, TYPALIGN_INT));
	});
}

Datum number_array_datum(pg::Vector<Datum> &numbers, Oid type, int length, char alignment)
{
	Datum *const data = numbers.data();
	const int count = static_cast<int>(numbers.size());
	return pg::call([=] { return PointerGetDatum(construct_array(data, count, type, length, true, alignment)); });
}

// An array of uuids in which absent ids are NULL.
Datum id_array_datum(const pg::Vector<GivenIds> &given, std::optional<core::Uuid> GivenIds::*member)
{
	pg::Vector<Datum> values(given.size());
	pg::Vector<bool> nulls(given.size());
	for (std::size_t i = 0; i < given.size(); i++) {
		const std::optional<core::Uuid> &id = given[i].*member;
		nulls[i] = !id;
		values[i] = id ? PointerGetDatum(id->data()) : Datum(0);
	}
	Datum *const data = values.data();
	bool *const is_null = nulls.data();
	int dimension = static_cast<int>(given.size());
	return pg::call([=]() mutable {
		if (dimension == 0)
			return PointerGetDatum(construct_empty_array(UUIDOID));
		int lower_bound = 1;
		return PointerGetDatum(
			construct_md_array(data, is_null, 1, &dimension, &lower_bound, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
	});
}

struct NumberArray {
	Datum *values;
	int count;
};

NumberArray number_array(Datum array, Oid type, int length, char alignment)
{
	return pg::call([=] {
		NumberArray numbers;
		bool *nulls;
		deconstruct_array(
			DatumGetArrayTypeP(array), type, length, true, alignment, &numbers.values, &nulls, &numbers.count);
		return numbers;
	});
}

// The first element that differs from what is stored; the number of elements when none does.
std::size_t first_difference(const Rows &rows, core::View<core::Element> elements)
{
	const auto scope_types = pg::text_array(rows.datum(0, 1));
	const auto scope_keys = pg::text_array(rows.datum(0, 2));
	const auto metrics = pg::text_array(rows.datum(0, 3));
	const NumberArray windows = number_array(rows.datum(0, 4), INT4OID, sizeof(int32), TYPALIGN_INT);
	const NumberArray amounts = number_array(rows.datum(0, 5), FLOAT8OID, sizeof(float8), TYPALIGN_DOUBLE);
	const std::size_t common = std::min(scope_types.size(), elements.size);
	for (std::size_t i = 0; i < common; i++) {
		const core::Element &element = elements[i];
		if (scope_types[i] != element.scope_type || scope_keys[i] != element.scope_key || metrics[i] != element.metric ||
			DatumGetInt32(windows.values[i]) != element.window_seconds ||
			DatumGetFloat8(amounts.values[i]) != element.amount)
			return i;
	}
	return scope_types.size() == elements.size ? elements.size : common;
}

} // namespace

std::optional<Remembered> read_request(std::string_view request_id, core::View<core::Element> elements)
{
	Parameters parameters;
	parameters.add(pg::text_datum(request_id));
	const Rows rows = read_statement.run(Access::read, parameters);
	if (rows.count() == 0)
		return std::nullopt;
	Remembered remembered;
	remembered.different_element = first_difference(rows, elements);
	const auto reservation_ids = pg::uuid_array(rows.datum(0, 6));
	const auto lease_ids = pg::uuid_array(rows.datum(0, 7));
	remembered.same = remembered.different_element == elements.size && reservation_ids.size() == elements.size;
	for (std::size_t i = 0; i < reservation_ids.size(); i++)
		remembered.given.push_back({reservation_ids[i], lease_ids[i]});
	return remembered;
}

bool claim_request(std::string_view request_id, core::View<core::Element> elements, const pg::Vector<GivenIds> &given,
	core::Instant at)
{
	Columns columns(elements);
	Parameters parameters;
	parameters.add(pg::text_datum(request_id))
		.add(pg::timestamp_datum(at.us))
		.add(text_array_datum(columns.scope_types))
		.add(text_array_datum(columns.scope_keys))
		.add(text_array_datum(columns.metrics))
		.add(number_array_datum(columns.window_seconds, INT4OID, sizeof(int32), TYPALIGN_INT))
		.add(number_array_datum(columns.amounts, FLOAT8OID, sizeof(float8), TYPALIGN_DOUBLE))
		.add(id_array_datum(given, &GivenIds::reservation_id))
		.add(id_array_datum(given, &GivenIds::lease_id));
	return claim_statement.run(Access::write, parameters).affected() == 1;
}

void forget_request(std::string_view request_id)
{
	Parameters parameters;
	parameters.add(pg::text_datum(request_id));
	(void)forget_statement.run(Access::write, parameters);
}

} // namespace ratelimit::store
