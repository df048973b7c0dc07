/* Definitions of attention, its gradient and rotary embedding in primitives (define.h). */
#include <math.h>

#include "ir/build.h"
#include "ir/define.h"
#include "ir/rules_nn.h"

typedef ir_value_t v_t;

static v_t wide(ir_build_t *b, v_t x) {
    return ir_b_cast(b, x, ir_dtype_wide(ir_b_type(b, x)->dtype));
}
static v_t op(ir_build_t *b, ir_op_t op_, v_t x, v_t y) {
    return ir_b_binary(b, op_, x, y);
}
/* A reshape also where it changes nothing: ranks that split the heads unevenly have the same nodes,
 * whether a key head has one query head or several and also where a rank has no head. */
static v_t regroup(ir_build_t *b, v_t x, int32_t rank, const int64_t *dims) {
    return ir_b_node(b, IR_OP_RESHAPE, 1, &x, 1, (ir_arg_t[]){IR_ARG_INTS("shape", dims, rank)});
}
static v_t as_output(ir_build_t *b, const ir_op_ctx_t *ctx, uint32_t k, v_t x) {
    ir_type_t types[3];
    ir_ctx_outputs(ctx, types);
    return ir_b_cast(b, regroup(b, x, types[k].rank, types[k].dims), types[k].dtype);
}

/* ---- attention ----
 *
 * The query heads of a key head follow each other, so that q[B,H,M,D] read as [B,G,H/G·M,D] gives
 * one product for each key head, and sums over its query heads are sums over rows. */

typedef struct attend {
    const ir_type_t *q_type, *k_type, *v_type;
    v_t q, k, v; /* q as [B,G,H/G·M,D] */
    double scale;
} attend_t;

/* x[B,H,M,N] as [B,G,H/G·M,N]; no heads stay none. */
static v_t by_key_head(ir_build_t *b, const attend_t *a, v_t x) {
    const ir_type_t type = *ir_b_type(b, x);
    const int64_t groups = a->k_type->dims[1], share = groups ? type.dims[1] / groups : 1;
    const int64_t dims[4] = {type.dims[0], groups, share * type.dims[2], type.dims[3]};
    return regroup(b, x, 4, dims);
}

static attend_t operands(ir_build_t *b, const ir_op_ctx_t *ctx, const v_t *inputs, uint32_t first) {
    attend_t a = {&ctx->in[first], &ctx->in[first + 1], &ctx->in[first + 2], 0, 0, 0, 0};
    a.q = by_key_head(b, &a, wide(b, inputs[first]));
    a.k = wide(b, inputs[first + 1]);
    a.v = wide(b, inputs[first + 2]);
    a.scale = ir_ctx_attr(ctx, "scale")->f;
    if (a.scale == 0) a.scale = 1 / sqrt((double)a.q_type->dims[3]);
    return a;
}

/* -inf where the condition, which broadcasts to x, does not hold. */
static v_t hide_unless(ir_build_t *b, v_t condition, v_t x) {
    return ir_b_select(b, condition, x, ir_b_scalar(b, ir_b_type(b, x)->dtype, -INFINITY));
}

/* Scaled and masked scores [B,H,M,S]. */
static v_t scores_of(ir_build_t *b, const ir_op_ctx_t *ctx, const attend_t *a, const v_t *mask) {
    const int64_t rows = a->q_type->dims[2], keys = a->k_type->dims[2];
    const int64_t dims[4] = {a->q_type->dims[0], a->q_type->dims[1], rows, keys};
    int64_t window = ir_ctx_int(ctx, "window");
    v_t x = regroup(b, ir_b_matmul(b, a->q, a->k, false, true), 4, dims);
    x = ir_b_scale(b, x, a->scale);
    if (mask && ir_b_type(b, *mask)->dtype == IR_BOOL)
        x = hide_unless(b, *mask, x);
    else if (mask)
        x = op(b, IR_OP_ADD, x, wide(b, *mask));
    if (!ir_ctx_int(ctx, "causal") && window == 0) return x;
    const double offset = (double)ir_ctx_int(ctx, "offset");
    v_t m = ir_b_iota(b, ir_type_make(IR_I64, 2, (int64_t[]){rows, 1}), 0, offset, 1);
    v_t s = ir_b_iota(b, ir_type_make(IR_I64, 2, (int64_t[]){1, keys}), 1, 0, 1);
    if (ir_ctx_int(ctx, "causal")) x = hide_unless(b, op(b, IR_OP_LE, s, m), x);
    if (window > 0) {
        v_t distance = ir_b_unary(b, IR_OP_ABS, op(b, IR_OP_SUB, m, s));
        x = hide_unless(b, op(b, IR_OP_LT, distance, ir_b_scalar(b, IR_I64, (double)window)), x);
    }
    return x;
}

