/* What several commands share. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "tools/tool.h"

/* ---- options and failures ---- */

static char failure[2048];

const char *tool_text(const tool_t *tool, const char *key) {
    return stator_options_get(tool->options, key);
}
int64_t tool_int(const tool_t *tool, const char *key) {
    return stator_options_get_int(tool->options, key);
}
double tool_float(const tool_t *tool, const char *key) {
    return stator_options_get_float(tool->options, key);
}
bool tool_flag(const tool_t *tool, const char *key) {
    return stator_options_get_int(tool->options, key) != 0;
}

stator_status_t tool_fail(stator_status_t status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(failure, sizeof failure, format, args);
    va_end(args);
    return status;
}
const char *tool_failure(void) {
    return failure;
}

bool tool_leads(const tool_t *tool) {
    return stator_comm_rank(tool->comm) == 0;
}
stator_status_t tool_session(const tool_t *tool, const stator_plan_t *plan, stator_session_t *share,
                             stator_session_t **out_session) {
    return stator_session_create_on(plan, share, tool->comm, out_session);
}

stator_status_t tool_require(const tool_t *tool, const char *key, const char **out_text) {
    *out_text = tool_text(tool, key);
    if ((*out_text)[0]) return STATOR_OK;
    return tool_fail(STATOR_INVALID, "'%s' needs --%s; see 'stator %s --help'", tool->command, key,
                     tool->command);
}

/* ---- graphs, plans and state ---- */

stator_status_t tool_file_kind(const char *path, tool_kind_t *out_kind) {
    unsigned char head[9] = {0};
    struct stat info;
    *out_kind = TOOL_UNKNOWN;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return STATOR_OK; /* a pipe would be waited for */
    FILE *file = fopen(path, "rb");
    if (!file)
        return tool_fail(errno == ENOENT ? STATOR_NOT_FOUND : STATOR_IO, "cannot open '%s': %s",
                         path, strerror(errno));
    size_t n = fread(head, 1, sizeof head, file);
    fclose(file);
    if (n >= 8 && memcmp(head, STATOR_PLAN_MAGIC, 8) == 0)
        *out_kind = TOOL_PLAN;
    else if ((n >= 8 && memcmp(head, STATOR_GRAPH_MAGIC, 8) == 0) || memcmp(head, "graph", 5) == 0)
        *out_kind = TOOL_GRAPH;
    else if (n == 9 && head[8] == '{')
        *out_kind = TOOL_TENSORS;
    return STATOR_OK;
}

/* Whether an option that is given says what happens when a plan runs, not what the plan is. */
static bool counts_with_plan(const tool_t *tool, const stator_option_info_t *option) {
    static const char *const running[] = {"steps", "loss", "plan-cache", "text", "output", "json"};
    for (size_t i = 0; i < sizeof running / sizeof running[0]; i++)
        if (strcmp(option->key, running[i]) == 0) return true;
    /* processes: how long they wait to meet; their number, which the session compares */
    if (tool->comm && (strcmp(option->key, "timeout") == 0 || strcmp(option->key, "ranks") == 0))
        return true;
    /* a timeline without measurements */
    if (strcmp(tool->command, "trace") == 0 && strcmp(option->key, "device") == 0)
        return strcmp(tool_text(tool, "device"), "null") == 0;
    /* those of 'compile', and what other commands do to the graph */
    return !strchr(option->commands, 'c') && strcmp(option->key, "grad") != 0 &&
           strcmp(option->key, "explain") != 0;
}

static stator_status_t load_plan(const tool_t *tool, const char *path, stator_plan_t **out_plan) {
    stator_option_info_t option;
    for (size_t i = 0; stator_option_at(i, &option); i++) {
        if (!stator_options_given(tool->options, option.key) || counts_with_plan(tool, &option))
            continue;
        return tool_fail(STATOR_INVALID,
                         "option '%s' was decided when the plan %s was compiled: %sgive the graph",
                         option.key, path,
                         strchr(option.commands, 'c') ? "give it to 'stator compile', or " : "");
    }
    return stator_plan_load(path, out_plan);
}

