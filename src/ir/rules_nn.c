/* Shared rules of the larger ops. See rules_nn.h. */
#include "ir/rules_nn.h"

#include <string.h>

#include "ir/build.h"

/* ---- checks ---- */

st_status_t ir_need_float(const ir_op_ctx_t *ctx, uint32_t j, const char *what) {
    char text[IR_TYPE_TEXT_BYTES];
    if (!ir_dtype_is_float(ctx->in[j].dtype))
        return FAIL(ST_INVALID, "%s is %s, a float type is needed", what,
                    ir_type_text(&ctx->in[j], text, sizeof text));
    return ST_OK;
}

st_status_t ir_need_type(const ir_op_ctx_t *ctx, uint32_t j, const char *what,
                         const ir_type_t *expected) {
    char given[IR_TYPE_TEXT_BYTES], wanted[IR_TYPE_TEXT_BYTES];
    if (!ir_type_equal(&ctx->in[j], expected))
        return FAIL(ST_INVALID, "%s is %s, expected %s", what,
                    ir_type_text(&ctx->in[j], given, sizeof given),
                    ir_type_text(expected, wanted, sizeof wanted));
    return ST_OK;
}

st_status_t ir_need_shape(const ir_op_ctx_t *ctx, uint32_t j, const char *what, ir_dtype_t dtype,
                          int32_t rank, const int64_t *dims) {
    ir_type_t expected = ir_type_make(dtype, rank, dims);
    return ir_need_type(ctx, j, what, &expected);
}

st_status_t ir_need_beside(const ir_op_ctx_t *ctx, uint32_t j, const char *what, ir_dtype_t dtype,
                           int32_t rank, const int64_t *dims) {
    if (ctx->in[j].dtype == ir_dtype_wide(dtype)) dtype = ir_dtype_wide(dtype);
    return ir_need_shape(ctx, j, what, dtype, rank, dims);
}

st_status_t ir_need_gradient(const ir_op_ctx_t *ctx, uint32_t j, const ir_type_t *p) {
    const ir_type_t *g = &ctx->in[j];
    char given[IR_TYPE_TEXT_BYTES], wanted[IR_TYPE_TEXT_BYTES];
    if (ir_dims_equal(g, p) && ir_dtype_is_float(g->dtype) &&
        (g->dtype == p->dtype || ir_dtype_bytes(g->dtype) < ir_dtype_bytes(p->dtype)))
        return ST_OK;
    return FAIL(ST_INVALID, "gradient is %s, expected %s or a smaller float type",
                ir_type_text(g, given, sizeof given), ir_type_text(p, wanted, sizeof wanted));
}

st_status_t ir_need_axis(const ir_op_ctx_t *ctx, int32_t *out_axis) {
    int64_t axis = ir_ctx_int(ctx, "axis");
    char text[IR_TYPE_TEXT_BYTES];
    *out_axis = 0;
    if (axis < 0 || axis >= ctx->in[0].rank)
        return FAIL(ST_INVALID, "axis %lld is not a dim of %s (0 … rank - 1)", (long long)axis,
                    ir_type_text(&ctx->in[0], text, sizeof text));
    *out_axis = (int32_t)axis;
    return ST_OK;
}

st_status_t ir_need_each(const ir_op_ctx_t *ctx, const char *sizes) {
    const char *const keys[] = {"axis", "granules", sizes};
    for (int k = 0; k < 3; k++)
        if (ir_ctx_attr(ctx, keys[k])->ints.n != ctx->n_inputs)
            return FAIL(ST_INVALID, "attribute '%s' has %u entries for %u inputs", keys[k],
                        ir_ctx_attr(ctx, keys[k])->ints.n, ctx->n_inputs);
    return ST_OK;
}

st_status_t ir_need_cut(const ir_op_ctx_t *ctx, uint32_t j, int32_t *out_axis) {
    const int64_t axis = ir_ctx_attr(ctx, "axis")->ints.v[j];
    char text[IR_TYPE_TEXT_BYTES];
    *out_axis = 0;
    if (axis < 0 || axis >= ctx->in[j].rank)
        return FAIL(ST_INVALID, "axis %lld is not a dim of input %u, %s (0 … rank - 1)",
                    (long long)axis, j, ir_type_text(&ctx->in[j], text, sizeof text));
    *out_axis = (int32_t)axis;
    return ST_OK;
}

st_status_t ir_check_granules(int64_t axis, int64_t granules, int64_t extent, int64_t part) {
    if (granules < 1 || extent < 0 || extent % granules)
        return FAIL(ST_INVALID, "extent %lld does not consist of %lld equal granules",
                    (long long)extent, (long long)granules);
    if (part < 0 || part > extent || part % (extent ? extent / granules : 1))
        return FAIL(
            ST_INVALID,
            "a part of %lld along axis %d is no whole number of granules of %lld (%lld of them)",
            (long long)part, (int)axis, (long long)(extent / granules), (long long)granules);
    return ST_OK;
}

