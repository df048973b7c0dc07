/* Attention whose keys and values go from rank to rank (internal.h).
 *
 * Problem: of a sequence in parts every rank has the queries, keys and values of its part, and
 * its queries see keys of others. Gathering them all takes the memory of whole sequences. In: an
 * attention or its gradient, all operands and results in parts of rows. Out: the nodes of one
 * rank, the same on all ranks but for sizes, offsets and peers; each holds its own keys and
 * values and at most those of two parts on their way.
 *
 *   step     rank 0   rank 1   rank 2        step t: the keys of rank - t, of which the
 *     0      k0       k1       k2            attribute offset says where they stand; those of
 *     1      k2       k0       k1            step t + 1 are on their way meanwhile, from the rank
 *     2      k1       k2       k0            before to the rank after
 *
 *   forward    o and lse of all steps become one: lse = log(sum of exp(lse_t)), o = sum of
 *              o_t exp(lse_t - lse), in the wide type, a step at a time
 *   backward   probabilities are exp(scores - lse) of the whole lse, so dq is a sum over the steps,
 *              and so are dk and dv: what a step gives for another rank's keys goes straight to
 *              that rank, which adds the steps up in order
 *
 * Steps that no rank sees anything of, beyond a sliding window, are left out. In a step that
 * this rank sees nothing of, its kernels have nothing to do; it passes on what others need.
 *
 * Algorithm: as told. O(ranks) nodes for each attention. Source: Liu et al., "Ring attention
 * with blockwise transformers", 2023; merging by log-sum-exp as in Milakov and Gimelshein,
 * "Online normalizer calculation for softmax", 2018. Rejected: sums of dk and dv that go round
 * with the keys, a hop more whose sum waits for every rank before. */
#include <math.h>

#include "ir/build.h"
#include "shard/internal.h"

typedef struct ring {
    ir_build_t b;
    const ir_node_info_t *node;
    const char *axis;
    uint32_t rank, n_ranks;
    uint32_t last;         /* step */
    int64_t queries, keys; /* of the whole sequence */
    bool rows_first;
    ir_type_t types[2]; /* of all keys and values */
} ring_t;

static void part_of(const ring_t *r, int64_t size, uint32_t rank, int64_t *begin, int64_t *extent) {
    ir_split_range(size, size ? size : 1, rank, r->n_ranks, begin, extent);
}
/* Whose keys `rank` has at a step. */
static uint32_t owner_at(const ring_t *r, uint32_t rank, uint32_t step) {
    return (rank + r->n_ranks - step) % r->n_ranks;
}

/* Where the rank's first query stands among the keys that it has at the step. */
static int64_t offset_at(const ring_t *r, uint32_t rank, uint32_t step) {
    int64_t query, key, ignored;
    part_of(r, r->queries, rank, &query, &ignored);
    part_of(r, r->keys, owner_at(r, rank, step), &key, &ignored);
    return ir_attr_int(r->node, "offset") + query - key;
}

/* Whether a query of the rank sees a key of the step. */
static bool sees(const ring_t *r, uint32_t rank, uint32_t step) {
    const int64_t window = ir_attr_int(r->node, "window"), first = offset_at(r, rank, step);
    const bool causal = ir_attr_int(r->node, "causal") != 0;
    int64_t ignored, rows, keys;
    part_of(r, r->queries, rank, &ignored, &rows);
    part_of(r, r->keys, owner_at(r, rank, step), &ignored, &keys);
    const int64_t last = first + rows - 1;
    if (!rows || !keys) return false;
    if (last < 0) return !causal && (!window || -last < window);
    return first < keys || !window || first - (keys - 1) < window;
}

static uint32_t last_step(const ring_t *r) {
    for (uint32_t step = r->n_ranks - 1; step > 0; step--)
        for (uint32_t rank = 0; rank < r->n_ranks; rank++)
            if (sees(r, rank, step)) return step;
    return 0;
}

/* ---- what goes from rank to rank ---- */

/* Two tensors to one rank, and two of others' from another. */
typedef struct trip {
    ir_value_t sent[2], taken[2];
} trip_t;

