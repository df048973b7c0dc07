/* The second half of a plan's proof (plan.h): that its programs work together. */
#ifndef STATOR_COMPILE_PLAN_RANKS_H
#define STATOR_COMPILE_PLAN_RANKS_H

#include "compile/plan.h"

/* Each program is sound by itself and has as many inputs and states as the plan. */
st_status_t plan_check_ranks(const plan_t *plan) ST_WARN_UNUSED;

#endif
