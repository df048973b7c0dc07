/* stator bench: how long a step takes here, beside what was predicted; and measuring the machine so that
 * it is predicted. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/tool.h"

enum { DEFAULT_STEPS = 20, WARM_UP = 3 };

typedef struct bench {
    stator_plan_t *plan;
    stator_session_t *session;
    stator_tensors_t *inputs;
    stator_data_t *data;
    stator_report_t *report;
    double *step_ms, *host_ms, *cpu_ms; /* [n] */
    size_t n;
    double compile_s, init_s, first_step_s; /* the first step's from the session's beginning on */
} bench_t;

static double processor_seconds(void) {
    struct timespec at;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(const double *values, size_t n) {
    double *sorted = malloc(n * sizeof *sorted);
    if (!sorted) return values[n / 2];
    memcpy(sorted, values, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, ascending);
    double middle = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    free(sorted);
    return middle;
}
static double least(const double *values, size_t n) {
    double low = values[0];
    for (size_t i = 1; i < n; i++)
        if (values[i] < low) low = values[i];
    return low;
}

/* One step; *out_wall as the caller sees it. The loss is fetched, as in training. */
static stator_status_t step(const tool_t *tool, bench_t *b, double *out_wall) {
    size_t n_feeds = 0;
    const stator_tensor_t *feeds = NULL;
    tool_scalar_t loss = {0};
    stator_fetch_t fetch;
    size_t n_fetches = tool_scalar_fetch(b->plan, tool_loss(tool), &loss, &fetch);
    if (b->data) TOOL_TRY(stator_data_next(b->data, &n_feeds, &feeds));
    double begin = tool_seconds();
    TOOL_TRY(stator_session_step(b->session, n_feeds, feeds, n_fetches, &fetch));
    *out_wall = tool_seconds() - begin;
    return STATOR_OK;
}

static stator_status_t run_steps(const tool_t *tool, bench_t *b) {
    double wall;
    int64_t steps = tool_int(tool, "steps");
    b->n = steps > 0 ? (size_t)steps : DEFAULT_STEPS;
    b->step_ms = calloc(b->n, sizeof *b->step_ms);
    b->host_ms = calloc(b->n, sizeof *b->host_ms);
    b->cpu_ms = calloc(b->n, sizeof *b->cpu_ms);
    if (!b->step_ms || !b->host_ms || !b->cpu_ms)
        return tool_fail(STATOR_NO_MEMORY, "out of memory");
    for (int i = 0; i < WARM_UP; i++) TOOL_TRY(step(tool, b, &wall));
    bool computes = strcmp(tool_text(tool, "device"), "null") != 0;
    for (size_t i = 0; i < b->n && !tool_interrupted(); i++) {
        double cpu = processor_seconds();
        TOOL_TRY(step(tool, b, &wall));
        stator_session_info_t info = stator_session_info(b->session);
        b->step_ms[i] = computes ? wall * 1e3 : info.step_us * 1e-3;
        b->cpu_ms[i] = (processor_seconds() - cpu) * 1e3;
        b->host_ms[i] = computes ? wall * 1e3 - info.step_us * 1e-3 : wall * 1e3;
    }
    return tool_interrupted() ? tool_fail(STATOR_INTERRUPTED, "interrupted") : STATOR_OK;
}

static stator_status_t open_session(const tool_t *tool, bench_t *b) {
    const char *input = tool_text(tool, "input"), *weights_path = tool_text(tool, "weights");
    stator_tensors_t *weights = NULL;
    stator_status_t status;
    double begin = tool_seconds(), wall;
    TOOL_TRY(stator_session_create(b->plan, NULL, &b->session));
    double created = tool_seconds() - begin;
    tool_session_notes(b->session);
    if (weights_path[0]) TOOL_TRY(stator_tensors_load(weights_path, &weights));
    status = stator_session_initialize(b->session, tool->options);
    /* a parameter without a rule is zero, which takes no less time */
    if (status == STATOR_NOT_FOUND) status = STATOR_OK;
    if (status == STATOR_OK && weights) status = stator_session_load(b->session, weights);
    stator_tensors_destroy(weights);
    TOOL_TRY(status);
    b->init_s = tool_seconds() - begin - created;
    if (stator_plan_count(b->plan, STATOR_INPUT) > 0) {
        uint64_t seed = (uint64_t)tool_int(tool, "seed");
        TOOL_TRY(input[0] ? stator_tensors_load(input, &b->inputs)
                          : stator_tensors_random(b->plan, seed, &b->inputs));
        TOOL_TRY(stator_data_tensors(b->plan, b->inputs, input[0] ? tool_text(tool, "map") : "",
                                     &b->data));
    }
    TOOL_TRY(step(tool, b, &wall));
    b->first_step_s = tool_seconds() - begin;
    return STATOR_OK;
}

/* What a step has so many of: the elements of a whole-number input of two dims are tokens, else the
 * first dim of the first input with one is samples. */
static double items(const stator_plan_t *plan, const char **out_unit) {
    *out_unit = "steps/s";
    for (size_t i = 0; i < stator_plan_count(plan, STATOR_INPUT); i++) {
        stator_tensor_t t = stator_plan_at(plan, STATOR_INPUT, i);
        if (t.rank == 0) continue;
        bool tokens = t.rank == 2 && (t.dtype == STATOR_DTYPE_I32 || t.dtype == STATOR_DTYPE_I64);
        *out_unit = tokens ? "tokens/s" : "samples/s";
        return (double)t.dims[0] * (tokens ? (double)t.dims[1] : 1);
    }
    return 1;
}

static void print_result(const tool_t *tool, const bench_t *b) {
    stator_report_totals_t totals = stator_report_totals(b->report);
    stator_session_info_t info = stator_session_info(b->session);
    uint64_t used = info.state_bytes + info.work_bytes + info.comm_bytes;
    const char *unit;
    double step_ms = median(b->step_ms, b->n), rate = items(b->plan, &unit) / (step_ms * 1e-3);
    char planned_text[32], used_text[32];
    if (!tool_flag(tool, "json")) {
        printf("step %.3f ms (least %.3f; processor %.3f), predicted %.3f; %.1f %s; host %.3f ms\n",
               step_ms, least(b->step_ms, b->n), median(b->cpu_ms, b->n), totals.step_us * 1e-3,
               rate, unit, median(b->host_ms, b->n));
        printf("first step after %.3f s; memory planned %s, used %s a rank\n", b->first_step_s,
               tool_bytes(totals.total_bytes, planned_text), tool_bytes(used, used_text));
        return;
    }
    stator_startup_t start = stator_session_startup(b->session);
    const struct {
        const char *key;
        double value;
    } rows[] = {
        {"step_ms", step_ms},
        {"step_ms_min", least(b->step_ms, b->n)},
        {"cpu_ms", median(b->cpu_ms, b->n)},
        {"cpu_ms_min", least(b->cpu_ms, b->n)},
        {"host_ms", median(b->host_ms, b->n)},
        {"rate", rate},
        {"first_step_s", b->first_step_s},
        {"planned_bytes", (double)totals.total_bytes},
        {"used_bytes", (double)used},
        {"predicted_step_us", totals.step_us},
        {"model_flop", totals.model_flop},
        {"compile_us", totals.compile_us},
        /* where the time before the steps went */
        {"compile_s", b->compile_s},
        {"open_s", start.open_s},
        {"memory_s", start.memory_s},
        {"prepare_s", start.prepare_s},
        {"libraries_s", start.libraries_s},
        {"nests_s", start.nests_s},
        {"plans_s", start.plans_s},
        {"init_s", b->init_s},
        {"tune_s", start.tune_s},
        {"tuned", (double)start.n_measured},
        {"capture_s", start.capture_s},
    };
    printf("{\"target\":");
    tool_json_string(stdout, totals.target);
    printf(",\"choices\":\"%016llx\"", (unsigned long long)start.choices);
    printf(",\"steps\":%zu,\"ranks\":%u,\"threads\":%u,\"rate_unit\":\"%s\"", b->n,
           stator_plan_info(b->plan).n_ranks, stator_plan_info(b->plan).n_threads, unit);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        printf(",\"%s\":", rows[i].key);
        tool_json_number(stdout, rows[i].value);
    }
    printf("}\n");
}

