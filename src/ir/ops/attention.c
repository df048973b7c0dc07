/* attention: softmax(q k^T * scale, masked) v by rows, with grouped heads: query head h reads key
 * head h * G / H.
 *
 *   offset   the place of query 0 among the keys: query m stands at m + offset, which may be before
 *            the first key or after the last one
 *   causal   query m sees the keys s ≤ m + offset
 *   window   0: all; else query m sees the keys with |m + offset - s| < window
 *   mask     bool: true attends; float: added to the scaled products
 *
 *   rows_first  q, k, v and o are [B, rows, heads, width], as products over [B, rows, heads ·
 *               width] make and read them; else [B, heads, rows, width]
 *
 * Queries are a part of a sequence whose keys are all there, or whose keys are another part: on
 * a rank of a context axis, or of one token to generate. Where the part lies is an attribute and
 * no operand: it is known when the plan is made, so that kernels and costs leave out what no
 * query sees, and a vendor library is asked for the causal form it has. The price is a program
 * for each part, which ranks of a split sequence have anyway: their rotary tables differ.
 *
 * A row that sees no key gives 0. lse is the log of the sum of exponentials of each row; the
 * gradient needs it. */
#include <math.h>

#include "ir/build.h"
#include "ir/define.h"
#include "ir/op.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {
    {"causal", IR_ATTR_BOOL, false, 0, NULL}, {"window", IR_ATTR_INT, false, 0, NULL},
    {"scale", IR_ATTR_FLOAT, false, 0, NULL}, {"rows_first", IR_ATTR_BOOL, false, 0, NULL},
    {"offset", IR_ATTR_INT, false, 0, NULL},  {0}};
enum { N_ATTRS = sizeof attrs / sizeof attrs[0] - 1 };
/* Either way: positions stay far from the ends of their type. */
static const int64_t MOST_OFFSET = (int64_t)1 << 48;

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    const bool rows_first = ir_ctx_int(ctx, "rows_first");
    ir_type_t plain[3];
    for (int j = 0; j < 3; j++) plain[j] = ir_heads_first(&ctx->in[j], rows_first);
    const ir_type_t *q = &plain[0], *k = &plain[1], *v = &plain[2];
    char tq[IR_TYPE_TEXT_BYTES], tk[IR_TYPE_TEXT_BYTES], tv[IR_TYPE_TEXT_BYTES];
    ir_type_text(q, tq, sizeof tq);
    ir_type_text(k, tk, sizeof tk);
    ir_type_text(v, tv, sizeof tv);
    if (!ir_dtype_is_float(q->dtype) || k->dtype != q->dtype || v->dtype != q->dtype ||
        q->rank != 4 || k->rank != 4 || v->rank != 4)
        return FAIL(ST_INVALID, "q %s, k %s, v %s: one float type and rank 4 are needed", tq, tk,
                    tv);
    bool fits = k->dims[0] == q->dims[0] && v->dims[0] == q->dims[0] && k->dims[1] == v->dims[1] &&
                k->dims[2] == v->dims[2] && k->dims[3] == q->dims[3];
    const bool no_heads = !q->dims[1] && !k->dims[1]; /* of a rank whose part is empty */
    if (!fits || (!no_heads && (k->dims[1] < 1 || q->dims[1] % k->dims[1])))
        return FAIL(
            ST_INVALID,
            "q %s, k %s, v %s%s: q[B,H,M,D], k[B,G,S,D], v[B,G,S,E] with H a multiple of G are "
            "needed",
            tq, tk, tv, rows_first ? " (dims 1 and 2 exchanged: rows_first)" : "");
    if (ir_ctx_int(ctx, "window") < 0 || !isfinite(ir_ctx_attr(ctx, "scale")->f))
        return FAIL(ST_INVALID,
                    "window %lld and scale %g: window ≥ 0 and a finite scale are needed",
                    (long long)ir_ctx_int(ctx, "window"), ir_ctx_attr(ctx, "scale")->f);
    const int64_t offset = ir_ctx_int(ctx, "offset");
    if (offset > MOST_OFFSET || offset < -MOST_OFFSET)
        return FAIL(ST_INVALID, "offset %lld is beyond ±%lld", (long long)offset,
                    (long long)MOST_OFFSET);
    if (ctx->n_inputs > 3) {
        const ir_type_t *mask = &ctx->in[3];
        char tm[IR_TYPE_TEXT_BYTES];
        ir_type_t scores =
            ir_type_make(q->dtype, 4, (int64_t[]){q->dims[0], q->dims[1], q->dims[2], k->dims[2]});
        ir_type_t both;
        if ((mask->dtype != IR_BOOL && mask->dtype != q->dtype &&
             mask->dtype != ir_dtype_wide(q->dtype)) ||
            ir_dims_broadcast(&scores, mask, &both) != ST_OK || !ir_dims_equal(&both, &scores))
            return FAIL(ST_INVALID,
                        "mask %s: bool or %s that broadcasts to [%lld,%lld,%lld,%lld] needed",
                        ir_type_text(mask, tm, sizeof tm), ir_dtype_text(q->dtype),
                        (long long)scores.dims[0], (long long)scores.dims[1],
                        (long long)scores.dims[2], (long long)scores.dims[3]);
    }
    out[0] = ctx->in[0];
    out[0].dims[3] = v->dims[3];
    out[1] = ir_type_make(ir_dtype_wide(q->dtype), 3, q->dims);
    return ST_OK;
}

