/* Definitions of norms, softmax, losses and optimizers in primitives (define.h); attention and rope
 * are in define_attention.c. Each follows the formulas of the op's own file under ops/; divisions
 * by extents become factors, and what is constant along a row is computed as a row. */
#include "ir/define.h"

#include <math.h>

#include "ir/build.h"

#define DEFINE(name)                                                        \
    st_status_t ir_define_##name(ir_graph_t *graph, const ir_op_ctx_t *ctx, \
                                 const ir_value_t *inputs, ir_value_t *out)

typedef ir_value_t v_t;

static v_t add(ir_build_t *b, v_t x, v_t y) {
    return ir_b_binary(b, IR_OP_ADD, x, y);
}
static v_t sub(ir_build_t *b, v_t x, v_t y) {
    return ir_b_binary(b, IR_OP_SUB, x, y);
}
static v_t mul(ir_build_t *b, v_t x, v_t y) {
    return ir_b_binary(b, IR_OP_MUL, x, y);
}
static v_t divide(ir_build_t *b, v_t x, v_t y) {
    return ir_b_binary(b, IR_OP_DIV, x, y);
}
static v_t by(ir_build_t *b, v_t x, double divisor) {
    return ir_b_scale(b, x, 1 / divisor);
}
static v_t wide(ir_build_t *b, v_t x) {
    return ir_b_cast(b, x, ir_dtype_wide(ir_b_type(b, x)->dtype));
}
static v_t sum(ir_build_t *b, v_t x, int32_t n_axes, const int64_t *axes, bool keep) {
    return ir_b_reduce(b, IR_OP_REDUCE_SUM, x, n_axes, axes, keep);
}
/* Output k in its type: without the dims of extent 1 that a kept reduction leaves. */
static v_t as_output(ir_build_t *b, const ir_op_ctx_t *ctx, uint32_t k, v_t x) {
    ir_type_t types[3];
    ir_ctx_outputs(ctx, types);
    return ir_b_cast(b, ir_b_reshape(b, x, types[k].rank, types[k].dims), types[k].dtype);
}
static double attr(const ir_op_ctx_t *ctx, const char *key) {
    return ir_ctx_attr(ctx, key)->f;
}

/* ---- softmax ---- */

typedef struct softmax {
    v_t x, max, exponential, total; /* total and max keep the axis */
} softmax_t;

static softmax_t softmax_of(ir_build_t *b, v_t x, int64_t axis) {
    softmax_t s = {.x = wide(b, x)};
    s.max = ir_b_reduce(b, IR_OP_REDUCE_MAX, s.x, 1, &axis, true);
    s.exponential = ir_b_unary(b, IR_OP_EXP, sub(b, s.x, s.max));
    s.total = sum(b, s.exponential, 1, &axis, true);
    return s;
}

DEFINE(softmax) {
    ir_build_t b = {.graph = graph};
    softmax_t s = softmax_of(&b, inputs[0], ir_ctx_int(ctx, "axis"));
    v_t scale = ir_b_unary(&b, IR_OP_RECIPROCAL, s.total);
    out[0] = as_output(&b, ctx, 0, mul(&b, s.exponential, scale));
    return b.status;
}

DEFINE(log_softmax) {
    ir_build_t b = {.graph = graph};
    softmax_t s = softmax_of(&b, inputs[0], ir_ctx_int(ctx, "axis"));
    v_t lse = add(&b, s.max, ir_b_unary(&b, IR_OP_LOG, s.total));
    out[0] = as_output(&b, ctx, 0, sub(&b, s.x, lse));
    return b.status;
}

DEFINE(softmax_grad) {
    ir_build_t b = {.graph = graph};
    int64_t axis = ir_ctx_int(ctx, "axis");
    v_t dy = wide(&b, inputs[0]), y = wide(&b, inputs[1]);
    v_t total = sum(&b, mul(&b, dy, y), 1, &axis, true);
    out[0] = as_output(&b, ctx, 0, mul(&b, sub(&b, dy, total), y));
    return b.status;
}

