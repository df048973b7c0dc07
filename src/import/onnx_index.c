/* ONNX's gathers and scatters. Negative indices count from the end; an index out of range is
 * reported when the step runs. */
#include <string.h>

#include "import/onnx_reader.h"

void onnx_gather(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0), index = onnx_in(o, 1);
    int32_t axis = onnx_axis(o, "axis", onnx_type(o, x).rank, 0);
    onnx_return(o, ir_b_gather(&o->b, x, index, axis));
}

void onnx_gather_elements(onnx_t *o) {
    ir_value_t inputs[] = {onnx_in(o, 0), onnx_in(o, 1)};
    int32_t axis = onnx_axis(o, "axis", onnx_type(o, inputs[0]).rank, 0);
    onnx_return(o, ir_b_node(&o->b, IR_OP_GATHER_ALONG, 2, inputs, 1,
                             (ir_arg_t[]){IR_ARG_INT("axis", axis)}));
}

/* Batch dims become indices of their own: their position, put before the given ones. */
static ir_value_t with_batch_index(onnx_t *o, ir_value_t index, int32_t batch) {
    ir_type_t type = onnx_type(o, index);
    ir_value_t parts[IR_MAX_RANK + 1];
    ir_type_t column = type;
    column.dims[type.rank - 1] = 1;
    for (int32_t i = 0; i < batch; i++) parts[i] = ir_b_iota(&o->b, column, i, 0, 1);
    parts[batch] = index;
    return ir_b_concat(&o->b, (uint32_t)batch + 1, parts, type.rank - 1);
}

void onnx_gather_nd(onnx_t *o) {
    ir_value_t x = onnx_in(o, 0), index = onnx_in(o, 1);
    int64_t batch = onnx_int(o, "batch_dims", 0);
    ir_type_t type = onnx_type(o, index), x_type = onnx_type(o, x);
    bool fits = batch >= 0 && batch < type.rank && batch < x_type.rank;
    for (int64_t i = 0; fits && i < batch; i++) fits = type.dims[i] == x_type.dims[i];
    if (onnx_ok(o) && !fits)
        onnx_fail(o, ST_INVALID, "attribute 'batch_dims' is %lld", (long long)batch);
    if (onnx_ok(o) && batch > 0) index = with_batch_index(o, index, (int32_t)batch);
    onnx_return(o, ir_b_binary(&o->b, IR_OP_GATHER_ND, x, index));
}

/* How a scatter joins updates and data: true adds, false replaces. */
static bool scatter_adds(onnx_t *o) {
    const char *reduction = onnx_string(o, "reduction", "none");
    bool adds = strcmp(reduction, "add") == 0;
    if (onnx_ok(o) && !adds && strcmp(reduction, "none") != 0)
        onnx_fail(o, ST_UNSUPPORTED,
                  "attribute 'reduction' is '%.32s': 'none' and 'add' are supported", reduction);
    return adds;
}

/* data joined with what `scatter` spreads over its shape. Replacing: indices differ (ONNX asks for
 * it), so the spread updates stand alone, and data shows where no one was spread. */
static void join(onnx_t *o, ir_value_t data, ir_value_t updates, ir_value_t index,
                 ir_value_t (*scatter)(onnx_t *, ir_value_t, ir_value_t, const ir_type_t *)) {
    ir_build_t *b = &o->b;
    bool adds = scatter_adds(o);
    ir_type_t type = onnx_type(o, data), update_type = onnx_type(o, updates);
    if (!onnx_same_dtype(o, data, updates)) return;
    ir_value_t spread = scatter(o, updates, index, &type);
    if (!adds) {
        ir_value_t count = scatter(o, ir_b_splat(b, update_type, 1), index, &type);
        ir_value_t untouched = ir_b_binary(b, IR_OP_EQ, count, ir_b_scalar(b, type.dtype, 0));
        onnx_return(o, ir_b_select(b, untouched, data, spread));
        return;
    }
    onnx_return(o, ir_b_binary(b, IR_OP_ADD, data, spread));
}

static ir_value_t scatter_nd(onnx_t *o, ir_value_t updates, ir_value_t index,
                             const ir_type_t *type) {
    return ir_b_node(&o->b, IR_OP_SCATTER_ND_ADD, 2, (ir_value_t[]){updates, index}, 1,
                     (ir_arg_t[]){IR_ARG_INTS("shape", type->dims, type->rank)});
}

void onnx_scatter_nd(onnx_t *o) {
    ir_value_t data = onnx_in(o, 0), index = onnx_in(o, 1), updates = onnx_in(o, 2);
    join(o, data, updates, index, scatter_nd);
}

/* The updates may be smaller than the data in other dims, too. */
static ir_value_t scatter_along(onnx_t *o, ir_value_t updates, ir_value_t index,
                                const ir_type_t *type) {
    int32_t axis = onnx_axis(o, "axis", type->rank, 0);
    ir_value_t out =
        ir_b_node(&o->b, IR_OP_SCATTER_ALONG_ADD, 2, (ir_value_t[]){updates, index}, 2,
                  (ir_arg_t[]){IR_ARG_INT("axis", axis), IR_ARG_INT("extent", type->dims[axis])});
    ir_type_t made = onnx_type(o, out);
    int64_t low[IR_MAX_RANK] = {0}, high[IR_MAX_RANK];
    bool fits = made.rank == type->rank, smaller = false;
    for (int32_t i = 0; i < made.rank && fits; i++) {
        high[i] = type->dims[i] - made.dims[i];
        fits = high[i] >= 0;
        smaller |= high[i] > 0;
    }
    if (onnx_ok(o) && !fits) onnx_fail(o, ST_INVALID, "the updates do not fit into the data");
    if (!onnx_ok(o) || !smaller) return out;
    return ir_b_node(
        &o->b, IR_OP_PAD, 1, &out, 2,
        (ir_arg_t[]){IR_ARG_INTS("low", low, made.rank), IR_ARG_INTS("high", high, made.rank)});
}

void onnx_scatter_elements(onnx_t *o) {
    ir_value_t data = onnx_in(o, 0), index = onnx_in(o, 1), updates = onnx_in(o, 2);
    join(o, data, updates, index, scatter_along);
}
