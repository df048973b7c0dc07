/* stator trace: a step's timeline, planned beside measured, as a file for Perfetto; and where
 * prediction and machine part. */
#include <math.h>
#include <string.h>

#include "tools/tool.h"

enum { DEFAULT_STEPS = 3, WARM_UP = 3, SHOWN_KERNELS = 15, SHOWN_NODES = 8, PATH_BYTES = 4096 };

static void json_rows(const char *key, const stator_trace_t *trace, size_t most,
                      int (*at)(const stator_trace_t *, size_t, stator_trace_row_t *)) {
    stator_trace_row_t row;
    printf(",\"%s\":[", key);
    for (size_t i = 0; i < most && at(trace, i, &row); i++) {
        const struct {
            const char *key;
            double value;
        } numbers[] = {{"calls", (double)row.n_calls},
                       {"measured_us", row.measured_us},
                       {"predicted_us", row.predicted_us},
                       {"roofline_us", row.roofline_us},
                       {"flop", row.flop},
                       {"bytes", row.bytes}};
        printf("%s{\"name\":", i ? "," : "");
        tool_json_string(stdout, row.name);
        printf(",\"op\":");
        tool_json_string(stdout, row.op);
        for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) {
            printf(",\"%s\":", numbers[k].key);
            tool_json_number(stdout, numbers[k].value);
        }
        printf("}");
    }
    printf("]");
}

static void print_json(const stator_trace_t *trace, const char *path) {
    stator_trace_totals_t t = stator_trace_totals(trace);
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"rank", t.rank},
                   {"ranks_in_file", t.n_ranks},
                   {"measured_steps", t.n_measured},
                   {"steps_left_out", t.n_left_out},
                   {"measured_step_us", t.measured_us},
                   {"measured_kernels_us", t.kernels_us},
                   {"predicted_step_us", t.predicted_us},
                   {"exposed_us", t.exposed_us},
                   {"peak_gbps", t.peak_gbps},
                   {"peak_gflops", t.peak_gflops}};
    printf("{\"file\":");
    tool_json_string(stdout, path);
    printf(",\"measured_by\":");
    tool_json_string(stdout, t.clock);
    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) {
        printf(",\"%s\":", numbers[k].key);
        tool_json_number(stdout, numbers[k].value);
    }
    json_rows("kernels", trace, SIZE_MAX, stator_trace_kernel_at);
    json_rows("nodes", trace, 64, stator_trace_node_at);
    printf("}\n");
}

/* "1234.5", or "-" where nothing is known. */
static const char *number(double value, int width, char text[32]) {
    if (value > 0 && isfinite(value))
        snprintf(text, 32, "%*.1f", width, value);
    else
        snprintf(text, 32, "%*s", width, "-");
    return text;
}

static void print_row(const stator_trace_row_t *row, double step_us, const char *name) {
    double us = row->measured_us > 0 ? row->measured_us : row->predicted_us;
    char text[7][32];
    printf("%s %s %s %s %s %s %5llu  %s\n", number(us, 10, text[0]),
           number(100 * us / step_us, 5, text[1]), number(row->predicted_us, 10, text[2]),
           number(row->roofline_us, 10, text[3]), number(row->bytes / us * 1e-3, 8, text[4]),
           number(row->flop / us * 1e-3, 9, text[5]), (unsigned long long)row->n_calls, name);
}

