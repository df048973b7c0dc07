/* stator bench: how long a step takes here, beside what was predicted; and measuring the machine so
 * that it is predicted. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/tool.h"

enum { DEFAULT_STEPS = 20, WARM_UP = 3, TENTH = 10 - WARM_UP - 1 };

typedef struct bench {
    stator_plan_t *plan;
    tool_stepper_t stepper;
    stator_report_t *report;
    double *step_ms, *host_ms, *cpu_ms; /* [n] */
    size_t n;
    double compile_s, first_step_s; /* the first step's from the session's beginning on */
    double step_1_s, step_2_s;      /* with tuning; with recording */
    /* by the device's own account: the plan's memory; free when all code is loaded and the
     * step recorded, and after TENTH steps */
    uint64_t taken, free_loaded, free_tenth;
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

static stator_status_t run_steps(const tool_t *tool, bench_t *b) {
    double wall;
    int64_t steps = tool_int(tool, "steps");
    b->n = steps > 0 ? (size_t)steps : DEFAULT_STEPS;
    b->step_ms = calloc(b->n, sizeof *b->step_ms);
    b->host_ms = calloc(b->n, sizeof *b->host_ms);
    b->cpu_ms = calloc(b->n, sizeof *b->cpu_ms);
    if (!b->step_ms || !b->host_ms || !b->cpu_ms)
        return tool_fail(STATOR_NO_MEMORY, "out of memory");
    for (int i = 0; i < WARM_UP; i++) {
        TOOL_TRY(tool_stepper_step(tool, &b->stepper, &wall));
        if (i == 0) b->step_2_s = wall;
    }
    TOOL_TRY(stator_session_memory(b->stepper.session, &b->taken, &b->free_loaded));
    b->free_tenth = b->free_loaded;
    bool computes = strcmp(tool_text(tool, "device"), "null") != 0;
    for (size_t i = 0; i < b->n && !tool_interrupted(tool); i++) {
        double cpu = processor_seconds();
        TOOL_TRY(tool_stepper_step(tool, &b->stepper, &wall));
        stator_session_info_t info = stator_session_info(b->stepper.session);
        b->step_ms[i] = computes ? wall * 1e3 : info.step_us * 1e-3;
        b->cpu_ms[i] = (processor_seconds() - cpu) * 1e3;
        /* beside a GPU the host has to do only what its threads run for */
        b->host_ms[i] = b->taken   ? b->cpu_ms[i]
                        : computes ? wall * 1e3 - info.step_us * 1e-3
                                   : wall * 1e3;
        if (i + 1 == TENTH)
            TOOL_TRY(stator_session_memory(b->stepper.session, &b->taken, &b->free_tenth));
    }
    if (computes && b->stepper.has_loss && !isfinite(b->stepper.loss))
        return tool_fail(STATOR_NOT_FINITE,
                         "the loss is not finite after %zu steps: such numbers take less power and "
                         "time than a training's, nothing is measured",
                         b->n + WARM_UP + 1);
    return tool_interrupted(tool) ? tool_fail(STATOR_INTERRUPTED, "interrupted") : STATOR_OK;
}

static stator_status_t first_step(const tool_t *tool, bench_t *b) {
    double begin = tool_seconds(), wall;
    TOOL_TRY(tool_stepper_open(tool, b->plan, &b->stepper));
    TOOL_TRY(tool_stepper_step(tool, &b->stepper, &wall));
    b->first_step_s = tool_seconds() - begin;
    b->step_1_s = wall;
    return STATOR_OK;
}

static void print_result(const tool_t *tool, const bench_t *b) {
    stator_report_totals_t totals = stator_report_totals(b->report);
    stator_session_info_t info = stator_session_info(b->stepper.session);
    uint64_t used = info.state_bytes + info.work_bytes + info.comm_bytes + info.feeds_bytes;
    if (b->taken) used = b->taken + (b->free_loaded - b->free_tenth);
    const char *unit;
    double step_ms = median(b->step_ms, b->n), rate = tool_items(b->plan, &unit) / (step_ms * 1e-3);
    char planned_text[32], used_text[32];
    if (!tool_flag(tool, "json")) {
        printf("step %.3f ms (least %.3f; processor %.3f), predicted %.3f; %.1f %s; host %.3f ms\n",
               step_ms, least(b->step_ms, b->n), median(b->cpu_ms, b->n), totals.step_us * 1e-3,
               rate, unit, median(b->host_ms, b->n));
        printf("first step after %.3f s; memory planned %s, used %s a rank\n", b->first_step_s,
               tool_bytes(totals.total_bytes, planned_text), tool_bytes(used, used_text));
        return;
    }
    stator_startup_t start = stator_session_startup(b->stepper.session);
    const struct {
        const char *key;
        double value;
    } rows[] = {
        {"step_ms", step_ms},
        {"step_ms_min", least(b->step_ms, b->n)},
        {"cpu_ms", median(b->cpu_ms, b->n)},
        {"cpu_ms_min", least(b->cpu_ms, b->n)},
        {"host_ms", median(b->host_ms, b->n)},
        {"host_percent", 100 * median(b->host_ms, b->n) / step_ms},
        {"rate", rate},
        {"first_step_s", b->first_step_s},
        {"planned_bytes", (double)totals.total_bytes},
        {"used_bytes", (double)used},
        {"used_difference_percent", 100 * ((double)used / (double)totals.total_bytes - 1)},
        {"taken_bytes", (double)b->taken},
        {"grown_bytes", (double)b->free_loaded - (double)b->free_tenth},
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
        {"init_s", b->stepper.init_s},
        {"tune_s", start.tune_s},
        {"tuned", (double)start.n_measured},
        {"capture_s", start.capture_s},
        {"step_1_s", b->step_1_s},
        {"step_2_s", b->step_2_s},
        {"loss", b->stepper.has_loss ? b->stepper.loss : NAN}, /* of the last step; null: none */
    };
    printf("{\"target\":");
    tool_json_string(stdout, totals.target);
    const tool_feeder_t *feeder = &b->stepper.feeder;
    printf(",\"input_copies\":%d,\"copies_ahead\":%s", feeder->data && !feeder->stays,
           feeder->ahead ? "true" : "false");
    printf(",\"choices\":\"%016llx\"", (unsigned long long)start.choices);
    printf(",\"steps\":%zu,\"ranks\":%u,\"threads\":%u,\"rate_unit\":\"%s\"", b->n,
           stator_plan_info(b->plan).n_ranks, stator_plan_info(b->plan).n_threads, unit);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        printf(",\"%s\":", rows[i].key);
        tool_json_number(stdout, rows[i].value);
    }
    printf("}\n");
}

