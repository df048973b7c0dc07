/* CUDA C compiled at run time, and kept: one cubin a source, on disk and in the process. */
#ifndef STATOR_KERNELS_CUDA_RTC_H
#define STATOR_KERNELS_CUDA_RTC_H

#include "device/cuda/cuda.h"

typedef struct rtc_module rtc_module_t;

/* Compiles `source` for the stream's device, or takes the cubin of an equal source from the
 * cache (cache.h). Errors hold the compiler's log. */
st_status_t rtc_open(dev_stream_t *stream, const char *source,
                     rtc_module_t **out_module) ST_WARN_UNUSED;
void rtc_close(rtc_module_t *module); /* NULL is fine */
st_status_t rtc_kernel(const rtc_module_t *module, const char *name,
                       cudaKernel_t *out_kernel) ST_WARN_UNUSED;

#endif
