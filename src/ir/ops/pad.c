/* pad: puts `low` elements before and `high` after each dim; entries are not negative. */
#include "ir/build.h"
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {
    {"low", IR_ATTR_INTS, true, 0, NULL},
    {"high", IR_ATTR_INTS, true, 0, NULL},
    {"value", IR_ATTR_FLOAT, false, 0, NULL},
    {0},
};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    char text[IR_TYPE_TEXT_BYTES];
    const ir_type_t *x = &ctx->in[0];
    const ir_attr_t *low = ir_ctx_attr(ctx, "low"), *high = ir_ctx_attr(ctx, "high");
    if (low->ints.n != (uint32_t)x->rank || high->ints.n != (uint32_t)x->rank)
        return FAIL(ST_INVALID, "low has %u and high %u entries, %s needs %d of each", low->ints.n,
                    high->ints.n, ir_type_text(x, text, sizeof text), (int)x->rank);
    *out = *x;
    for (int32_t i = 0; i < x->rank; i++) {
        int64_t before = low->ints.v[i], after = high->ints.v[i];
        if (before < 0 || after < 0 || !st_add_i64(out->dims[i], before, &out->dims[i]) ||
            !st_add_i64(out->dims[i], after, &out->dims[i]))
            return FAIL(
                ST_INVALID, "padding %lld and %lld of dim %d of %s is negative or too large",
                (long long)before, (long long)after, (int)i, ir_type_text(x, text, sizeof text));
    }
    return ST_OK;
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    const ir_type_t x = *ir_value_type(graph, info.inputs[0]);
    const ir_attr_t *low = ir_node_attr(&info, "low");
    int64_t end[IR_MAX_RANK], step[IR_MAX_RANK];
    for (int32_t i = 0; i < x.rank; i++) end[i] = low->ints.v[i] + x.dims[i], step[i] = 1;
    din[0] =
        ir_b_node(&b, IR_OP_SLICE, 1, dout, 3,
                  (ir_arg_t[]){IR_ARG_INTS("begin", low->ints.v, x.rank),
                               IR_ARG_INTS("end", end, x.rank), IR_ARG_INTS("step", step, x.rank)});
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    const ir_attr_t *low = ir_ctx_attr(ctx, "low"), *high = ir_ctx_attr(ctx, "high");
    int32_t to_out[IR_MAX_RANK];
    for (int32_t i = 0; i < ctx->in[0].rank; i++)
        to_out[i] = low->ints.v[i] == 0 && high->ints.v[i] == 0 ? i : -1;
    ir_strategies_map(ctx, list, 0, to_out);
    if (ir_ctx_attr(ctx, "value")->f == 0) ir_strategies_partial(ctx, list, 1u << 0);
}

const ir_op_def_t ir_op_pad = {
    .op = IR_OP_PAD,
    .name = "pad",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_PURE,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
};
