/* Room in which collectives lay out parts that lie apart.
 *
 * A part of a tensor that is cut along a dim which is not its first is in pieces, and a device's
 * library of collectives moves whole parts. There the start's workspace is a stage: for each
 * operand that is in pieces the whole tensor's bytes, one after the other, in use until the
 * collective's wait. On the host collectives move pieces, and a start has no workspace. */
#ifndef STATOR_COMPILE_PLAN_STAGE_H
#define STATOR_COMPILE_PLAN_STAGE_H

#include "compile/plan.h"

/* Whether the plan's collectives need stages: they are moved by its device. */
bool plan_has_stages(const plan_t *plan);
/* Where operand j's stage begins in the workspace of start n, in *out_bytes its bytes: 0 if its
 * parts are whole. An all-to-all has two operands, what goes out and what comes in. */
uint64_t plan_stage_offset(const ir_graph_t *graph, ir_node_t n, uint32_t j, uint64_t *out_bytes);
/* Of all operands. */
uint64_t plan_stage_bytes(const ir_graph_t *graph, ir_node_t n);
/* ends[n] is the node until which the workspace of node n is in use: its own, a start's wait. */
void plan_workspace_ends(const ir_graph_t *graph, ir_node_t *ends);

#endif
