/* Arguments of ATen nodes. They come as tagged unions {"as_int": 3} with the schema's argument
 * names, and those at their default are left out, so each accessor takes the default. */
#include <string.h>

#include "import/aten.h"
#include "import/pt2_meta.h"

/* The union of an argument, NULL if left out or None. Marks it as looked at. */
static const char *find_arg(aten_t *a, const char *name, json_object **out_member) {
    *out_member = NULL;
    if (!aten_ok(a)) return NULL;
    size_t n = json_object_array_length(a->inputs);
    for (size_t i = 0; i < n; i++) {
        json_object *input = json_object_array_get_idx(a->inputs, i);
        const char *given = import_json_string(input, "name");
        if (!given || strcmp(given, name) != 0) continue;
        a->used |= 1u << i;
        const char *tag = import_json_tag(import_json_get(input, "arg"), out_member);
        if (!tag) aten_fail(a, ST_PARSE, "argument '%s' is malformed", name);
        if (tag && strcmp(tag, "as_optional_tensor") == 0)
            tag = import_json_tag(*out_member, out_member);
        return tag && strcmp(tag, "as_none") != 0 ? tag : NULL;
    }
    return NULL;
}

void aten_ignore(aten_t *a, const char *name) {
    json_object *member;
    find_arg(a, name, &member);
}

bool aten_has(aten_t *a, const char *name) {
    json_object *member;
    return find_arg(a, name, &member) != NULL;
}

/* Looks up a name of the scope. */
static aten_item_t named_item(aten_t *a, const char *argument, const char *name) {
    aten_item_t *item = name ? aten_lookup(a->scope, name) : NULL;
    if (!item) {
        aten_fail(a, ST_PARSE, "argument '%s' is value '%s', which no earlier node gives", argument,
                  name ? name : "?");
        return (aten_item_t){0};
    }
    return *item;
}

/* A union as an item; a tensor comes back with its IR value in .slot. */
static aten_item_t union_item(aten_t *a, const char *argument, const char *tag,
                              json_object *member) {
    aten_item_t item = {0};
    if (!tag || !aten_ok(a) || strcmp(tag, "as_none") == 0) return item;
    if (strcmp(tag, "as_tensor") == 0) {
        item = named_item(a, argument, import_json_string(member, "name"));
        if (item.kind == ATEN_TENSOR) item.slot = aten_slot_value(a, item.slot);
        return item;
    }
    if (strncmp(tag, "as_sym_", 7) == 0) {
        json_object *inner;
        const char *inner_tag = import_json_tag(member, &inner);
        if (inner_tag && strcmp(inner_tag, "as_name") == 0)
            return named_item(a, argument,
                              json_object_is_type(inner, json_type_string)
                                  ? json_object_get_string(inner)
                                  : NULL);
        return union_item(a, argument, inner_tag, inner);
    }
    bool ok = false;
    if (strcmp(tag, "as_int") == 0) {
        item.kind = ATEN_INT;
        ok = import_json_int(member, &item.i);
    } else if (strcmp(tag, "as_bool") == 0) {
        item.kind = ATEN_BOOL;
        ok = json_object_is_type(member, json_type_boolean);
        item.i = json_object_get_boolean(member);
    } else if (strcmp(tag, "as_float") == 0) {
        item.kind = ATEN_FLOAT;
        ok = import_json_double(member, &item.f);
    }
    if (!ok) aten_fail(a, ST_PARSE, "argument '%s' is malformed or of kind '%s'", argument, tag);
    return item;
}

aten_item_t aten_item(aten_t *a, const char *name) {
    json_object *member;
    const char *tag = find_arg(a, name, &member);
    return union_item(a, name, tag, member);
}

aten_item_t aten_item_at(aten_t *a, size_t index) {
    if (!aten_ok(a)) return (aten_item_t){0};
    json_object *input = json_object_array_get_idx(a->inputs, index), *member;
    const char *tag = import_json_tag(import_json_get(input, "arg"), &member);
    if (!tag) aten_fail(a, ST_PARSE, "argument %zu is missing", index);
    if (index < 32) a->used |= 1u << index;
    return union_item(a, "?", tag, member);
}

const char *aten_union_name(json_object *value) {
    json_object *member;
    const char *tag = import_json_tag(value, &member);
    return tag && strcmp(tag, "as_tensor") == 0 ? import_json_string(member, "name") : NULL;
}

aten_item_t aten_slot_item_at(aten_t *a, size_t index) {
    json_object *input = json_object_array_get_idx(a->inputs, index);
    const char *name = aten_union_name(import_json_get(input, "arg"));
    aten_item_t *item = name ? aten_lookup(a->scope, name) : NULL;
    return item ? *item : aten_item_at(a, index);
}

