/* conv_grad_weight: the adjoint of conv in its weight. `kernel` names the weight's spatial dims. */
#include "ir/op.h"
#include "ir/rules_nn.h"
#include "ir/window.h"

static const ir_attr_spec_t attrs[] = {
    {"strides", IR_ATTR_INTS, true, 0, NULL},        {"pads_low", IR_ATTR_INTS, true, 0, NULL},
    {"pads_high", IR_ATTR_INTS, true, 0, NULL},      {"dilations", IR_ATTR_INTS, true, 0, NULL},
    {"groups", IR_ATTR_INT, false, 1, NULL},         {"kernel", IR_ATTR_INTS, true, 0, NULL},
    {"channels_last", IR_ATTR_BOOL, false, 0, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const bool last = ir_ctx_int(ctx, "channels_last");
    const ir_type_t plain_x = ir_channels_first(&ctx->in[0], last), *x = &plain_x;
    const ir_type_t plain_y = ir_channels_first(&ctx->in[1], last), *dy = &plain_y;
    int64_t groups = ir_ctx_int(ctx, "groups");
    char text_x[IR_TYPE_TEXT_BYTES], text_y[IR_TYPE_TEXT_BYTES];
    ir_type_text(&ctx->in[0], text_x, sizeof text_x);
    ir_type_text(&ctx->in[1], text_y, sizeof text_y);
    if (!ir_dtype_is_float(x->dtype) || dy->dtype != x->dtype || x->rank < 3 ||
        dy->rank != x->rank || x->dims[0] != dy->dims[0])
        return FAIL(
            ST_INVALID,
            "x %s and dy %s: one float type, equal ranks of 3 to %d and equal batches are needed",
            text_x, text_y, 2 + IR_MAX_SPATIAL);
    if (groups < 1 || x->dims[1] % groups || dy->dims[1] % groups)
        return FAIL(ST_INVALID, "x %s and dy %s do not fit %lld groups", text_x, text_y,
                    (long long)groups);
    ir_window_t window;
    st_status_t status = ir_window_read(ctx, x->rank - 2, x->dims + 2, NULL, &window);
    if (status != ST_OK) return st_error_context(status, "x %s, dy %s", text_x, text_y);
    ir_type_t dw =
        ir_type_make(x->dtype, x->rank, (int64_t[IR_MAX_RANK]){dy->dims[1], x->dims[1] / groups});
    for (int32_t i = 0; i < window.n; i++) {
        if (window.out[i] != dy->dims[2 + i])
            return FAIL(
                ST_INVALID,
                "dy %s: a convolution of x %s with kernel %lld gives %lld in spatial dim %d",
                text_y, text_x, (long long)window.kernel[i], (long long)window.out[i], (int)i);
        dw.dims[2 + i] = window.kernel[i];
    }
    out[0] = ir_channels_stored(&dw, last);
    return ST_OK;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_dims(ctx, list, 1u << 0, 1u << 0 | 1u << 1, 0, 1u << 0);
    ir_strategies_linear(list, 0);
    ir_strategies_linear(list, 1);
}

const ir_op_def_t ir_op_conv_grad_weight = {
    .op = IR_OP_CONV_GRAD_WEIGHT,
    .name = "conv_grad_weight",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_BACKWARD | IR_CONTRACTION,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "backward op",
    .strategies = strategies,
};