DEFINE(log_softmax_grad) {
    ir_build_t b = {.graph = graph};
    int64_t axis = ir_ctx_int(ctx, "axis");
    v_t dy = wide(&b, inputs[0]), y = wide(&b, inputs[1]);
    v_t total = sum(&b, dy, 1, &axis, true);
    v_t part = mul(&b, ir_b_unary(&b, IR_OP_EXP, y), total);
    out[0] = as_output(&b, ctx, 0, sub(&b, dy, part));
    return b.status;
}

/* ---- cross entropy ---- */

/* Rows whose label is not ignored, and an index that is right for the others and out of range
 * for a label that is no class. */
static v_t valid_rows(ir_build_t *b, const ir_op_ctx_t *ctx, v_t labels, v_t *out_index,
                      int64_t classes) {
    ir_dtype_t dtype = ir_b_type(b, labels)->dtype;
    v_t ignored = ir_b_scalar(b, dtype, 0), zero = ir_b_scalar(b, dtype, 0);
    int64_t ignore = ir_ctx_int(ctx, "ignore_index");
    if (dtype == IR_I32) {
        int32_t narrow = (int32_t)ignore;
        ignored = ir_b_constant(b, ir_type_scalar(IR_I32), &narrow, sizeof narrow);
        if (narrow != ignore) ignored = IR_NONE; /* no label can be that */
    } else {
        ignored = ir_b_constant(b, ir_type_scalar(IR_I64), &ignore, sizeof ignore);
    }
    v_t valid = ignored == IR_NONE ? ir_b_binary(b, IR_OP_EQ, labels, labels)
                                   : ir_b_binary(b, IR_OP_NE, labels, ignored);
    v_t negative = ir_b_binary(b, IR_OP_LT, labels, zero);
    v_t below = sub(b, labels, ir_b_scalar(b, dtype, (double)classes));
    v_t index = ir_b_select(b, negative, below, labels);
    *out_index = ir_b_select(b, valid, index, zero);
    return valid;
}

DEFINE(cross_entropy_rows) {
    ir_build_t b = {.graph = graph};
    const int64_t rows = ctx->in[0].dims[0], classes = ctx->in[0].dims[1], last = 1;
    const ir_dtype_t dtype = ctx->in[0].dtype, real = ir_dtype_wide(dtype);
    const double smoothing = attr(ctx, "smoothing");
    const bool weighted = ctx->n_inputs > 2;
    softmax_t s = softmax_of(&b, inputs[0], 1);
    v_t kept = add(&b, s.max, ir_b_unary(&b, IR_OP_LOG, s.total));
    v_t lse = ir_b_reshape(&b, kept, 1, &rows);
    v_t index, valid = valid_rows(&b, ctx, inputs[1], &index, classes);
    v_t column = ir_b_reshape(&b, index, 2, (int64_t[]){rows, 1});
    v_t picked = ir_b_node(&b, IR_OP_GATHER_ALONG, 2, (v_t[]){inputs[0], column}, 1,
                           (ir_arg_t[]){IR_ARG_INT("axis", 1)});
    picked = ir_b_reshape(&b, wide(&b, picked), 1, &rows);
    v_t zero = ir_b_splat(&b, ir_type_make(real, 1, &rows), 0);
    v_t weight = weighted ? wide(&b, ir_b_gather(&b, inputs[2], index, 0))
                          : ir_b_splat(&b, ir_type_make(real, 1, &rows), 1);
    weight = ir_b_select(&b, valid, weight, zero);
    v_t loss = mul(&b, weight, ir_b_scale(&b, sub(&b, lse, picked), 1 - smoothing));
    if (smoothing != 0) {
        v_t each = sub(&b, kept, s.x);
        if (weighted) each = mul(&b, each, wide(&b, inputs[2]));
        v_t all = ir_b_scale(&b, sum(&b, each, 1, &last, false), smoothing / (double)classes);
        loss = add(&b, loss, all);
    }
    loss = ir_b_select(&b, valid, loss, zero);
    out[0] = as_output(&b, ctx, 0, loss);
    out[1] = as_output(&b, ctx, 1, weight);
    out[2] = as_output(&b, ctx, 2, lse);
    return b.status;
}

