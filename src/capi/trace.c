/* Traces. */
#include "exec/trace.h"
#include "base/memory.h"
#include "capi/capi.h"

struct stator_trace {
    exec_trace_t *trace;
};

stator_status_t stator_trace_create(const stator_plan_t *plan, stator_session_t *session,
                                    const char *path, int64_t rank, stator_trace_t **out_trace) {
    CAPI_OUT(out_trace);
    CAPI_REQUIRE(plan);
    if (session && session->plan != plan)
        return capi_status(FAIL(ST_INVALID, "the session runs another plan than the trace is of"));
    if (rank < -1 || rank >= plan->plan->n_ranks)
        return capi_status(FAIL(ST_INVALID, "there is no rank %lld: the plan has ranks 0 to %u",
                                (long long)rank, plan->plan->n_ranks - 1));
    stator_trace_t *made = st_calloc(1, sizeof *made);
    if (!made) return capi_status(st_no_memory(sizeof *made, "a trace"));
    st_status_t status =
        exec_trace_create(plan->plan, session ? session->exec : NULL, path,
                          rank < 0 ? EXEC_TRACE_ALL : (uint32_t)rank, &made->trace);
    if (status == ST_OK)
        *out_trace = made;
    else
        st_free(made);
    return capi_status(status);
}

stator_status_t stator_trace_add(stator_trace_t *trace) {
    CAPI_REQUIRE(trace);
    return capi_status(exec_trace_add(trace->trace));
}

stator_status_t stator_trace_finish(stator_trace_t *trace) {
    CAPI_REQUIRE(trace);
    return capi_status(exec_trace_finish(trace->trace));
}

void stator_trace_destroy(stator_trace_t *trace) {
    if (!trace) return;
    exec_trace_destroy(trace->trace);
    st_free(trace);
}

stator_trace_totals_t stator_trace_totals(const stator_trace_t *trace) {
    exec_trace_totals_t t = exec_trace_totals(trace->trace);
    return (stator_trace_totals_t){.rank = t.rank,
                                   .n_ranks = t.n_ranks,
                                   .n_measured = t.n_measured,
                                   .n_left_out = t.n_left_out,
                                   .clock = t.clock,
                                   .measured_us = t.measured_us,
                                   .kernels_us = t.kernels_us,
                                   .predicted_us = t.predicted_us,
                                   .exposed_us = t.exposed_us,
                                   .peak_gbps = t.peak_gbps,
                                   .peak_gflops = t.peak_gflops};
}

static int row_at(size_t n, const exec_trace_row_t *rows, size_t index, stator_trace_row_t *out) {
    if (index >= n) return 0;
    const exec_trace_row_t *row = &rows[index];
    *out = (stator_trace_row_t){row->name,         row->op,          row->n_calls, row->measured_us,
                                row->predicted_us, row->roofline_us, row->flop,    row->bytes};
    return 1;
}

int stator_trace_kernel_at(const stator_trace_t *trace, size_t index, stator_trace_row_t *out_row) {
    const exec_trace_row_t *rows;
    size_t n = exec_trace_kernels(trace->trace, &rows);
    return row_at(n, rows, index, out_row);
}

int stator_trace_node_at(const stator_trace_t *trace, size_t index, stator_trace_row_t *out_row) {
    const exec_trace_row_t *rows;
    size_t n = exec_trace_nodes(trace->trace, &rows);
    return row_at(n, rows, index, out_row);
}