st_status_t ir_need_granules(const ir_op_ctx_t *ctx, uint32_t j, int64_t extent, int64_t part) {
    return ir_check_granules(ir_ctx_attr(ctx, "axis")->ints.v[j],
                             ir_ctx_attr(ctx, "granules")->ints.v[j], extent, part);
}

st_status_t ir_need_peer(const ir_op_ctx_t *ctx) {
    if (ir_ctx_int(ctx, "peer") >= 0) return ST_OK;
    return IR_FAIL_SHAPE(ctx, "peer %lld", (long long)ir_ctx_int(ctx, "peer"));
}

/* ---- gradients ---- */

ir_type_t ir_heads_first(const ir_type_t *type, bool rows_first) {
    ir_type_t plain = *type;
    if (rows_first && type->rank == 4) {
        plain.dims[1] = type->dims[2];
        plain.dims[2] = type->dims[1];
    }
    return plain;
}

st_status_t ir_no_output_gradient(const ir_value_t *dout, uint32_t k, const char *what) {
    if (dout[k] == IR_NONE) return ST_OK;
    return FAIL(ST_UNSUPPORTED, "there is no gradient through output %u (%s)", k, what);
}

st_status_t ir_no_input_gradient(const bool *want, uint32_t j, const char *what) {
    if (!want[j]) return ST_OK;
    return FAIL(ST_UNSUPPORTED, "there is no gradient for input %u (%s)", j, what);
}

/* ---- partition ---- */

void ir_strategy_add_new(const ir_op_ctx_t *ctx, ir_strategy_list_t *list,
                         const ir_strategy_t *item) {
    for (uint32_t i = 0; i < list->n; i++) {
        bool equal = true;
        for (uint32_t j = 0; j < ctx->n_inputs && j < IR_MAX_OPERANDS; j++)
            equal &= ir_placement_equal(list->items[i].in[j], item->in[j]);
        for (uint32_t k = 0; k < ctx->n_outputs && k < IR_MAX_OPERANDS; k++)
            equal &= ir_placement_equal(list->items[i].out[k], item->out[k]);
        if (equal) return;
    }
    ir_strategy_t *made = ir_strategy_add(list);
    if (made) *made = *item;
}

void ir_strategies_dims(const ir_op_ctx_t *ctx, ir_strategy_list_t *list, uint32_t dims,
                        uint32_t inputs, uint32_t outputs, uint32_t partial) {
    for (uint32_t j = 0; j < ctx->n_inputs && j < IR_MAX_OPERANDS; j++) {
        ir_placement_t have = list->have[j];
        if (!(inputs >> j & 1) || have.kind != IR_SPLIT || !(dims >> have.dim & 1)) continue;
        ir_strategy_t item = {0};
        for (uint32_t i = 0; i < ctx->n_inputs && i < IR_MAX_OPERANDS; i++)
            if (inputs >> i & 1) item.in[i] = have;
        for (uint32_t k = 0; k < ctx->n_outputs && k < IR_MAX_OPERANDS; k++) {
            if (outputs >> k & 1) item.out[k] = have;
            if (partial >> k & 1) item.out[k] = IR_PLACE_PARTIAL;
        }
        ir_strategy_add_new(ctx, list, &item);
    }
}

void ir_strategies_linear(ir_strategy_list_t *list, uint32_t j) {
    if (list->have[j].kind != IR_PARTIAL) return;
    ir_strategy_t *made = ir_strategy_add(list);
    if (!made) return;
    made->in[j] = IR_PLACE_PARTIAL;
    made->out[0] = IR_PLACE_PARTIAL;
}

void ir_strategies_heads(const ir_op_ctx_t *ctx, ir_strategy_list_t *list, uint32_t heads,
                         uint32_t lse_in, uint32_t lse, uint32_t mask) {
    const int32_t dim = ir_ctx_int(ctx, "rows_first") ? 2 : 1;
    for (uint32_t j = 0; j < ctx->n_inputs; j++) {
        const ir_placement_t have = list->have[j];
        if (have.kind != IR_SPLIT ||
            !(heads >> j & 1 ? have.dim == dim : j == lse_in && have.dim == 1))
            continue;
        bool divides = have.granules > 0;
        for (uint32_t i = 0; i < ctx->n_inputs && divides; i++)
            if (heads >> i & 1) divides = ctx->in[i].dims[dim] % have.granules == 0;
        if (!divides) continue;
        ir_strategy_t item = {0};
        for (uint32_t i = 0; i < ctx->n_inputs; i++) {
            bool own = i == mask && ctx->in[i].rank == 4 && ctx->in[i].dims[1] != 1;
            if (heads >> i & 1) item.in[i] = IR_PLACE_SPLIT(dim, have.granules);
            if (i == lse_in || own) item.in[i] = IR_PLACE_SPLIT(1, have.granules);
        }
        for (uint32_t k = 0; k < ctx->n_outputs; k++)
            item.out[k] = IR_PLACE_SPLIT(k == lse ? 1 : dim, have.granules);
        ir_strategy_add_new(ctx, list, &item);
    }
}

