/* gather_along: out[..i..] = x[..idx[..i..]..]: one element of x per index, chosen along the axis
 * (NumPy's take_along_axis without broadcasting). */
#include "ir/build.h"
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {{"axis", IR_ATTR_INT, true, 0, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    char tx[IR_TYPE_TEXT_BYTES], ti[IR_TYPE_TEXT_BYTES];
    const ir_type_t *x = &ctx->in[0], *idx = &ctx->in[1];
    int64_t axis = ir_ctx_int(ctx, "axis");
    TRY(ir_check_index(ctx, 1));
    TRY(ir_check_axis(axis, x));
    bool fits = x->rank == idx->rank;
    for (int32_t i = 0; fits && i < x->rank; i++) fits = i == axis || x->dims[i] == idx->dims[i];
    if (!fits || (x->dims[axis] == 0 && ir_type_elements(idx) > 0))
        return FAIL(ST_INVALID,
                    "x %s and index %s must agree in all dims but %lld, which holds one "
                    "element or more",
                    ir_type_text(x, tx, sizeof tx), ir_type_text(idx, ti, sizeof ti),
                    (long long)axis);
    *out = *idx;
    out->dtype = x->dtype;
    return ST_OK;
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    return ir_gradient_scattered(graph, node, IR_OP_SCATTER_ALONG_ADD, dout, want, din);
}

/* Another dim: both split. The axis: the index alone, which may choose from all of x. */
static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    int64_t axis = ir_ctx_int(ctx, "axis");
    for (uint32_t j = 0; j < 2; j++) {
        ir_placement_t have = list->have[j];
        if (have.kind != IR_SPLIT || (j == 0 && have.dim == axis)) continue;
        ir_strategy_t *made = ir_strategy_add(list);
        if (!made) return;
        if (have.dim != axis) made->in[0] = have;
        made->in[1] = have;
        made->out[0] = have;
        ir_strategy_unique(list);
    }
    ir_strategies_partial(ctx, list, 1u << 0);
}

const ir_op_def_t ir_op_gather_along = {
    .op = IR_OP_GATHER_ALONG,
    .name = "gather_along",
    .min_inputs = 2,
    .max_inputs = 2,
    .n_outputs = 1,
    .flags = IR_PURE,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
};