/* x where the row sees a key (its maximum or sum is not -inf), else `other`. */
static v_t unless_none(ir_build_t *b, v_t statistic, v_t x, double other) {
    ir_dtype_t dtype = ir_b_type(b, x)->dtype;
    v_t none = op(b, IR_OP_EQ, statistic, ir_b_scalar(b, dtype, -INFINITY));
    return ir_b_select(b, none, ir_b_scalar(b, dtype, other), x);
}

/* With the rows before the heads: the definition over the heads first, between transposes. `mask`
 * is the number of the mask's input. */
static st_status_t define_turned(ir_graph_t *graph, const ir_op_ctx_t *ctx, const v_t *inputs,
                                 v_t *out, uint32_t mask) {
    ir_build_t b = {.graph = graph};
    const ir_op_def_t *def = ir_op_def(ctx->op);
    ir_type_t in[7];
    ir_attr_t attrs[8];
    v_t plain[7];
    ASSERT(ctx->n_inputs <= 7 && ir_op_n_attrs(def) <= 8);
    for (uint32_t i = 0; i < ir_op_n_attrs(def); i++) attrs[i] = ctx->attrs[i];
    ir_attr_of(ctx->op, attrs, "rows_first")->i = 0;
    for (uint32_t j = 0; j < ctx->n_inputs; j++) {
        const bool heads = ctx->in[j].rank == 4 && j != mask;
        in[j] = ir_heads_first(&ctx->in[j], heads);
        plain[j] = heads ? ir_b_swap(&b, inputs[j], 1, 2) : inputs[j];
    }
    TRY(b.status);
    ir_op_ctx_t inner = {ctx->op, ctx->n_inputs, ctx->n_outputs, in, attrs, ctx->name};
    TRY(def->define(graph, &inner, plain, out));
    for (uint32_t k = 0; k < ctx->n_outputs; k++)
        if (ir_b_type(&b, out[k])->rank == 4) out[k] = ir_b_swap(&b, out[k], 1, 2);
    return b.status;
}

st_status_t ir_define_attention(ir_graph_t *graph, const ir_op_ctx_t *ctx, const v_t *inputs,
                                v_t *out) {
    ir_build_t b = {.graph = graph};
    const int64_t last = 3;
    if (ir_ctx_int(ctx, "rows_first")) return define_turned(graph, ctx, inputs, out, 3);
    if (ctx->in[1].dims[2] == 0)
        return FAIL(ST_UNSUPPORTED, "attention over no keys has no definition: a maximum of none");
    attend_t a = operands(&b, ctx, inputs, 0);
    v_t x = scores_of(&b, ctx, &a, ctx->n_inputs > 3 ? &inputs[3] : NULL);
    v_t max = ir_b_reduce(&b, IR_OP_REDUCE_MAX, x, 1, &last, true);
    v_t e = ir_b_unary(&b, IR_OP_EXP, op(&b, IR_OP_SUB, x, unless_none(&b, max, max, 0)));
    v_t sum = ir_b_reduce(&b, IR_OP_REDUCE_SUM, e, 1, &last, true);
    v_t divisor = unless_none(&b, max, sum, 1);
    v_t p = by_key_head(&b, &a, op(&b, IR_OP_DIV, e, divisor));
    out[0] = as_output(&b, ctx, 0, ir_b_matmul(&b, p, a.v, false, false));
    v_t lse = op(&b, IR_OP_ADD, max, ir_b_unary(&b, IR_OP_LOG, divisor));
    out[1] = as_output(&b, ctx, 1, lse);
    return b.status;
}

