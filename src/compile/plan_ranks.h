/* The second half of a plan's proof (plan.h): that its programs work together. */
#ifndef STATOR_COMPILE_PLAN_RANKS_H
#define STATOR_COMPILE_PLAN_RANKS_H

#include "compile/plan.h"

/* Each program is sound by itself and has as many inputs and states as the plan. */
/* Sends and receives (plan_pairs.c): the i-th from one rank to another is of the type of the i-th
 * that is received there, and, run against each other, all ranks come to an end. */
st_status_t plan_check_pairs(const plan_t *plan) ST_WARN_UNUSED;
st_status_t plan_check_ranks(const plan_t *plan) ST_WARN_UNUSED;

#endif
