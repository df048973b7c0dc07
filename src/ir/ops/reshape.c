/* reshape: the same elements in row-major order under another shape; a view. */
#include "ir/build.h"
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {{"shape", IR_ATTR_INTS, true, 0, NULL}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    char tx[IR_TYPE_TEXT_BYTES], tw[IR_TYPE_TEXT_BYTES];
    const ir_type_t *x = &ctx->in[0];
    TRY(ir_shape_of_attribute(ctx, out));
    if (ir_type_elements(x) == ir_type_elements(out)) return ST_OK;
    return FAIL(ST_INVALID, "%s does not reshape to %s: %lld and %lld elements",
                ir_type_text(x, tx, sizeof tx), ir_type_text(out, tw, sizeof tw),
                (long long)ir_type_elements(x), (long long)ir_type_elements(out));
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    const ir_type_t type = *ir_value_type(graph, info.inputs[0]);
    din[0] = ir_b_reshape(&b, dout[0], type.rank, type.dims);
    return b.status;
}

/* A split of x's dim d into G granules cuts the elements into blocks: [before][G][rest]. Any dim of
 * the output with as many elements before it and a size that G divides is cut into the same blocks:
 *
 *   x [8, 4·32, 64] dim 1, G = 4     →  [8, 4, 32, 64] dim 1, G = 4     but not  [8·4·32, 64]
 *   x [8·32, 64]    dim 0, G = 8     →  [8, 32, 64]    dim 0, G = 8
 *
 * Of several such dims (beside dims of size 1) the one of x's size is preferred. -1: there is none.
 */
static int32_t output_dim(const ir_type_t *x, const ir_type_t *out, int32_t dim, int64_t granules) {
    int64_t before = 1, out_before = 1;
    for (int32_t i = 0; i < dim; i++) before *= x->dims[i];
    int32_t found = -1;
    for (int32_t e = 0; e < out->rank; e++) {
        bool divides = granules ? out->dims[e] % granules == 0 : out->dims[e] == 0;
        if (out_before == before && divides && (found < 0 || out->dims[e] == x->dims[dim])) {
            found = e;
            if (out->dims[e] == x->dims[dim]) break;
        }
        out_before *= out->dims[e];
    }
    return found;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_type_t out;
    ir_ctx_outputs(ctx, &out);
    int32_t to_out[IR_MAX_RANK] = {0};
    if (list->have[0].kind == IR_SPLIT) {
        int32_t dim = list->have[0].dim;
        to_out[dim] = output_dim(&ctx->in[0], &out, dim, list->have[0].granules);
        ir_strategies_map(ctx, list, 0, to_out);
    }
    ir_strategies_partial(ctx, list, 1u << 0);
}

const ir_op_def_t ir_op_reshape = {
    .op = IR_OP_RESHAPE,
    .name = "reshape",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_VIEW | IR_LINEAR,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
    .localize = ir_localize_shape,
    .reuse = {1},
};
