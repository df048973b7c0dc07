/* A step's timeline: what the cost model plans beside what was measured, as one file that Perfetto
 * and chrome://tracing open, and as figures.
 *
 *   process   a rank
 *   thread 1  planned compute    the simulated step (compile/simulate.h), from time 0
 *   thread 2  planned link       collectives' transfers
 *   thread 3  measured compute   every measured step, the first beginning at time 0; collectives in
 *                                flight are asynchronous slices beside it
 *
 * Ranks in the file: the asked one; or all, if there are at most 8; or the first one of each
 * program, at most 64, with the list of ranks that run the same program. A session of one rank
 * among processes tells of that rank. */
#ifndef STATOR_EXEC_TRACE_H
#define STATOR_EXEC_TRACE_H

#include "exec/session.h"

typedef struct exec_trace exec_trace_t;

#define EXEC_TRACE_ALL UINT32_MAX

/* `session` is NULL, for what is planned alone, or a session of the plan: its steps are measured
 * from here to the end of the trace. `path` NULL: figures only. `rank` may be EXEC_TRACE_ALL. Both
 * outlive the trace. The file appears when the trace is finished, whole or not at all. */
st_status_t exec_trace_create(const plan_t *plan, exec_session_t *session, const char *path,
                              uint32_t rank, exec_trace_t **out_trace) ST_WARN_UNUSED;
/* After each step: its times. INVALID where there is no session. Steps on a device that computes
 * nothing have none to add. From 256 MiB on the file takes no further steps; the figures do. */
st_status_t exec_trace_add(exec_trace_t *trace) ST_WARN_UNUSED;
st_status_t exec_trace_finish(exec_trace_t *trace) ST_WARN_UNUSED;
/* Without finish no file is left. NULL is fine. */
void exec_trace_destroy(exec_trace_t *trace);

/* ---- figures: of the first rank in the file, a step, the mean of those measured ----
 * Times are those of the compute stream, so that the predicted ones sum up to the predicted step: a
 * collective's are what its wait stands still, and its start takes none. */

typedef struct exec_trace_row {
    const char
        *name; /* the kernel's, or for collectives and regions the op's; of a node its label */
    const char *op;
    uint64_t n_calls;
    double measured_us, predicted_us; /* measured 0: nothing was */
    /* Least time that the target's best products and its memory's bandwidth allow: one may be
     * faster where the operands are in a cache. */
    double roofline_us;
    double flop, bytes;
} exec_trace_row_t;
/* By time, most first: measured if there is any, else predicted. Once finished. */
size_t exec_trace_kernels(const exec_trace_t *trace, const exec_trace_row_t **out_rows);
/* By the difference of measured and predicted, largest first; without measured steps by time. */
size_t exec_trace_nodes(const exec_trace_t *trace, const exec_trace_row_t **out_rows);

typedef struct exec_trace_totals {
    uint32_t rank;       /* of the figures */
    uint32_t n_ranks;    /* in the file */
    uint32_t n_measured; /* steps */
    uint32_t n_left_out; /* of these, steps that the file does not have */
    double measured_us;  /* a step from its call to its return on the rank */
    double kernels_us;   /* the sum over its kernels and waits: the rest are inputs and outputs */
    double predicted_us, exposed_us;
    double peak_gbps, peak_gflops; /* of memory; of products in the type that most are in */
    const char *clock; /* "none", "host", "device, step by step", "device, in the recorded step" */
} exec_trace_totals_t;
exec_trace_totals_t exec_trace_totals(const exec_trace_t *trace);

#endif
