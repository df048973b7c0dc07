/* What a plan's steps will take on its target. */
#ifndef STATOR_COMPILE_PREDICT_H
#define STATOR_COMPILE_PREDICT_H

#include "compile/plan.h"
#include "compile/target.h"

/* The target that the plan was made for, for its ranks and threads: built in, or the description that
 * the plan holds. Freed with target_destroy. */
st_status_t predict_target(const plan_t *plan, target_t **out_target) ST_WARN_UNUSED;
/* Costs of the program's steps, one after the other on one stream: out_costs[node], zero for steps
 * that do nothing. Copies have kernel "copy". The step's time is the sum. */
st_status_t predict_steps(const plan_t *plan, const target_t *target, uint32_t program,
                          ir_cost_t *out_costs) ST_WARN_UNUSED;

#endif
