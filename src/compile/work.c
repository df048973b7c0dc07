/* What a node does (work.h): one row an op, by kind of loop.
 *
 * Operations are counted as the mathematics has them: a product 2 m n k, a causal row of attention
 * only the keys it sees, elementwise ops one an element, composites what their definition in
 * primitives has an element. Bytes are those of every operand once; of a table that is looked up
 * only the rows taken. */
#include "compile/work.h"

#include <string.h>

#include "ir/node_ctx.h"
#include "ir/window.h"

typedef void (*rule_t)(const ir_op_ctx_t *ctx, const ir_type_t *out_types, work_t *w);

typedef struct work_row {
    rule_t rule;       /* NULL: elements of output 0 */
    double operations; /* an element; 0: one */
} work_row_t;

static double elements(const ir_type_t *type) {
    return (double)ir_type_elements(type);
}
static double bytes(const ir_type_t *type) {
    return (double)ir_type_bytes(type);
}

/* ---- passes over elements ---- */

static void of_output(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    (void)ctx;
    w->units = elements(&out[0]);
}
static void of_input(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    (void)out;
    w->units = elements(&ctx->in[0]);
}
/* All inputs' elements: sums over lists of tensors, concatenations. */
static void of_inputs(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    (void)out;
    for (uint32_t j = 0; j < ctx->n_inputs; j++) w->units += elements(&ctx->in[j]);
}
/* No memory is touched: views and what stands there before the step. */
static void nothing(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    (void)ctx;
    (void)out;
    w->kind = WORK_NOTHING;
    w->bytes_read = w->bytes_written = 0;
}
/* Written, but read nowhere: generated. */
static void generated(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    of_output(ctx, out, w);
    w->bytes_read = 0;
}
/* A table of which only what comes out is read. */
static void picked(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    of_output(ctx, out, w);
    w->bytes_read += bytes(&out[0]) - bytes(&ctx->in[0]);
}
/* Zeros everywhere, then the updates added: the places of the updates are read and written
 * again. */
static void scattered(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    w->units = elements(&ctx->in[0]);
    w->flop = w->units;
    w->bytes_read += bytes(&ctx->in[0]);
    w->bytes_written = bytes(&out[0]) + bytes(&ctx->in[0]);
}

/* Sums along the rows' own elements and sums across rows run at different rates. */
static void reduction(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    const ir_attr_t *axes = ir_ctx_attr(ctx, "axes");
    const ir_type_t *x = &ctx->in[0];
    (void)out;
    w->units = elements(x);
    bool last = !axes->ints.n;
    for (uint32_t a = 0; a < axes->ints.n; a++) last |= axes->ints.v[a] == x->rank - 1;
    w->variant = last || !x->rank ? "rows" : "columns";
}

/* A transpose that leaves the last dim in place copies runs; another gathers. */
static void transposed(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    const ir_attr_t *perm = ir_ctx_attr(ctx, "perm");
    of_output(ctx, out, w);
    w->flop = 0;
    w->variant =
        perm->ints.n && perm->ints.v[perm->ints.n - 1] != perm->ints.n - 1 ? "columns" : "rows";
}
static void moved(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    of_output(ctx, out, w);
    w->flop = 0;
}
static void cut(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    picked(ctx, out, w);
    w->flop = 0;
}
static void taps(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    const ir_attr_t *kernel = ir_ctx_attr(ctx, "kernel");
    const ir_type_t *pooled = ctx->in[0].rank && ctx->op == IR_OP_AVG_POOL_GRAD ? &ctx->in[0] : out;
    w->units = elements(pooled);
    double window = 1;
    for (uint32_t i = 0; i < kernel->ints.n; i++) window *= (double)kernel->ints.v[i];
    w->units *= window;
    w->flop = w->units;
    bool narrow = pooled->rank > 2 && pooled->dims[pooled->rank - 1] < 10; /* short inner loops */
    w->variant =
        window <= 4 ? (narrow ? "small_narrow" : "small") : (narrow ? "large_narrow" : "large");
}

