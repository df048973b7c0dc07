/* Sums over several stages (pipe.h).
 *
 *   in    s = s' + (a + b)       for each micro-batch: a is made on one stage, b on another
 *   out   s = (s'_a + a) + (s'_b + b)
 *
 * The gradient of a weight that two stages read is added up in each of them, and one sum a step
 * goes from one to the other, instead of one a micro-batch. A sum is the tree of additions that
 * nothing else reads, casts of such trees included, which are then taken of each operand. Operands
 * keep their order within a stage; stages come in the order of their first operands. Linear. */
#include "ir/build.h"
#include "shard/pipe_internal.h"

typedef struct operand {
    ir_value_t value;
    uint32_t stage; /* IR_NONE: it is had anywhere */
    ir_value_t sum; /* of the new graph: of its stage up to here */
} operand_t;

typedef struct splitting {
    const pipe_nodes_t *p;
    bool *inner;   /* [nodes]: part of a sum that is made anew */
    bool *is_root; /* [nodes]: the whole of one */
    st_arena_t arena;
    ST_VEC(operand_t) operands; /* of the sum at hand */
    ST_VEC(ir_value_t) stack;
} splitting_t;

static bool is_addition(const pipe_nodes_t *p, ir_node_t n) {
    const ir_node_info_t *node = ir_node(p->graph, n);
    return p->nodes[n].staged && node->phase == IR_PHASE_BACKWARD &&
           (node->op == IR_OP_ADD || node->op == IR_OP_CAST);
}

/* Exactly one node reads it, and that is a part of a sum. */
static bool is_inner(const pipe_nodes_t *p, ir_node_t n) {
    const ir_value_t v = ir_node(p->graph, n)->first_output;
    if (!is_addition(p, n) || p->uses.first[v + 1] - p->uses.first[v] != 1) return false;
    const ir_node_t reader = p->uses.node[p->uses.first[v]];
    const ir_node_info_t *node = ir_node(p->graph, reader);
    if (!is_addition(p, reader)) return false;
    for (uint32_t j = 0; j < node->n_inputs; j++)
        if (!ir_dims_equal(ir_value_type(p->graph, node->inputs[j]), ir_value_type(p->graph, v)))
            return false; /* broadcast */
    return true;
}

/* Operands of the sum that `root` is, left to right. */
static st_status_t collect(splitting_t *s, ir_node_t root) {
    const pipe_nodes_t *p = s->p;
    s->operands.n = s->stack.n = 0;
    TRY(ST_VEC_PUSH(&s->stack, ir_node(p->graph, root)->first_output));
    while (s->stack.n) {
        const ir_value_t v = s->stack.data[--s->stack.n];
        const ir_node_t n = p->graph->values.data[v].producer;
        const ir_node_info_t *node = ir_node(p->graph, n);
        if (n == root || is_inner(p, n)) {
            for (uint32_t j = node->n_inputs; j-- > 0;)
                TRY(ST_VEC_PUSH(&s->stack, node->inputs[j]));
            continue;
        }
        const uint32_t stage = p->nodes[n].staged ? p->nodes[n].stage : IR_NONE;
        TRY(ST_VEC_PUSH(&s->operands, ((operand_t){v, stage, IR_NONE})));
    }
    return ST_OK;
}

/* Ranks and not stages are far from each other. */
static bool is_spread(const splitting_t *s) {
    const uint32_t n_ranks = s->p->pipe->n_ranks;
    uint32_t rank = IR_NONE;
    for (size_t i = 0; i < s->operands.n; i++) {
        const uint32_t stage = s->operands.data[i].stage;
        if (stage == IR_NONE) continue;
        if (rank != IR_NONE && rank != stage % n_ranks) return true;
        rank = stage % n_ranks;
    }
    return false;
}