stator_status_t tool_load_plan(const tool_t *tool, const char *path, stator_plan_t **out_plan,
                               stator_tensors_t **out_weights) {
    const char *weights = tool_text(tool, "weights");
    *out_weights = NULL;
    TOOL_TRY(load_plan(tool, path, out_plan));
    return weights[0] ? stator_tensors_load(weights, out_weights) : STATOR_OK;
}

stator_status_t tool_compile_or_load(const tool_t *tool, stator_plan_t **out_plan) {
    stator_graph_t *graph = NULL, *step = NULL;
    stator_status_t status;
    tool_kind_t kind;
    *out_plan = NULL;
    bool training = strcmp(tool_text(tool, "mode"), "train") == 0;
    TOOL_TRY(tool_file_kind(tool->files[0], &kind));
    if (kind == TOOL_PLAN) return load_plan(tool, tool->files[0], out_plan);
    TOOL_TRY_GOTO(tool_load_bound(tool, tool->files[0], &graph), done);
    if (training) TOOL_TRY_GOTO(stator_graph_make_training(graph, tool->options, &step), done);
    status = stator_plan_compile(training ? step : graph, tool->options, NULL, out_plan);
done:
    stator_graph_destroy(step);
    stator_graph_destroy(graph);
    return status;
}

char *tool_companion(const char *graph_path) {
    static const char suffix[] = ".safetensors";
    const char *slash = strrchr(graph_path, '/'), *dot = strrchr(graph_path, '.');
    size_t stem =
        dot && (!slash || dot > slash + 1) ? (size_t)(dot - graph_path) : strlen(graph_path);
    char *path = malloc(stem + sizeof suffix);
    if (!path) return NULL;
    memcpy(path, graph_path, stem);
    memcpy(path + stem, suffix, sizeof suffix);
    return path;
}

/* The companion may be absent; if it is there it has to be readable. */
static stator_status_t load_companion(const char *graph_path, stator_tensors_t **out) {
    *out = NULL;
    char *path = tool_companion(graph_path);
    if (!path) return tool_fail(STATOR_NO_MEMORY, "out of memory");
    FILE *file = fopen(path, "rb");
    stator_status_t status = STATOR_OK;
    if (file) {
        fclose(file);
        status = stator_tensors_load(path, out);
    } else if (errno != ENOENT) {
        status = tool_fail(STATOR_IO, "%s: %s", path, strerror(errno));
    }
    free(path);
    return status;
}

stator_status_t tool_load_bound(const tool_t *tool, const char *path, stator_graph_t **out_graph) {
    stator_graph_t *bound = NULL;
    TOOL_TRY(stator_graph_load(path, out_graph));
    if (!tool_text(tool, "bind")[0]) return STATOR_OK;
    stator_status_t status = stator_graph_bind(*out_graph, tool->options, &bound);
    stator_graph_destroy(*out_graph);
    *out_graph = bound;
    return status;
}

stator_status_t tool_load_graph(const tool_t *tool, const char *path, stator_graph_t **out_graph,
                                stator_tensors_t **out_weights, stator_tensors_t **out_companion) {
    const char *weights = tool_text(tool, "weights");
    *out_graph = NULL;
    *out_weights = *out_companion = NULL;
    stator_status_t status;
    TOOL_TRY_GOTO(tool_load_bound(tool, path, out_graph), fail);
    TOOL_TRY_GOTO(load_companion(path, out_companion), fail);
    if (weights[0]) {
        TOOL_TRY_GOTO(stator_tensors_load(weights, out_weights), fail);
        TOOL_TRY_GOTO(stator_graph_settle(*out_graph, *out_weights, *out_companion), fail);
    }
    const char *notes = stator_graph_notes(*out_graph);
    if (notes[0] && tool_leads(tool)) fprintf(stderr, "%s", notes);
    return STATOR_OK;
fail:
    stator_graph_destroy(*out_graph);
    stator_tensors_destroy(*out_weights);
    stator_tensors_destroy(*out_companion);
    *out_graph = NULL;
    *out_weights = *out_companion = NULL;
    return status;
}