/* ---- products ---- */

static void product(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    const ir_type_t *a = &ctx->in[0], *y = &out[0];
    bool ta = ir_ctx_int(ctx, "transpose_a"), tb = ir_ctx_int(ctx, "transpose_b");
    w->kind = WORK_PRODUCT;
    w->variant = ta ? (tb ? "tt" : "tn") : (tb ? "nt" : "nn");
    w->dims.m = y->dims[y->rank - 2];
    w->dims.n = y->dims[y->rank - 1];
    w->dims.k = a->dims[a->rank - (ta ? 2 : 1)];
    w->dims.b = 1;
    for (int32_t i = 0; i + 2 < y->rank; i++) w->dims.b *= y->dims[i];
    w->units = elements(y) * (double)w->dims.k;
    w->flop = w->product_flop = 2 * w->units;
    if (ctx->n_inputs > 2) w->flop += elements(y);
}

static void convolution(const ir_op_ctx_t *ctx, const ir_type_t *stored_x,
                        const ir_type_t *stored_kernel, const ir_type_t *stored_y, work_t *w) {
    const ir_attr_t *strides = ir_ctx_attr(ctx, "strides");
    const bool last = ir_ctx_int(ctx, "channels_last");
    const ir_type_t plain[3] = {ir_channels_first(stored_x, last),
                                ir_channels_first(stored_kernel, last),
                                ir_channels_first(stored_y, last)};
    const ir_type_t *x = &plain[0], *kernel = &plain[1], *y = &plain[2];
    int64_t groups = ir_ctx_int(ctx, "groups");
    w->kind = WORK_CONV;
    w->variant = last ? "last" : ""; /* first is the plain one */
    w->dims = (work_dims_t){.n = x->dims[0],
                            .c = kernel->dims[1],
                            .o = kernel->dims[0] / (groups ? groups : 1),
                            .g = groups,
                            .p = 1,
                            .i = 1,
                            .r = 1,
                            .s = 1};
    for (int32_t i = 2; i < x->rank; i++) {
        w->dims.p *= y->dims[i];
        w->dims.i *= x->dims[i];
        w->dims.r *= kernel->dims[i];
        w->dims.s *= strides->ints.v[i - 2];
    }
    w->units = elements(y) * (double)w->dims.c * (double)w->dims.r;
    w->flop = w->product_flop = 2 * w->units;
}
static void conv_forward(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    convolution(ctx, &ctx->in[0], &ctx->in[1], &out[0], w);
}
static void conv_input(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    convolution(ctx, &out[0], &ctx->in[1], &ctx->in[0], w);
}
static void conv_weight(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    convolution(ctx, &ctx->in[0], &out[0], &ctx->in[1], w);
}

/* Pairs of a query and a key that it sees. */
static double visible(const ir_op_ctx_t *ctx, int64_t m, int64_t s) {
    bool causal = ir_ctx_int(ctx, "causal");
    const int64_t window = ir_ctx_int(ctx, "window"), offset = ir_ctx_int(ctx, "offset");
    if (!causal && !window) return (double)m * (double)s;
    double pairs = 0;
    for (int64_t q = offset; q < m + offset; q++) {
        int64_t first = window && q >= window ? q - window + 1 : 0;
        int64_t last = causal ? q + 1 : window && window < s - q ? q + window : s;
        if (last > s) last = s;
        if (last > first) pairs += (double)(last - first);
    }
    return pairs;
}
/* `first` is q among the inputs. Forward: two products, backward: five. */
static void attend(const ir_op_ctx_t *ctx, uint32_t first, double qk_products, double v_products,
                   work_t *w) {
    const ir_type_t *q = &ctx->in[first], *k = &ctx->in[first + 1], *v = &ctx->in[first + 2];
    const int head = ir_ctx_int(ctx, "rows_first") ? 2 : 1, row = 3 - head;
    w->kind = WORK_ATTENTION;
    w->variant = ir_ctx_int(ctx, "causal") ? "causal" : "full";
    w->dims = (work_dims_t){.b = q->dims[0],
                            .h = q->dims[head],
                            .g = k->dims[head],
                            .m = q->dims[row],
                            .s = k->dims[row],
                            .d = q->dims[3],
                            .e = v->dims[3]};
    double pairs = (double)w->dims.b * (double)w->dims.h * visible(ctx, w->dims.m, w->dims.s);
    w->product_flop =
        2 * pairs * (qk_products * (double)w->dims.d + v_products * (double)w->dims.e);
    w->flop = w->product_flop + 5 * pairs;
    w->units = w->product_flop / 2;
}
static void attention(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    (void)out;
    attend(ctx, 0, 1, 1, w);
}
static void attention_grad(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    (void)out;
    attend(ctx, 1, 3, 2, w);
}

