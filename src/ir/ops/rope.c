/* rope: rotates pairs of features by position. With the pair (a, b), the angle's cos c and sin s:
 *
 *   a' = a * c - b * s
 *   b' = a * s + b * c      (inverse: s negated)
 *
 * x is [batch, heads, rows, features]; with rows_first [batch, rows, heads, features], as products
 * over [batch, rows, heads · features] make it. Pairs are (i, i + D/2), or (2i, 2i + 1) if
 * interleaved; pair i of row m has the angle of cos[m, i]. A rotation's adjoint is its inverse, so
 * the gradient is rope again. */
#include "ir/build.h"
#include "ir/define.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"interleaved", IR_ATTR_BOOL, false, 0, NULL},
                                       {"inverse", IR_ATTR_BOOL, false, 0, NULL},
                                       {"rows_first", IR_ATTR_BOOL, false, 0, NULL},
                                       {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_type_t *x = &ctx->in[0];
    char text[IR_TYPE_TEXT_BYTES];
    if (!ir_dtype_is_float(x->dtype) || x->rank != 4 || x->dims[3] % 2)
        return FAIL(ST_INVALID,
                    "x is %s, float [batch, heads, rows, features] (rows_first: rows before heads) "
                    "with an even number of features is needed",
                    ir_type_text(x, text, sizeof text));
    const int64_t angles[2] = {x->dims[ir_ctx_int(ctx, "rows_first") ? 1 : 2], x->dims[3] / 2};
    TRY(ir_need_beside(ctx, 1, "cos", x->dtype, 2, angles));
    TRY(ir_need_beside(ctx, 2, "sin", x->dtype, 2, angles));
    out[0] = *x;
    return ST_OK;
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    TRY(ir_no_input_gradient(want, 1, "cos"));
    TRY(ir_no_input_gradient(want, 2, "sin"));
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    din[0] =
        ir_b_node(&b, IR_OP_ROPE, 3, (ir_value_t[]){dout[0], info.inputs[1], info.inputs[2]}, 3,
                  (ir_arg_t[]){IR_ARG_BOOL("interleaved", ir_attr_int(&info, "interleaved")),
                               IR_ARG_BOOL("inverse", !ir_attr_int(&info, "inverse")),
                               IR_ARG_BOOL("rows_first", ir_attr_int(&info, "rows_first"))});
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_strategies_dims(ctx, list, 1u << 0 | (ir_ctx_int(ctx, "rows_first") ? 1u << 2 : 1u << 1),
                       1u << 0, 1u << 0, 0);
    const int32_t rows = ir_ctx_int(ctx, "rows_first") ? 1 : 2;
    for (uint32_t j = 0; j < 3; j++) { /* rows: x's with dim 0 of the angles */
        if (list->have[j].kind != IR_SPLIT || list->have[j].dim != (j ? 0 : rows)) continue;
        ir_strategy_t item = {0};
        item.in[0] = item.out[0] = IR_PLACE_SPLIT(rows, list->have[j].granules);
        item.in[1] = item.in[2] = IR_PLACE_SPLIT(0, list->have[j].granules);
        ir_strategy_add_new(ctx, list, &item);
    }
    ir_strategies_linear(list, 0);
}

const ir_op_def_t ir_op_rope = {
    .op = IR_OP_ROPE,
    .name = "rope",
    .min_inputs = 3,
    .max_inputs = 3,
    .n_outputs = 1,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
    .define = ir_define_rope,
};
