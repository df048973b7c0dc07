/* matmul: batched matrix product. The last two dims of each operand are a matrix, taken transposed
 * where the attribute says so; the dims before them broadcast. A third operand of the result's dims
 * is added: of the operands' type, or f32 to products of smaller floats, whose sums then are not
 * rounded before. The result has its type.
 *
 * Gradient, with A and B the matrices as stored, G the gradient of the product:
 *   dA = G op(B)^T, or op(B) G^T if A was transposed
 *   dB = op(A)^T G, or G^T op(A) if B was transposed */
#include "ir/build.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"transpose_a", IR_ATTR_BOOL, false, 0, NULL},
                                       {"transpose_b", IR_ATTR_BOOL, false, 0, NULL},
                                       {0}};

/* The dims of an operand's matrix; `row` counts in op(X). */
static int32_t row_dim(const ir_type_t *x, bool transpose) {
    return x->rank - (transpose ? 1 : 2);
}
static int32_t column_dim(const ir_type_t *x, bool transpose) {
    return x->rank - (transpose ? 2 : 1);
}

/* The third operand and the product. */
static st_status_t shape_added(const ir_type_t *c, ir_type_t *out) {
    char text[IR_TYPE_TEXT_BYTES], expected[IR_TYPE_TEXT_BYTES];
    bool dims = ir_dims_equal(c, out);
    bool wider = c->dtype == ir_dtype_wide(out->dtype);
    if (!dims || (c->dtype != out->dtype && !wider))
        return FAIL(ST_INVALID, "%s is to be added to a product that is %s",
                    ir_type_text(c, text, sizeof text),
                    ir_type_text(out, expected, sizeof expected));
    out->dtype = c->dtype;
    return ST_OK;
}

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const ir_type_t *a = &ctx->in[0], *b = &ctx->in[1];
    bool ta = ir_ctx_int(ctx, "transpose_a"), tb = ir_ctx_int(ctx, "transpose_b");
    char text_a[IR_TYPE_TEXT_BYTES], text_b[IR_TYPE_TEXT_BYTES];
    ir_type_text(a, text_a, sizeof text_a);
    ir_type_text(b, text_b, sizeof text_b);
    if (!ir_dtype_is_float(a->dtype) || a->dtype != b->dtype)
        return FAIL(ST_INVALID, "operands are %s and %s: one float type is needed, add a cast",
                    text_a, text_b);
    if (a->rank < 2 || b->rank < 2)
        return FAIL(ST_INVALID, "operands are %s and %s: ranks of at least 2 are needed", text_a,
                    text_b);
    int64_t k_a = a->dims[column_dim(a, ta)], k_b = b->dims[row_dim(b, tb)];
    if (k_a != k_b)
        return FAIL(ST_INVALID, "%s%s and %s%s do not multiply: inner dims are %lld and %lld",
                    text_a, ta ? " transposed" : "", text_b, tb ? " transposed" : "",
                    (long long)k_a, (long long)k_b);
    ir_type_t batch_a = ir_type_make(a->dtype, a->rank - 2, a->dims);
    ir_type_t batch_b = ir_type_make(b->dtype, b->rank - 2, b->dims);
    st_status_t status = ir_dims_broadcast(&batch_a, &batch_b, out);
    if (status != ST_OK) return st_error_context(status, "%s times %s", text_a, text_b);
    out->dims[out->rank++] = a->dims[row_dim(a, ta)];
    out->dims[out->rank++] = b->dims[column_dim(b, tb)];
    return ctx->n_inputs > 2 ? shape_added(&ctx->in[2], out) : ST_OK;
}

static ir_value_t flat(ir_build_t *b, ir_value_t x) {
    ir_type_t type = *ir_b_type(b, x);
    int64_t dims[2] = {1, type.dims[type.rank - 1]};
    for (int32_t i = 0; i + 1 < type.rank; i++) dims[0] *= type.dims[i];
    return ir_b_reshape(b, x, 2, dims);
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE) return ST_OK;
    bool ta = ir_attr_int(&info, "transpose_a"), tb = ir_attr_int(&info, "transpose_b");
    ir_value_t x = info.inputs[0], y = info.inputs[1], g = dout[0];
    const ir_type_t tx = *ir_value_type(graph, x), ty = *ir_value_type(graph, y);
    ir_build_t b = {.graph = graph};
    if (info.n_inputs > 2) {
        if (want[2]) din[2] = g;
        g = ir_b_cast(&b, g, tx.dtype);
    }
    if (want[0]) {
        ir_value_t d = ta ? ir_b_matmul(&b, y, g, tb, true) : ir_b_matmul(&b, g, y, false, !tb);
        din[0] = ir_b_sum_to(&b, d, &tx);
    }
    if (want[1]) {
        /* One product over all rows instead of one a batch item and a sum over them. */
        if (tx.rank > 2 && ty.rank == 2 && !ta) x = flat(&b, x), g = flat(&b, g);
        ir_value_t d = tb ? ir_b_matmul(&b, g, x, true, ta) : ir_b_matmul(&b, x, g, !ta, false);
        din[1] = ir_b_sum_to(&b, d, &ty);
    }
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    ir_type_t out;
    ir_ctx_outputs(ctx, &out);
    bool transpose[2] = {ir_ctx_int(ctx, "transpose_a"), ir_ctx_int(ctx, "transpose_b")};
    int32_t inner[2] = {column_dim(&ctx->in[0], transpose[0]), row_dim(&ctx->in[1], transpose[1])};
    for (uint32_t j = 0; j < 2; j++) {
        const ir_placement_t have = list->have[j];
        ir_strategy_t item = {0};
        if (have.kind == IR_PARTIAL) {
            item.in[j] = IR_PLACE_PARTIAL;
            item.out[0] = IR_PLACE_PARTIAL;
        } else if (have.kind == IR_SPLIT && have.dim == inner[j]) {
            for (uint32_t i = 0; i < 2; i++) item.in[i] = IR_PLACE_SPLIT(inner[i], have.granules);
            item.out[0] = IR_PLACE_PARTIAL;
        } else if (have.kind == IR_SPLIT && have.dim >= ctx->in[j].rank - 2) {
            item.in[j] = have;
            item.out[0] = IR_PLACE_SPLIT(out.rank - (j == 0 ? 2 : 1), have.granules);
        } else if (have.kind ==
                   IR_SPLIT) { /* a batch dim: the other operand follows or broadcasts */
            int32_t dim = have.dim + out.rank - ctx->in[j].rank;
            if (ctx->in[j].dims[have.dim] != out.dims[dim]) continue;
            item.out[0] = IR_PLACE_SPLIT(dim, have.granules);
            for (uint32_t i = 0; i < 2; i++) {
                int32_t own = dim - (out.rank - ctx->in[i].rank);
                if (i == j || (own >= 0 && ctx->in[i].dims[own] == out.dims[dim]))
                    item.in[i] = IR_PLACE_SPLIT(own, have.granules);
            }
        } else {
            continue;
        }
        if (ctx->n_inputs > 2) item.in[2] = item.out[0];
        ir_strategy_add_new(ctx, list, &item);
    }
}

const ir_op_def_t ir_op_matmul = {
    .op = IR_OP_MATMUL,
    .name = "matmul",
    .min_inputs = 2,
    .max_inputs = 3,
    .n_outputs = 1,
    .reuse = {3},
    .flags = IR_CONTRACTION,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
};