static void collective(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    of_inputs(ctx, out, w);
    w->kind = ir_op_def(ctx->op)->flags & IR_START ? WORK_COLLECTIVE : WORK_NOTHING;
}

/* ---- bodies ---- */

static void add_work(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types) {
    work_t *sum = context, inner;
    work_of(ctx, out_types, &inner);
    sum->flop += inner.flop;
    sum->product_flop += inner.product_flop;
    sum->units += inner.units;
    sum->bytes_read += inner.bytes_read;
    sum->bytes_written += inner.bytes_written;
    if (inner.status != ST_OK) sum->status = inner.status;
}
static work_t sum_of(const ir_graph_t *body) {
    work_t sum = {0};
    st_status_t status = work_each_node(body, add_work, &sum);
    if (status != ST_OK) sum.status = status;
    return sum;
}
static void of_body(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    if (ctx->n_outputs) w->dtype = out[0].dtype;
    work_t sum = sum_of(ir_ctx_attr(ctx, "body")->graph);
    w->flop = sum.flop;
    w->product_flop = sum.product_flop;
    w->units = sum.units;
    w->status = sum.status;
}
static void repeated(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    double trip = (double)ir_ctx_int(ctx, "trip");
    of_body(ctx, out, w);
    work_t sum = sum_of(ir_ctx_attr(ctx, "body")->graph);
    w->flop *= trip;
    w->product_flop *= trip;
    w->units *= trip;
    w->bytes_read = sum.bytes_read * trip;
    w->bytes_written = sum.bytes_written * trip;
    if (sum.status != ST_OK) w->status = sum.status;
}
static void either(const ir_op_ctx_t *ctx, const ir_type_t *out, work_t *w) {
    work_t a = sum_of(ir_ctx_attr(ctx, "then")->graph), b = sum_of(ir_ctx_attr(ctx, "else")->graph);
    const work_t *more = a.flop + a.bytes_read >= b.flop + b.bytes_read ? &a : &b;
    (void)out;
    w->flop = more->flop;
    w->product_flop = more->product_flop;
    w->units = more->units;
    w->bytes_read = more->bytes_read;
    w->bytes_written = more->bytes_written;
    w->status = a.status != ST_OK ? a.status : b.status;
}

st_status_t work_each_node(const ir_graph_t *body, work_visit_t each, void *context) {
    for (ir_node_t n = 0; n < body->nodes.n; n++) {
        ir_node_ctx_t ctx;
        if (ir_node(body, n)->op == IR_OP_INPUT) continue;
        TRY(ir_node_ctx_open(&ctx, body, n));
        each(context, &ctx.op, ctx.out);
        ir_node_ctx_close(&ctx);
    }
    return ST_OK;
}

/* ---- the table ---- */