/* Labels are compared as floats, exactly up to 2^24 classes; who runs nests checks them. */
DEFINE(cross_entropy_grad) {
    ir_build_t b = {.graph = graph};
    const int64_t rows = ctx->in[1].dims[0], classes = ctx->in[1].dims[1], first = 0;
    const ir_dtype_t dtype = ctx->in[1].dtype, real = ir_dtype_wide(dtype);
    const double smoothing = attr(ctx, "smoothing");
    const bool weighted = ctx->n_inputs > 4;
    const int64_t column[2] = {rows, 1};
    if (classes > (int64_t)1 << 24)
        return FAIL(ST_UNSUPPORTED, "%lld classes: the definition takes up to 2^24",
                    (long long)classes);
    v_t index, valid = valid_rows(&b, ctx, inputs[2], &index, classes);
    v_t lse = ir_b_reshape(&b, wide(&b, inputs[3]), 2, column);
    v_t p = ir_b_unary(&b, IR_OP_EXP, sub(&b, wide(&b, inputs[1]), lse));
    v_t label = ir_b_reshape(&b, ir_b_cast(&b, inputs[2], real), 2, column);
    v_t counter = ir_b_iota(&b, ir_type_make(real, 1, &classes), 0, 0, 1);
    v_t hot = ir_b_cast(&b, ir_b_binary(&b, IR_OP_EQ, counter, label), real);
    v_t slope = sub(&b, p, hot);
    v_t dloss = wide(&b, inputs[0]);
    v_t factor = ir_b_scale(&b, dloss, 1 - smoothing);
    if (weighted) factor = mul(&b, factor, wide(&b, ir_b_gather(&b, inputs[4], index, 0)));
    factor = ir_b_broadcast(&b, factor, 1, &rows);
    v_t zero = ir_b_splat(&b, ir_type_make(real, 1, &rows), 0);
    factor = ir_b_select(&b, valid, factor, zero);
    slope = mul(&b, slope, ir_b_reshape(&b, factor, 2, column));
    if (smoothing != 0) {
        v_t part = ir_b_scale(&b, dloss, smoothing / (double)classes);
        part = ir_b_select(&b, valid, ir_b_broadcast(&b, part, 1, &rows), zero);
        v_t spread;
        if (weighted) {
            v_t w = wide(&b, inputs[4]);
            spread = sub(&b, mul(&b, p, sum(&b, w, 1, &first, true)), w);
        } else {
            spread = ir_b_add_scalar(&b, ir_b_scale(&b, p, (double)classes), -1);
        }
        slope = add(&b, slope, mul(&b, spread, ir_b_reshape(&b, part, 2, column)));
    }
    out[0] = as_output(&b, ctx, 0, slope);
    return b.status;
}

/* ---- row norms ---- */

/* The trailing dims that a weight has. */
typedef struct trailing {
    int32_t n;
    int64_t axes[IR_MAX_RANK], count;
} trailing_t;

static trailing_t trailing_of(const ir_type_t *x, int32_t n) {
    trailing_t t = {.n = n, .count = 1};
    for (int32_t i = 0; i < n; i++) {
        t.axes[i] = x->rank - n + i;
        t.count *= x->dims[t.axes[i]];
    }
    return t;
}

/* A statistic over rows, with dims of extent 1 in place of the trailing ones. */
static v_t over_rows(ir_build_t *b, v_t statistic, const ir_type_t *x, int32_t n) {
    int64_t dims[IR_MAX_RANK];
    for (int32_t i = 0; i < x->rank; i++) dims[i] = i < x->rank - n ? x->dims[i] : 1;
    return ir_b_reshape(b, statistic, x->rank, dims);
}

/* Sum over the leading dims. */
static v_t sum_rows(ir_build_t *b, v_t x, int32_t n_trailing) {
    int64_t axes[IR_MAX_RANK];
    int32_t n = ir_b_type(b, x)->rank - n_trailing;
    for (int32_t i = 0; i < n; i++) axes[i] = i;
    return n > 0 ? sum(b, x, n, axes, false) : x;
}