static trip_t depart(ring_t *r, const ir_value_t *values, uint32_t to, const ir_type_t *types,
                     uint32_t from) {
    const ir_arg_t mesh = IR_ARG_STRING("mesh", r->axis);
    trip_t trip;
    for (int i = 0; i < 2; i++)
        trip.sent[i] = ir_b_node(&r->b, IR_OP_SEND_START, 1, &values[i], 2,
                                 (ir_arg_t[]){IR_ARG_INT("peer", to), mesh});
    for (int i = 0; i < 2; i++)
        trip.taken[i] = ir_b_node(&r->b, IR_OP_RECEIVE_START, 0, NULL, 4,
                                  (ir_arg_t[]){IR_ARG_DTYPE("dtype", types[i].dtype),
                                               IR_ARG_INTS("shape", types[i].dims, types[i].rank),
                                               IR_ARG_INT("peer", from), mesh});
    return trip;
}

static void arrive(ring_t *r, const trip_t *trip, ir_value_t *values) {
    for (int i = 0; i < 2; i++)
        values[i] = ir_b_node(&r->b, IR_OP_RECEIVE_WAIT, 1, &trip->taken[i], 0, NULL);
    for (int i = 0; i < 2; i++) ir_b_node(&r->b, IR_OP_SEND_WAIT, 1, &trip->sent[i], 0, NULL);
}

/* The keys and values of the step begin to go on, and those of the next to come. */
static trip_t depart_keys(ring_t *r, const ir_value_t *keys, uint32_t step) {
    ir_type_t next[2] = {r->types[0], r->types[1]};
    int64_t begin, extent;
    part_of(r, r->keys, owner_at(r, r->rank, step + 1), &begin, &extent);
    for (int i = 0; i < 2; i++) next[i].dims[r->rows_first ? 1 : 2] = extent;
    return depart(r, keys, (r->rank + 1) % r->n_ranks, next, owner_at(r, r->rank, 1));
}

/* ---- a step ---- */

enum { MAX_ARGS = 8 };

/* The node over what there is at the step. */
static ir_value_t at_step(ring_t *r, const ir_value_t *inputs, uint32_t step) {
    const ir_op_def_t *def = ir_op_def(r->node->op);
    const uint32_t n_attrs = ir_op_n_attrs(def);
    ir_attr_t attrs[MAX_ARGS];
    ir_arg_t args[MAX_ARGS];
    ASSERT(n_attrs <= MAX_ARGS);
    for (uint32_t a = 0; a < n_attrs; a++) attrs[a] = r->node->attrs[a];
    ir_attr_of(r->node->op, attrs, "offset")->i = offset_at(r, r->rank, step);
    if (r->node->op == IR_OP_ATTENTION_GRAD) ir_attr_of(r->node->op, attrs, "part")->i = true;
    for (uint32_t a = 0; a < n_attrs; a++) args[a] = (ir_arg_t){def->attrs[a].key, attrs[a]};
    return ir_b_node(&r->b, r->node->op, r->node->n_inputs, inputs, n_attrs, args);
}

static ir_value_t wide(ring_t *r, ir_value_t x) {
    return ir_b_cast(&r->b, x, ir_dtype_wide(ir_b_type(&r->b, x)->dtype));
}
static ir_value_t sum(ring_t *r, ir_value_t x, ir_value_t y) {
    return ir_b_binary(&r->b, IR_OP_ADD, x, wide(r, y));
}

/* x of each row [B,H,M] beside what has elements [B,H,M,E], or rows first [B,M,H,E]. */
static ir_value_t beside(ring_t *r, ir_value_t x) {
    if (r->rows_first) x = ir_b_swap(&r->b, x, 1, 2);
    const ir_type_t type = *ir_b_type(&r->b, x);
    return ir_b_reshape(&r->b, x, 4, (int64_t[]){type.dims[0], type.dims[1], type.dims[2], 1});
}

/* x, or `otherwise` where `x` is `number`. */
static ir_value_t unless(ring_t *r, ir_value_t x, double number, double otherwise) {
    const ir_dtype_t dtype = ir_b_type(&r->b, x)->dtype;
    ir_value_t is = ir_b_binary(&r->b, IR_OP_EQ, x, ir_b_scalar(&r->b, dtype, number));
    return ir_b_select(&r->b, is, ir_b_scalar(&r->b, dtype, otherwise), x);
}