st_status_t ir_define_attention_grad(ir_graph_t *graph, const ir_op_ctx_t *ctx, const v_t *inputs,
                                     v_t *out) {
    ir_build_t b = {.graph = graph};
    const int64_t last = 3;
    if (ir_ctx_int(ctx, "rows_first")) return define_turned(graph, ctx, inputs, out, 6);
    attend_t a = operands(&b, ctx, inputs, 1);
    const int64_t rows[4] = {a.q_type->dims[0], a.q_type->dims[1], a.q_type->dims[2], 1};
    v_t x = scores_of(&b, ctx, &a, ctx->n_inputs > 6 ? &inputs[6] : NULL);
    v_t lse = ir_b_reshape(&b, inputs[5], 4, rows);
    v_t p = ir_b_unary(&b, IR_OP_EXP, op(&b, IR_OP_SUB, x, unless_none(&b, lse, lse, 0)));
    v_t dy = wide(&b, inputs[0]), dy_heads = by_key_head(&b, &a, dy);
    v_t delta = op(&b, IR_OP_MUL, dy, wide(&b, inputs[4]));
    delta = ir_b_reduce(&b, IR_OP_REDUCE_SUM, delta, 1, &last, true);
    v_t dp = ir_b_matmul(&b, dy_heads, a.v, false, true);
    const ir_type_t type = *ir_b_type(&b, x);
    dp = regroup(&b, dp, 4, type.dims);
    v_t ds = op(&b, IR_OP_MUL, p, op(&b, IR_OP_SUB, dp, delta));
    ds = by_key_head(&b, &a, ir_b_scale(&b, ds, a.scale));
    out[0] = as_output(&b, ctx, 0, ir_b_matmul(&b, ds, a.k, false, false));
    out[1] = as_output(&b, ctx, 1, ir_b_matmul(&b, ds, a.q, true, false));
    p = by_key_head(&b, &a, p);
    out[2] = as_output(&b, ctx, 2, ir_b_matmul(&b, p, dy_heads, true, false));
    return b.status;
}

/* ---- rope ---- */

/* y = x · cos + (the other of the pair) · (∓ sin): the pair is a dim of its own, flipped. */
st_status_t ir_define_rope(ir_graph_t *graph, const ir_op_ctx_t *ctx, const v_t *inputs, v_t *out) {
    ir_build_t b = {.graph = graph};
    const ir_type_t *type = &ctx->in[0];
    const int64_t *d = type->dims, half = d[3] / 2;
    const int64_t axis = ir_ctx_int(ctx, "interleaved") ? 4 : 3;
    const int64_t which = axis - 3;
    const int64_t split[2][5] = {{d[0], d[1], d[2], 2, half}, {d[0], d[1], d[2], half, 2}};
    const bool rows_first = ir_ctx_int(ctx, "rows_first");
    const int64_t m = d[rows_first ? 1 : 2];
    const int64_t angle[2][3] = {{m, 1, half}, {m, half, 1}};
    const int64_t across[2][4] = {{m, 1, 1, half}, {m, 1, half, 1}}; /* the heads */
    const int64_t *angles = rows_first ? across[which] : angle[which];
    const int32_t rank = rows_first ? 4 : 3;
    const int64_t pair[2][2] = {{2, 1}, {1, 2}};
    const double first = ir_ctx_int(ctx, "inverse") ? 1 : -1;
    v_t x = ir_b_reshape(&b, inputs[0], 5, split[which]);
    v_t other = ir_b_node(&b, IR_OP_FLIP, 1, &x, 1, (ir_arg_t[]){IR_ARG_INTS("axes", &axis, 1)});
    x = wide(&b, x);
    other = wide(&b, other);
    ir_dtype_t dtype = ir_b_type(&b, x)->dtype;
    v_t c = ir_b_reshape(&b, wide(&b, inputs[1]), rank, angles);
    v_t s = ir_b_reshape(&b, wide(&b, inputs[2]), rank, angles);
    v_t sign =
        ir_b_iota(&b, ir_type_make(dtype, 2, pair[which]), (int32_t)which, first, -2 * first);
    v_t turned = op(&b, IR_OP_MUL, other, op(&b, IR_OP_MUL, s, sign));
    out[0] = as_output(&b, ctx, 0, op(&b, IR_OP_ADD, op(&b, IR_OP_MUL, x, c), turned));
    return b.status;
}
