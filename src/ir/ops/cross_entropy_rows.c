/* cross_entropy_rows: loss, weight and log-sum-exp of each row (formulas in cross_entropy.c). A
 * label that is neither a class nor ignore_index is an error of the step that names row and label;
 * ignore_index itself may be any number, a class too.
 *
 * Gradient: only the losses carry one. The weights depend on labels and class weights alone, so
 * what arrives there is dropped. */
#include "ir/build.h"
#include "ir/define.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"ignore_index", IR_ATTR_INT, false, -100, NULL},
                                       {"smoothing", IR_ATTR_FLOAT, false, 0, NULL},
                                       {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_type_t *logits = &ctx->in[0], *labels = &ctx->in[1];
    const double smoothing = ir_ctx_attr(ctx, "smoothing")->f;
    char tx[IR_TYPE_TEXT_BYTES], ty[IR_TYPE_TEXT_BYTES];
    if (!ir_dtype_is_float(logits->dtype) || logits->rank != 2 ||
        (labels->dtype != IR_I32 && labels->dtype != IR_I64) || labels->rank != 1 ||
        labels->dims[0] != logits->dims[0])
        return FAIL(
            ST_INVALID,
            "logits %s and labels %s: float [rows, classes] and i32 or i64 [rows] are needed",
            ir_type_text(logits, tx, sizeof tx), ir_type_text(labels, ty, sizeof ty));
    if (!(smoothing >= 0 && smoothing <= 1))
        return FAIL(ST_INVALID, "smoothing is %g, 0 to 1 is needed", smoothing);
    if (ctx->n_inputs > 2)
        TRY(ir_need_beside(ctx, 2, "class weight", logits->dtype, 1, &logits->dims[1]));
    for (int k = 0; k < 3; k++)
        out[k] = ir_type_make(ir_dtype_wide(logits->dtype), 1, logits->dims);
    return ST_OK;
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    TRY(ir_no_output_gradient(dout, 2, "lse"));
    if (info.n_inputs > 2) TRY(ir_no_input_gradient(want, 2, "class weight"));
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    ir_value_t in[5] = {dout[0], info.inputs[0], info.inputs[1], info.first_output + 2, IR_NONE};
    if (info.n_inputs > 2) in[4] = info.inputs[2];
    ir_arg_t args[2];
    for (int i = 0; i < 2; i++) args[i] = (ir_arg_t){attrs[i].key, info.attrs[i]};
    din[0] = ir_b_node(&b, IR_OP_CROSS_ENTROPY_GRAD, info.n_inputs + 2, in, 2, args);
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_dims(ctx, list, 1u << 0, ir_first_bits(2), ir_first_bits(3), 0);
}

const ir_op_def_t ir_op_cross_entropy_rows = {
    .op = IR_OP_CROSS_ENTROPY_ROWS,
    .name = "cross_entropy_rows",
    .min_inputs = 2,
    .max_inputs = 3,
    .n_outputs = 3,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
    .define = ir_define_cross_entropy_rows,
    .labels = 2,
};
