/* stator run: the graph once, with gradients on request. Writes every output, "grad.<parameter>"
 * and "after.<buffer>". */
#include <stdlib.h>
#include <string.h>

#include "tools/tool.h"

/* Outputs of the step into tensors that the result set owns afterwards. */
typedef struct results {
    size_t n;
    stator_fetch_t *fetches;
} results_t;

static stator_status_t allocate(const stator_plan_t *plan, results_t *results) {
    results->n = stator_plan_count(plan, STATOR_OUTPUT);
    results->fetches = calloc(results->n ? results->n : 1, sizeof *results->fetches);
    if (!results->fetches) return tool_fail(STATOR_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < results->n; i++) {
        stator_tensor_t port = stator_plan_at(plan, STATOR_OUTPUT, i);
        void *data = malloc(port.bytes ? port.bytes : 1);
        if (!data)
            return tool_fail(STATOR_NO_MEMORY, "out of memory: %zu bytes for output '%s'",
                             port.bytes, port.name);
        results->fetches[i] = (stator_fetch_t){port.name, data, port.bytes};
    }
    return STATOR_OK;
}

static void release(results_t *results) {
    for (size_t i = 0; results->fetches && i < results->n; i++) free(results->fetches[i].data);
    free(results->fetches);
}

static stator_status_t add_buffers(stator_session_t *session, stator_tensors_t *out) {
    for (size_t i = 0; i < stator_session_count(session, STATOR_BUFFER); i++) {
        stator_tensor_t state = stator_session_at(session, STATOR_BUFFER, i);
        if (strncmp(state.name, "random.", 7) == 0) continue; /* seed and step of dropout */
        size_t length = strlen(state.name) + sizeof "after.";
        char *name = malloc(length);
        void *data = malloc(state.bytes ? state.bytes : 1);
        stator_status_t status =
            name && data ? STATOR_OK : tool_fail(STATOR_NO_MEMORY, "out of memory");
        if (status == STATOR_OK)
            status = stator_session_read(session, state.name, data, state.bytes);
        if (status == STATOR_OK) {
            snprintf(name, length, "after.%s", state.name);
            state.name = name;
            state.data = data;
            status = stator_tensors_add(out, &state);
        }
        free(name);
        free(data);
        if (status != STATOR_OK) return status;
    }
    return STATOR_OK;
}

static stator_status_t write_results(const tool_t *tool, const stator_plan_t *plan,
                                     stator_session_t *session, const results_t *results) {
    const char *output = tool_text(tool, "output");
    for (size_t i = 0; i < results->n; i++) {
        stator_tensor_t port = stator_plan_at(plan, STATOR_OUTPUT, i);
        tool_scalar_t scalar = {0};
        stator_fetch_t unused;
        if (!tool_scalar_fetch(plan, port.name, &scalar, &unused)) continue;
        memcpy(&scalar.f64, results->fetches[i].data, port.bytes);
        printf("%s %.*g\n", port.name, port.dtype == STATOR_DTYPE_F32 ? 9 : 17,
               tool_scalar_value(&scalar));
    }
    if (!output[0] || !tool_leads(tool)) return STATOR_OK;
    stator_tensors_t *out = NULL;
    stator_status_t status = stator_tensors_create(&out);
    for (size_t i = 0; status == STATOR_OK && i < results->n; i++) {
        stator_tensor_t port = stator_plan_at(plan, STATOR_OUTPUT, i);
        port.data = results->fetches[i].data;
        status = stator_tensors_add(out, &port);
    }
    if (status == STATOR_OK) status = add_buffers(session, out);
    if (status == STATOR_OK) status = stator_tensors_save(out, output);
    stator_tensors_destroy(out);
    return status;
}

stator_status_t tool_run(tool_t *tool) {
    stator_graph_t *graph = NULL, *step = NULL;
    stator_tensors_t *weights = NULL, *companion = NULL, *inputs = NULL;
    stator_plan_t *plan = NULL;
    stator_session_t *session = NULL;
    stator_data_t *data = NULL;
    results_t results = {0};
    stator_status_t status;
    tool_kind_t kind;
    static const char *const options[] = {"seed", "init", "map"}, *const files[] = {"weights",
                                                                                    "input"};
    TOOL_TRY(tool_agree(tool, 3, options, 2, files));
    TOOL_TRY(tool_file_kind(tool->files[0], &kind));
    if (kind == TOOL_PLAN) {
        TOOL_TRY_GOTO(tool_load_plan(tool, tool->files[0], &plan, &weights), done);
    } else {
        TOOL_TRY_GOTO(tool_load_graph(tool, tool->files[0], &graph, &weights, &companion), done);
        if (tool_flag(tool, "grad"))
            TOOL_TRY_GOTO(stator_graph_add_gradients(graph, tool->options, &step), done);
        TOOL_TRY_GOTO(stator_plan_compile(step ? step : graph, tool->options, NULL, &plan), done);
    }
    TOOL_TRY_GOTO(tool_session(tool, plan, NULL, &session), done);
    TOOL_TRY_GOTO(tool_fill_state(tool, session, companion, weights == NULL, weights), done);
    size_t n_feeds = 0;
    const stator_tensor_t *feeds = NULL;
    if (stator_plan_count(plan, STATOR_INPUT) > 0) {
        const char *input;
        TOOL_TRY_GOTO(tool_require(tool, "input", &input), done);
        TOOL_TRY_GOTO(stator_tensors_load(input, &inputs), done);
        TOOL_TRY_GOTO(tool_open_data(tool, plan, false, inputs, &data), done);
        TOOL_TRY_GOTO(stator_data_next(data, &n_feeds, &feeds), done);
    }
    TOOL_TRY_GOTO(allocate(plan, &results), done);
    TOOL_TRY_GOTO(stator_session_step(session, n_feeds, feeds, results.n, results.fetches), done);
    status = write_results(tool, plan, session, &results);
done:
    release(&results);
    stator_data_destroy(data);
    stator_session_destroy(session);
    stator_plan_destroy(plan);
    stator_tensors_destroy(inputs);
    stator_tensors_destroy(companion);
    stator_tensors_destroy(weights);
    stator_graph_destroy(step);
    stator_graph_destroy(graph);
    return status;
}
