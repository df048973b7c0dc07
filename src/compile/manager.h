/* The pass manager: runs a table of passes over one compilation, and alone verifies after each,
 * prints when asked, and takes the time. */
#ifndef STATOR_COMPILE_MANAGER_H
#define STATOR_COMPILE_MANAGER_H

#include "compile/compile.h"
#include "fusion/fuse.h"
#include "fusion/recompute.h"
#include "ir/target.h"
#include "shard/lower.h"

/* What the pass "recompute" chooses, and what it chose from (compile/recompute.h). */
typedef struct compile_fit {
    recompute_t *path;
    uint32_t place, model; /* of the path; the largest program */
    uint32_t n_paths;      /* opened so far */
    uint32_t n_before;
    ir_graph_t **before; /* the programs as the pass found them */
    /* What keeps the bits of sums (fusion/like.h), of the largest program or its loop's body: what
     * fusion makes of it before recomputation, and by its nodes what must not run again, and what
     * stands with the backward pass. NULL where nothing is fused. */
    fuse_decision_t *like;
    bool *never, *late;
    fuse_decision_t *chosen; /* what fusion makes of the largest program now; NULL: not known */
} compile_fit_t;

/* One compilation. Up to the pass "lower" `graph` is the global program; from there on the plan's
 * programs hold the ranks' graphs. */
typedef struct compile_context {
    compile_options_t options; /* defaults filled in */
    ir_target_t target;
    ir_graph_t *graph;
    plan_t *plan; /* NULL in front of the gradient (capture.h) */
    compile_fit_t fit;
    uint32_t n_micro;       /* micro-batches that were written out for a pipeline; 0: none */
    uint32_t first_program; /* of the stage at hand, among all of the plan */
} compile_context_t;

typedef struct compile_pass {
    const char *name;
    st_status_t (*run)(compile_context_t *context);
    bool (*when)(const compile_options_t *options); /* NULL: always */
} compile_pass_t;

/* Starts timing anew; passes that run several times are timed together. */
void compile_begin(void);
/* Runs the passes in order. Errors begin with the pass's name. */
st_status_t compile_run_passes(compile_context_t *context, const compile_pass_t *passes,
                               size_t n_passes) ST_WARN_UNUSED;

/* Replaces *graph by what `made` is, freeing the old one. */
void compile_replace(ir_graph_t **graph, ir_graph_t *made);

#endif
