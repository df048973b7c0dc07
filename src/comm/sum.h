/* Element sums of communicators. */
#ifndef STATOR_COMM_SUM_H
#define STATOR_COMM_SUM_H

#include "ir/types.h"

/* Whether sums of this element type exist. */
bool comm_sum_supported(ir_dtype_t dtype);
/* The same as a check: ST_UNSUPPORTED names the types that have sums. */
st_status_t comm_sum_check(ir_dtype_t dtype) ST_WARN_UNUSED;
/* Writes to elements [to, to + n) of each of `outs` the sum of elements [from, from + n) of all
 * `ins`, added in the order of `ins`. bf16 and f16 add in f32 and round once. An out may be one of
 * the ins where to == from; otherwise they do not overlap. */
void comm_sum(ir_dtype_t dtype, int n_ins, const void *const *ins, int64_t from, int n_outs,
              void *const *outs, int64_t to, int64_t n);

#endif