/* clang-format off */
static const work_row_t rows[IR_OP_END] = {
    [IR_OP_INPUT] = {nothing, 0}, [IR_OP_PARAMETER] = {nothing, 0}, [IR_OP_BUFFER] = {nothing, 0},
    [IR_OP_CONSTANT] = {nothing, 0}, [IR_OP_AXIS_INDEX] = {nothing, 0}, [IR_OP_RESHAPE] = {nothing, 0}, [IR_OP_UPDATE] = {nothing, 0},
    [IR_OP_FUSED] = {of_body, 0}, [IR_OP_REPEAT] = {repeated, 0}, [IR_OP_COND] = {either, 0},
    [IR_OP_IOTA] = {generated, 1}, [IR_OP_RANDOM_UNIFORM] = {generated, 12},
    [IR_OP_GELU] = {of_output, 8}, [IR_OP_SILU] = {of_output, 4}, [IR_OP_SIGMOID] = {of_output, 3},
    [IR_OP_GELU_GRAD] = {of_output, 14}, [IR_OP_SILU_GRAD] = {of_output, 8},
    [IR_OP_DROPOUT] = {of_output, 12}, [IR_OP_ROPE] = {of_output, 3},
    [IR_OP_BROADCAST] = {moved, 0}, [IR_OP_TRANSPOSE] = {transposed, 0}, [IR_OP_PAD] = {moved, 0},
    [IR_OP_CONCAT] = {moved, 0}, [IR_OP_FLIP] = {moved, 0}, [IR_OP_SLICE] = {cut, 0},
    [IR_OP_GATHER] = {cut, 0}, [IR_OP_GATHER_ALONG] = {cut, 0}, [IR_OP_GATHER_ND] = {cut, 0},
    [IR_OP_SCATTER_ADD] = {scattered, 1}, [IR_OP_SCATTER_ALONG_ADD] = {scattered, 1},
    [IR_OP_SCATTER_ND_ADD] = {scattered, 1},
    [IR_OP_REDUCE_SUM] = {reduction, 1}, [IR_OP_REDUCE_MEAN] = {reduction, 1},
    [IR_OP_REDUCE_MAX] = {reduction, 1}, [IR_OP_REDUCE_MIN] = {reduction, 1},
    [IR_OP_REDUCE_PROD] = {reduction, 1}, [IR_OP_ARGMAX] = {of_input, 1},
    [IR_OP_CUMSUM] = {of_input, 1}, [IR_OP_SUM_SQUARES] = {of_inputs, 2},
    [IR_OP_MATMUL] = {product, 0}, [IR_OP_CONV] = {conv_forward, 0},
    [IR_OP_CONV_GRAD_INPUT] = {conv_input, 0}, [IR_OP_CONV_GRAD_WEIGHT] = {conv_weight, 0},
    [IR_OP_MAX_POOL] = {taps, 0}, [IR_OP_MAX_POOL_GRAD] = {of_input, 1},
    [IR_OP_AVG_POOL] = {taps, 0}, [IR_OP_AVG_POOL_GRAD] = {taps, 0},
    [IR_OP_ATTENTION] = {attention, 0}, [IR_OP_ATTENTION_GRAD] = {attention_grad, 0},
    [IR_OP_SOFTMAX] = {of_input, 5}, [IR_OP_SOFTMAX_GRAD] = {of_input, 4},
    [IR_OP_LOG_SOFTMAX] = {of_input, 5}, [IR_OP_LOG_SOFTMAX_GRAD] = {of_input, 4},
    [IR_OP_CROSS_ENTROPY] = {of_input, 5}, [IR_OP_CROSS_ENTROPY_ROWS] = {of_input, 4},
    [IR_OP_CROSS_ENTROPY_GRAD] = {of_output, 4}, [IR_OP_BATCH_NORM] = {of_input, 8},
    [IR_OP_CHANNEL_SUM] = {of_input, 1}, [IR_OP_CHANNEL_CENTERED_SQUARES] = {of_input, 3},
    [IR_OP_BATCH_NORM_APPLY] = {of_input, 4}, [IR_OP_BATCH_NORM_GRAD_SUMS] = {of_input, 5},
    [IR_OP_BATCH_NORM_GRAD_APPLY] = {of_input, 7}, [IR_OP_LAYER_NORM] = {of_input, 8},
    [IR_OP_LAYER_NORM_GRAD] = {of_input, 14}, [IR_OP_RMS_NORM] = {of_input, 5},
    [IR_OP_RMS_NORM_GRAD] = {of_input, 10}, [IR_OP_SGD] = {of_input, 5}, [IR_OP_ADAMW] = {of_input, 14},
    [IR_OP_LR_SCHEDULE] = {of_output, 12},
    [IR_OP_ALL_REDUCE_START] = {collective, 1}, [IR_OP_ALL_REDUCE_WAIT] = {collective, 0},
    [IR_OP_ALL_GATHER_START] = {collective, 0}, [IR_OP_ALL_GATHER_WAIT] = {collective, 0},
    [IR_OP_REDUCE_SCATTER_START] = {collective, 1}, [IR_OP_REDUCE_SCATTER_WAIT] = {collective, 0},
    [IR_OP_ALL_TO_ALL_START] = {collective, 0}, [IR_OP_ALL_TO_ALL_WAIT] = {collective, 0},
    [IR_OP_SEND_START] = {collective, 0}, [IR_OP_SEND_WAIT] = {collective, 0},
    [IR_OP_RECEIVE_START] = {collective, 0}, [IR_OP_RECEIVE_WAIT] = {collective, 0},
};
/* clang-format on */