/* Whether `companion` has a value for every parameter, so that none needs a rule. */
static bool holds_parameters(const stator_session_t *session, const stator_tensors_t *companion) {
    stator_tensor_t unused;
    for (size_t i = 0; i < stator_session_count(session, STATOR_PARAMETER); i++) {
        stator_tensor_t parameter = stator_session_at(session, STATOR_PARAMETER, i);
        if (stator_tensors_find(companion, parameter.name, &unused) != STATOR_OK) return false;
    }
    return true;
}

stator_status_t tool_fill_state(const tool_t *tool, stator_session_t *session,
                                const stator_tensors_t *companion, bool companion_parameters,
                                const stator_tensors_t *weights) {
    /* Weights are complete or refused; the companion is complete if it is an importer's. */
    bool complete =
        weights || (companion && companion_parameters && holds_parameters(session, companion));
    stator_status_t status = stator_session_initialize(session, tool->options);
    if (status != STATOR_NOT_FOUND || !complete) TOOL_TRY(status);
    if (companion) TOOL_TRY(stator_session_restore(session, companion, companion_parameters));
    return weights ? stator_session_load(session, weights) : STATOR_OK;
}

/* ---- data ---- */

stator_status_t tool_open_data(const tool_t *tool, const stator_plan_t *plan, bool evaluation,
                               const stator_tensors_t *inputs, stator_data_t **out_data) {
    *out_data = NULL;
    uint64_t seed = (uint64_t)tool_int(tool, "seed");
    const char *tokens = tool_text(tool, evaluation ? "eval-tokens-file" : "tokens-file");
    const char *images = tool_text(tool, evaluation ? "eval-images" : "images");
    const char *labels = tool_text(tool, evaluation ? "eval-labels" : "labels");
    int given = (tokens[0] != 0) + (images[0] != 0) + (inputs != NULL);
    if (given > 1)
        return tool_fail(STATOR_INVALID,
                         "more than one of --input, --tokens-file, --images is given");
    if (inputs) return stator_data_tensors(plan, inputs, tool_text(tool, "map"), out_data);
    if (tokens[0]) return stator_data_tokens(plan, tokens, seed, !evaluation, out_data);
    if (!images[0]) return STATOR_OK;
    if (!labels[0]) return tool_fail(STATOR_INVALID, "images are given without their labels");
    return stator_data_images(plan, images, labels, tool_float(tool, "mean"),
                              tool_float(tool, "std"), seed, !evaluation, out_data);
}

double tool_scalar_value(const tool_scalar_t *scalar) {
    switch (scalar->dtype) {
        case STATOR_DTYPE_F32:
            return (double)scalar->f32;
        case STATOR_DTYPE_F64:
            return scalar->f64;
        default:
            return (double)scalar->i64;
    }
}

bool tool_scalar_fetch(const stator_plan_t *plan, const char *name, tool_scalar_t *scalar,
                       stator_fetch_t *out_fetch) {
    for (size_t i = 0; i < stator_plan_count(plan, STATOR_OUTPUT); i++) {
        stator_tensor_t port = stator_plan_at(plan, STATOR_OUTPUT, i);
        if (strcmp(port.name, name) != 0 || port.rank != 0) continue;
        if (port.dtype != STATOR_DTYPE_F32 && port.dtype != STATOR_DTYPE_F64 &&
            port.dtype != STATOR_DTYPE_I64)
            continue;
        scalar->dtype = port.dtype;
        *out_fetch = (stator_fetch_t){name, &scalar->f64, port.bytes};
        return true;
    }
    return false;
}

