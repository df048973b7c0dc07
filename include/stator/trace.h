/* Stator: traces – when each kernel of a step runs, planned beside measured.
 *
 * A trace is one file in Chrome's trace event format, which Perfetto (ui.perfetto.dev) opens: a
 * process a rank, with a thread of what the plan's target predicts (kernels in their order,
 * collectives beside them) and one of what was measured. Beside the file it gives figures by kernel
 * and by node. It belongs to one thread at a time, is made for a plan and, where steps are
 * measured, a session of that plan; both outlive it. (Nearest: torch.profiler.profile and
 * export_chrome_trace.)
 *
 *   stator_trace_create(plan, session, "step.json", -1, &trace);
 *   for (…) { stator_session_step(…); stator_trace_add(trace); }
 *   stator_trace_finish(trace);  … stator_trace_kernel_at …  stator_trace_destroy(trace); */
#ifndef STATOR_TRACE_H
#define STATOR_TRACE_H

#include "stator/session.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stator_trace stator_trace_t;

/* From here to finish or destroy the session's steps are measured: results keep their bits; on a
 * CPU a step takes two looks at the clock a kernel more, on a GPU it is recorded anew with a
 * timestamp between kernels. `session` NULL: planned only, for any number of ranks and without a
 * device. `path` NULL: no file. `rank`: the rank to tell of; -1: all if there are at most 8, else
 * the first one of each program, at most 64. Does not run anything. INVALID: there is no such rank,
 * or a step is in progress; NOT_FOUND, IO: the file cannot be made; PARSE: as
 * stator_report_create. */
STATOR_API stator_status_t stator_trace_create(const stator_plan_t *plan, stator_session_t *session,
                                               const char *path, int64_t rank,
                                               stator_trace_t **out_trace) STATOR_WARN_UNUSED;
/* Takes the times of the step that was just run. Without a measured one, as on device "null", it
 * changes nothing. IO: the disk is full. INVALID: there is no session, a step is in progress, or it
 * is finished. */
STATOR_API stator_status_t stator_trace_add(stator_trace_t *trace) STATOR_WARN_UNUSED;
/* Writes the rest and puts the file in its place, whole: until then, and on failure, `path` is what
 * it was. Blocks until it is on disk. The session runs as before. */
STATOR_API stator_status_t stator_trace_finish(stator_trace_t *trace) STATOR_WARN_UNUSED;
/* An unfinished file is removed. NULL is fine. */
STATOR_API void stator_trace_destroy(stator_trace_t *trace);

typedef struct stator_trace_totals {
    uint32_t rank;       /* the figures' */
    uint32_t n_ranks;    /* in the file */
    uint32_t n_measured; /* steps */
    uint32_t n_left_out; /* of these, steps that the file does not hold: it ends at about 256 MiB */
    const char *clock; /* "none", "host", "device, step by step", "device, in the recorded step" */
    /* of a step on that rank, in microseconds; measured ones are means */
    double measured_us;  /* from its call to its return */
    double kernels_us;   /* of it in kernels, copies and waits; the rest is inputs and outputs */
    double predicted_us; /* as stator_report_totals_t.step_us */
    double exposed_us;   /* of it, waiting for collectives */
    /* what the target's memory and its products can sustain: 1e9 bytes, 1e9 operations a second */
    double peak_gbps, peak_gflops;
} stator_trace_totals_t;
STATOR_API stator_trace_totals_t stator_trace_totals(const stator_trace_t *trace);

/* A kernel, or a node, in one step. Predicted times of all rows sum up to the predicted step. Texts
 * live as long as the trace. */
typedef struct stator_trace_row {
    const char *name, *op; /* kernel's name, or the node's; its op's */
    uint64_t n_calls;
    double measured_us;  /* 0: nothing was measured */
    double predicted_us; /* of a collective: what its wait stands still */
    double
        roofline_us; /* least time by peak_gbps and the type's best products; caches may beat it */
    double flop, bytes; /* a multiply-add is two; every operand once */
} stator_trace_row_t;
/* Once finished. Kernels: most time first, measured if there is any. Nodes: largest difference
 * between measured and predicted first. 0 past the end, and before finish. */
STATOR_API int stator_trace_kernel_at(const stator_trace_t *trace, size_t index,
                                      stator_trace_row_t *out_row);
STATOR_API int stator_trace_node_at(const stator_trace_t *trace, size_t index,
                                    stator_trace_row_t *out_row);

#ifdef __cplusplus
}
#endif
#endif
