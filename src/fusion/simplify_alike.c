/* Simplify, for programs that must stay alike (simplify.h).
 *
 * Problem: ranks whose parts are uneven, some perhaps empty, have programs with the same nodes and
 * other extents. The rules look at extents; what the programs become must have the same nodes, or
 * their order, buckets and collectives no longer match.
 * In: graphs of the same ops and inputs. Out: the same holds, each graph equivalent to its own.
 * Algorithm: sweeps as in simplify.c, on all graphs side by side. Each leaves a trail: per node,
 * what it became. Nodes whose trails have another form, and the first whose values differ, are kept
 * as they are, and the sweep is made again; when the trails are equal, so are the results. Kept
 * nodes are only added, so that this ends; the next sweep may do what is left. Bodies go the same
 * way, one after the other; results of control flow that no one reads stay (trim.h looks at one
 * graph). Complexity: a sweep's, times the conflicts that follow from each other (few: those of one
 * form are found at once). */
#include <string.h>

#include "base/memory.h"
#include "fusion/rules.h"
#include "fusion/simplify.h"
#include "ir/bodies.h"

enum { MAX_SWEEPS = 32 };

typedef struct alike {
    uint32_t n;
    const ir_target_t *target;
    const ir_graph_t **from; /* [n] */
    ir_graph_t **made;       /* [n]: owned */
    fuse_trail_t *trails;    /* [n][nodes] */
    bool *kept;              /* [nodes] */
    size_t n_nodes, n_rewrites;
} alike_t;

static void drop_made(alike_t *a) {
    for (uint32_t g = 0; g < a->n; g++) {
        ir_graph_destroy(a->made[g]);
        a->made[g] = NULL;
    }
}

/* Keeps what differs; true if nothing does. */
static bool compare_trails(alike_t *a) {
    bool equal = true, first = true;
    for (size_t i = 0; i < a->n_nodes; i++)
        for (uint32_t g = 1; g < a->n; g++) {
            const fuse_trail_t *x = &a->trails[i], *y = &a->trails[g * a->n_nodes + i];
            if (x->whole == y->whole && x->form == y->form) continue;
            equal = false;
            /* after the first, the numbers of values differ everywhere */
            if (first || x->form != y->form) a->kept[i] = true;
            first = false;
            break;
        }
    return equal;
}

/* One sweep over all: `made` are alike. */
static st_status_t sweep_alike(alike_t *a) {
    memset(a->kept, 0, a->n_nodes);
    for (size_t tries = 0; tries <= a->n_nodes; tries++) {
        drop_made(a);
        memset(a->trails, 0, a->n * a->n_nodes * sizeof *a->trails);
        for (uint32_t g = 0; g < a->n; g++) {
            fuse_sweep_t s = {.from = a->from[g],
                              .target = a->target,
                              .folding = FUSE_FOLD_ALL,
                              .kept = a->kept,
                              .trail = a->trails + g * a->n_nodes};
            TRY(fuse_sweep(&s, &a->made[g]));
            a->n_rewrites = s.n_rewrites;
        }
        if (compare_trails(a)) return ST_OK;
    }
    return FAIL(ST_INTERNAL, "the ranks' programs differ in more than sizes");
}

static st_status_t begin(alike_t *a) {
    a->n_nodes = a->from[0]->nodes.n;
    for (uint32_t g = 1; g < a->n; g++)
        if (a->from[g]->nodes.n != a->n_nodes)
            return FAIL(ST_INTERNAL, "the ranks' programs differ in more than sizes");
    a->trails = st_calloc(a->n * a->n_nodes + 1, sizeof *a->trails);
    a->kept = st_calloc(a->n_nodes + 1, sizeof *a->kept);
    return a->trails && a->kept
               ? ST_OK
               : st_no_memory(a->n * a->n_nodes * sizeof *a->trails, "the simplify pass");
}

/* One sweep: each graph gives way to what it becomes, or stays where it fails. */
static st_status_t step(uint32_t n, const ir_target_t *target, ir_graph_t **graphs,
                        size_t *out_rewrites) {
    alike_t a = {.n = n, .target = target};
    st_status_t status = ST_OK;
    a.from = st_calloc(n, sizeof *a.from);
    a.made = st_calloc(n, sizeof *a.made);
    if (!a.from || !a.made) TRY_GOTO(st_no_memory(n * sizeof *a.made, "the simplify pass"), done);
    for (uint32_t g = 0; g < n; g++) a.from[g] = graphs[g];
    TRY_GOTO(begin(&a), done);
    TRY_GOTO(sweep_alike(&a), done);
    *out_rewrites = a.n_rewrites;
    for (uint32_t g = 0; g < n; g++) {
        ir_graph_destroy(graphs[g]);
        graphs[g] = a.made[g];
        a.made[g] = NULL;
    }
done:
    if (a.made) drop_made(&a);
    st_free(a.made);
    st_free(a.from);
    st_free(a.trails);
    st_free(a.kept);
    return status;
}

/* ---- the whole ---- */

static st_status_t simplify_bodies(void *context, uint32_t n, const ir_graph_t *const *bodies,
                                   ir_graph_t **made) {
    return fuse_simplify_alike(n, bodies, context, made);
}

static st_status_t simplify_copies(uint32_t n, const ir_target_t *target, ir_graph_t **graphs) {
    size_t n_rewrites = 1;
    for (int i = 0; i < MAX_SWEEPS && n_rewrites; i++) TRY(step(n, target, graphs, &n_rewrites));
    if (!ir_has_bodies(graphs[0])) return ST_OK;
    ir_graph_t **made = st_calloc(n, sizeof *made);
    if (!made) return st_no_memory(n * sizeof *made, "bodies");
    st_status_t status = ir_with_bodies(n, (const ir_graph_t *const *)graphs, simplify_bodies,
                                        (void *)(uintptr_t)target, made);
    for (uint32_t g = 0; g < n; g++) {
        ir_graph_destroy(status == ST_OK ? graphs[g] : made[g]);
        if (status == ST_OK) graphs[g] = made[g];
    }
    st_free(made);
    return status;
}

st_status_t fuse_simplify_alike(uint32_t n_graphs, const ir_graph_t *const *graphs,
                                const ir_target_t *target, ir_graph_t **out_graphs) {
    st_status_t status = ST_OK;
    memset(out_graphs, 0, n_graphs * sizeof *out_graphs);
    if (n_graphs == 1) return fuse_simplify(graphs[0], target, &out_graphs[0]);
    for (uint32_t g = 0; g < n_graphs && status == ST_OK; g++)
        status = ir_graph_copy(graphs[g], &out_graphs[g]);
    if (status == ST_OK) status = simplify_copies(n_graphs, target, out_graphs);
    for (uint32_t g = 0; g < n_graphs && status != ST_OK; g++) {
        ir_graph_destroy(out_graphs[g]);
        out_graphs[g] = NULL;
    }
    return status;
}
