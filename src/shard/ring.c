/* Attention whose keys, values and queries go from rank to rank (internal.h).
 *
 * Problem: of a sequence in parts every rank has the queries, keys and values of its part, and
 * its queries see keys of others. Gathering them all takes the memory of whole sequences, and in
 * causal order the last rank has almost twice the work of the average. In: an attention or its
 * gradient, all operands and results in parts of rows. Out: the nodes of one rank, the same on all
 * ranks but for sizes, offsets and peers; beside its own part it holds those of two rounds.
 *
 *   round    rank 0      rank 1      rank 2      rank 3        qi kj: the queries of rank i over
 *     0      q0 k0       q1 k1       q2 k2       q3 k3         the keys of rank j
 *     1      q3 k0       q1 k0       q2 k1       q3 k2
 *     2                              q2 k0       q3 k1
 *
 * In round d rank r is with rank r - d (cyclic), whose keys come to it and meet its queries. Where
 * these see none of them, it works for the other: that one's queries come, meet the keys of r, and
 * what they give goes back. Causal order leaves half the pairs to be computed, so half the rounds
 * are enough. What is needed next is on its way while a round is computed.
 *
 *   forward    o and lse of all rounds become one: lse = log(sum of exp(lse_d)), o = sum of
 *              o_d exp(lse_d - lse), in the wide type, a round at a time
 *   backward   probabilities are exp(scores - lse) of the whole lse, so dq, dk and dv are sums over
 *              the rounds; what a round gives for another rank's rows goes to that rank
 *
 * Both happen in every round in which some rank does it, so that ranks have the same nodes:
 * where a rank has no part in it, its queries are put so far before all keys that they see none,
 * and kernels have nothing to do but to give zeros.
 *
 * Algorithm: as told; which pairs are computed where follows from causal order, window and sizes.
 * Sums are in the order of the rounds. O(ranks) nodes for each attention. Source: Liu et al.,
 * "Ring attention with blockwise transformers", 2023; idle ranks that work for others: Li et al.,
 * "DistFlashAttn", 2023; merging by log-sum-exp as in Milakov and Gimelshein, "Online normalizer
 * calculation for softmax", 2018. Rejected: an early and a late part for each rank ("zig-zag"),
 * which balances as well, but takes the order of rows from everything else in the graph. */
#include <math.h>

#include "ir/build.h"
#include "shard/internal.h"

typedef struct ring {
    ir_build_t b;
    const ir_node_info_t *node;
    const char *axis;
    uint32_t rank, n_ranks;
    uint32_t last;         /* round */
    int64_t queries, keys; /* of the whole sequence */
    bool rows_first;
    uint32_t first_key; /* input; values follow */
} ring_t;

static void part_of(const ring_t *r, int64_t size, uint32_t rank, int64_t *begin, int64_t *extent) {
    ir_split_range(size, size ? size : 1, rank, r->n_ranks, begin, extent);
}
/* Whom `rank` is with in a round. */
static uint32_t other_of(const ring_t *r, uint32_t rank, uint32_t round) {
    return (rank + r->n_ranks - round) % r->n_ranks;
}

/* Where the rank's first query stands among the keys of the other one. */
static int64_t offset_at(const ring_t *r, uint32_t rank, uint32_t round) {
    int64_t query, key, ignored;
    part_of(r, r->queries, rank, &query, &ignored);
    part_of(r, r->keys, other_of(r, rank, round), &key, &ignored);
    return ir_attr_int(r->node, "offset") + query - key;
}

/* Whether a query of the rank sees a key of the other one. */
static bool sees(const ring_t *r, uint32_t rank, uint32_t round) {
    const int64_t window = ir_attr_int(r->node, "window"), first = offset_at(r, rank, round);
    const bool causal = ir_attr_int(r->node, "causal") != 0;
    int64_t ignored, rows, keys;
    part_of(r, r->queries, rank, &ignored, &rows);
    part_of(r, r->keys, other_of(r, rank, round), &ignored, &keys);
    const int64_t last = first + rows - 1;
    if (!rows || !keys) return false;
    if (last < 0) return !causal && (!window || -last < window);
    return first < keys || !window || first - (keys - 1) < window;
}