size_t aten_slots_at(aten_t *a, size_t index, uint32_t **out_slots) {
    json_object *input = json_object_array_get_idx(a->inputs, index), *member;
    const char *tag = import_json_tag(import_json_get(input, "arg"), &member);
    *out_slots = NULL;
    if (!aten_ok(a)) return 0;
    const bool list = tag && json_object_is_type(member, json_type_array);
    if (!list || (strcmp(tag, "as_tensors") != 0 && json_object_array_length(member) > 0)) {
        aten_fail(a, ST_UNSUPPORTED, "argument %zu is of kind '%s', a list of tensors is needed",
                  index, tag ? tag : "none");
        return 0;
    }
    if (index < 32) a->used |= 1u << index;
    size_t n = json_object_array_length(member);
    uint32_t *slots = st_arena_array(a->arena, n + 1, sizeof *slots);
    if (!slots) a->b.status = st_no_memory(n * sizeof *slots, "a list of tensors");
    for (size_t i = 0; i < n && aten_ok(a); i++) {
        const char *name = import_json_string(json_object_array_get_idx(member, i), "name");
        aten_item_t item = named_item(a, "?", name);
        if (aten_ok(a) && item.kind != ATEN_TENSOR)
            aten_fail(a, ST_UNSUPPORTED, "'%s' is no tensor", name);
        slots[i] = item.slot;
    }
    *out_slots = slots;
    return aten_ok(a) ? n : 0;
}

uint32_t aten_slot(aten_t *a, const char *name) {
    json_object *member;
    const char *tag = find_arg(a, name, &member);
    if (!tag || strcmp(tag, "as_tensor") != 0) {
        aten_fail(a, ST_PARSE, "argument '%s' must be a tensor", name);
        return 0;
    }
    aten_item_t item = named_item(a, name, import_json_string(member, "name"));
    if (aten_ok(a) && item.kind != ATEN_TENSOR)
        aten_fail(a, ST_PARSE, "argument '%s' must be a tensor", name);
    return item.slot;
}

ir_value_t aten_tensor_or_none(aten_t *a, const char *name) {
    aten_item_t item = aten_item(a, name);
    if (!aten_ok(a) || item.kind == ATEN_NONE) return IR_NONE;
    if (item.kind != ATEN_TENSOR) {
        aten_fail(a, ST_PARSE, "argument '%s' must be a tensor", name);
        return IR_NONE;
    }
    return item.slot;
}

ir_value_t aten_tensor(aten_t *a, const char *name) {
    ir_value_t value = aten_tensor_or_none(a, name);
    if (aten_ok(a) && value == IR_NONE) aten_fail(a, ST_PARSE, "argument '%s' is missing", name);
    return value;
}

uint32_t aten_tensors(aten_t *a, const char *name, ir_value_t **out) {
    json_object *member;
    const char *tag = find_arg(a, name, &member);
    *out = NULL;
    if (!aten_ok(a)) return 0;
    if (!tag || !json_object_is_type(member, json_type_array)) {
        aten_fail(a, ST_PARSE, "argument '%s' must be a list of tensors", name);
        return 0;
    }
    size_t n = json_object_array_length(member);
    bool optional = strcmp(tag, "as_optional_tensors") == 0;
    if (n > 0 && !optional && strcmp(tag, "as_tensors") != 0) {
        aten_fail(a, ST_PARSE, "argument '%s' must be a list of tensors, not of kind '%s'", name,
                  tag);
        return 0;
    }
    if (!(*out = st_arena_array(a->arena, n, sizeof **out))) {
        a->b.status = st_no_memory(n * sizeof **out, "a list of tensors");
        return 0;
    }
    for (size_t i = 0; i < n && aten_ok(a); i++) {
        json_object *entry = json_object_array_get_idx(member, i), *inner = entry;
        const char *inner_tag = optional ? import_json_tag(entry, &inner) : "as_tensor";
        aten_item_t item = union_item(a, name, inner_tag, inner);
        if (aten_ok(a) && item.kind != ATEN_TENSOR && !(optional && item.kind == ATEN_NONE))
            aten_fail(a, ST_PARSE, "argument '%s' has an entry that is no tensor", name);
        (*out)[i] = item.kind == ATEN_TENSOR ? item.slot : IR_NONE;
    }
    return aten_ok(a) ? (uint32_t)n : 0;
}

/* ---- numbers ---- */

