/* Loops written out. See unroll.h. */
#include "ir/unroll.h"

#include "ir/body.h"

typedef struct unroll {
    bool (*wanted)(void *context, ir_node_t node);
    void *context;
} unroll_t;

/* One repeat, while it is written out. */
typedef struct turns {
    ir_build_t b;
    const ir_node_info_t *node;
    ir_region_info_t info;
    const ir_value_t *map;
    ir_value_t *carry;  /* [carried] */
    ir_value_t *values; /* [values of the body] */
    ir_value_t *pieces; /* [stacked × trip] */
} turns_t;

double ir_unrolled_nodes(const ir_graph_t *graph, ir_node_t node) {
    const ir_node_info_t *info = ir_node(graph, node);
    if (info->op != IR_OP_REPEAT) return 0;
    const ir_region_info_t region = ir_region_info(info);
    return (double)region.trip * (double)(region.bodies[0]->nodes.n + 1);
}

uint32_t ir_turn_taken(const ir_graph_t *graph, const ir_node_info_t *node, uint32_t n_turns) {
    if (node->op != IR_OP_SLICE || n_turns < 2) return IR_NONE;
    const ir_type_t *type = ir_value_type(graph, node->inputs[0]);
    if (ir_value_producer(graph, node->inputs[0])->op != IR_OP_INPUT) return IR_NONE;
    const int64_t begin = ir_node_attr(node, "begin")->ints.v[0];
    const int64_t end = ir_node_attr(node, "end")->ints.v[0];
    return type->dims[0] == (int64_t)n_turns && end == begin + 1 ? (uint32_t)begin : IR_NONE;
}

/* What the body sees of operand j in turn i. */
static ir_value_t seen(turns_t *t, uint32_t j, int64_t i) {
    if (j < t->info.carried) return t->carry[j];
    ir_value_t v = t->map[t->node->inputs[j]];
    if (j >= t->info.carried + t->info.scanned) return v;
    const ir_type_t type = *ir_b_type(&t->b, v);
    return ir_b_reshape(&t->b, ir_b_slice_axis(&t->b, v, 0, i, i + 1), type.rank - 1,
                        type.dims + 1);
}

static st_status_t write_turn(turns_t *t, int64_t i) {
    const ir_graph_t *body = t->info.bodies[0];
    uint32_t j = 0;
    for (ir_node_t n = 0; n < body->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(body, n);
        if (node->op == IR_OP_INPUT)
            t->values[node->first_output] = seen(t, j++, i);
        else
            TRY(ir_graph_clone_node(t->b.graph, body, n, NULL, t->values));
        TRY(t->b.status);
    }
    for (uint32_t k = 0; k < t->node->n_outputs; k++) {
        ir_value_t v = t->values[body->outputs.data[k].value];
        if (k < t->info.carried) {
            t->carry[k] = v;
            continue;
        }
        const ir_type_t type = *ir_b_type(&t->b, v), piece = ir_type_add_first(&type, 1);
        t->pieces[(k - t->info.carried) * t->info.trip + i] =
            ir_b_reshape(&t->b, v, piece.rank, piece.dims);
    }
    return t->b.status;
}

static st_status_t write_repeat(ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                                ir_value_t *map) {
    st_arena_t arena = {0};
    st_status_t status = ST_OK;
    turns_t t = {.b = {.graph = to}, .node = ir_node(from, n), .map = map};
    t.info = ir_region_info(t.node);
    const uint32_t n_stacked = t.node->n_outputs - t.info.carried;
    const size_t trip = (size_t)t.info.trip;
    t.carry = st_arena_array(&arena, t.info.carried, sizeof *t.carry);
    t.values = st_arena_array(&arena, t.info.bodies[0]->values.n, sizeof *t.values);
    t.pieces = st_arena_array(&arena, n_stacked * trip, sizeof *t.pieces);
    if (!t.carry || !t.values || !t.pieces)
        TRY_GOTO(st_no_memory(n_stacked * trip * sizeof *t.pieces, "a loop written out"), done);
    for (uint32_t j = 0; j < t.info.carried; j++) t.carry[j] = map[t.node->inputs[j]];
    for (size_t i = 0; i < trip; i++)
        TRY_GOTO(write_turn(&t, (int64_t)(t.info.reverse ? trip - 1 - i : i)), done);
    for (uint32_t k = 0; k < t.node->n_outputs; k++) {
        const ir_value_t v = t.node->first_output + k;
        const ir_value_t *pieces =
            k < t.info.carried ? NULL : t.pieces + (k - t.info.carried) * trip;
        if (k < t.info.carried)
            map[v] = t.carry[k];
        else if (trip == 0)
            map[v] = ir_b_splat(&t.b, *ir_value_type(from, v), 0);
        else
            map[v] = trip == 1 ? pieces[0] : ir_b_concat(&t.b, (uint32_t)trip, pieces, 0);
    }
    status = t.b.status;
done:
    st_arena_clear(&arena);
    return status;
}

static st_status_t write_node(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                              ir_value_t *map) {
    const unroll_t *u = context;
    if (ir_node(from, n)->op != IR_OP_REPEAT || !u->wanted(u->context, n))
        return ir_graph_clone_node(to, from, n, NULL, map);
    return write_repeat(to, from, n, map);
}

st_status_t ir_unroll(const ir_graph_t *graph, bool (*wanted)(void *context, ir_node_t node),
                      void *context, ir_graph_t **out_graph) {
    unroll_t u = {wanted, context};
    return ir_graph_rewrite(graph, NULL, write_node, &u, out_graph);
}