static st_status_t gradient(ir_graph_t *graph, ir_node_t node, const ir_value_t *dout,
                            const bool *want, ir_value_t *din) {
    const ir_node_info_t info = *ir_node(graph, node);
    TRY(ir_no_output_gradient(dout, 1, "lse"));
    if (info.n_inputs > 3) TRY(ir_no_input_gradient(want, 3, "mask"));
    if (dout[0] == IR_NONE || (!want[0] && !want[1] && !want[2])) return ST_OK;
    ir_build_t b = {.graph = graph};
    ir_arg_t args[N_ATTRS];
    for (int i = 0; i < N_ATTRS; i++) args[i] = (ir_arg_t){attrs[i].key, info.attrs[i]};
    ir_value_t in[7] = {dout[0],           info.inputs[0],        info.inputs[1], info.inputs[2],
                        info.first_output, info.first_output + 1, IR_NONE};
    if (info.n_inputs > 3) in[6] = info.inputs[3];
    ir_value_t dq = ir_b_node(&b, IR_OP_ATTENTION_GRAD, info.n_inputs + 3, in, N_ATTRS, args);
    for (uint32_t j = 0; b.status == ST_OK && j < 3; j++)
        if (want[j]) din[j] = dq + j;
    return b.status;
}

static st_status_t localize(const ir_op_ctx_t *global, const ir_part_t *in, const ir_part_t *out,
                            st_arena_t *arena, ir_attr_t *local) {
    (void)in, (void)arena;
    ir_localize_rows(global, &out[0], local);
    return ST_OK;
}

/* Batch items are independent, and groups of heads with one key head. The mask follows where it has
 * the dim in full. */
static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    uint32_t inputs = ir_first_bits(3);
    if (ctx->n_inputs > 3 && ctx->in[3].rank == 4 && ctx->in[3].dims[0] == ctx->in[0].dims[0])
        inputs |= 1u << 3;
    ir_strategies_dims(ctx, list, 1u << 0, inputs, ir_first_bits(2), 0);
    ir_strategies_heads(ctx, list, ir_first_bits(3), UINT32_MAX, 1, 3);
    ir_strategies_queries(ctx, list, 1u << 0, UINT32_MAX, 1, 3, 0);
}

const ir_op_def_t ir_op_attention = {
    .op = IR_OP_ATTENTION,
    .name = "attention",
    .min_inputs = 3,
    .max_inputs = 4,
    .n_outputs = 2,
    .flags = IR_CONTRACTION,
    .attrs = attrs,
    .shape = shape,
    .gradient = gradient,
    .strategies = strategies,
    .localize = localize,
    .differs_by_place = ir_counts_rows,
    .define = ir_define_attention,
};
