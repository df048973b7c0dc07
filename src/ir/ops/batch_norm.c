/* batch_norm: normalizes each channel (dim 1) over all other dims.
 *
 *   train   mean and variance of the whole batch on any number of ranks; the running statistics
 *           move towards them by `momentum` (the weight of the new value), the variance by its
 *           unbiased form if `unbiased`
 *   else    the running statistics, which stay as they are
 *
 * Pure composite: it is expanded before differentiation, where batch_norm_apply carries the
 * gradient. */
#include "ir/build.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"eps", IR_ATTR_FLOAT, false, 1e-5, NULL},
                                       {"momentum", IR_ATTR_FLOAT, false, 0.1, NULL},
                                       {"unbiased", IR_ATTR_BOOL, false, 1, NULL},
                                       {"train", IR_ATTR_BOOL, false, 1, NULL},
                                       {0}};

/* Values a channel, over the global batch. */
static int64_t channel_items(const ir_type_t *x) {
    int64_t n = 1;
    for (int32_t i = 0; i < x->rank; i++)
        if (i != 1) n *= x->dims[i];
    return n;
}

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_type_t *x = &ctx->in[0];
    static const char *const names[5] = {"x", "weight", "bias", "running mean", "running variance"};
    char text[IR_TYPE_TEXT_BYTES];
    ir_type_text(x, text, sizeof text);
    TRY(ir_need_float(ctx, 0, "x"));
    if (x->rank < 2) return FAIL(ST_INVALID, "x is %s, at least [batch, channels] is needed", text);
    for (uint32_t j = 1; j < 5; j++)
        TRY(ir_need_beside(ctx, j, names[j], x->dtype, 1, &x->dims[1]));
    if (ir_ctx_int(ctx, "train") && x->dims[1] && channel_items(x) < 2)
        return FAIL(
            ST_INVALID,
            "x is %s: training needs at least two values a channel, there are %lld; use a larger "
            "batch or train=false",
            text, (long long)channel_items(x));
    out[0] = *x;
    out[1] = out[2] = ir_type_make(ir_dtype_wide(x->dtype), 1, &x->dims[1]);
    for (int k = 3; k < 5; k++) out[k] = ctx->in[k];
    return ST_OK;
}

/* old + momentum * (new - old), in the type of `target`, stored in that of `old` */
static ir_value_t moved(ir_build_t *b, ir_value_t old, ir_value_t target, double momentum) {
    const ir_dtype_t held = ir_b_type(b, old)->dtype;
    ir_value_t from = ir_b_cast(b, old, ir_b_type(b, target)->dtype);
    ir_value_t step = ir_b_scale(b, ir_b_binary(b, IR_OP_SUB, target, from), momentum);
    return ir_b_cast(b, ir_b_binary(b, IR_OP_ADD, from, step), held);
}

static st_status_t expand(ir_graph_t *graph, const ir_op_ctx_t *ctx, const ir_value_t *inputs,
                          ir_value_t *out) {
    ir_build_t b = {.graph = graph, .name = ctx->name};
    const ir_type_t *x = &ctx->in[0];
    const double eps = ir_ctx_attr(ctx, "eps")->f, momentum = ir_ctx_attr(ctx, "momentum")->f;
    const bool train = ir_ctx_int(ctx, "train");
    const int64_t items = channel_items(x);
    const ir_dtype_t wide = ir_dtype_wide(x->dtype);
    ir_value_t mean = IR_NONE, variance = IR_NONE, squares = IR_NONE;
    if (!train) {
        mean = ir_b_cast(&b, inputs[3], wide);
        variance = ir_b_cast(&b, inputs[4], wide);
    } else {
        ir_value_t n = ir_b_scalar(&b, wide, (double)items);
        mean = ir_b_binary(&b, IR_OP_DIV, ir_b_unary(&b, IR_OP_CHANNEL_SUM, inputs[0]), n);
        squares = ir_b_binary(&b, IR_OP_CHANNEL_CENTERED_SQUARES, inputs[0], mean);
        variance = ir_b_binary(&b, IR_OP_DIV, squares, n);
    }
    ir_value_t invstd = ir_b_unary(&b, IR_OP_RSQRT, ir_b_add_scalar(&b, variance, eps));
    out[0] = ir_b_node(
        &b, IR_OP_BATCH_NORM_APPLY, 5,
        (ir_value_t[]){inputs[0], mean, invstd, inputs[1], inputs[2]}, 2,
        (ir_arg_t[]){IR_ARG_BOOL("train", train), IR_ARG_INT("count", train ? items : 0)});
    out[1] = mean;
    out[2] = invstd;
    out[3] = inputs[3];
    out[4] = inputs[4];
    if (train) {
        if (ir_ctx_int(ctx, "unbiased"))
            variance =
                ir_b_binary(&b, IR_OP_DIV, squares, ir_b_scalar(&b, wide, (double)(items - 1)));
        out[3] = moved(&b, inputs[3], mean, momentum);
        out[4] = moved(&b, inputs[4], variance, momentum);
    }
    return b.status;
}

const ir_op_def_t ir_op_batch_norm = {
    .op = IR_OP_BATCH_NORM,
    .name = "batch_norm",
    .min_inputs = 5,
    .max_inputs = 5,
    .n_outputs = 5,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "expands before differentiation",
    .strategies = ir_strategies_none,
    .expand = expand,
};
