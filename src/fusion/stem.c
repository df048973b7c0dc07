/* Strided convolutions over few channels (stem.h). */
#include "fusion/stem.h"

#include <string.h>

#include "base/memory.h"
#include "ir/build.h"
#include "ir/window.h"

enum { MOST_CHANNELS = 4, MOST_ATTRS = 16 };

/* The convolution and its blocks, two spatial dims. */
typedef struct stem {
    int64_t n, c, o, s, wide; /* wide: channels with zeros, so that a block has a multiple of 8 */
    int64_t in[2], out[2], kernel[2], low[2], high[2];
    int64_t zeros[2], blocks[2], taps[2], block_low[2], block_high[2];
    ir_dtype_t dtype;
} stem_t;

/* Works the node out; false: it is no such convolution, whatever its batch. */
static bool read_stem(const ir_graph_t *graph, ir_node_t n, stem_t *out) {
    const ir_node_info_t *node = ir_node(graph, n);
    const bool forward = node->op == IR_OP_CONV;
    if (!forward && node->op != IR_OP_CONV_GRAD_WEIGHT) return false;
    const ir_type_t *x = ir_value_type(graph, node->inputs[0]);
    const ir_type_t *w = ir_value_type(graph, forward ? node->inputs[1] : node->first_output);
    const ir_type_t *y = ir_value_type(graph, forward ? node->first_output : node->inputs[1]);
    const ir_attr_t *strides = ir_node_attr(node, "strides");
    stem_t t = {.n = x->dims[0], .c = x->dims[1], .o = w->dims[0], .dtype = x->dtype};
    if (node->n_inputs != 2 || x->rank != 4 || ir_attr_int(node, "groups") != 1 ||
        ir_attr_int(node, "channels_last") || t.c > MOST_CHANNELS)
        return false;
    t.s = strides->ints.v[0];
    t.wide = t.c;
    while (t.s * t.s * t.wide % 8) t.wide++;
    for (int d = 0; d < 2; d++) {
        t.in[d] = x->dims[2 + d];
        t.out[d] = y->dims[2 + d];
        t.kernel[d] = w->dims[2 + d];
        t.low[d] = ir_node_attr(node, "pads_low")->ints.v[d];
        if (t.s < 2 || strides->ints.v[d] != t.s || t.in[d] % t.s ||
            ir_node_attr(node, "dilations")->ints.v[d] != 1)
            return false;
        t.blocks[d] = t.in[d] / t.s;
        t.block_low[d] = (t.low[d] + t.s - 1) / t.s;
        t.zeros[d] = t.block_low[d] * t.s - t.low[d];
        t.taps[d] = (t.kernel[d] + t.zeros[d] + t.s - 1) / t.s;
        t.block_high[d] = t.out[d] + t.taps[d] - 1 - t.blocks[d] - t.block_low[d];
        if (t.block_high[d] < 0) return false;
    }
    *out = t;
    return true;
}

/* ---- deciding ---- */

static ir_attr_t ints_attr(const int64_t *v, uint32_t n) {
    return (ir_attr_t){.kind = IR_ATTR_INTS, .ints = {v, n}};
}

static st_status_t cost_of(const ir_target_t *target, const ir_node_info_t *node,
                           const ir_type_t *in, const ir_attr_t *attrs, double *out_us) {
    const ir_op_ctx_t ctx = {node->op, 2, 1, in, attrs, node->name};
    ir_type_t out;
    ir_cost_t cost;
    const char *reason;
    *out_us = -1;
    TRY(ir_op_def(node->op)->shape(&ctx, &out));
    if (!target->can_run(target->context, &ctx, &out, &reason)) return ST_OK;
    target->cost(target->context, &ctx, &out, &cost);
    *out_us = cost.us;
    return cost.status;
}

/* Sets attribute `key` of a copy of the node's. */
static void set_attr(const ir_node_info_t *node, ir_attr_t *attrs, const char *key,
                     const ir_attr_t *value) {
    const ir_op_def_t *def = ir_op_def(node->op);
    for (uint32_t i = 0; i < ir_op_n_attrs(def); i++)
        if (strcmp(def->attrs[i].key, key) == 0) attrs[i] = *value;
}