static st_status_t mark(splitting_t *s, ir_node_t root) {
    const pipe_nodes_t *p = s->p;
    s->is_root[root] = true;
    s->stack.n = 0;
    TRY(ST_VEC_PUSH(&s->stack, ir_node(p->graph, root)->first_output));
    while (s->stack.n) {
        const ir_value_t v = s->stack.data[--s->stack.n];
        const ir_node_t n = p->graph->values.data[v].producer;
        const ir_node_info_t *node = ir_node(p->graph, n);
        if (n != root && !is_inner(p, n)) continue;
        s->inner[n] = n != root;
        for (uint32_t j = 0; j < node->n_inputs; j++) TRY(ST_VEC_PUSH(&s->stack, node->inputs[j]));
    }
    return ST_OK;
}

static st_status_t find(splitting_t *s, bool *out_any) {
    const pipe_nodes_t *p = s->p;
    const size_t n_nodes = p->graph->nodes.n;
    *out_any = false;
    s->inner = st_arena_array(&s->arena, n_nodes, sizeof *s->inner);
    s->is_root = st_arena_array(&s->arena, n_nodes, sizeof *s->is_root);
    if (!s->inner || !s->is_root) return st_no_memory(2 * n_nodes, "a pipeline");
    for (ir_node_t n = 0; n < n_nodes; n++) {
        if (ir_node(p->graph, n)->op != IR_OP_ADD || !is_addition(p, n) || is_inner(p, n)) continue;
        TRY(collect(s, n));
        /* one sum at a time is no chain: it goes over as it is */
        if (s->operands.n < 3 || !is_spread(s)) continue;
        TRY(mark(s, n));
        *out_any = true;
    }
    return ST_OK;
}

/* ---- the new graph ---- */

static st_status_t write_sum(splitting_t *s, ir_graph_t *to, const ir_graph_t *from, ir_node_t root,
                             ir_value_t *map) {
    const uint32_t n_ranks = s->p->pipe->n_ranks;
    const ir_node_info_t *node = ir_node(from, root);
    const ir_dtype_t dtype = ir_value_type(from, node->first_output)->dtype;
    ir_build_t b = {.graph = to};
    TRY(collect(s, root));
    for (size_t i = 0; i < s->operands.n; i++) {
        operand_t *own = &s->operands.data[i];
        own->sum = ir_b_cast(&b, map[own->value], dtype);
        for (size_t k = i; k-- > 0;) { /* the newest of the same rank; anybody's go to the first */
            operand_t *other = &s->operands.data[k];
            const bool same = own->stage == IR_NONE || other->stage == IR_NONE ||
                              own->stage % n_ranks == other->stage % n_ranks;
            if (!same || other->sum == IR_NONE) continue;
            own->sum = ir_b_binary(&b, IR_OP_ADD, other->sum, own->sum);
            if (own->stage == IR_NONE) own->stage = other->stage;
            other->sum = IR_NONE;
            break;
        }
    }
    ir_value_t all = IR_NONE;
    for (size_t i = 0; i < s->operands.n; i++) {
        const ir_value_t sum = s->operands.data[i].sum;
        if (sum == IR_NONE) continue;
        all = all == IR_NONE ? sum : ir_b_binary(&b, IR_OP_ADD, all, sum);
    }
    map[node->first_output] = all;
    return b.status;
}

static st_status_t write(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                         ir_value_t *map) {
    splitting_t *s = context;
    if (s->inner[n]) return ST_OK;
    if (!s->is_root[n]) return ir_graph_clone_node(to, from, n, NULL, map);
    return write_sum(s, to, from, n, map);
}

st_status_t pipe_sums_split(const pipe_nodes_t *nodes, uint32_t n_graphs, ir_graph_t *const *graphs,
                            ir_graph_t **out_graphs, bool *out_any) {
    splitting_t s = {.p = nodes};
    st_status_t status = find(&s, out_any);
    for (uint32_t g = 0; status == ST_OK && *out_any && g < n_graphs; g++)
        status = ir_graph_rewrite(graphs[g], NULL, write, &s, &out_graphs[g]);
    ST_VEC_FREE(&s.operands);
    ST_VEC_FREE(&s.stack);
    st_arena_clear(&s.arena);
    return status;
}