/* ---- measuring the machine ---- */

/* Where the description goes. A file is written beside and renamed, so that one which is there
 * stays until then. */
typedef struct output {
    const char *path;
    char *file;   /* `path`, or what it is a link to */
    char *beside; /* NULL: `path` is no file (a terminal, a pipe), and is written itself */
} output_t;

static stator_status_t output_fail(const output_t *out) {
    return tool_fail(STATOR_IO, "cannot write '%s': %s", out->path, strerror(errno));
}

static stator_status_t output_write(const output_t *out, const char *text) {
    FILE *file = fopen(out->beside ? out->beside : out->path, out->beside ? "wx" : "w");
    if (!file) return output_fail(out);
    bool written = fputs(text, file) >= 0;
    written = fclose(file) == 0 && written;
    if (!out->beside) return written ? STATOR_OK : output_fail(out);
    if (written && rename(out->beside, out->file) == 0) return STATOR_OK;
    stator_status_t status = output_fail(out);
    unlink(out->beside);
    return status;
}

/* Finds out that the file can be written, before it is known what with; leaves nothing there. */
static stator_status_t output_open(const char *path, output_t *out) {
    struct stat there;
    *out = (output_t){.path = path};
    if (stat(path, &there) == 0) {
        if (S_ISDIR(there.st_mode)) errno = EISDIR;
        if (S_ISDIR(there.st_mode) || access(path, W_OK) != 0) return output_fail(out);
        if (!S_ISREG(there.st_mode)) return STATOR_OK;
    }
    out->file = realpath(path, NULL);
    if (!out->file) out->file = strdup(path);
    const size_t bytes = out->file ? strlen(out->file) + 40 : 0;
    out->beside = bytes ? malloc(bytes) : NULL;
    if (!out->beside) return tool_fail(STATOR_NO_MEMORY, "out of memory");
    snprintf(out->beside, bytes, "%s.partial-%ld", out->file, (long)getpid());
    FILE *file = fopen(out->beside, "wx");
    if (!file) return output_fail(out);
    fclose(file);
    unlink(out->beside);
    return STATOR_OK;
}

static bool counts_with_calibrate(const stator_option_info_t *option, bool on_cpu) {
    static const char *const used[] = {"calibrate", "output", "device"};
    for (size_t i = 0; i < sizeof used / sizeof used[0]; i++)
        if (strcmp(option->key, used[i]) == 0) return true;
    return strcmp(option->kind, "PROCESS") == 0 || (!on_cpu && strcmp(option->key, "target") == 0);
}

/* Single operations are measured as they are always run: of bench's other options none would change
 * a thing. */
static stator_status_t check_calibrate_options(const tool_t *tool, bool on_cpu) {
    stator_option_info_t option;
    if (tool->n_files) return tool_fail(STATOR_INVALID, "--calibrate measures no graph");
    for (size_t i = 0; stator_option_at(i, &option); i++) {
        if (!strpbrk(option.commands, "bB") || !stator_options_given(tool->options, option.key) ||
            counts_with_calibrate(&option, on_cpu))
            continue;
        return tool_fail(STATOR_INVALID, "option '%s' is '%s': --calibrate%s takes none",
                         option.key, tool_text(tool, option.key), on_cpu ? " of a CPU" : "");
    }
    return STATOR_OK;
}

static stator_status_t calibrate(const tool_t *tool) {
    const char *path = tool_text(tool, "output"), *device = tool_text(tool, "device");
    const bool on_cpu = !device[0] || strcmp(device, "cpu") == 0;
    output_t out = {0};
    char *text = NULL;
    stator_status_t status;
    TOOL_TRY(check_calibrate_options(tool, on_cpu));
    if (path[0]) TOOL_TRY_GOTO(output_open(path, &out), done);
    TOOL_TRY_GOTO(on_cpu ? stator_target_calibrate("cpu", &text)
                         : stator_target_calibrate_device(device, tool_text(tool, "target"), &text),
                  done);
    if (path[0])
        status = output_write(&out, text);
    else if (fputs(text, stdout) < 0 || fflush(stdout) != 0)
        status = tool_fail(STATOR_IO, "cannot write the description: %s", strerror(errno));
done:
    stator_free(text);
    free(out.file);
    free(out.beside);
    return status;
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
    tool_warn_of_last_resorts(tool, b.report);
    TOOL_TRY_GOTO(first_step(tool, &b), done);
    TOOL_TRY_GOTO(run_steps(tool, &b), done);
    print_result(tool, &b);
done:
    free(b.step_ms);
    free(b.host_ms);
    free(b.cpu_ms);
    tool_stepper_close(&b.stepper);
    stator_report_destroy(b.report);
    stator_plan_destroy(b.plan);
    return status;
}