/* The other's queries meet the rank's keys. Only where rows are counted can those of other ranks be
 * put where they see nothing. */
static bool takes_queries(const ring_t *r, uint32_t rank, uint32_t round) {
    if (!ir_attr_int(r->node, "causal") && !ir_attr_int(r->node, "window")) return false;
    return 2 * round < r->n_ranks && !sees(r, rank, round) &&
           sees(r, other_of(r, rank, round), r->n_ranks - round);
}
/* The rank's queries meet the other's keys, unless the other one sees to that in its round with
 * this rank. */
static bool takes_keys(const ring_t *r, uint32_t rank, uint32_t round) {
    return sees(r, rank, round) && !takes_queries(r, other_of(r, rank, round), r->n_ranks - round);
}

typedef bool (*takes_t)(const ring_t *r, uint32_t rank, uint32_t round);
static bool some(const ring_t *r, uint32_t round, takes_t takes) {
    bool any = false;
    for (uint32_t rank = 0; rank < r->n_ranks; rank++) any |= takes(r, rank, round);
    return any;
}

static uint32_t last_round(const ring_t *r) {
    uint32_t round = r->n_ranks - 1;
    while (round && !some(r, round, takes_keys) && !some(r, round, takes_queries)) round--;
    return round;
}

/* ---- a round ---- */

/* Who is where in a round. */
typedef struct meeting {
    uint32_t round, from, to; /* ranks that inputs come from and go to; what they give goes back */
    bool keys, queries;       /* of others come, to this rank or to another */
    /* where own queries stand among the keys that come, and queries that come among own keys */
    int64_t own, other;
} meeting_t;

/* Before all keys and beyond any window. */
static int64_t nowhere(const ring_t *r) {
    const int64_t all = r->queries + r->keys, window = ir_attr_int(r->node, "window");
    return -all - (window < all ? window : all);
}

static meeting_t meet(const ring_t *r, uint32_t round) {
    meeting_t m = {.round = round,
                   .from = other_of(r, r->rank, round),
                   .to = (r->rank + round) % r->n_ranks,
                   .keys = some(r, round, takes_keys),
                   .queries = some(r, round, takes_queries),
                   .own = nowhere(r),
                   .other = nowhere(r)};
    if (takes_keys(r, r->rank, round)) m.own = offset_at(r, r->rank, round);
    if (takes_queries(r, r->rank, round)) m.other = offset_at(r, m.from, r->n_ranks - round);
    return m;
}

/* ---- what goes from rank to rank ---- */

enum { MAX_TENSORS = 6 };

/* Some tensors to one rank, and others' of the same kinds from another. */
typedef struct trip {
    uint32_t n;
    ir_value_t sent[MAX_TENSORS], taken[MAX_TENSORS];
} trip_t;

/* Rows of q, k and what is like them; those of lse come before no width. */
static int32_t row_dim(const ring_t *r, const ir_type_t *type) {
    return type->rank == 4 && r->rows_first ? 1 : 2;
}

/* Adds a tensor to the trip; what comes has so many rows. */
static void depart(ring_t *r, trip_t *trip, ir_value_t value, uint32_t to, uint32_t from,
                   int64_t rows) {
    const ir_arg_t mesh = IR_ARG_STRING("mesh", r->axis);
    ir_type_t type = *ir_b_type(&r->b, value);
    type.dims[row_dim(r, &type)] = rows;
    ASSERT(trip->n < MAX_TENSORS);
    trip->sent[trip->n] = ir_b_node(&r->b, IR_OP_SEND_START, 1, &value, 2,
                                    (ir_arg_t[]){IR_ARG_INT("peer", to), mesh});
    trip->taken[trip->n++] = ir_b_node(
        &r->b, IR_OP_RECEIVE_START, 0, NULL, 4,
        (ir_arg_t[]){IR_ARG_DTYPE("dtype", type.dtype), IR_ARG_INTS("shape", type.dims, type.rank),
                     IR_ARG_INT("peer", from), mesh});
}

