/* The passes that choose the form of operands: stem, layout, accumulate (passes.h).
 *
 * Each decides on the largest program for the programs of all ranks, which have the same nodes, so
 * that all compute the same bits; bodies of control flow go the same way, innermost first. */
#include <string.h>

#include "base/memory.h"
#include "compile/passes.h"
#include "fusion/accumulate.h"
#include "fusion/layout.h"
#include "fusion/stem.h"
#include "ir/bodies.h"

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

typedef struct forming {
    form_t form;
    uint32_t largest;
    const ir_target_t *target;
} forming_t;

/* To the bodies, then to the graphs around them. */
static st_status_t apply(void *context, uint32_t n, const ir_graph_t *const *graphs,
                         ir_graph_t **made) {
    const forming_t *f = context;
    const alike_t alike = {graphs, n, f->largest, f->target};
    if (!ir_has_bodies(graphs[0])) return f->form(&alike, made);
    ir_graph_t **outer = st_calloc(n, sizeof *outer);
    if (!outer) return st_no_memory(n * sizeof *outer, "bodies");
    st_status_t status = ir_with_bodies(n, graphs, apply, context, outer);
    const alike_t with = {(const ir_graph_t *const *)outer, n, f->largest, f->target};
    if (status == ST_OK) status = f->form(&with, made);
    destroy_graphs(outer, n);
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
    forming_t forming = {form, compile_largest_program(plan), &c->target};
    TRY_GOTO(apply(&forming, n, graphs, made), done);
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