DEFINE(layer_norm) {
    ir_build_t b = {.graph = graph};
    const ir_type_t *type = &ctx->in[0];
    trailing_t t = trailing_of(type, ctx->in[1].rank);
    v_t x = wide(&b, inputs[0]);
    v_t mean = by(&b, sum(&b, x, t.n, t.axes, true), (double)t.count);
    v_t centered = sub(&b, x, mean);
    v_t squares = sum(&b, mul(&b, centered, centered), t.n, t.axes, true);
    v_t rstd = ir_b_unary(&b, IR_OP_RSQRT,
                          ir_b_add_scalar(&b, by(&b, squares, (double)t.count), attr(ctx, "eps")));
    v_t y = mul(&b, mul(&b, centered, rstd), wide(&b, inputs[1]));
    out[0] = as_output(&b, ctx, 0, add(&b, y, wide(&b, inputs[2])));
    out[1] = as_output(&b, ctx, 1, mean);
    out[2] = as_output(&b, ctx, 2, rstd);
    return b.status;
}

DEFINE(layer_norm_grad) {
    ir_build_t b = {.graph = graph};
    const ir_type_t *type = &ctx->in[1];
    trailing_t t = trailing_of(type, ctx->in[4].rank);
    v_t dy = wide(&b, inputs[0]), w = wide(&b, inputs[4]);
    v_t mean = over_rows(&b, wide(&b, inputs[2]), type, t.n);
    v_t rstd = over_rows(&b, wide(&b, inputs[3]), type, t.n);
    v_t xhat = mul(&b, sub(&b, wide(&b, inputs[1]), mean), rstd);
    v_t g = mul(&b, dy, w);
    v_t mean_g = by(&b, sum(&b, g, t.n, t.axes, true), (double)t.count);
    v_t mean_gx = by(&b, sum(&b, mul(&b, g, xhat), t.n, t.axes, true), (double)t.count);
    v_t inner = sub(&b, sub(&b, g, mean_g), mul(&b, xhat, mean_gx));
    out[0] = as_output(&b, ctx, 0, mul(&b, inner, rstd));
    out[1] = as_output(&b, ctx, 1, sum_rows(&b, mul(&b, dy, xhat), t.n));
    out[2] = as_output(&b, ctx, 2, sum_rows(&b, dy, t.n));
    return b.status;
}

DEFINE(rms_norm) {
    ir_build_t b = {.graph = graph};
    const ir_type_t *type = &ctx->in[0];
    trailing_t t = trailing_of(type, 1);
    v_t x = wide(&b, inputs[0]);
    v_t squares = by(&b, sum(&b, mul(&b, x, x), 1, t.axes, true), (double)t.count);
    v_t rstd = ir_b_unary(&b, IR_OP_RSQRT, ir_b_add_scalar(&b, squares, attr(ctx, "eps")));
    v_t y = mul(&b, mul(&b, x, rstd), wide(&b, inputs[1]));
    out[0] = as_output(&b, ctx, 0, y);
    out[1] = as_output(&b, ctx, 1, rstd);
    return b.status;
}

/* dx = dy w rstd - x (rstd^3 / h · sum of dy w x) */
DEFINE(rms_norm_grad) {
    ir_build_t b = {.graph = graph};
    const ir_type_t *type = &ctx->in[1];
    trailing_t t = trailing_of(type, 1);
    v_t dy = wide(&b, inputs[0]), x = wide(&b, inputs[1]), w = wide(&b, inputs[3]);
    v_t rstd = over_rows(&b, wide(&b, inputs[2]), type, 1);
    v_t g = mul(&b, dy, w);
    v_t dot = by(&b, sum(&b, mul(&b, g, x), 1, t.axes, true), (double)t.count);
    v_t of_x = mul(&b, mul(&b, mul(&b, rstd, rstd), rstd), dot);
    v_t dx = sub(&b, mul(&b, g, rstd), mul(&b, x, of_x));
    out[0] = as_output(&b, ctx, 0, dx);
    out[1] = as_output(&b, ctx, 1, sum_rows(&b, mul(&b, mul(&b, dy, x), rstd), 1));
    return b.status;
}

/* ---- batch norm: statistics by channel, dim 1 ---- */