static st_status_t is_faster(const ir_graph_t *graph, ir_node_t n, const stem_t *t,
                             const ir_target_t *target, bool *out_faster) {
    static const int64_t ones[2] = {1, 1};
    const ir_node_info_t *node = ir_node(graph, n);
    const uint32_t n_attrs = ir_op_n_attrs(ir_op_def(node->op));
    const int64_t deep = t->s * t->s * t->wide;
    const ir_type_t x =
        ir_type_make(t->dtype, 4, (int64_t[]){t->n, t->blocks[0], t->blocks[1], deep});
    const ir_type_t w = ir_type_make(t->dtype, 4, (int64_t[]){t->o, t->taps[0], t->taps[1], deep});
    const ir_type_t y = ir_type_make(t->dtype, 4, (int64_t[]){t->n, t->out[0], t->out[1], t->o});
    const bool forward = node->op == IR_OP_CONV;
    ir_attr_t attrs[MOST_ATTRS], last = {.kind = IR_ATTR_BOOL, .i = 1};
    const ir_attr_t one = ints_attr(ones, 2), low = ints_attr(t->block_low, 2),
                    high = ints_attr(t->block_high, 2), taps = ints_attr(t->taps, 2);
    ir_type_t in[2];
    double own, blocks;
    *out_faster = false;
    if (n_attrs > MOST_ATTRS) return ST_OK;
    memcpy(attrs, node->attrs, n_attrs * sizeof *attrs);
    set_attr(node, attrs, "channels_last", &last);
    for (int j = 0; j < 2; j++)
        in[j] = ir_channels_stored(ir_value_type(graph, node->inputs[j]), true);
    TRY(cost_of(target, node, in, attrs, &own));
    set_attr(node, attrs, "strides", &one);
    set_attr(node, attrs, "pads_low", &low);
    set_attr(node, attrs, "pads_high", &high);
    if (!forward) set_attr(node, attrs, "kernel", &taps);
    in[0] = x;
    in[1] = forward ? w : y;
    TRY(cost_of(target, node, in, attrs, &blocks));
    /* a few more launches, of little */
    *out_faster = own >= 0 && blocks >= 0 && blocks + 4 * target->machine->launch_us < own;
    return ST_OK;
}

st_status_t stem_decide(const ir_graph_t *graph, const ir_target_t *target, bool *out_marks) {
    memset(out_marks, 0, graph->nodes.n * sizeof *out_marks);
    if (strcmp(target->machine->device, "cpu") == 0) return ST_OK;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        stem_t t;
        if (!read_stem(graph, n, &t) || t.n == 0 || t.c == 0) continue;
        TRY(is_faster(graph, n, &t, target, &out_marks[n]));
    }
    return ST_OK;
}

/* ---- writing ---- */

/* Zeros for the channels that are not there, by ops that loop nests take in. */
static ir_value_t widen(ir_build_t *b, const stem_t *t, ir_value_t x) {
    int32_t from[2 * MOST_CHANNELS + 8];
    unsigned char there[2 * MOST_CHANNELS + 8];
    const ir_type_t index = ir_type_make(IR_I32, 1, &t->wide);
    const ir_type_t mask = ir_type_make(IR_BOOL, 3, (int64_t[]){t->wide, 1, 1});
    if (t->wide == t->c) return x;
    for (int64_t i = 0; i < t->wide; i++) {
        from[i] = i < t->c ? (int32_t)i : 0;
        there[i] = i < t->c;
    }
    ir_value_t picked =
        ir_b_gather(b, x, ir_b_constant(b, index, from, (size_t)t->wide * sizeof from[0]), 1);
    ir_value_t real = ir_b_constant(b, mask, there, (size_t)t->wide);
    return ir_b_select(b, real, picked, ir_b_scalar(b, t->dtype, 0));
}

/* [N, C, H, W] → [N, H/s, W/s, s s C] */
static ir_value_t cut_blocks(ir_build_t *b, const stem_t *t, ir_value_t x) {
    x = widen(b, t, x);
    const int64_t cut[6] = {t->n, t->wide, t->blocks[0], t->s, t->blocks[1], t->s};
    const int64_t perm[6] = {0, 2, 4, 3, 5, 1};
    const int64_t deep[4] = {t->n, t->blocks[0], t->blocks[1], t->s * t->s * t->wide};
    return ir_b_reshape(b, ir_b_transpose(b, ir_b_reshape(b, x, 6, cut), perm), 4, deep);
}

/* Blocks of this stride: of another one's they can have the depth (3 x 3 x 8, 6 x 6 x 2), not the
 * counts. */
static bool is_cut(const ir_type_t *blocks, const stem_t *t) {
    return blocks->dims[1] == t->blocks[0] && blocks->dims[2] == t->blocks[1] &&
           blocks->dims[3] == t->s * t->s * t->wide;
}

