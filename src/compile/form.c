/* The passes that choose the form of operands: stem, layout, accumulate (passes.h).
 *
 * Each decides on the largest program for the programs of all ranks, which have the same nodes, so that
 * all compute the same bits; bodies of control flow go the same way, innermost first. */
#include <string.h>

#include "base/memory.h"
#include "base/vec.h"
#include "compile/passes.h"
#include "fusion/accumulate.h"
#include "fusion/layout.h"
#include "fusion/stem.h"
#include "ir/body.h"

/* Graphs that differ in sizes only, and what decisions are made for. */
typedef struct alike {
    const ir_graph_t *const *graphs; /* [n] */
    uint32_t n, largest;
    const ir_target_t *target;
} alike_t;

/* Fills made[n]; what it made before a failure is the caller's, too. */
typedef st_status_t (*form_t)(const alike_t *alike, ir_graph_t **made);

/* ---- one pass over graphs alike ---- */

static st_status_t stem(const alike_t *a, ir_graph_t **made) {
    const ir_graph_t *model = a->graphs[a->largest];
    bool *marks = st_calloc(model->nodes.n + 1, sizeof *marks);
    if (!marks) return st_no_memory(model->nodes.n, "the stem");
    st_status_t status = stem_decide(model, a->target, marks);
    for (uint32_t p = 0; p < a->n && status == ST_OK; p++)
        status = stem_apply(marks, a->graphs[p], &made[p]);
    st_free(marks);
    return status;
}

static st_status_t layout(const alike_t *a, ir_graph_t **made) {
    layout_decision_t *decision = NULL;
    st_status_t status = layout_decide(a->graphs, a->n, a->largest, a->target, &decision);
    for (uint32_t p = 0; p < a->n && status == ST_OK; p++)
        status = layout_apply(decision, a->graphs[p], &made[p]);
    layout_decision_destroy(decision);
    return status;
}

static st_status_t accumulate(const alike_t *a, ir_graph_t **made) {
    for (uint32_t p = 0; p < a->n; p++)
        TRY(fuse_accumulate(a->graphs[p], a->graphs[a->largest], a->target, &made[p]));
    return ST_OK;
}

/* ---- into bodies ---- */

static void destroy_graphs(ir_graph_t **graphs, uint32_t n) {
    for (uint32_t p = 0; graphs && p < n; p++) ir_graph_destroy(graphs[p]);
    st_free(graphs);
}

/* New bodies of one graph, in the order of its nodes and their attributes. */
typedef struct bodies {
    ST_VEC(ir_graph_t *) made;
    size_t next;
} bodies_t;

static st_status_t apply(form_t form, const alike_t *alike, ir_graph_t **made);

/* Attribute i of region `node` in all graphs. */
static st_status_t apply_to_bodies(form_t form, const alike_t *alike, ir_node_t node, uint32_t i,
                                   bodies_t *bodies) {
    const ir_graph_t **inner = st_calloc(alike->n, sizeof *inner);
    ir_graph_t **made = st_calloc(alike->n, sizeof *made);
    st_status_t status = ST_OK;
    if (!inner || !made) TRY_GOTO(st_no_memory(alike->n * sizeof *made, "bodies"), done);
    for (uint32_t p = 0; p < alike->n; p++)
        inner[p] = ir_node(alike->graphs[p], node)->attrs[i].graph;
    const alike_t within = {inner, alike->n, alike->largest, alike->target};
    TRY_GOTO(apply(form, &within, made), done);
    for (uint32_t p = 0; p < alike->n; p++) {
        TRY_GOTO(ST_VEC_PUSH(&bodies[p].made, made[p]), done);
        made[p] = NULL;
    }
done:
    destroy_graphs(made, alike->n);
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
static st_status_t clone_with_bodies(void *context, ir_graph_t *to, const ir_graph_t *from,
                                     ir_node_t node, ir_value_t *map) {
    if (!(ir_op_def(ir_node(from, node)->op)->flags & IR_REGION))
        return ir_graph_clone_node(to, from, node, NULL, map);
    return ir_graph_clone_node_bodies(to, from, node, NULL, take_next, context, map);
}

/* Copies of the graphs in which the bodies are those that `form` makes. */
static st_status_t with_new_bodies(form_t form, const alike_t *alike, ir_graph_t **out) {
    const ir_graph_t *model = alike->graphs[alike->largest];
    bodies_t *bodies = st_calloc(alike->n, sizeof *bodies);
    st_status_t status = ST_OK;
    if (!bodies) return st_no_memory(alike->n * sizeof *bodies, "bodies");
    for (ir_node_t n = 0; n < model->nodes.n; n++) {
        const ir_region_info_t info = ir_region_info(ir_node(model, n));
        for (uint32_t b = 0; b < info.n_bodies; b++)
            TRY_GOTO(apply_to_bodies(form, alike, n, info.attr[b], bodies), done);
    }
    for (uint32_t p = 0; p < alike->n; p++)
        TRY_GOTO(ir_graph_rewrite(alike->graphs[p], NULL, clone_with_bodies, &bodies[p], &out[p]),
                 done);
done:
    for (uint32_t p = 0; p < alike->n; p++) {
        for (size_t i = 0; i < bodies[p].made.n; i++) ir_graph_destroy(bodies[p].made.data[i]);
        ST_VEC_FREE(&bodies[p].made);
    }
    st_free(bodies);
    return status;
}

static bool has_bodies(const ir_graph_t *graph) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (ir_region_info(ir_node(graph, n)).n_bodies) return true;
    return false;
}

static st_status_t apply(form_t form, const alike_t *alike, ir_graph_t **made) {
    if (!has_bodies(alike->graphs[alike->largest])) return form(alike, made);
    ir_graph_t **outer = st_calloc(alike->n, sizeof *outer);
    if (!outer) return st_no_memory(alike->n * sizeof *outer, "bodies");
    st_status_t status = with_new_bodies(form, alike, outer);
    alike_t with = *alike;
    with.graphs = (const ir_graph_t *const *)outer;
    if (status == ST_OK) status = form(&with, made);
    destroy_graphs(outer, alike->n);
    return status;
}

/* ---- passes ---- */

static st_status_t apply_to_programs(compile_context_t *c, form_t form) {
    plan_t *plan = c->plan;
    const uint32_t n = plan->n_programs;
    const ir_graph_t **graphs = st_calloc(n, sizeof *graphs);
    ir_graph_t **made = st_calloc(n, sizeof *made);
    st_status_t status = ST_OK;
    if (!graphs || !made) TRY_GOTO(st_no_memory(n * sizeof *made, "the programs"), done);
    for (uint32_t p = 0; p < n; p++) graphs[p] = plan->programs[p].graph;
    const alike_t alike = {graphs, n, compile_largest_program(plan), &c->target};
    TRY_GOTO(apply(form, &alike, made), done);
    for (uint32_t p = 0; p < n; p++) {
        compile_replace(&plan->programs[p].graph, made[p]);
        made[p] = NULL;
    }
done:
    destroy_graphs(made, n);
    st_free(graphs);
    return status;
}

st_status_t compile_pass_stem(compile_context_t *c) {
    return apply_to_programs(c, stem);
}
st_status_t compile_pass_layout(compile_context_t *c) {
    return apply_to_programs(c, layout);
}
st_status_t compile_pass_accumulate(compile_context_t *c) {
    return apply_to_programs(c, accumulate);
}
