#include "pg/value.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

#include "pg/call.hpp"
#include "pg/clock.hpp"

namespace ratelimit::pg {

// --- text ----------------------------------------------------------------------------------------------------------

std::string_view text_view(Datum datum)
{
	const text *const value = call([=] { return DatumGetTextPP(datum); });
	return {VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value)};
}

Datum text_datum(std::string_view text)
{
	return call([=] { return PointerGetDatum(cstring_to_text_with_len(text.data(), static_cast<int>(text.size()))); });
}

std::size_t text_size(std::string_view text) noexcept { return VARHDRSZ + text.size(); }

void write_text(char *target, std::string_view text) noexcept
{
	SET_VARSIZE(target, text_size(text));
	std::memcpy(VARDATA(target), text.data(), text.size());
}

Datum text_at(const char *written) noexcept { return PointerGetDatum(written); }

bool same_text(Datum a, Datum b) noexcept
{
	const auto *const left = reinterpret_cast<const text *>(DatumGetPointer(a));
	const auto *const right = reinterpret_cast<const text *>(DatumGetPointer(b));
	return VARSIZE_ANY_EXHDR(left) == VARSIZE_ANY_EXHDR(right) &&
		   std::memcmp(VARDATA_ANY(left), VARDATA_ANY(right), VARSIZE_ANY_EXHDR(left)) == 0;
}

std::string_view to_utf8(std::string_view text)
{
	if (GetDatabaseEncoding() == PG_UTF8 || GetDatabaseEncoding() == PG_SQL_ASCII || text.empty())
		return text;
	struct Converted {
		const char *data;
		int length;
	};
	const Converted converted = call([=] {
		const int length = static_cast<int>(text.size());
		const char *utf8 = pg_server_to_any(text.data(), length, PG_UTF8);
		return Converted{utf8, utf8 == text.data() ? length : static_cast<int>(std::strlen(utf8))};
	});
	return {converted.data, static_cast<std::size_t>(converted.length)};
}

std::string excerpt(std::string_view text)
{
	constexpr int shown_bytes_max = 200;
	if (text.size() <= shown_bytes_max)
		return std::string(text);
	const int shown = pg_mbcliplen(text.data(), static_cast<int>(text.size()), shown_bytes_max);
	return std::string(text.substr(0, static_cast<std::size_t>(shown))) + "...";
}

std::string number_text(double number)
{
	if (number != number)
		return "NaN";
	if (number - number != 0)
		return number > 0 ? "Infinity" : "-Infinity";
	char buffer[32];
	const auto end = std::to_chars(buffer, buffer + sizeof(buffer), number);
	return std::string(buffer, end.ptr);
}

Datum kept_datum(Datum varlena)
{
	const MemoryContext home = call_context;
	return call([=] {
		const MemoryContext outer = MemoryContextSwitchTo(home);
		const Datum copy = PointerGetDatum(PG_DETOAST_DATUM_COPY(varlena));
		MemoryContextSwitchTo(outer);
		return copy;
	});
}

// --- uuid ----------------------------------------------------------------------------------------------------------

UuidBytes uuid_bytes(Datum datum) noexcept
{
	UuidBytes bytes;
	std::memcpy(bytes.data(), DatumGetUUIDP(datum)->data, bytes.size());
	return bytes;
}

Datum uuid_datum(const UuidBytes &bytes)
{
	const UuidBytes *const source = &bytes;
	return call([=] {
		auto *copy = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t)));
		std::memcpy(copy->data, source->data(), sizeof(copy->data));
		return UUIDPGetDatum(copy);
	});
}

std::string uuid_text(Datum datum)
{
	return call([=] { return DatumGetCString(DirectFunctionCall1(uuid_out, datum)); });
}

void fill_random(std::uint8_t *bytes, std::size_t count)
{
	// Asking for much at once is far cheaper than asking often. Each byte is given out once; a backend never forks.
	static std::uint8_t pool[512];
	static std::size_t left = 0;
	while (count > 0) {
		if (left == 0) {
			call([] {
				if (!pg_strong_random(pool, sizeof(pool)))
					ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
			});
			left = sizeof(pool);
		}
		const std::size_t taken = std::min(count, left);
		std::memcpy(bytes, pool + sizeof(pool) - left, taken);
		bytes += taken;
		left -= taken;
		count -= taken;
	}
}

// --- timestamptz ---------------------------------------------------------------------------------------------------

std::int64_t timestamp_us(Datum datum) noexcept { return DatumGetTimestampTz(datum) + server_epoch_us; }

Datum timestamp_datum(std::int64_t unix_us) noexcept { return TimestampTzGetDatum(unix_us - server_epoch_us); }

std::int64_t instant_us(Datum datum) noexcept
{
	const TimestampTz at = DatumGetTimestampTz(datum);
	return TIMESTAMP_NOT_FINITE(at) ? at : at + server_epoch_us; // the infinities are the extremes of the type
}

Datum instant_datum(std::int64_t unix_us) noexcept
{
	const bool extreme = unix_us == DT_NOBEGIN || unix_us == DT_NOEND;
	return TimestampTzGetDatum(extreme ? unix_us : unix_us - server_epoch_us);
}

