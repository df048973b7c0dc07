/* slice: every step-th element from begin to before end, a triple a dim. Bounds are within the dim
 * (importers clamp them): 0 … size upward, -1 … size - 1 downward, where an end of -1 goes past 0.
 */
#include "ir/build.h"
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {
    {"begin", IR_ATTR_INTS, true, 0, NULL},
    {"end", IR_ATTR_INTS, true, 0, NULL},
    {"step", IR_ATTR_INTS, true, 0, NULL},
    {0},
};

typedef struct bounds {
    int64_t begin, end, step;
} bounds_t;

static bounds_t bounds_of(const ir_attr_t *begin, const ir_attr_t *end, const ir_attr_t *step,
                          int32_t dim) {
    return (bounds_t){begin->ints.v[dim], end->ints.v[dim], step->ints.v[dim]};
}

static int64_t count(bounds_t of) {
    if (of.step > 0) return of.end > of.begin ? 1 + (of.end - of.begin - 1) / of.step : 0;
    return of.begin > of.end ? 1 + (of.begin - of.end - 1) / -of.step : 0;
}

static bool takes_all(bounds_t of, int64_t size) {
    return of.begin == 0 && of.end == size && of.step == 1;
}

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    char text[IR_TYPE_TEXT_BYTES];
    const ir_type_t *x = &ctx->in[0];
    const ir_attr_t *begin = ir_ctx_attr(ctx, "begin"), *end = ir_ctx_attr(ctx, "end");
    const ir_attr_t *step = ir_ctx_attr(ctx, "step");
    uint32_t rank = (uint32_t)x->rank;
    if (begin->ints.n != rank || end->ints.n != rank || step->ints.n != rank)
        return FAIL(
            ST_INVALID, "begin, end and step have %u, %u and %u entries, %s needs %u of each",
            begin->ints.n, end->ints.n, step->ints.n, ir_type_text(x, text, sizeof text), rank);
    *out = *x;
    for (int32_t i = 0; i < x->rank; i++) {
        bounds_t of = bounds_of(begin, end, step, i);
        int64_t low = of.step > 0 ? 0 : -1, high = of.step > 0 ? x->dims[i] : x->dims[i] - 1;
        if (of.step == 0 || of.step < -INT64_MAX)
            return FAIL(ST_INVALID, "step %lld of dim %d is not possible", (long long)of.step,
                        (int)i);
        if (of.begin < low || of.begin > high || of.end < low || of.end > high)
            return FAIL(ST_INVALID,
                        "%lld to %lld by %lld leaves dim %d of %s: bounds %lld to %lld expected",
                        (long long)of.begin, (long long)of.end, (long long)of.step, (int)i,
                        ir_type_text(x, text, sizeof text), (long long)low, (long long)high);
        out->dims[i] = count(of);
    }
    return ST_OK;
}

/* Puts dy's elements back where they were taken from, zeros elsewhere: dims walked with a larger
 * step are scattered one by one, those walked by 1 or -1 (flipped first) are padded all at once. */
static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    if (dout[0] == IR_NONE || !want[0]) return ST_OK;
    ir_build_t b = {.graph = graph};
    const ir_type_t x = *ir_value_type(graph, info.inputs[0]);
    const ir_attr_t *begin = ir_node_attr(&info, "begin"), *end = ir_node_attr(&info, "end");
    const ir_attr_t *step = ir_node_attr(&info, "step");
    int64_t low[IR_MAX_RANK] = {0}, high[IR_MAX_RANK] = {0}, flipped[IR_MAX_RANK];
    uint32_t n_flipped = 0;
    bool padded = false;
    ir_value_t d = dout[0];
    for (int32_t i = 0; i < x.rank; i++) {
        bounds_t of = bounds_of(begin, end, step, i);
        int64_t n = count(of);
        if (of.step != 1 && of.step != -1) {
            ir_value_t index =
                ir_b_iota(&b, ir_type_make(IR_I64, 1, &n), 0, (double)of.begin, (double)of.step);
            d = ir_b_node(&b, IR_OP_SCATTER_ADD, 2, (ir_value_t[]){d, index}, 2,
                          (ir_arg_t[]){IR_ARG_INT("axis", i), IR_ARG_INT("extent", x.dims[i])});
            continue;
        }
        if (of.step == -1) flipped[n_flipped++] = i;
        low[i] = of.step == 1 ? of.begin : of.begin - n + 1;
        high[i] = x.dims[i] - low[i] - n;
        padded |= low[i] || high[i];
    }
    if (n_flipped)
        d = ir_b_node(&b, IR_OP_FLIP, 1, &d, 1,
                      (ir_arg_t[]){IR_ARG_INTS("axes", flipped, n_flipped)});
    if (padded)
        d = ir_b_node(
            &b, IR_OP_PAD, 1, &d, 2,
            (ir_arg_t[]){IR_ARG_INTS("low", low, x.rank), IR_ARG_INTS("high", high, x.rank)});
    din[0] = d;
    return b.status;
}

static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    const ir_attr_t *begin = ir_ctx_attr(ctx, "begin"), *end = ir_ctx_attr(ctx, "end");
    const ir_attr_t *step = ir_ctx_attr(ctx, "step");
    int32_t to_out[IR_MAX_RANK];
    for (int32_t i = 0; i < ctx->in[0].rank; i++)
        to_out[i] = takes_all(bounds_of(begin, end, step, i), ctx->in[0].dims[i]) ? i : -1;
    ir_strategies_map(ctx, list, 0, to_out);
    ir_strategies_partial(ctx, list, 1u << 0);
}

/* A split dim is one that is taken whole: what is left of it ends where the part does. */
static st_status_t localize(const ir_op_ctx_t *global, const ir_part_t *in, const ir_part_t *out,
                            st_arena_t *arena, ir_attr_t *attrs) {
    (void)in;
    if (out[0].placement.kind != IR_SPLIT) return ST_OK;
    return ir_attr_set_int(ir_attr_of(global->op, attrs, "end"), (uint32_t)out[0].placement.dim,
                           out[0].extent, arena);
}

const ir_op_def_t ir_op_slice = {
    .op = IR_OP_SLICE,
    .name = "slice",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_LINEAR,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
    .localize = localize,
};
