/* batch_norm_apply: (x - mean) * invstd * w + b by channel.
 *
 * `train` says what the statistics are to the gradient:
 *   true    x's own over `count` items a channel (global): dx is the total derivative, and the
 *           statistics' inputs get none, since theirs is already in dx
 *   false   constants */
#include "ir/build.h"
#include "ir/define.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {
    {"train", IR_ATTR_BOOL, false, 0, NULL}, {"count", IR_ATTR_INT, false, 0, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_type_t *x = &ctx->in[0];
    static const char *const names[5] = {"x", "mean", "invstd", "weight", "bias"};
    char text[IR_TYPE_TEXT_BYTES];
    TRY(ir_need_float(ctx, 0, "x"));
    if (x->rank < 2)
        return FAIL(ST_INVALID, "x is %s, at least [batch, channels] is needed",
                    ir_type_text(x, text, sizeof text));
    for (uint32_t j = 1; j < 3; j++)
        TRY(ir_need_shape(ctx, j, names[j], ir_dtype_wide(x->dtype), 1, &x->dims[1]));
    for (uint32_t j = 3; j < 5; j++)
        TRY(ir_need_beside(ctx, j, names[j], x->dtype, 1, &x->dims[1]));
    if (ir_ctx_int(ctx, "train") && ir_ctx_int(ctx, "count") < 1)
        return FAIL(ST_INVALID, "count is %lld: with train it is the number of items a channel",
                    (long long)ir_ctx_int(ctx, "count"));
    out[0] = *x;
    return ST_OK;
}

/* A vector over the channels, shaped to broadcast over x. */
static ir_value_t by_channel(ir_build_t *b, ir_value_t vector, const ir_type_t *x) {
    int64_t dims[IR_MAX_RANK];
    for (int32_t i = 1; i < x->rank; i++) dims[i - 1] = i == 1 ? x->dims[1] : 1;
    return ir_b_reshape(b, vector, x->rank - 1, dims);
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE) return ST_OK;
    const bool train = ir_attr_int(&info, "train");
    const ir_value_t x = info.inputs[0], mean = info.inputs[1], invstd = info.inputs[2];
    const ir_type_t type = *ir_value_type(graph, x);
    if (!train) {
        TRY(ir_no_input_gradient(want, 1, "mean"));
        TRY(ir_no_input_gradient(want, 2, "invstd"));
    }
    ir_build_t b = {.graph = graph};
    if ((train && want[0]) || want[3] || want[4]) {
        ir_value_t sum = ir_b_node(&b, IR_OP_BATCH_NORM_GRAD_SUMS, 4,
                                   (ir_value_t[]){dout[0], x, mean, invstd}, 0, NULL);
        if (want[3]) din[3] = ir_b_cast(&b, sum + 1, ir_b_type(&b, info.inputs[3])->dtype);
        if (want[4]) din[4] = ir_b_cast(&b, sum, ir_b_type(&b, info.inputs[4])->dtype);
        if (train && want[0])
            din[0] =
                ir_b_node(&b, IR_OP_BATCH_NORM_GRAD_APPLY, 7,
                          (ir_value_t[]){dout[0], x, mean, invstd, info.inputs[3], sum, sum + 1}, 1,
                          (ir_arg_t[]){IR_ARG_INT("count", ir_attr_int(&info, "count"))});
    }
    if (!train && want[0]) {
        const ir_dtype_t wide = ir_dtype_wide(type.dtype);
        ir_value_t factor = ir_b_binary(&b, IR_OP_MUL, ir_b_cast(&b, info.inputs[3], wide), invstd);
        ir_value_t dx =
            ir_b_binary(&b, IR_OP_MUL, ir_b_cast(&b, dout[0], wide), by_channel(&b, factor, &type));
        din[0] = ir_b_cast(&b, dx, type.dtype);
    }
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_dims(ctx, list, ~(1u << 1), 1u << 0, 1u << 0, 0);
}

const ir_op_def_t ir_op_batch_norm_apply = {
    .op = IR_OP_BATCH_NORM_APPLY,
    .name = "batch_norm_apply",
    .min_inputs = 5,
    .max_inputs = 5,
    .n_outputs = 1,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
    .define = ir_define_batch_norm_apply,
};
