/* Measures a GPU and writes the description of it that plans are costed by. */
#ifndef STATOR_EXEC_CALIBRATE_GPU_H
#define STATOR_EXEC_CALIBRATE_GPU_H

#include "device/device.h"
#include "exec/calibrate_bench.h"

/* Times single ops: calibrate_clock.c does by marks on a device. */
typedef struct calibrate_timer {
    void *context;
    /* Median microseconds of the op by itself; `near`: again and again on the same memory, else
     * with the caches swept before each run. */
    st_status_t (*op)(void *context, bench_t *bench, bool near, double *out_us);
    /* Microseconds that a small op adds to a recorded step. */
    st_status_t (*launch)(void *context, bench_t *bench, double *out_us);
} calibrate_timer_t;

/* The description `base` of the device's kind with what single ops tell put in place of what it
 * says: launches, memory, launches of nests of each shape, rates of products, convolutions and
 * attention in bf16, and of pooling. What they do not tell, as links, is as there. *out_text is
 * freed with st_free. */
st_status_t calibrate_gpu_text(const char *base, size_t bytes, const calibrate_timer_t *timer,
                               char **out_text) ST_WARN_UNUSED;

/* A timer of the first such device; ST_UNSUPPORTED where its work has no marks. */
typedef struct calibrate_clock calibrate_clock_t;
st_status_t calibrate_clock_open(const dev_device_t *device, uint64_t cache_bytes,
                                 calibrate_clock_t **out_clock) ST_WARN_UNUSED;
calibrate_timer_t calibrate_clock_timer(calibrate_clock_t *clock);
void calibrate_clock_close(calibrate_clock_t *clock); /* NULL is fine */

#endif
