/* What a plan's steps will take on its target. */
#ifndef STATOR_COMPILE_PREDICT_H
#define STATOR_COMPILE_PREDICT_H

#include "compile/plan.h"
#include "compile/target.h"

/* The target that the plan was made for, for its ranks and threads: built in, or the description
 * that the plan holds. Freed with target_destroy. */
st_status_t predict_target(const plan_t *plan, target_t **out_target) ST_WARN_UNUSED;
/* Costs of the program's steps, each by itself: out_costs[node], zero for steps that do nothing.
 * Copies have kernel "copy", a collective's is that of its start. What the step takes is
 * simulate.h's to say. */
st_status_t predict_steps(const plan_t *plan, const target_t *target, uint32_t program,
                          ir_cost_t *out_costs) ST_WARN_UNUSED;
/* The same of a body's program, for one turn. What it touches is taken to be near, as it is from
 * the second turn on. */
st_status_t predict_turn(const target_t *target, const plan_program_t *body,
                         ir_cost_t *out_costs) ST_WARN_UNUSED;

#endif