static int64_t int_or(aten_t *a, const char *name, bool required, int64_t default_value) {
    aten_item_t item = aten_item(a, name);
    if (!aten_ok(a)) return default_value;
    if (item.kind == ATEN_NONE && !required) return default_value;
    if (item.kind != ATEN_INT && item.kind != ATEN_BOOL) {
        aten_fail(a, ST_PARSE, "argument '%s' must be an integer", name);
        return default_value;
    }
    return item.i;
}

int64_t aten_int(aten_t *a, const char *name, int64_t default_value) {
    return int_or(a, name, false, default_value);
}

int64_t aten_int_required(aten_t *a, const char *name) {
    return int_or(a, name, true, 0);
}

double aten_float(aten_t *a, const char *name, double default_value) {
    aten_item_t item = aten_item(a, name);
    if (!aten_ok(a) || item.kind == ATEN_NONE) return default_value;
    if (item.kind == ATEN_TENSOR) {
        aten_fail(a, ST_UNSUPPORTED, "argument '%s' must be a number, not a tensor", name);
        return default_value;
    }
    return item.kind == ATEN_FLOAT ? item.f : (double)item.i;
}

bool aten_bool(aten_t *a, const char *name, bool default_value) {
    return int_or(a, name, false, default_value) != 0;
}

const char *aten_string(aten_t *a, const char *name, const char *default_value) {
    json_object *member;
    const char *tag = find_arg(a, name, &member);
    if (!tag) return default_value;
    if (strcmp(tag, "as_string") != 0 || !json_object_is_type(member, json_type_string)) {
        aten_fail(a, ST_PARSE, "argument '%s' must be a string", name);
        return default_value;
    }
    return json_object_get_string(member);
}

ir_dtype_t aten_dtype(aten_t *a, const char *name, ir_dtype_t default_value) {
    json_object *member;
    const char *tag = find_arg(a, name, &member);
    int64_t code = 0;
    if (!tag) return default_value;
    if (strcmp(tag, "as_scalar_type") != 0 || !import_json_int(member, &code)) {
        aten_fail(a, ST_PARSE, "argument '%s' must be an element type", name);
        return default_value;
    }
    ir_dtype_t dtype = pt2_dtype(code);
    if (dtype == IR_DTYPE_NONE)
        aten_fail(a, ST_UNSUPPORTED,
                  "argument '%s' is element type %lld of PyTorch's schema, which is not supported",
                  name, (long long)code);
    return dtype;
}

int32_t aten_ints(aten_t *a, const char *name, int64_t out[ATEN_MAX_LIST]) {
    json_object *member;
    const char *tag = find_arg(a, name, &member);
    if (!tag || !aten_ok(a)) return -1;
    if (!json_object_is_type(member, json_type_array)) {
        aten_item_t item = union_item(a, name, tag, member);
        if (aten_ok(a) && item.kind != ATEN_INT)
            aten_fail(a, ST_PARSE, "argument '%s' must be a list of integers", name);
        out[0] = item.i;
        return 1;
    }
    size_t n = json_object_array_length(member);
    if (n > ATEN_MAX_LIST) {
        aten_fail(a, ST_UNSUPPORTED, "argument '%s' has %zu entries, the limit is %d", name, n,
                  ATEN_MAX_LIST);
        return -1;
    }
    bool symbolic = strcmp(tag, "as_sym_ints") == 0;
    for (size_t i = 0; i < n && aten_ok(a); i++) {
        json_object *entry = json_object_array_get_idx(member, i);
        aten_item_t item = union_item(a, name, symbolic ? "as_sym_int" : "as_int", entry);
        if (aten_ok(a) && item.kind != ATEN_INT)
            aten_fail(a, ST_PARSE, "argument '%s' must be a list of integers", name);
        out[i] = item.i;
    }
    return aten_ok(a) ? (int32_t)n : -1;
}

void aten_ints_n(aten_t *a, const char *name, int32_t n, int64_t default_value, int64_t *out) {
    int64_t given[ATEN_MAX_LIST];
    int32_t n_given = aten_ints(a, name, given);
    if (n_given > 1 && n_given != n)
        aten_fail(a, ST_INVALID, "argument '%s' has %d entries, %d are needed", name, n_given, n);
    for (int32_t i = 0; i < n; i++)
        out[i] = !aten_ok(a) || n_given <= 0 ? default_value : given[n_given == 1 ? 0 : i];
}

int32_t aten_axis_of(aten_t *a, int64_t axis, int32_t rank) {
    int32_t normalized = 0;
    if (aten_ok(a)) a->b.status = ir_axis_normalize(axis, rank ? rank : 1, &normalized);
    return normalized;
}

int32_t aten_axis(aten_t *a, const char *name, int32_t rank, int64_t default_value) {
    int64_t axis = aten_int(a, name, default_value);
    return aten_axis_of(a, axis, rank);
}
