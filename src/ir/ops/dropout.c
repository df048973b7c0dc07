/* dropout: 0 with probability p, else x / (1 - p); x itself if not in training, and 0 everywhere if
 * p is 1.
 *
 * The mask is a pure function of (seed, id, step, global element index): element i of x stands at
 * begin + i in a tensor of shape `global` (both empty: x is the whole), the tensor after `part`
 * others like it (none given: 0), which tells the iterations of a repeat apart. So a rank's part, a
 * micro-batch's part and the backward pass, which is dropout of the gradient, all see the same
 * mask. */
#include "ir/build.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {
    {"p", IR_ATTR_FLOAT, true, 0, NULL},     {"id", IR_ATTR_INT, true, 0, NULL},
    {"begin", IR_ATTR_INTS, false, 0, NULL}, {"global", IR_ATTR_INTS, false, 0, NULL},
    {"train", IR_ATTR_BOOL, false, 1, NULL}, {0}};
enum { ATTR_P, ATTR_ID, ATTR_BEGIN, ATTR_GLOBAL, ATTR_TRAIN, N_ATTRS };

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_type_t *x = &ctx->in[0];
    const double p = ctx->attrs[ATTR_P].f;
    TRY(ir_need_float(ctx, 0, "x"));
    TRY(ir_need_shape(ctx, 1, "seed", IR_I64, 0, NULL));
    TRY(ir_need_shape(ctx, 2, "step", IR_I64, 0, NULL));
    if (ctx->n_inputs > 3) TRY(ir_need_shape(ctx, 3, "part", IR_I64, 0, NULL));
    if (!(p >= 0 && p <= 1)) return FAIL(ST_INVALID, "p is %g, 0 to 1 is needed", p);
    out[0] = *x;
    return ir_check_window(ctx, x);
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    if (!info.attrs[ATTR_TRAIN].i) {
        din[0] = dout[0];
        return ST_OK;
    }
    ir_build_t b = {.graph = graph};
    ir_arg_t args[N_ATTRS];
    for (int i = 0; i < N_ATTRS; i++) args[i] = (ir_arg_t){attrs[i].key, info.attrs[i]};
    ir_value_t in[4] = {dout[0]};
    for (uint32_t j = 1; j < info.n_inputs; j++) in[j] = info.inputs[j];
    din[0] = ir_b_node(&b, IR_OP_DROPOUT, info.n_inputs, in, N_ATTRS, args);
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_dims(ctx, list, UINT32_MAX, 1u << 0, 1u << 0, 0);
    ir_strategies_linear(list, 0);
}

const ir_op_def_t ir_op_dropout = {
    .op = IR_OP_DROPOUT,
    .name = "dropout",
    .min_inputs = 3,
    .max_inputs = 4,
    .n_outputs = 1,
    .flags = IR_RANDOM,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
    .localize = ir_localize_window,
    .reuse = {1},
};
