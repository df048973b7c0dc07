/* avg_pool_grad: the adjoint of avg_pool: spreads each element of dy over its window in equal
 * shares. */
#include "ir/op.h"
#include "ir/rules_nn.h"
#include "ir/window.h"

static const ir_attr_spec_t attrs[] = {{"kernel", IR_ATTR_INTS, true, 0, NULL},
                                       {"strides", IR_ATTR_INTS, true, 0, NULL},
                                       {"pads_low", IR_ATTR_INTS, true, 0, NULL},
                                       {"pads_high", IR_ATTR_INTS, true, 0, NULL},
                                       {"ceil", IR_ATTR_BOOL, false, 0, NULL},
                                       {"count_pad", IR_ATTR_BOOL, false, 0, NULL},
                                       {"spatial", IR_ATTR_INTS, true, 0, NULL},
                                       {"channels_last", IR_ATTR_BOOL, false, 0, NULL},
                                       {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const bool last = ir_ctx_int(ctx, "channels_last");
    const ir_type_t plain = ir_channels_first(&ctx->in[0], last), *dy = &plain;
    int64_t spatial[IR_MAX_SPATIAL];
    char text[IR_TYPE_TEXT_BYTES];
    ir_type_text(&ctx->in[0], text, sizeof text);
    TRY(ir_need_float(ctx, 0, "dy"));
    if (dy->rank < 3 || dy->rank > 2 + IR_MAX_SPATIAL)
        return FAIL(ST_INVALID, "dy is %s, rank 3 to %d is needed", text, 2 + IR_MAX_SPATIAL);
    TRY(ir_window_ints(ctx, "spatial", dy->rank - 2, 0, spatial));
    ir_window_t window;
    st_status_t status = ir_window_read(ctx, dy->rank - 2, spatial, NULL, &window);
    if (status == ST_OK && !ir_ctx_int(ctx, "count_pad")) status = ir_window_need_items(&window);
    if (status != ST_OK) return st_error_context(status, "dy %s", text);
    ir_type_t dx = *dy;
    for (int32_t i = 0; i < window.n; i++) {
        if (window.out[i] != dy->dims[2 + i])
            return FAIL(ST_INVALID, "dy %s: pooling %lld positions gives %lld in spatial dim %d",
                        text, (long long)spatial[i], (long long)window.out[i], (int)i);
        dx.dims[2 + i] = spatial[i];
    }
    out[0] = ir_channels_stored(&dx, last);
    return ST_OK;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_dims(ctx, list, ir_window_free_dims(ctx), 1u << 0, 1u << 0, 0);
    ir_strategies_linear(list, 0);
}

const ir_op_def_t ir_op_avg_pool_grad = {
    .op = IR_OP_AVG_POOL_GRAD,
    .name = "avg_pool_grad",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_BACKWARD | IR_LINEAR,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "backward op",
    .strategies = strategies,
};