/* [O, C, k, k] → [O, K, K, s s C] */
static ir_value_t cut_taps(ir_build_t *b, const stem_t *t, ir_value_t w) {
    const int64_t low[4] = {0, 0, t->zeros[0], t->zeros[1]};
    const int64_t high[4] = {0, t->wide - t->c, t->taps[0] * t->s - t->kernel[0] - t->zeros[0],
                             t->taps[1] * t->s - t->kernel[1] - t->zeros[1]};
    const int64_t cut[6] = {t->o, t->wide, t->taps[0], t->s, t->taps[1], t->s};
    const int64_t perm[6] = {0, 2, 4, 3, 5, 1};
    const int64_t deep[4] = {t->o, t->taps[0], t->taps[1], t->s * t->s * t->wide};
    if (low[2] || low[3] || high[1] || high[2] || high[3])
        w = ir_b_node(b, IR_OP_PAD, 1, &w, 2,
                      (ir_arg_t[]){IR_ARG_INTS("low", low, 4), IR_ARG_INTS("high", high, 4)});
    return ir_b_reshape(b, ir_b_transpose(b, ir_b_reshape(b, w, 6, cut), perm), 4, deep);
}

/* And back, without the zeros' gradients. */
static ir_value_t join_taps(ir_build_t *b, const stem_t *t, ir_value_t dw) {
    const int64_t cut[6] = {t->o, t->taps[0], t->taps[1], t->s, t->s, t->wide};
    const int64_t perm[6] = {0, 5, 1, 3, 2, 4};
    const int64_t whole[4] = {t->o, t->wide, t->taps[0] * t->s, t->taps[1] * t->s};
    ir_value_t w = ir_b_reshape(b, ir_b_transpose(b, ir_b_reshape(b, dw, 6, cut), perm), 4, whole);
    if (t->wide > t->c) w = ir_b_slice_axis(b, w, 1, 0, t->c);
    for (int32_t d = 0; d < 2; d++)
        w = ir_b_slice_axis(b, w, 2 + d, t->zeros[d], t->zeros[d] + t->kernel[d]);
    return w;
}

static ir_value_t write_stem(ir_build_t *b, const ir_node_info_t *node, const stem_t *t,
                             ir_value_t blocks, const ir_value_t *map) {
    static const int64_t ones[2] = {1, 1}, to_last[4] = {0, 2, 3, 1}, to_first[4] = {0, 3, 1, 2};
    const ir_arg_t args[] = {
        IR_ARG_INTS("strides", ones, 2),          IR_ARG_INTS("dilations", ones, 2),
        IR_ARG_INTS("pads_low", t->block_low, 2), IR_ARG_INTS("pads_high", t->block_high, 2),
        IR_ARG_BOOL("channels_last", true),       IR_ARG_INTS("kernel", t->taps, 2)};
    b->name = node->name;
    if (node->op == IR_OP_CONV) {
        ir_value_t in[2] = {blocks, cut_taps(b, t, map[node->inputs[1]])};
        return ir_b_transpose(b, ir_b_node(b, IR_OP_CONV, 2, in, 5, args), to_first);
    }
    ir_value_t in[2] = {blocks, ir_b_transpose(b, map[node->inputs[1]], to_last)};
    return join_taps(b, t, ir_b_node(b, IR_OP_CONV_GRAD_WEIGHT, 2, in, 6, args));
}

static st_status_t write_all(const bool *marks, const ir_graph_t *graph, ir_build_t *b,
                             ir_value_t *map, ir_value_t *blocks) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        stem_t t;
        if (!marks[n] || !read_stem(graph, n, &t)) {
            TRY(ir_graph_clone_node(b->graph, graph, n, NULL, map));
            continue;
        }
        ir_graph_stand_for(b->graph, node);
        ir_value_t *x = &blocks[node->inputs[0]]; /* plus 1: one form for all that read it so */
        if (!*x || !is_cut(ir_b_type(b, *x - 1), &t))
            *x = cut_blocks(b, &t, map[node->inputs[0]]) + 1;
        map[node->first_output] = write_stem(b, node, &t, *x - 1, map);
        if (b->status != ST_OK) return st_error_context(b->status, "%s", ir_node_label(graph, n));
    }
    for (size_t o = 0; o < graph->outputs.n; o++) {
        const ir_output_t *output = &graph->outputs.data[o];
        TRY(ir_graph_append_output(b->graph, output->name, map[output->value]));
    }
    return ST_OK;
}

st_status_t stem_apply(const bool *marks, const ir_graph_t *graph, ir_graph_t **out_graph) {
    ir_build_t b = {0};
    st_status_t status;
    *out_graph = NULL;
    TRY(ir_graph_create_like(graph, &b.graph));
    ir_value_t *map = st_calloc(graph->values.n + 1, sizeof *map);
    ir_value_t *blocks = st_calloc(graph->values.n + 1, sizeof *blocks);
    status = map && blocks ? write_all(marks, graph, &b, map, blocks)
                           : st_no_memory(graph->values.n * sizeof *map, "the stem");
    st_free(map);
    st_free(blocks);
    if (status == ST_OK)
        *out_graph = b.graph;
    else
        ir_graph_destroy(b.graph);
    return status;
}
