/* Writing what the fuse pass decided: the program with its `fused` nodes. Linear. */
#include <string.h>

#include "fusion/decision.h"
#include "ir/nest.h"
#include "ir/node_ctx.h"

typedef struct writing {
    fuse_decision_t *d;
    const ir_graph_t *given; /* with its own sizes, and copies */
    ir_value_t
        *home;    /* [n_given]: first output of a cheap node that was written, IR_NONE: not yet */
    group_t last; /* group that was written last */
} writing_t;

/* Copies that stand alone become one again. */
static st_status_t write_node(writing_t *w, ir_graph_t *to, ir_node_t node, ir_value_t *map) {
    ir_node_t origin = w->d->copies.origin[node];
    ir_value_t out = ir_node(w->given, node)->first_output;
    if (w->d->chain[origin] && w->home[origin] != IR_NONE) {
        map[out] = w->home[origin];
        return ST_OK;
    }
    TRY(ir_graph_clone_node(to, w->given, node, NULL, map));
    if (w->d->chain[origin]) w->home[origin] = map[out];
    return ST_OK;
}

static st_status_t write(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t node,
                         ir_value_t *map) {
    writing_t *w = context;
    fuse_decision_t *d = w->d;
    group_t g = d->groups.of[node];
    if (!d->fused[g]) return write_node(w, to, node, map);
    if (g == w->last) return ST_OK; /* members of a group follow each other */
    w->last = g;
    TRY(regions_collect(&d->regions, 1, &g));
    return regions_emit(&d->regions, from, to, d->names[g], map);
}

st_status_t fuse_apply(fuse_decision_t *d, const ir_graph_t *graph, ir_graph_t **out_graph) {
    copies_t copies = {0};
    writing_t w = {.d = d, .last = IR_NONE};
    st_status_t status = ST_OK;
    *out_graph = NULL;
    if (graph->nodes.n != d->n_given)
        return FAIL(ST_INTERNAL, "a program of %zu nodes is to be fused as one of %zu was",
                    graph->nodes.n, d->n_given);
    w.home = st_calloc(d->n_given, sizeof *w.home);
    if (!w.home) return st_no_memory(d->n_given * sizeof *w.home, "the fused program");
    for (size_t n = 0; n < d->n_given; n++) w.home[n] = IR_NONE;
    TRY_GOTO(copies_make(graph, d->chain, d->fusable_given, &copies), done);
    ASSERT(copies.graph->nodes.n == d->copies.graph->nodes.n);
    w.given = copies.graph;
    TRY_GOTO(ir_graph_rewrite(copies.graph, d->order, write, &w, out_graph), done);
done:
    copies_close(&copies);
    st_free(w.home);
    return status;
}

/* Whether the target runs a `fused` node as a nest. */
static st_status_t runs_as_nest(const ir_target_t *target, const ir_graph_t *graph, ir_node_t node,
                                bool *out_runs) {
    ir_node_ctx_t ctx;
    nest_t *nest = NULL;
    const char *reason;
    TRY(nest_build(ir_node_attr(ir_node(graph, node), "body")->graph, &nest, &reason));
    *out_runs = nest != NULL;
    nest_destroy(nest);
    if (!*out_runs || !target->can_run) return ST_OK;
    TRY(ir_node_ctx_open(&ctx, graph, node));
    *out_runs = target->can_run(target->context, &ctx.op, ctx.out, &reason);
    ir_node_ctx_close(&ctx);
    return ST_OK;
}

st_status_t fuse_restrict(fuse_decision_t *d, const ir_graph_t *graph) {
    ir_graph_t *made;
    st_status_t status = ST_OK;
    TRY(fuse_apply(d, graph, &made));
    for (ir_node_t n = 0; n < made->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(made, n);
        bool runs = true;
        if (node->op == IR_OP_FUSED) TRY_GOTO(runs_as_nest(&d->target, made, n, &runs), done);
        if (runs) continue;
        for (group_t g = 0; g < d->groups.graph->nodes.n; g++) /* few are refused */
            if (d->names[g] && strcmp(d->names[g], node->name) == 0) d->fused[g] = false;
    }
done:
    ir_graph_destroy(made);
    return status;
}