static void print_tables(const stator_trace_t *trace, const char *path) {
    stator_trace_totals_t t = stator_trace_totals(trace);
    stator_trace_row_t row;
    bool measured = t.n_measured > 0;
    double step_us = measured ? t.measured_us : t.predicted_us;
    printf("rank %u: ", t.rank);
    if (measured)
        printf(
            "a step took %.3f ms (mean of %u; %.3f in kernels and waits; by the clock of the %s), ",
            t.measured_us * 1e-3, t.n_measured, t.kernels_us * 1e-3, t.clock);
    printf("predicted %.3f ms", t.predicted_us * 1e-3);
    if (t.exposed_us > 0) printf(", %.3f of it waiting for collectives", t.exposed_us * 1e-3);
    printf("\nthe target's memory moves %.1f GB/s, its products do %.1f GFLOP/s at most\n",
           t.peak_gbps, t.peak_gflops);
    printf("\n%10s %5s %10s %10s %8s %9s %5s  kernel\n", measured ? "us" : "us (plan)", "%",
           "predicted", "roofline", "GB/s", "GFLOP/s", "calls");
    for (size_t i = 0; i < SHOWN_KERNELS && stator_trace_kernel_at(trace, i, &row); i++)
        print_row(&row, step_us, row.name);
    if (measured) {
        printf("\npredicted worst\n");
        for (size_t i = 0; i < SHOWN_NODES && stator_trace_node_at(trace, i, &row); i++)
            print_row(&row, step_us, row.name);
    }
    if (t.n_left_out)
        printf("\n%u of the steps are not in the file, which would be too large\n", t.n_left_out);
    printf("\n%s: %u rank%s; open it at https://ui.perfetto.dev\n", path, t.n_ranks,
           t.n_ranks == 1 ? "" : "s");
}

/* The first steps load code and fill caches. */
static stator_status_t warm_up(const tool_t *tool, tool_stepper_t *stepper) {
    double wall;
    for (int i = 0; i < WARM_UP; i++) TOOL_TRY(tool_stepper_step(tool, stepper, &wall));
    return STATOR_OK;
}

static stator_status_t run_steps(const tool_t *tool, tool_stepper_t *stepper,
                                 stator_trace_t *trace) {
    int64_t steps = tool_int(tool, "steps");
    double wall;
    /* the first of them may record the step anew */
    TOOL_TRY(tool_stepper_step(tool, stepper, &wall));
    for (int64_t i = 0; i < (steps > 0 ? steps : DEFAULT_STEPS) && !tool_interrupted(tool); i++) {
        TOOL_TRY(tool_stepper_step(tool, stepper, &wall));
        TOOL_TRY(stator_trace_add(trace));
    }
    return tool_interrupted(tool) ? tool_fail(STATOR_INTERRUPTED, "interrupted") : STATOR_OK;
}

/* Of ranks that are processes each has a file: "t.json" rank 0, "t.rank1.json" rank 1. */
static stator_status_t own_path(const tool_t *tool, const char *path, char out[PATH_BYTES]) {
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    int stem = (int)(dot ? (size_t)(dot - path) : strlen(path)), n;
    if (tool_leads(tool))
        n = snprintf(out, PATH_BYTES, "%s", path);
    else
        n = snprintf(out, PATH_BYTES, "%.*s.rank%d%s", stem, path, stator_comm_rank(tool->comm),
                     path + stem);
    return n < PATH_BYTES ? STATOR_OK : tool_fail(STATOR_INVALID, "--output is too long");
}

stator_status_t tool_trace(tool_t *tool) {
    stator_plan_t *plan = NULL;
    tool_stepper_t stepper = {0};
    stator_trace_t *trace = NULL;
    stator_status_t status;
    const char *output;
    char path[PATH_BYTES];
    TOOL_TRY(tool_require(tool, "output", &output));
    TOOL_TRY(own_path(tool, output, path));
    const bool computes = strcmp(tool_text(tool, "device"), "null") != 0;
    const int64_t rank = stator_options_given(tool->options, "rank") ? tool_int(tool, "rank") : -1;
    tool_catch_interrupts();
    TOOL_TRY_GOTO(tool_compile_or_load(tool, &plan), done);
    if (computes) {
        TOOL_TRY_GOTO(tool_stepper_open(tool, plan, &stepper), done);
        TOOL_TRY_GOTO(warm_up(tool, &stepper), done);
    }
    TOOL_TRY_GOTO(stator_trace_create(plan, stepper.session, path, rank, &trace), done);
    if (computes) TOOL_TRY_GOTO(run_steps(tool, &stepper, trace), done);
    TOOL_TRY_GOTO(stator_trace_finish(trace), done);
    if (tool_flag(tool, "json"))
        print_json(trace, path);
    else
        print_tables(trace, path);
done:
    stator_trace_destroy(trace);
    tool_stepper_close(&stepper);
    stator_plan_destroy(plan);
    return status;
}