static v_t by_channel(ir_build_t *b, v_t vector, const ir_type_t *x) {
    int64_t dims[IR_MAX_RANK];
    for (int32_t i = 0; i < x->rank; i++) dims[i] = i == 1 ? x->dims[1] : 1;
    return ir_b_reshape(b, wide(b, vector), x->rank, dims);
}

static v_t sum_channel(ir_build_t *b, v_t x) {
    int64_t axes[IR_MAX_RANK];
    int32_t n = 0;
    for (int32_t i = 0; i < ir_b_type(b, x)->rank; i++)
        if (i != 1) axes[n++] = i;
    return sum(b, x, n, axes, false);
}

DEFINE(channel_sum) {
    ir_build_t b = {.graph = graph};
    out[0] = as_output(&b, ctx, 0, sum_channel(&b, wide(&b, inputs[0])));
    return b.status;
}

DEFINE(channel_centered_squares) {
    ir_build_t b = {.graph = graph};
    v_t d = sub(&b, wide(&b, inputs[0]), by_channel(&b, inputs[1], &ctx->in[0]));
    out[0] = as_output(&b, ctx, 0, sum_channel(&b, mul(&b, d, d)));
    return b.status;
}

DEFINE(batch_norm_apply) {
    ir_build_t b = {.graph = graph};
    const ir_type_t *type = &ctx->in[0];
    v_t centered = sub(&b, wide(&b, inputs[0]), by_channel(&b, inputs[1], type));
    v_t scale = mul(&b, by_channel(&b, inputs[2], type), by_channel(&b, inputs[3], type));
    v_t y = add(&b, mul(&b, centered, scale), by_channel(&b, inputs[4], type));
    out[0] = as_output(&b, ctx, 0, y);
    return b.status;
}

DEFINE(batch_norm_grad_sums) {
    ir_build_t b = {.graph = graph};
    const ir_type_t *type = &ctx->in[1];
    v_t dy = wide(&b, inputs[0]);
    v_t centered = sub(&b, wide(&b, inputs[1]), by_channel(&b, inputs[2], type));
    v_t xhat = mul(&b, centered, by_channel(&b, inputs[3], type));
    out[0] = as_output(&b, ctx, 0, sum_channel(&b, dy));
    out[1] = as_output(&b, ctx, 1, sum_channel(&b, mul(&b, dy, xhat)));
    return b.status;
}

DEFINE(batch_norm_grad_apply) {
    ir_build_t b = {.graph = graph};
    const ir_type_t *type = &ctx->in[1];
    const double count = (double)ir_ctx_int(ctx, "count");
    v_t invstd = by_channel(&b, inputs[3], type);
    v_t mean_dy = by(&b, by_channel(&b, inputs[5], type), count);
    v_t slope = mul(&b, by(&b, by_channel(&b, inputs[6], type), count), invstd);
    v_t centered = sub(&b, wide(&b, inputs[1]), by_channel(&b, inputs[2], type));
    v_t inner = sub(&b, sub(&b, wide(&b, inputs[0]), mean_dy), mul(&b, centered, slope));
    v_t dx = mul(&b, inner, mul(&b, invstd, by_channel(&b, inputs[4], type)));
    out[0] = as_output(&b, ctx, 0, dx);
    return b.status;
}

/* ---- updates ---- */

DEFINE(sum_squares) {
    ir_build_t b = {.graph = graph};
    v_t total = IR_NONE;
    ir_type_t type;
    ir_ctx_outputs(ctx, &type);
    for (uint32_t j = 0; j < ctx->n_inputs; j++) {
        v_t x = ir_b_cast(&b, inputs[j], type.dtype);
        x = mul(&b, x, x);
        if (ctx->in[j].rank > 0) x = sum(&b, x, 0, NULL, false);
        total = j == 0 ? x : add(&b, total, x);
    }
    out[0] = as_output(&b, ctx, 0, total);
    return b.status;
}

/* Output k: `next`, or what input `old` has where `apply` says so. */
static v_t updated(ir_build_t *b, const ir_op_ctx_t *ctx, uint32_t k, v_t next, v_t old,
                   v_t apply) {
    v_t value = as_output(b, ctx, k, next);
    return apply == IR_NONE ? value : ir_b_select(b, apply, value, old);
}

