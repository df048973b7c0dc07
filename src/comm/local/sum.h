/* Element sums of the local communicator. */
#ifndef STATOR_COMM_LOCAL_SUM_H
#define STATOR_COMM_LOCAL_SUM_H

#include "ir/types.h"

/* Whether sums of this element type exist. */
bool comm_sum_supported(ir_dtype_t dtype);
/* Replaces elements [begin, begin + n) of every buffer by their sum, added in the order of
 * `buffers`. bf16 and f16 add in f32 and round once. */
void comm_sum(ir_dtype_t dtype, int n_buffers, void *const *buffers, int64_t begin, int64_t n);

#endif