static stator_status_t calibrate(const tool_t *tool) {
    const char *path = tool_text(tool, "output");
    char *text = NULL;
    if (tool->n_files) return tool_fail(STATOR_INVALID, "--calibrate measures no graph");
    TOOL_TRY(stator_target_calibrate("cpu", &text));
    FILE *file = path[0] ? fopen(path, "w") : stdout;
    bool written = file && fputs(text, file) >= 0;
    stator_free(text);
    if (file && file != stdout) written = fclose(file) == 0 && written;
    return written ? STATOR_OK : tool_fail(STATOR_IO, "cannot write '%s'", path);
}

stator_status_t tool_bench(tool_t *tool) {
    bench_t b = {0};
    stator_status_t status;
    if (tool_flag(tool, "calibrate")) return calibrate(tool);
    if (!tool->n_files)
        return tool_fail(STATOR_INVALID, "'bench' needs a graph or a plan, or --calibrate");
    tool_catch_interrupts();
    double begin = tool_seconds();
    TOOL_TRY_GOTO(tool_compile_or_load(tool, &b.plan), done);
    b.compile_s = tool_seconds() - begin;
    TOOL_TRY_GOTO(stator_report_create(b.plan, 0, &b.report), done);
    TOOL_TRY_GOTO(open_session(tool, &b), done);
    TOOL_TRY_GOTO(run_steps(tool, &b), done);
    print_result(tool, &b);
done:
    free(b.step_ms);
    free(b.host_ms);
    free(b.cpu_ms);
    stator_data_destroy(b.data);
    stator_tensors_destroy(b.inputs);
    stator_session_destroy(b.session);
    stator_report_destroy(b.report);
    stator_plan_destroy(b.plan);
    return status;
}