DEFINE(sgd) {
    ir_build_t b = {.graph = graph};
    const ir_dtype_t dtype = ctx->in[0].dtype, real = ir_dtype_wide(dtype);
    const double momentum = attr(ctx, "momentum");
    const uint32_t apply_at = momentum != 0 ? 5 : 4;
    const v_t apply = ctx->n_inputs > apply_at ? inputs[apply_at] : IR_NONE;
    v_t p = wide(&b, inputs[0]), lr = ir_b_cast(&b, inputs[2], real);
    v_t g = mul(&b, ir_b_cast(&b, inputs[1], real), wide(&b, inputs[3]));
    if (attr(ctx, "weight_decay") != 0)
        g = add(&b, g, ir_b_scale(&b, p, attr(ctx, "weight_decay")));
    out[1] = IR_NONE;
    if (momentum != 0) {
        v_t kept = ir_b_scale(&b, wide(&b, inputs[4]), momentum);
        v_t buffer = add(&b, kept, ir_b_scale(&b, g, 1 - attr(ctx, "dampening")));
        out[1] = updated(&b, ctx, 1, buffer, inputs[4], apply);
        g = ir_ctx_int(ctx, "nesterov") ? add(&b, g, ir_b_scale(&b, buffer, momentum)) : buffer;
    }
    out[0] = updated(&b, ctx, 0, sub(&b, p, mul(&b, g, lr)), inputs[0], apply);
    if (momentum == 0) out[1] = ir_b_scalar(&b, dtype, 0);
    return b.status;
}

DEFINE(adamw) {
    ir_build_t b = {.graph = graph};
    const ir_dtype_t dtype = ctx->in[0].dtype, real = ir_dtype_wide(dtype);
    const double beta1 = attr(ctx, "beta1"), beta2 = attr(ctx, "beta2");
    const double decay = attr(ctx, "weight_decay");
    const v_t apply = ctx->n_inputs > 7 ? inputs[7] : IR_NONE;
    v_t step = ir_b_cast(&b, inputs[5], IR_F64), one = ir_b_scalar(&b, IR_F64, 1);
    v_t power1 = ir_b_binary(&b, IR_OP_POW, ir_b_scalar(&b, IR_F64, beta1), step);
    v_t power2 = ir_b_binary(&b, IR_OP_POW, ir_b_scalar(&b, IR_F64, beta2), step);
    v_t rate = ir_b_cast(&b, divide(&b, inputs[4], sub(&b, one, power1)), real);
    v_t root = ir_b_cast(&b, ir_b_unary(&b, IR_OP_RSQRT, sub(&b, one, power2)), real);
    v_t p = wide(&b, inputs[0]);
    v_t g = mul(&b, ir_b_cast(&b, inputs[1], real), wide(&b, inputs[6]));
    if (decay != 0 && ir_ctx_int(ctx, "decoupled"))
        p = mul(&b, p, ir_b_cast(&b, sub(&b, one, ir_b_scale(&b, inputs[4], decay)), real));
    else if (decay != 0)
        g = add(&b, g, ir_b_scale(&b, p, decay));
    v_t m = add(&b, ir_b_scale(&b, wide(&b, inputs[2]), beta1), ir_b_scale(&b, g, 1 - beta1));
    v_t squares = ir_b_scale(&b, mul(&b, g, g), 1 - beta2);
    v_t v = add(&b, ir_b_scale(&b, wide(&b, inputs[3]), beta2), squares);
    v_t size = mul(&b, ir_b_unary(&b, IR_OP_SQRT, v), root);
    v_t moved = divide(&b, mul(&b, m, rate), ir_b_add_scalar(&b, size, attr(ctx, "eps")));
    out[0] = updated(&b, ctx, 0, sub(&b, p, moved), inputs[0], apply);
    out[1] = updated(&b, ctx, 1, m, inputs[2], apply);
    out[2] = updated(&b, ctx, 2, v, inputs[3], apply);
    return b.status;
}
