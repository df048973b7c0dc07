/* Bodies of repeat and cond in a plan.
 *
 * A body is planned and run as a program of its own (plan_program_t): its inputs are buffers, named
 * by their number, what it carries on is an update of one, and what it stacks or returns is an
 * output, named by its number. So order, kernels, storages and packing are those of any program,
 * and a carry is written in place where a parameter would be.
 *
 *   region "state"   virtual: a buffer's place there says only which operand it is. The session
 *                    binds it to memory around the node: a carry to the node's own result, a slice
 *                    to its place among the turns', anything else to the operand
 *   region "work"    lies in the workspace of the node's step
 *
 * An output that is an input passed on is not in the program: it is copied before the iteration.
 *
 * Kernels hold addresses, so a slice is copied to a place of its own before its turn, and the
 * number of the turn lies in memory: behind the bodies' work, at the workspace's end. */
#ifndef STATOR_COMPILE_PLAN_BODY_H
#define STATOR_COMPILE_PLAN_BODY_H

#include "compile/plan.h"
#include "ir/body.h"

/* The program's graph of a body, its nodes in the body's order. */
st_status_t plan_body_graph(const ir_graph_t *body, uint32_t carried,
                            ir_graph_t **out_graph) ST_WARN_UNUSED;
/* Input that output k of the body passes on, perhaps in another shape; IR_NONE if it is made. */
uint32_t plan_body_passed(const ir_graph_t *body, size_t k);
/* Bytes of memory for the turns: their number, then the slices; 0 of a cond. And where a slice lies
 * in it: of input j, carried ≤ j < carried + scanned. */
size_t plan_turn_bytes(const ir_region_info_t *info);
size_t plan_turn_offset(const ir_region_info_t *info, uint32_t j);
/* Proves that `program`, in whatever order and fused in whatever way, computes what
 * plan_body_graph's graph does: the same updates and
 * outputs by hash of all that they are made from. */
st_status_t plan_body_check(const ir_graph_t *body, uint32_t carried,
                            const ir_graph_t *program) ST_WARN_UNUSED;

#endif
