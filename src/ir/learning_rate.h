/* Learning rate schedules: the definition that the op lr_schedule, its kernels and reports share.
 *
 * With s the step from 1, W the warm-up steps and T the total:
 *
 *   s ≤ W   base * s / W
 *   s > W   constant: base
 *           linear:   base + (min - base) * t
 *           cosine:   min + (base - min) * (1 + cos(pi t)) / 2
 *
 * where t = min(1, (s - 1 - W) / (T - W)) is the share of the decay that is completed before step
 * s. So the first step after the warm-up runs at `base` and all steps after T run at `min`.
 * PyTorch's schedulers count completed steps in the same way: without warm-up, cosine is
 * CosineAnnealingLR(T_max=T, eta_min=min) as far as T. */
#ifndef STATOR_IR_LEARNING_RATE_H
#define STATOR_IR_LEARNING_RATE_H

#include "base/status.h"

#include <stdint.h>

typedef enum ir_rate_kind { IR_RATE_CONSTANT = 0, IR_RATE_LINEAR, IR_RATE_COSINE } ir_rate_kind_t;

typedef struct ir_rate {
    ir_rate_kind_t kind;
    double base, min;
    int64_t warmup, total; /* steps; total is not used by constant */
} ir_rate_t;

/* "constant", "linear" or "cosine"; FAILs listing them otherwise. */
st_status_t ir_rate_kind_parse(const char *text, ir_rate_kind_t *out_kind) ST_WARN_UNUSED;
/* Rates finite and ≥ 0, warmup ≥ 0, total > warmup where it is used. */
st_status_t ir_rate_check(const ir_rate_t *rate) ST_WARN_UNUSED;
/* Rate of `step` (from 1). */
double ir_rate_at(const ir_rate_t *rate, int64_t step);

#endif