const char *tool_loss(const tool_t *tool) {
    const char *name = tool_text(tool, "loss");
    return name[0] ? name : "loss";
}

stator_status_t tool_evaluate(const tool_t *tool, stator_session_t *session,
                              const stator_plan_t *plan, stator_data_t *data, double *out_loss,
                              double *out_accuracy) {
    const char *loss_name = tool_loss(tool);
    int64_t max_batches = tool_int(tool, "eval-batches");
    tool_scalar_t loss = {0}, correct = {0};
    stator_fetch_t fetches[2];
    size_t n_fetches = 0;
    if (!tool_scalar_fetch(plan, loss_name, &loss, &fetches[n_fetches++]))
        return tool_fail(STATOR_INVALID, "the graph has no scalar output '%s' to evaluate",
                         loss_name);
    bool counted = tool_scalar_fetch(plan, "correct", &correct, &fetches[n_fetches]);
    n_fetches += counted;
    int64_t batches = stator_data_steps(data);
    if (max_batches > 0 && max_batches < batches) batches = max_batches;
    double sum = 0, right = 0, samples = 0;
    TOOL_TRY(stator_data_seek(data, 0, 0));
    tool_feeder_t feeder;
    tool_feeder_open(plan, session, data, false, &feeder);
    for (int64_t i = 0; i < batches && !tool_interrupted(tool); i++) {
        TOOL_TRY(tool_feeder_step(&feeder, i + 1 < batches, n_fetches, fetches));
        double valid = (double)feeder.valid;
        sum += tool_scalar_value(&loss) * valid;
        right += counted ? tool_scalar_value(&correct) : 0;
        samples += valid;
    }
    *out_loss = samples > 0 ? sum / samples : NAN;
    *out_accuracy = counted && samples > 0 ? right / samples : -1;
    return STATOR_OK;
}

/* ---- printing ---- */

double tool_packing_gap(const stator_plan_info_t *info) {
    double bound = (double)info->live_bound_bytes;
    return bound > 0 ? 100 * ((double)info->work_bytes - bound) / bound : 0;
}

const char *tool_bytes(uint64_t bytes, char buffer[32]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 4) value /= 1024, unit++;
    snprintf(buffer, 32, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return buffer;
}

void tool_warn_of_last_resorts(const tool_t *tool, const stator_report_t *report) {
    const double step_us = stator_report_totals(report).step_us;
    stator_report_kernel_t row;
    for (size_t i = 0; tool_leads(tool) && stator_report_kernel_at(report, i, &row); i++) {
        if (!row.refusals[0] || row.us <= 0.1 * step_us) continue;
        fprintf(
            stderr,
            "warning: %s, a kernel of last resort, takes %.0f %% of the predicted step, %.3f of "
            "%.3f ms; better ones do not run it: %s\n",
            row.name, 100 * row.us / step_us, row.us * 1e-3, step_us * 1e-3, row.refusals);
    }
}

double tool_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void tool_json_string(FILE *file, const char *text) {
    fputc('"', file);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(file, "\\%c", *p);
        else if (*p < 0x20)
            fprintf(file, "\\u%04x", *p);
        else
            fputc(*p, file);
    }
    fputc('"', file);
}

void tool_json_number(FILE *file, double value) {
    if (isfinite(value))
        fprintf(file, "%.17g", value);
    else
        fprintf(file, "null");
}

/* ---- interrupts ---- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number) {
    (void)number;
    interrupted = 1;
}

void tool_catch_interrupts(void) {
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool tool_interrupted(const tool_t *tool) {
    static bool agreed;
    int any = interrupted;
    if (!tool->comm) return any;
    /* a failure here is that of the next step too, which reports it */
    if (!agreed && stator_comm_any(tool->comm, any, &any) == STATOR_OK) agreed = any != 0;
    return agreed;
}
