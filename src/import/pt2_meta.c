/* Tensors as the schema of torch.export archives describes them. See pt2_meta.h. */
#include "import/pt2_meta.h"

#include <string.h>

#include "base/expression.h"

/* PyTorch's ScalarType as its export schema numbers it. 16-bit integers, complex numbers and the
 * fp8 types without infinities and negative zero (fnuz) have no counterpart. */
ir_dtype_t pt2_dtype(int64_t code) {
    static const ir_dtype_t table[] = {
        [1] = IR_U8,    [2] = IR_I8,      [4] = IR_I32,     [5] = IR_I64,
        [6] = IR_F16,   [7] = IR_F32,     [8] = IR_F64,     [12] = IR_BOOL,
        [13] = IR_BF16, [29] = IR_F8E4M3, [30] = IR_F8E5M2,
    };
    return code >= 0 && code < (int64_t)(sizeof table / sizeof table[0]) ? table[code]
                                                                         : IR_DTYPE_NONE;
}

typedef struct lookup {
    const pt2_sizes_t *sizes;
    const char *expression;
    int64_t hint; /* of the whole expression */
    st_status_t status;
} lookup_t;

/* Bounds as {"min_val": 2, "max_val": 64}; none where they are missing. */
static void read_range(json_object *ranges, const char *name, ir_symbol_t *symbol) {
    json_object *range = ranges ? import_json_get(ranges, name) : NULL;
    int64_t value;
    symbol->min = 1;
    symbol->max = INT64_MAX;
    if (range && import_json_int(import_json_get(range, "min_val"), &value) && value > 0)
        symbol->min = value;
    if (range && import_json_int(import_json_get(range, "max_val"), &value) && value >= symbol->min)
        symbol->max = value;
}

static bool size_of_symbol(void *context, const char *name, size_t bytes, int64_t *out_size) {
    lookup_t *l = context;
    char text[64];
    ir_symbol_t symbol = {.name = text};
    if (l->status != ST_OK || bytes >= sizeof text) return false;
    memcpy(text, name, bytes);
    text[bytes] = '\0';
    if (!l->sizes->ranges || !import_json_get(l->sizes->ranges, text)) return false;
    read_range(l->sizes->ranges, text, &symbol);
    symbol.example = strcmp(text, l->expression) == 0 ? l->hint : 2;
    if (symbol.example < symbol.min) symbol.example = symbol.min;
    if (symbol.example > symbol.max) symbol.example = symbol.max;
    *out_size = 1; /* a failure is told by `status`: the name is known */
    l->status = import_size(l->sizes->result, l->sizes->options, &symbol, out_size);
    return true;
}

/* {"as_int": 4} or {"as_expr": {"expr_str": "s0", "hint": {"as_int": 4}}} */
static st_status_t read_size(json_object *value, const pt2_sizes_t *sizes, int64_t *out,
                             bool *symbolic, bool *out_known) {
    json_object *member, *hint;
    const char *tag = import_json_tag(value, &member);
    *out_known = tag && strcmp(tag, "as_int") == 0 && import_json_int(member, out);
    if (!tag || strcmp(tag, "as_expr") != 0) return ST_OK;
    const char *hint_tag = import_json_tag(import_json_get(member, "hint"), &hint);
    const char *expression = import_json_string(member, "expr_str");
    *out_known = hint_tag && strcmp(hint_tag, "as_int") == 0 && import_json_int(hint, out);
    if (sizes && expression) {
        lookup_t l = {sizes, expression, *out_known ? *out : 2, ST_OK};
        st_number_t number;
        st_status_t status = st_expression_eval(expression, size_of_symbol, &l, &number);
        TRY(l.status);
        if (status == ST_OK && number.whole) {
            *out = number.i;
            *out_known = true;
            return ST_OK;
        }
    }
    if (symbolic) *symbolic = true;
    return ST_OK;
}

st_status_t pt2_meta_read(json_object *meta, const char *name, const pt2_sizes_t *sizes,
                          pt2_meta_t *out) {
    *out = (pt2_meta_t){0};
    int64_t code = 0;
    if (!import_json_int(import_json_get(meta, "dtype"), &code))
        return FAIL(ST_PARSE, "tensor '%s' has no description", name);
    out->type.dtype = pt2_dtype(code);
    if (out->type.dtype == IR_DTYPE_NONE)
        return FAIL(ST_UNSUPPORTED,
                    "tensor '%s' has element type %lld of PyTorch's schema, which is not "
                    "supported",
                    name, (long long)code);
    json_object *dims = import_json_array(meta, "sizes"),
                *strides = import_json_array(meta, "strides");
    size_t rank = dims ? json_object_array_length(dims) : 0;
    bool known = false;
    if (!dims || rank > IR_MAX_RANK)
        return FAIL(dims ? ST_UNSUPPORTED : ST_PARSE, "tensor '%s' has %zu dims, the limit is %d",
                    name, rank, IR_MAX_RANK);
    out->type.rank = (int32_t)rank;
    out->has_strides = strides && json_object_array_length(strides) == rank;
    for (size_t i = 0; i < rank; i++) {
        TRY(read_size(json_object_array_get_idx(dims, i), sizes, &out->type.dims[i], &out->symbolic,
                      &known));
        if (!known || out->type.dims[i] < 0)
            return FAIL(ST_UNSUPPORTED,
                        "dim %zu of tensor '%s' has no size: export with static shapes", i, name);
        if (!out->has_strides) continue;
        TRY(read_size(json_object_array_get_idx(strides, i), sizes, &out->strides[i], NULL,
                      &out->has_strides));
    }
    json_object *offset = import_json_get(meta, "storage_offset");
    if (offset) TRY(read_size(offset, sizes, &out->offset, NULL, &known));
    if (offset && !known) out->has_strides = false; /* a turn's result among all turns' */
    import_json_bool(meta, "requires_grad", &out->requires_grad);
    return ir_type_check(&out->type);
}
