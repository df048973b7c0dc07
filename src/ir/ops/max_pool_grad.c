/* max_pool_grad: adds each element of dy to the position of dx that its index names. The pool's
 * window, if it is given (`kernel` is not empty), says which outputs may name a position, so that a
 * kernel can gather them. */
#include "ir/op.h"
#include "ir/rules_nn.h"
#include "ir/window.h"

static const ir_attr_spec_t attrs[] = {{"spatial", IR_ATTR_INTS, true, 0, NULL},
                                       {"kernel", IR_ATTR_INTS, false, 0, NULL},
                                       {"strides", IR_ATTR_INTS, false, 0, NULL},
                                       {"pads_low", IR_ATTR_INTS, false, 0, NULL},
                                       {"pads_high", IR_ATTR_INTS, false, 0, NULL},
                                       {"dilations", IR_ATTR_INTS, false, 0, NULL},
                                       {"ceil", IR_ATTR_BOOL, false, 0, NULL},
                                       {"channels_last", IR_ATTR_BOOL, false, 0, NULL},
                                       {0}};

/* The window, where it is given, makes dy of dx. */
static st_status_t check_window(const ir_op_ctx_t *ctx, const ir_type_t *dy, const ir_type_t *dx) {
    ir_window_t window;
    char text[IR_TYPE_TEXT_BYTES];
    if (!ir_ctx_attr(ctx, "kernel")->ints.n) return ST_OK;
    TRY(ir_window_read(ctx, dx->rank - 2, dx->dims + 2, NULL, &window));
    for (int32_t i = 0; i < window.n; i++)
        if (window.out[i] != dy->dims[2 + i])
            return FAIL(ST_INVALID, "dy %s: pooling %lld positions gives %lld in spatial dim %d",
                        ir_type_text(&ctx->in[0], text, sizeof text), (long long)window.in[i],
                        (long long)window.out[i], (int)i);
    return ST_OK;
}

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_type_t *dy = &ctx->in[0];
    char text[IR_TYPE_TEXT_BYTES];
    TRY(ir_need_float(ctx, 0, "dy"));
    if (dy->rank < 3 || dy->rank > 2 + IR_MAX_SPATIAL)
        return FAIL(ST_INVALID, "dy is %s, rank 3 to %d is needed",
                    ir_type_text(dy, text, sizeof text), 2 + IR_MAX_SPATIAL);
    TRY(ir_need_shape(ctx, 1, "index", IR_I32, dy->rank, dy->dims));
    const bool last = ir_ctx_int(ctx, "channels_last");
    const ir_type_t plain = ir_channels_first(dy, last);
    ir_type_t dx = plain;
    TRY(ir_window_ints(ctx, "spatial", dy->rank - 2, 0, dx.dims + 2));
    TRY(check_window(ctx, &plain, &dx));
    out[0] = ir_channels_stored(&dx, last);
    return ST_OK;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_dims(ctx, list, ir_window_free_dims(ctx), 1u << 0 | 1u << 1, 1u << 0, 0);
    ir_strategies_linear(list, 0);
}

const ir_op_def_t ir_op_max_pool_grad = {
    .op = IR_OP_MAX_POOL_GRAD,
    .name = "max_pool_grad",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_BACKWARD,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "backward op",
    .strategies = strategies,
};