void ir_strategies_queries(const ir_op_ctx_t *ctx, ir_strategy_list_t *list, uint32_t rows,
                           uint32_t lse_in, uint32_t lse, uint32_t mask, uint32_t partial) {
    const int32_t dim = ir_ctx_int(ctx, "rows_first") ? 1 : 2;
    for (uint32_t j = 0; j < ctx->n_inputs; j++) {
        const ir_placement_t have = list->have[j];
        const bool is_row = rows >> j & 1 ? have.dim == dim : j == lse_in && have.dim == 2;
        if (have.kind != IR_SPLIT || !is_row) continue;
        ir_strategy_t item = {0};
        for (uint32_t i = 0; i < ctx->n_inputs; i++) {
            const int32_t own = ctx->in[i].rank - 2;
            if (rows >> i & 1) item.in[i] = IR_PLACE_SPLIT(dim, have.granules);
            if (i == lse_in) item.in[i] = IR_PLACE_SPLIT(2, have.granules);
            if (i == mask && own >= 0 && ctx->in[i].dims[own] != 1)
                item.in[i] = IR_PLACE_SPLIT(own, have.granules);
        }
        for (uint32_t k = 0; k < ctx->n_outputs; k++)
            item.out[k] = partial >> k & 1 ? IR_PLACE_PARTIAL
                                           : IR_PLACE_SPLIT(k == lse ? 2 : dim, have.granules);
        ir_strategy_add_new(ctx, list, &item);
    }
}

bool ir_counts_rows(const ir_op_ctx_t *ctx, ir_placement_t out) {
    return out.kind == IR_SPLIT && out.dim == (ir_ctx_int(ctx, "rows_first") ? 1 : 2) &&
           (ir_ctx_int(ctx, "causal") || ir_ctx_int(ctx, "window"));
}

void ir_localize_rows(const ir_op_ctx_t *global, const ir_part_t *out, ir_attr_t *attrs) {
    if (ir_counts_rows(global, out->placement))
        ir_attr_of(global->op, attrs, "offset")->i += out->begin;
}

void ir_strategies_collective(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    const ir_attr_spec_t *specs = ir_op_def(ctx->op)->attrs;
    uint32_t dims = UINT32_MAX;
    if (ctx->n_inputs != 1) return;
    for (uint32_t a = 0; specs && specs[a].key; a++)
        if (strcmp(specs[a].key, "axis") == 0) dims &= ~(1u << ctx->attrs[a].ints.v[0]);
    ir_strategies_dims(ctx, list, dims, 1u << 0, 1u << 0, 0);
    ir_strategies_linear(list, 0);
}

/* ---- softmax ---- */

st_status_t ir_shape_softmax(const ir_op_ctx_t *ctx, ir_type_t *out) {
    int32_t axis;
    TRY(ir_need_float(ctx, 0, "x"));
    TRY(ir_need_axis(ctx, &axis));
    out[0] = ctx->in[0];
    return ST_OK;
}

st_status_t ir_shape_softmax_grad(const ir_op_ctx_t *ctx, ir_type_t *out) {
    int32_t axis;
    TRY(ir_need_float(ctx, 0, "dy"));
    TRY(ir_need_type(ctx, 1, "y", &ctx->in[0]));
    TRY(ir_need_axis(ctx, &axis));
    out[0] = ctx->in[0];
    return ST_OK;
}

st_status_t ir_gradient_softmax(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                                const bool *want, ir_value_t *din, ir_op_t grad) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    din[0] = ir_b_node(&b, grad, 2, (ir_value_t[]){dout[0], info.first_output}, 1,
                       (ir_arg_t[]){IR_ARG_INT("axis", ir_attr_int(&info, "axis"))});
    return b.status;
}

/* Every dim but the axis may be split. */
static void split_other_dims(const ir_op_ctx_t *ctx, ir_strategy_list_t *list, uint32_t inputs) {
    uint32_t dims = ir_first_bits(ctx->in[0].rank) & ~(1u << ir_ctx_int(ctx, "axis"));
    ir_strategies_dims(ctx, list, dims, inputs, 1u << 0, 0);
}

void ir_strategies_softmax(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    split_other_dims(ctx, list, 1u << 0);
}

void ir_strategies_softmax_grad(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    split_other_dims(ctx, list, 1u << 0 | 1u << 1);
    ir_strategies_linear(list, 0);
}
