/* constant: elements written down in the graph: all of them, or one that stands for all (a splat).
 */
#include <string.h>

#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {
    {"dtype", IR_ATTR_DTYPE, true, 0, NULL},
    {"shape", IR_ATTR_INTS, true, 0, NULL},
    {"data", IR_ATTR_DATA, true, 0, NULL},
    {0},
};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    TRY(ir_shape_attributes(ctx, out));
    size_t given = ir_ctx_attr(ctx, "data")->data.bytes;
    if (given == ir_type_bytes(out) || given == ir_dtype_bytes(out->dtype)) return ST_OK;
    char text[IR_TYPE_TEXT_BYTES];
    return FAIL(ST_INVALID, "%zu bytes given for %s: %zu (all elements) or %zu (one) expected",
                given, ir_type_text(out, text, sizeof text), ir_type_bytes(out),
                ir_dtype_bytes(out->dtype));
}

/* Copies the part out of the data, seen as [outer][dim][inner]; a splat stays as it is. */
static st_status_t localize(const ir_op_ctx_t *global, const ir_part_t *in, const ir_part_t *out,
                            st_arena_t *arena, ir_attr_t *attrs) {
    TRY(ir_localize_shape(global, in, out, arena, attrs));
    ir_attr_t *data = ir_attr_of(global->op, attrs, "data");
    ir_type_t type;
    ir_ctx_outputs(global, &type);
    size_t element = ir_dtype_bytes(type.dtype);
    if (out[0].placement.kind != IR_SPLIT || data->data.bytes == element) return ST_OK;
    int32_t dim = out[0].placement.dim;
    size_t outer = 1, inner = element;
    for (int32_t i = 0; i < dim; i++) outer *= (size_t)type.dims[i];
    for (int32_t i = dim + 1; i < type.rank; i++) inner *= (size_t)type.dims[i];
    size_t row = (size_t)out[0].extent * inner, bytes = outer * row;
    unsigned char *part = st_arena_alloc(arena, bytes);
    if (!part) return st_no_memory(bytes, "a rank's part of a constant");
    const unsigned char *first = (const unsigned char *)data->data.p + (size_t)out[0].begin * inner;
    for (size_t o = 0; o < outer && row; o++)
        memcpy(part + o * row, first + o * (size_t)type.dims[dim] * inner, row);
    data->data.p = part;
    data->data.bytes = bytes;
    return ST_OK;
}

const ir_op_def_t ir_op_constant = {
    .op = IR_OP_CONSTANT,
    .name = "constant",
    .min_inputs = 0,
    .max_inputs = 0,
    .n_outputs = 1,
    .flags = IR_SOURCE,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "zero",
    .strategies = ir_strategies_none,
    .localize = localize,
};
