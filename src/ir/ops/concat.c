/* concat: joins tensors along one axis. */
#include "ir/build.h"
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {{"axis", IR_ATTR_INT, true, 0, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    char ta[IR_TYPE_TEXT_BYTES], tb[IR_TYPE_TEXT_BYTES];
    int64_t axis = ir_ctx_int(ctx, "axis");
    *out = ctx->in[0];
    TRY(ir_check_axis(axis, out));
    for (uint32_t j = 1; j < ctx->n_inputs; j++) {
        const ir_type_t *x = &ctx->in[j];
        bool same = x->dtype == out->dtype && x->rank == out->rank;
        for (int32_t i = 0; same && i < x->rank; i++)
            same = i == axis || x->dims[i] == out->dims[i];
        if (!same || !st_add_i64(out->dims[axis], x->dims[axis], &out->dims[axis]))
            return FAIL(ST_INVALID, "inputs 0 and %u are %s and %s: all but dim %lld must agree", j,
                        ir_type_text(&ctx->in[0], ta, sizeof ta), ir_type_text(x, tb, sizeof tb),
                        (long long)axis);
    }
    return ST_OK;
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE) return ST_OK;
    ir_build_t b = {.graph = graph};
    int32_t axis = (int32_t)ir_attr_int(&info, "axis");
    int64_t begin = 0;
    for (uint32_t j = 0; j < info.n_inputs; j++) {
        int64_t end = begin + ir_value_type(graph, info.inputs[j])->dims[axis];
        if (want[j]) din[j] = ir_b_slice_axis(&b, dout[0], axis, begin, end);
        begin = end;
    }
    return b.status;
}

/* All inputs alike: split on another dim than the axis, or partial. */
static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    int64_t axis = ir_ctx_int(ctx, "axis");
    for (uint32_t j = 0; j < ctx->n_inputs; j++) {
        ir_placement_t have = list->have[j];
        if (have.kind == IR_REPLICATE || (have.kind == IR_SPLIT && have.dim == axis)) continue;
        ir_strategy_t *made = ir_strategy_add(list);
        if (!made) return;
        for (uint32_t i = 0; i < ctx->n_inputs && i < IR_MAX_OPERANDS; i++) made->in[i] = have;
        made->out[0] = have;
        ir_strategy_unique(list);
    }
}

const ir_op_def_t ir_op_concat = {
    .op = IR_OP_CONCAT,
    .name = "concat",
    .min_inputs = 1,
    .max_inputs = IR_VARIADIC,
    .n_outputs = 1,
    .flags = IR_LINEAR,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
};
