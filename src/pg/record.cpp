#include "pg/record.hpp"

#include "pg/call.hpp"
#include "pg/catalog.hpp"
#include "pg/value.hpp"

namespace ratelimit::pg {

Vector<std::optional<Datum>> array_elements(Datum array)
{
	struct Parts {
		Datum *elements;
		bool *nulls;
		int count;
	};
	const Parts parts = call([=] {
		ArrayType *const value = DatumGetArrayTypeP(array);
		const Oid type = ARR_ELEMTYPE(value);
		std::int16_t length = 0;
		bool by_value = false;
		char alignment = 0;
		get_typlenbyvalalign(type, &length, &by_value, &alignment);
		Parts taken;
		deconstruct_array(value, type, length, by_value, alignment, &taken.elements, &taken.nulls, &taken.count);
		return taken;
	});
	Vector<std::optional<Datum>> elements;
	elements.reserve(static_cast<std::size_t>(parts.count));
	for (int i = 0; i < parts.count; i++)
		elements.push_back(parts.nulls[i] ? std::nullopt : std::optional<Datum>(parts.elements[i]));
	return elements;
}

void read_record(Datum record, Datum *values, bool *nulls, std::size_t count)
{
	call([=] {
		HeapTupleHeader const header = DatumGetHeapTupleHeader(record);
		const TupleDesc desc = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(header), HeapTupleHeaderGetTypMod(header));
		if (desc->natts != static_cast<int>(count))
			elog(ERROR, "row has %d columns instead of %d", desc->natts, static_cast<int>(count));
		HeapTupleData tuple = {};
		tuple.t_len = HeapTupleHeaderGetDatumLength(header);
		tuple.t_data = header;
		heap_deform_tuple(&tuple, desc, values, nulls);
		ReleaseTupleDesc(desc);
	});
}

std::string record_json(const char *type_name, Datum *values, bool *nulls, std::size_t count)
{
	const Datum json = call([=] {
		const Oid schema = get_namespace_oid(catalog::schema_name, false);
		const Oid type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum(type_name), ObjectIdGetDatum(schema));
		const TupleDesc desc = lookup_rowtype_tupdesc(type, -1);
		if (desc->natts != static_cast<int>(count))
			elog(ERROR, "type \"%s\" has %d columns instead of %d", type_name, desc->natts, static_cast<int>(count));
		const Datum record = HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
		ReleaseTupleDesc(desc);
		return DirectFunctionCall1(row_to_json, record);
	});
	return std::string(text_view(json));
}

Datum json_object_datum(const JsonField *fields, std::size_t count)
{
	return call([=] {
		const auto string_value = [](std::string_view text) {
			JsonbValue value;
			value.type = jbvString;
			value.val.string.val = const_cast<char *>(text.data());
			value.val.string.len = static_cast<int>(text.size());
			return value;
		};
		JsonbParseState *state = nullptr;
		pushJsonbValue(&state, WJB_BEGIN_OBJECT, nullptr);
		for (std::size_t i = 0; i < count; i++) {
			JsonbValue key = string_value(fields[i].key);
			JsonbValue value = string_value(fields[i].value);
			pushJsonbValue(&state, WJB_KEY, &key);
			pushJsonbValue(&state, WJB_VALUE, &value);
		}
		return JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, nullptr)));
	});
}

} // namespace ratelimit::pg
