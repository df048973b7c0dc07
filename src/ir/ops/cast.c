/* cast: to another element type as C converts; to bool x != 0; float to integer truncates. */
#include "ir/build.h"
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {{"dtype", IR_ATTR_DTYPE, true, 0, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    int64_t dtype = ir_ctx_int(ctx, "dtype");
    if (!ir_dtype_valid(dtype))
        return FAIL(ST_INVALID, "attribute 'dtype' is %lld, which is no element type",
                    (long long)dtype);
    *out = ctx->in[0];
    out->dtype = (ir_dtype_t)dtype;
    return ST_OK;
}

/* Back to the source's type. A result that is no float is flat: its gradient is zero. */
static ir_value_t derive(ir_build_t *b, ir_value_t dy, ir_value_t x, ir_value_t y) {
    if (!ir_dtype_is_float(ir_b_type(b, y)->dtype)) return IR_NONE;
    return ir_b_cast(b, dy, ir_b_type(b, x)->dtype);
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    return ir_gradient_unary(graph, node, dout, want, din, derive);
}

/* Between floats it is linear but for rounding, so partial sums pass through. */
static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    bool floats = ir_dtype_is_float(ctx->in[0].dtype) &&
                  ir_dtype_is_float((ir_dtype_t)ir_ctx_int(ctx, "dtype"));
    ir_strategies_scaling(ctx, list, floats ? 1u << 0 : 0);
}

const ir_op_def_t ir_op_cast = {
    .op = IR_OP_CAST,
    .name = "cast",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_ELEMENTWISE,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
};