std::int64_t interval_us(Datum datum) noexcept
{
	const Interval *const interval = DatumGetIntervalP(datum);
	const std::int64_t days = interval->day + static_cast<std::int64_t>(interval->month) * DAYS_PER_MONTH;
	std::int64_t us = 0;
	if (__builtin_mul_overflow(days, USECS_PER_DAY, &us) || __builtin_add_overflow(us, interval->time, &us))
		return days < 0 ? INT64_MIN : INT64_MAX;
	return us;
}

// --- arrays --------------------------------------------------------------------------------------------------------

namespace {

struct Elements {
	Datum *values;
	bool *nulls;
	int count;
};

Elements deconstruct(Datum array, Oid type, int length, bool by_value, char alignment)
{
	return call([=] {
		Elements found;
		deconstruct_array(
			DatumGetArrayTypeP(array), type, length, by_value, alignment, &found.values, &found.nulls, &found.count);
		return found;
	});
}

} // namespace

std::size_t array_length(Datum array)
{
	return call([=] {
		const ArrayType *value = DatumGetArrayTypeP(array);
		return static_cast<std::size_t>(ArrayGetNItems(ARR_NDIM(value), ARR_DIMS(value)));
	});
}

Vector<std::optional<UuidBytes>> uuid_array(Datum array)
{
	const Elements elements = deconstruct(array, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR);
	Vector<std::optional<UuidBytes>> result;
	result.reserve(static_cast<std::size_t>(elements.count));
	for (int i = 0; i < elements.count; i++)
		result.push_back(elements.nulls[i] ? std::nullopt : std::optional<UuidBytes>(uuid_bytes(elements.values[i])));
	return result;
}

Vector<std::optional<std::string_view>> text_array(Datum array)
{
	const Elements elements = deconstruct(array, TEXTOID, -1, false, TYPALIGN_INT);
	Vector<std::optional<std::string_view>> result;
	result.reserve(static_cast<std::size_t>(elements.count));
	for (int i = 0; i < elements.count; i++)
		result.push_back(
			elements.nulls[i] ? std::nullopt : std::optional<std::string_view>(text_view(elements.values[i])));
	return result;
}

Datum uuid_array_datum(const UuidBytes *ids, std::size_t count)
{
	return call([=] {
		auto *values = static_cast<Datum *>(palloc(sizeof(Datum) * (count + 1)));
		auto *copies = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t) * (count + 1)));
		for (std::size_t i = 0; i < count; i++) {
			std::memcpy(copies[i].data, ids[i].data(), UUID_LEN);
			values[i] = UUIDPGetDatum(&copies[i]);
		}
		return PointerGetDatum(construct_array(values, static_cast<int>(count), UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
	});
}

Datum place_array_datum(const ItemPointerData *places, std::size_t count)
{
	return call([=] {
		auto *values = static_cast<Datum *>(palloc(sizeof(Datum) * (count + 1)));
		auto *copies = static_cast<ItemPointerData *>(palloc(sizeof(ItemPointerData) * (count + 1)));
		std::memcpy(copies, places, sizeof(ItemPointerData) * count);
		for (std::size_t i = 0; i < count; i++)
			values[i] = PointerGetDatum(&copies[i]);
		return PointerGetDatum(construct_array(
			values, static_cast<int>(count), TIDOID, sizeof(ItemPointerData), false, TYPALIGN_SHORT));
	});
}

Datum int8_array_datum(const std::int64_t *numbers, std::size_t count)
{
	return call([=] {
		auto *values = static_cast<Datum *>(palloc(sizeof(Datum) * (count + 1)));
		for (std::size_t i = 0; i < count; i++)
			values[i] = Int64GetDatum(numbers[i]);
		return PointerGetDatum(
			construct_array(values, static_cast<int>(count), INT8OID, sizeof(std::int64_t), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	});
}

// --- jsonb ---------------------------------------------------------------------------------------------------------

namespace {

JsonItem item_of(const JsonbValue &value) noexcept
{
	JsonItem item;
	switch (value.type) {
	case jbvString:
		item.kind = JsonKind::string;
		item.string = {value.val.string.val, static_cast<std::size_t>(value.val.string.len)};
		break;
	case jbvNumeric:
		item.kind = JsonKind::number;
		item.number = value.val.numeric;
		break;
	case jbvBool:
		item.kind = JsonKind::boolean;
		item.boolean = value.val.boolean;
		break;
	case jbvBinary:
		item.container = value.val.binary.data;
		item.container_bytes = static_cast<std::size_t>(value.val.binary.len);
		item.kind = JsonContainerIsObject(item.container) ? JsonKind::object : JsonKind::array;
		break;
	default:
		break;
	}
	return item;
}

} // namespace

Datum detoasted(Datum varlena)
{
	return call([=] { return PointerGetDatum(PG_DETOAST_DATUM(varlena)); });
}

std::string_view bytes_of(Datum detoasted) noexcept
{
	const char *const value = DatumGetPointer(detoasted);
	return {VARDATA(value), VARSIZE(value) - VARHDRSZ};
}

JsonItem json_root(Datum jsonb)
{
	JsonbContainer *const root = call([=] { return &DatumGetJsonbP(jsonb)->root; });
	JsonItem item;
	item.container = root;
	if (JsonContainerIsScalar(root)) {
		// A scalar is stored as an array of one element.
		item.kind = JsonKind::array;
		JsonReader reader(item);
		return reader.next() ? reader.value() : JsonItem{};
	}
	item.kind = JsonContainerIsObject(root) ? JsonKind::object : JsonKind::array;
	return item;
}

std::size_t json_length(const JsonItem &container) { return JsonContainerSize(container.container); }

double json_double(const JsonItem &number)
{
	const Numeric value = number.number;
	return call([=] {
		const double rounded = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, NumericGetDatum(value)));
		if (rounded != 0)
			return rounded;
		// Too small for a double is not nothing, and a negative amount is not none: keep the sign.
		const Numeric sign = DatumGetNumeric(DirectFunctionCall1(numeric_sign, NumericGetDatum(value)));
		return DatumGetInt32(DirectFunctionCall1(numeric_int4, NumericGetDatum(sign))) *
			std::numeric_limits<double>::denorm_min();
	});
}