void work_of(const ir_op_ctx_t *ctx, const ir_type_t *out_types, work_t *out) {
    *out = (work_t){.kind = WORK_EACH, .variant = ""};
    const work_row_t *row = &rows[ctx->op];
    for (uint32_t j = 0; j < ctx->n_inputs; j++) out->bytes_read += bytes(&ctx->in[j]);
    for (uint32_t k = 0; k < ctx->n_outputs; k++) out->bytes_written += bytes(&out_types[k]);
    if (ctx->n_outputs) out->dtype = out_types[0].dtype;
    if (ctx->n_inputs) out->dtype = ctx->in[0].dtype;
    out->flop = -1;
    (row->rule ? row->rule : of_output)(ctx, out_types, out);
    if (out->flop < 0)
        out->flop = out->kind == WORK_NOTHING
                        ? 0
                        : out->units * (row->operations > 0 ? row->operations : 1);
}

bool work_is_known(ir_op_t op) {
    return rows[op].rule || rows[op].operations > 0 || (ir_op_def(op)->flags & IR_ELEMENTWISE);
}

work_kind_t work_kind_of(ir_op_t op) {
    rule_t rule = rows[op].rule;
    if (rule == product) return WORK_PRODUCT;
    if (rule == conv_forward || rule == conv_input || rule == conv_weight) return WORK_CONV;
    return rule == attention || rule == attention_grad ? WORK_ATTENTION : WORK_EACH;
}

static const struct {
    const char *name;
    size_t offset;
} dim_names[] = {
#define DIM(name) \
    { #name, offsetof(work_dims_t, name) }
    DIM(b), DIM(c), DIM(d), DIM(e), DIM(g), DIM(h),    DIM(i),   DIM(k), DIM(m),
    DIM(n), DIM(o), DIM(p), DIM(r), DIM(s), DIM(rows), DIM(cols)
#undef DIM
};
enum { N_DIMS = sizeof dim_names / sizeof dim_names[0] };

const char *work_dim_name(size_t index) {
    return index < N_DIMS ? dim_names[index].name : NULL;
}

int64_t *work_dim_of(work_dims_t *dims, const char *name, size_t n_bytes) {
    for (size_t i = 0; i < N_DIMS; i++)
        if (strlen(dim_names[i].name) == n_bytes && memcmp(dim_names[i].name, name, n_bytes) == 0)
            return (int64_t *)((char *)dims + dim_names[i].offset);
    return NULL;
}
