/* The last passes, which turn ordered programs into what a session runs: kernels for nodes
 * (choose.c), and places for values (memory.c); the files tell how. Bodies of repeat and cond are
 * planned as programs of their own when their node gets its kernel (plan_body.h): to the node
 * around it, all of a body's work memory is its workspace. */
#ifndef STATOR_COMPILE_MEMORY_H
#define STATOR_COMPILE_MEMORY_H

#include "compile/manager.h"

/* In: ordered programs. Out: each node has its kind of step, its kernel and the bytes of its
 * workspace, each collective its ticket. */
st_status_t compile_choose_kernels(compile_context_t *context) ST_WARN_UNUSED;
/* Order, kernels and places of the bodies of a region's node; the workspace gets their size. */
st_status_t compile_plan_bodies(compile_context_t *context, const ir_node_info_t *node,
                                plan_step_t *step) ST_WARN_UNUSED;
/* Kernels and places of one program; `is_body`: its state is the memory around it. */
st_status_t compile_choose_program(compile_context_t *context,
                                   plan_program_t *program) ST_WARN_UNUSED;
st_status_t compile_place_program(compile_context_t *context, plan_program_t *program,
                                  bool is_body) ST_WARN_UNUSED;
/* Out: every value and workspace has its place; updates that happen in place have nothing to do. */
st_status_t compile_place_values(compile_context_t *context) ST_WARN_UNUSED;

#endif