/* Takes a step's result into that of those before; rows that have seen no key stay 0, lse -inf. */
static void merge(ring_t *r, ir_value_t *o, ir_value_t *lse, ir_value_t step_o,
                  ir_value_t step_lse) {
    ir_build_t *b = &r->b;
    ir_value_t most = ir_b_binary(b, IR_OP_MAXIMUM, *lse, step_lse);
    ir_value_t origin = unless(r, most, -INFINITY, 0);
    ir_value_t own = ir_b_unary(b, IR_OP_EXP, ir_b_binary(b, IR_OP_SUB, *lse, origin));
    ir_value_t other = ir_b_unary(b, IR_OP_EXP, ir_b_binary(b, IR_OP_SUB, step_lse, origin));
    ir_value_t total = unless(r, ir_b_binary(b, IR_OP_ADD, own, other), 0, 1);
    own = beside(r, ir_b_binary(b, IR_OP_DIV, own, total));
    other = beside(r, ir_b_binary(b, IR_OP_DIV, other, total));
    *lse = ir_b_binary(b, IR_OP_ADD, most, ir_b_unary(b, IR_OP_LOG, total));
    *o = ir_b_binary(b, IR_OP_ADD, ir_b_binary(b, IR_OP_MUL, *o, own),
                     ir_b_binary(b, IR_OP_MUL, wide(r, step_o), other));
}

static void forward(ring_t *r, const ir_value_t *inputs, ir_value_t *out) {
    ir_value_t in[3] = {inputs[0], inputs[1], inputs[2]}, o = IR_NONE, lse = IR_NONE;
    for (uint32_t step = 0; step <= r->last; step++) {
        trip_t trip = {0};
        if (step < r->last) trip = depart_keys(r, &in[1], step);
        const ir_value_t made = at_step(r, in, step);
        if (step < r->last) arrive(r, &trip, &in[1]);
        if (step == 0)
            o = r->last ? wide(r, made) : made, lse = made + 1;
        else
            merge(r, &o, &lse, made, made + 1);
    }
    out[0] = ir_b_cast(&r->b, o, ir_b_type(&r->b, inputs[0])->dtype);
    out[1] = lse;
}

static void add_trip(ring_t *r, const trip_t *trip, ir_value_t *sums) {
    ir_value_t came[2];
    arrive(r, trip, came);
    for (int i = 0; i < 2; i++) sums[i] = sum(r, sums[i], came[i]);
}

/* Inputs: do, q, k, v, o, lse. */
static void backward(ring_t *r, const ir_value_t *inputs, ir_value_t *out) {
    const ir_dtype_t dtype = ir_b_type(&r->b, inputs[1])->dtype;
    const ir_type_t own[2] = {*ir_b_type(&r->b, inputs[2]), *ir_b_type(&r->b, inputs[3])};
    ir_value_t in[6], sums[3] = {IR_NONE, IR_NONE, IR_NONE};
    trip_t late = {0};
    for (int j = 0; j < 6; j++) in[j] = inputs[j];
    for (uint32_t step = 0; step <= r->last; step++) {
        trip_t trip = {0}, back = {0};
        if (step < r->last) trip = depart_keys(r, &in[2], step);
        const ir_value_t made = at_step(r, in, step);
        const ir_value_t keys[2] = {made + 1, made + 2};
        if (step)
            back = depart(r, keys, owner_at(r, r->rank, step), own, (r->rank + step) % r->n_ranks);
        if (step < r->last) arrive(r, &trip, &in[2]);
        for (uint32_t j = 0; step == 0 && j < 3; j++) sums[j] = wide(r, made + j);
        if (step) sums[0] = sum(r, sums[0], made);
        if (step > 1) add_trip(r, &late, &sums[1]);
        late = back;
    }
    if (r->last) add_trip(r, &late, &sums[1]);
    for (int j = 0; j < 3; j++) out[j] = ir_b_cast(&r->b, sums[j], dtype);
}

st_status_t shard_emit_ring(const shard_lowering_t *lowering, ir_node_t n, uint32_t rank,
                            const ir_value_t *inputs, ir_graph_t *to, ir_value_t *out) {
    const ir_node_info_t *node = ir_node(lowering->graph, n);
    const bool is_forward = node->op == IR_OP_ATTENTION;
    const uint32_t q = is_forward ? 0 : 1;
    ring_t r = {.b = {.graph = to},
                .node = node,
                .axis = lowering->axis.name,
                .rank = rank,
                .n_ranks = lowering->n_ranks,
                .rows_first = ir_attr_int(node, "rows_first") != 0,
                .types = {*ir_value_type(lowering->graph, node->inputs[q + 1]),
                          *ir_value_type(lowering->graph, node->inputs[q + 2])}};
    const int row = r.rows_first ? 1 : 2;
    r.queries = ir_value_type(lowering->graph, node->inputs[q])->dims[row];
    r.keys = r.types[0].dims[row];
    r.last = last_step(&r);
    if (is_forward)
        forward(&r, inputs, out);
    else
        backward(&r, inputs, out);
    return r.b.status;
}