static void arrive(ring_t *r, const trip_t *trip, ir_value_t *values) {
    for (uint32_t i = 0; i < trip->n; i++)
        values[i] = ir_b_node(&r->b, IR_OP_RECEIVE_WAIT, 1, &trip->taken[i], 0, NULL);
    for (uint32_t i = 0; i < trip->n; i++)
        ir_b_node(&r->b, IR_OP_SEND_WAIT, 1, &trip->sent[i], 0, NULL);
}

static bool is_key(const ring_t *r, uint32_t j) {
    return j == r->first_key || j == r->first_key + 1;
}

/* The inputs that the round needs, in their order. */
static trip_t depart_inputs(ring_t *r, const meeting_t *m, const ir_value_t *inputs) {
    trip_t trip = {0};
    int64_t ignored, rows;
    for (uint32_t j = 0; j < r->node->n_inputs; j++) {
        if (!(is_key(r, j) ? m->keys : m->queries)) continue;
        part_of(r, is_key(r, j) ? r->keys : r->queries, m->from, &ignored, &rows);
        depart(r, &trip, inputs[j], m->to, m->from, rows);
    }
    return trip;
}

/* Own inputs, with those of others in the place of keys and values, or of all else. */
static void mix(const ring_t *r, const meeting_t *m, const ir_value_t *inputs,
                const ir_value_t *came, bool keys, ir_value_t *out) {
    uint32_t at = 0;
    for (uint32_t j = 0; j < r->node->n_inputs; j++) {
        const bool comes = is_key(r, j) ? m->keys : m->queries;
        const ir_value_t other = comes ? came[at++] : IR_NONE;
        out[j] = is_key(r, j) == keys ? other : inputs[j];
    }
}

/* ---- the node ---- */

enum { MAX_ARGS = 8 };

