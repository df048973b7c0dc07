/* Bodies side by side (bodies.h): all are made first, then each graph is copied with its own. */
#include "ir/bodies.h"

#include "base/memory.h"
#include "base/vec.h"
#include "ir/body.h"

/* New bodies of one graph, in the order of its nodes and their attributes. */
typedef struct bodies {
    ST_VEC(ir_graph_t *) made;
    size_t next;
} bodies_t;

bool ir_has_bodies(const ir_graph_t *graph) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (ir_region_info(ir_node(graph, n)).n_bodies) return true;
    return false;
}

/* Attribute `attr` of region `node` in all graphs. */
static st_status_t make_bodies(uint32_t n, const ir_graph_t *const *graphs, ir_node_t node,
                               uint32_t attr, ir_bodies_t each, void *context, bodies_t *bodies) {
    const ir_graph_t **inner = st_calloc(n, sizeof *inner);
    ir_graph_t **made = st_calloc(n, sizeof *made);
    st_status_t status = ST_OK;
    if (!inner || !made) TRY_GOTO(st_no_memory(n * sizeof *made, "bodies"), done);
    for (uint32_t g = 0; g < n; g++) inner[g] = ir_node(graphs[g], node)->attrs[attr].graph;
    TRY_GOTO(each(context, n, inner, made), done);
    for (uint32_t g = 0; g < n; g++) {
        TRY_GOTO(ST_VEC_PUSH(&bodies[g].made, made[g]), done);
        made[g] = NULL;
    }
done:
    for (uint32_t g = 0; made && g < n; g++) ir_graph_destroy(made[g]);
    st_free(made);
    st_free(inner);
    return status;
}

static st_status_t take_next(void *context, const ir_graph_t *body, ir_graph_t **out_body) {
    bodies_t *bodies = context;
    (void)body;
    *out_body = bodies->made.data[bodies->next];
    bodies->made.data[bodies->next++] = NULL;
    return ST_OK;
}

static st_status_t clone(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t node,
                         ir_value_t *map) {
    if (!(ir_op_def(ir_node(from, node)->op)->flags & IR_REGION))
        return ir_graph_clone_node(to, from, node, NULL, map);
    return ir_graph_clone_node_bodies(to, from, node, NULL, take_next, context, map);
}

st_status_t ir_with_bodies(uint32_t n, const ir_graph_t *const *graphs, ir_bodies_t each,
                           void *context, ir_graph_t **out) {
    bodies_t *bodies = st_calloc(n, sizeof *bodies);
    st_status_t status = ST_OK;
    if (!bodies) return st_no_memory(n * sizeof *bodies, "bodies");
    for (ir_node_t i = 0; i < graphs[0]->nodes.n; i++) {
        const ir_region_info_t info = ir_region_info(ir_node(graphs[0], i));
        for (uint32_t b = 0; b < info.n_bodies; b++)
            TRY_GOTO(make_bodies(n, graphs, i, info.attr[b], each, context, bodies), done);
    }
    for (uint32_t g = 0; g < n; g++)
        TRY_GOTO(ir_graph_rewrite(graphs[g], NULL, clone, &bodies[g], &out[g]), done);
done:
    for (uint32_t g = 0; g < n; g++) {
        for (size_t i = 0; i < bodies[g].made.n; i++) ir_graph_destroy(bodies[g].made.data[i]);
        ST_VEC_FREE(&bodies[g].made);
    }
    st_free(bodies);
    return status;
}
