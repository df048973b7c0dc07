/* The passes that pipeline.c lists, in its order. Each maps the context it gets to the next: up to
 * compile_pass_lower the global graph, from there on the ranks' programs. */
#ifndef STATOR_COMPILE_PASSES_H
#define STATOR_COMPILE_PASSES_H

#include "compile/manager.h"

/* The program whose values together are largest: what is decided once for all is decided on it. */
uint32_t compile_largest_program(const plan_t *plan);
/* Items of the batch that the graph's inputs carry; 0: they carry none. */
int64_t compile_batch_items(const ir_graph_t *graph);
/* Whether the mesh has a pipe axis of several ranks. */
bool compile_wants_stages(const compile_options_t *options);
/* Whether loop nests will take in what they can. */
bool compile_fuses(const compile_context_t *context);

st_status_t compile_pass_dtype(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_precision(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_mode(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_recognize(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_gradients(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_unroll(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_expand(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_simplify(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_shadow(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_lower(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_turns(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_primitives(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_stem(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_layout(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_accumulate(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_fuse(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_order(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_hide(compile_context_t *c) ST_WARN_UNUSED;
st_status_t compile_pass_prove(compile_context_t *c) ST_WARN_UNUSED;

#endif