static ir_value_t compute(ring_t *r, const ir_value_t *inputs, int64_t offset) {
    const ir_op_def_t *def = ir_op_def(r->node->op);
    const uint32_t n_attrs = ir_op_n_attrs(def);
    ir_attr_t attrs[MAX_ARGS];
    ir_arg_t args[MAX_ARGS];
    ASSERT(n_attrs <= MAX_ARGS);
    for (uint32_t a = 0; a < n_attrs; a++) attrs[a] = r->node->attrs[a];
    ir_attr_of(r->node->op, attrs, "offset")->i = offset;
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

/* Takes a round's result into that of those before; rows that have seen no key stay 0, lse -inf. */
static void merge(ring_t *r, ir_value_t *o, ir_value_t *lse, ir_value_t round_o,
                  ir_value_t round_lse) {
    ir_build_t *b = &r->b;
    ir_value_t most = ir_b_binary(b, IR_OP_MAXIMUM, *lse, round_lse);
    ir_value_t origin = unless(r, most, -INFINITY, 0);
    ir_value_t own = ir_b_unary(b, IR_OP_EXP, ir_b_binary(b, IR_OP_SUB, *lse, origin));
    ir_value_t other = ir_b_unary(b, IR_OP_EXP, ir_b_binary(b, IR_OP_SUB, round_lse, origin));
    ir_value_t total = unless(r, ir_b_binary(b, IR_OP_ADD, own, other), 0, 1);
    own = beside(r, ir_b_binary(b, IR_OP_DIV, own, total));
    other = beside(r, ir_b_binary(b, IR_OP_DIV, other, total));
    *lse = ir_b_binary(b, IR_OP_ADD, most, ir_b_unary(b, IR_OP_LOG, total));
    *o = ir_b_binary(b, IR_OP_ADD, ir_b_binary(b, IR_OP_MUL, *o, own),
                     ir_b_binary(b, IR_OP_MUL, wide(r, round_o), other));
}

/* Results for own rows are added up; those for others' rows go back to them, and theirs for own
 * rows come. `keys`: own queries met others' keys. */
static void settle(ring_t *r, const meeting_t *m, bool keys, ir_value_t made, ir_value_t *sums,
                   trip_t *back) {
    const bool forward = r->node->op == IR_OP_ATTENTION;
    int64_t ignored, own_keys, own_queries;
    part_of(r, r->keys, r->rank, &ignored, &own_keys);
    part_of(r, r->queries, r->rank, &ignored, &own_queries);
    if (forward && keys) merge(r, &sums[0], &sums[1], made, made + 1);
    for (uint32_t k = 0; k < r->node->n_outputs && !(forward && keys); k++) {
        const bool of_keys = !forward && k; /* dk, dv */
        if (of_keys == keys)
            depart(r, back, made + k, m->from, m->to, of_keys ? own_keys : own_queries);
        else
            sums[k] = sum(r, sums[k], made + k);
    }
}

static void take_back(ring_t *r, const meeting_t *m, const trip_t *back, ir_value_t *sums) {
    ir_value_t came[MAX_TENSORS];
    uint32_t at = 0;
    arrive(r, back, came);
    if (back->n && r->node->op == IR_OP_ATTENTION) merge(r, &sums[0], &sums[1], came[0], came[1]);
    if (r->node->op == IR_OP_ATTENTION) return;
    for (uint32_t k = 1; m->keys && k < 3; k++) sums[k] = sum(r, sums[k], came[at++]);
    if (m->queries) sums[0] = sum(r, sums[0], came[at++]);
}

/* One round after the other. What the next needs departs before a round is computed, and what
 * others owe of a round is waited for after the next. */
static void run(ring_t *r, const ir_value_t *inputs, ir_value_t *sums) {
    ir_value_t operands[MAX_TENSORS], came[MAX_TENSORS];
    meeting_t next = {0}, before = {0};
    trip_t trip = {0}, back = {0};
    for (uint32_t round = 0; round <= r->last; round++) {
        const meeting_t now = next;
        trip_t owed = {0};
        arrive(r, &trip, came);
        trip = (trip_t){0};
        if (round < r->last) {
            next = meet(r, round + 1);
            trip = depart_inputs(r, &next, inputs);
        }
        if (round == 0) {
            const ir_value_t made = compute(r, inputs, offset_at(r, r->rank, 0));
            for (uint32_t k = 0; k < r->node->n_outputs; k++) sums[k] = wide(r, made + k);
        }
        if (now.keys) {
            mix(r, &now, inputs, came, true, operands);
            settle(r, &now, true, compute(r, operands, now.own), sums, &owed);
        }
        if (now.queries) {
            mix(r, &now, inputs, came, false, operands);
            settle(r, &now, false, compute(r, operands, now.other), sums, &owed);
        }
        take_back(r, &before, &back, sums);
        back = owed;
        before = now;
    }
    take_back(r, &before, &back, sums);
}

st_status_t shard_emit_ring(const shard_lowering_t *lowering, ir_node_t n, uint32_t rank,
                            const ir_value_t *inputs, ir_graph_t *to, ir_value_t *out) {
    const ir_node_info_t *node = ir_node(lowering->graph, n);
    const uint32_t q = node->op == IR_OP_ATTENTION ? 0 : 1;
    ring_t r = {.b = {.graph = to},
                .node = node,
                .axis = lowering->axis.name,
                .rank = rank,
                .n_ranks = lowering->n_ranks,
                .rows_first = ir_attr_int(node, "rows_first") != 0,
                .first_key = q + 1};
    const ir_dtype_t dtype = ir_value_type(lowering->graph, node->inputs[q])->dtype;
    const int row = r.rows_first ? 1 : 2;
    ir_value_t sums[3];
    r.queries = ir_value_type(lowering->graph, node->inputs[q])->dims[row];
    r.keys = ir_value_type(lowering->graph, node->inputs[q + 1])->dims[row];
    r.last = last_round(&r);
    run(&r, inputs, sums);
    for (uint32_t k = 0; k < node->n_outputs; k++)
        out[k] =
            ir_b_cast(&r.b, sums[k],
                      node->op == IR_OP_ATTENTION && k ? ir_b_type(&r.b, sums[k])->dtype : dtype);
    return r.b.status;
}
