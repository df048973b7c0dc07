/* The pass manager: runs a table of passes over one compilation, and alone verifies after each,
 * prints when asked, and takes the time. */
#ifndef STATOR_COMPILE_MANAGER_H
#define STATOR_COMPILE_MANAGER_H

#include "compile/compile.h"
#include "ir/target.h"
#include "shard/lower.h"

/* One compilation. Up to the pass "lower" `graph` is the global program; from there on the plan's
 * programs hold the ranks' graphs. */
typedef struct compile_context {
    compile_options_t options; /* defaults filled in */
    ir_target_t target;
    ir_graph_t *graph;
    shard_lowering_t *lowering; /* of `graph` */
    plan_t *plan;
} compile_context_t;

typedef struct compile_pass {
    const char *name;
    st_status_t (*run)(compile_context_t *context);
    bool (*when)(const compile_options_t *options); /* NULL: always */
} compile_pass_t;

/* Runs the passes in order. Errors begin with the pass's name. */
st_status_t compile_run_passes(compile_context_t *context, const compile_pass_t *passes,
                               size_t n_passes) ST_WARN_UNUSED;

/* Replaces *graph by what `made` is, freeing the old one. */
void compile_replace(ir_graph_t **graph, ir_graph_t *made);

#endif
