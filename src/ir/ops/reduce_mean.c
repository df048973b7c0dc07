/* reduce_mean: mean over axes. Expanding it before the split over ranks fixes the global count, so
 * that a mean over a split dim is a partial sum over that count. */
#include "ir/build.h"
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {
    {"axes", IR_ATTR_INTS, true, 0, NULL},
    {"keep", IR_ATTR_BOOL, false, 0, NULL},
    {0},
};

static int64_t count_of(const ir_type_t *x, const ir_attr_t *axes) {
    int64_t count = 1;
    for (uint32_t i = 0; i < axes->ints.n; i++) count *= x->dims[axes->ints.v[i]];
    return count;
}

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    TRY(ir_check_float(ctx, 0));
    return ir_shape_reduce(ctx, out);
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    const ir_type_t type = *ir_value_type(graph, info.inputs[0]);
    int64_t count = count_of(&type, ir_node_attr(&info, "axes"));
    ir_value_t each = ir_b_div_count(&b, ir_b_reduced_keep(&b, &info, dout[0]), count);
    din[0] = ir_b_broadcast(&b, each, type.rank, type.dims);
    return b.status;
}

static st_status_t expand(ir_graph_t *graph, const ir_op_ctx_t *ctx, const ir_value_t *inputs,
                          ir_value_t *out) {
    ir_build_t b = {.graph = graph, .name = ctx->name};
    const ir_attr_t *axes = ir_ctx_attr(ctx, "axes");
    ir_dtype_t dtype = ctx->in[0].dtype, wide = ir_dtype_wide(dtype);
    ir_value_t sum =
        ir_b_node(&b, IR_OP_REDUCE_SUM, 1, (ir_value_t[]){ir_b_cast(&b, inputs[0], wide)}, 2,
                  (ir_arg_t[]){IR_ARG_INTS("axes", axes->ints.v, axes->ints.n),
                               IR_ARG_BOOL("keep", ir_ctx_int(ctx, "keep"))});
    out[0] = ir_b_cast(&b, ir_b_div_count(&b, sum, count_of(&ctx->in[0], axes)), dtype);
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_reduce(ctx, list);
    ir_strategies_partial(ctx, list, 1u << 0);
}

const ir_op_def_t ir_op_reduce_mean = {
    .op = IR_OP_REDUCE_MEAN,
    .name = "reduce_mean",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_LINEAR | IR_REDUCTION,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
    .expand = expand,
};