std::string json_text(const JsonItem &item)
{
	switch (item.kind) {
	case JsonKind::null:
		return "null";
	case JsonKind::boolean:
		return item.boolean ? "true" : "false";
	case JsonKind::string:
		return "\"" + excerpt(item.string) + "\"";
	case JsonKind::number: {
		const Numeric value = item.number;
		return excerpt(call([=] { return DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value))); }));
	}
	case JsonKind::array:
		return "an array";
	case JsonKind::object:
		return "an object";
	}
	return "";
}

bool json_identical(Datum a, Datum b)
{
	struct Bytes {
		const char *data;
		std::size_t length;
	};
	const auto bytes = [](Datum datum) {
		return call([=] {
			const Jsonb *value = DatumGetJsonbP(datum);
			return Bytes{VARDATA(value), VARSIZE(value) - VARHDRSZ};
		});
	};
	const Bytes left = bytes(a);
	const Bytes right = bytes(b);
	return left.length == right.length && std::memcmp(left.data, right.data, left.length) == 0;
}

Datum json_array_datum(const JsonItem *items, std::size_t count)
{
	return call([=] {
		JsonbParseState *state = nullptr;
		pushJsonbValue(&state, WJB_BEGIN_ARRAY, nullptr);
		for (std::size_t i = 0; i < count; i++) {
			JsonbValue element;
			element.type = jbvBinary;
			element.val.binary.data = items[i].container;
			element.val.binary.len = static_cast<int>(items[i].container_bytes);
			pushJsonbValue(&state, WJB_ELEM, &element);
		}
		return JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, nullptr)));
	});
}

Datum json_objects_datum(
	const std::string_view *keys, std::size_t key_count, const std::string_view *values, std::size_t count)
{
	const auto string_value = [](std::string_view text) {
		JsonbValue value;
		value.type = jbvString;
		value.val.string.val = const_cast<char *>(text.data());
		value.val.string.len = static_cast<int>(text.size());
		return value;
	};
	return call([=] {
		JsonbParseState *state = nullptr;
		pushJsonbValue(&state, WJB_BEGIN_ARRAY, nullptr);
		for (std::size_t i = 0; i < count; i++) {
			pushJsonbValue(&state, WJB_BEGIN_OBJECT, nullptr);
			for (std::size_t k = 0; k < key_count; k++) {
				JsonbValue key = string_value(keys[k]);
				JsonbValue value = string_value(values[i * key_count + k]);
				pushJsonbValue(&state, WJB_KEY, &key);
				pushJsonbValue(&state, WJB_VALUE, &value);
			}
			pushJsonbValue(&state, WJB_END_OBJECT, nullptr);
		}
		return JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, nullptr)));
	});
}

JsonReader::JsonReader(const JsonItem &container)
{
	JsonbContainer *const source = container.container;
	iterator_ = call([=] {
		JsonbIterator *iterator = JsonbIteratorInit(source);
		JsonbValue ignored;
		(void)JsonbIteratorNext(&iterator, &ignored, true);
		return iterator;
	});
}

bool JsonReader::next()
{
	struct Step {
		JsonbIteratorToken token;
		JsonbValue key;
		JsonbValue value;
		JsonbIterator *iterator;
	};
	JsonbIterator *const iterator = iterator_;
	const Step step = call([=] {
		Step taken;
		taken.iterator = iterator;
		taken.token = JsonbIteratorNext(&taken.iterator, &taken.value, true);
		if (taken.token == WJB_KEY) {
			taken.key = taken.value;
			taken.token = JsonbIteratorNext(&taken.iterator, &taken.value, true);
		}
		return taken;
	});
	iterator_ = step.iterator;
	if (step.token == WJB_VALUE)
		key_ = {step.key.val.string.val, static_cast<std::size_t>(step.key.val.string.len)};
	else if (step.token != WJB_ELEM)
		return false;
	value_ = item_of(step.value);
	return true;
}

} // namespace ratelimit::pg
