/* One op with its memory, to be timed again and again: what calibrate.c measures with. */
#ifndef STATOR_EXEC_CALIBRATE_BENCH_H
#define STATOR_EXEC_CALIBRATE_BENCH_H

#include "compile/work.h"
#include "exec/calibrate_points.h"
#include "kernels/kernel.h"

enum { CALIBRATE_OPERANDS = 16 };

typedef struct bench {
    ir_graph_t *graph;
    const ir_node_info_t *node;
    kern_problem_t problem;
    ir_type_t types[2 * CALIBRATE_OPERANDS];
    void *memory[2 * CALIBRATE_OPERANDS];
    work_t work;
    double least_seconds; /* of the runs of bench_measure */
} bench_t;

/* Makes the node alone; its memory comes with bench_allocate. Closing a zeroed bench is fine, and
 * what fails leaves one that is to be closed. */
st_status_t bench_open(bench_t *bench, const calibrate_point_t *point, ir_dtype_t dtype,
                       int64_t rows) ST_WARN_UNUSED;
/* Makes the point's node `repeats` times, one after the other (behind a relu if `behind`; 0: the
 * relu alone), as the body of a `fused` node. */
st_status_t bench_open_body(bench_t *bench, const calibrate_point_t *point, ir_dtype_t dtype,
                            int64_t rows, int repeats, bool behind) ST_WARN_UNUSED;
st_status_t bench_allocate(bench_t *bench) ST_WARN_UNUSED;
void bench_close(bench_t *bench);
double bench_bytes(const bench_t *bench); /* of all operands and results */
/* Median seconds of a run: of one thread its processor time, else by the clock. */
st_status_t bench_measure(bench_t *bench, int threads, double *out_seconds) ST_WARN_UNUSED;

#endif
