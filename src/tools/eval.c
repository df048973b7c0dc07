/* stator eval: loss (and accuracy) over held-out data, in evaluation mode. */
#include "tools/tool.h"

stator_status_t tool_eval(tool_t *tool) {
    stator_graph_t *graph = NULL;
    stator_tensors_t *weights = NULL, *companion = NULL, *inputs = NULL;
    stator_plan_t *plan = NULL;
    stator_session_t *session = NULL;
    stator_data_t *data = NULL;
    double loss = 0, accuracy = 0;
    stator_status_t status;
    static const char *const options[] = {"seed", "init", "map"}, *const files[] = {"weights",
                                                                                    "input"};
    TOOL_TRY(tool_agree(tool, 3, options, 2, files));
    TOOL_TRY(stator_options_set(tool->options, "mode", "eval"));
    TOOL_TRY(tool_load_graph(tool, tool->files[0], &graph, &weights, &companion));
    if (!weights && !companion) {
        status =
            tool_fail(STATOR_INVALID, "'eval' needs --weights: nothing stands beside the graph");
        goto done;
    }
    TOOL_TRY_GOTO(stator_plan_compile(graph, tool->options, NULL, &plan), done);
    TOOL_TRY_GOTO(tool_session(tool, plan, NULL, &session), done);
    TOOL_TRY_GOTO(tool_fill_state(tool, session, companion, weights == NULL, weights), done);
    if (tool_text(tool, "input")[0])
        TOOL_TRY_GOTO(stator_tensors_load(tool_text(tool, "input"), &inputs), done);
    TOOL_TRY_GOTO(tool_open_data(tool, plan, true, inputs, &data), done);
    if (!data) {
        status = tool_fail(STATOR_INVALID,
                           "'eval' needs data: --input, --eval-tokens-file, or "
                           "--eval-images with --eval-labels");
        goto done;
    }
    TOOL_TRY_GOTO(tool_evaluate(tool, session, plan, data, &loss, &accuracy), done);
    if (tool_flag(tool, "json")) {
        printf("{\"loss\":");
        tool_json_number(stdout, loss);
        if (accuracy >= 0) printf(",\"accuracy\":%.17g", accuracy);
        printf("}\n");
    } else {
        printf("loss %.6f\n", loss);
        if (accuracy >= 0) printf("accuracy %.2f %%\n", 100 * accuracy);
    }
done:
    stator_data_destroy(data);
    stator_session_destroy(session);
    stator_plan_destroy(plan);
    stator_tensors_destroy(inputs);
    stator_tensors_destroy(companion);
    stator_tensors_destroy(weights);
    stator_graph_destroy(graph);
    return status;
}
