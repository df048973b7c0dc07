/* CUDA C of a nest's kernels. */
#ifndef STATOR_KERNELS_EMIT_SOURCE_H
#define STATOR_KERNELS_EMIT_SOURCE_H

#include "kernels/emit/schedule.h"

/* What every kernel of a nest gets: struct Params { void *t[operands and results]; char *work;
 * Fault *fault; unsigned node; }. Fault is dev_cuda_fault_t. */

/* CUDA C of all kernels, extern "C" and named k0, k1, … in the schedule's order, each with one
 * Params by value. The caller frees *out_source with st_free. FAILs with ST_UNSUPPORTED where a
 * statement has no form in CUDA. */
st_status_t emit_source(const emit_schedule_t *schedule, char **out_source) ST_WARN_UNUSED;

/* What stands before the kernels: types, conversions, combiners. */
extern const char emit_prelude[];

#endif
