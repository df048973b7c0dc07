/* Steps whose time matters, not their result: for bench and trace. */
#include <string.h>

#include "tools/tool.h"

stator_status_t tool_stepper_open(const tool_t *tool, stator_plan_t *plan, tool_stepper_t *out) {
    const char *input = tool_text(tool, "input"), *weights_path = tool_text(tool, "weights");
    stator_tensors_t *weights = NULL;
    stator_status_t status;
    *out = (tool_stepper_t){.plan = plan};
    double begin = tool_seconds();
    TOOL_TRY(tool_session(tool, plan, NULL, &out->session));
    out->created_s = tool_seconds() - begin;
    if (weights_path[0]) TOOL_TRY(stator_tensors_load(weights_path, &weights));
    status = stator_session_initialize(out->session, tool->options);
    /* a parameter without a rule is zero; zeros may take less time than a model's numbers */
    if (status == STATOR_NOT_FOUND) {
        fprintf(stderr, "note: %s\n", stator_last_error());
        status = STATOR_OK;
    }
    if (status == STATOR_OK && weights) status = stator_session_load(out->session, weights);
    stator_tensors_destroy(weights);
    TOOL_TRY(status);
    out->init_s = tool_seconds() - begin - out->created_s;
    if (stator_plan_count(plan, STATOR_INPUT) > 0) {
        uint64_t seed = (uint64_t)tool_int(tool, "seed");
        TOOL_TRY(input[0] ? stator_tensors_load(input, &out->inputs)
                          : stator_tensors_random(plan, seed, &out->inputs));
        TOOL_TRY(stator_data_tensors(plan, out->inputs, input[0] ? tool_text(tool, "map") : "",
                                     &out->data));
    }
    tool_feeder_open(plan, out->session, out->data, !input[0] && !tool_flag(tool, "copy-inputs"),
                     &out->feeder);
    return STATOR_OK;
}

stator_status_t tool_stepper_step(const tool_t *tool, tool_stepper_t *stepper, double *out_wall) {
    tool_scalar_t loss = {0};
    stator_fetch_t fetch;
    size_t n_fetches = tool_scalar_fetch(stepper->plan, tool_loss(tool), &loss, &fetch);
    double begin = tool_seconds();
    TOOL_TRY(tool_feeder_step(&stepper->feeder, true, n_fetches, &fetch));
    *out_wall = tool_seconds() - begin;
    stepper->has_loss = n_fetches > 0;
    if (stepper->has_loss) stepper->loss = tool_scalar_value(&loss);
    return STATOR_OK;
}

void tool_stepper_close(tool_stepper_t *stepper) {
    stator_data_destroy(stepper->data);
    stator_tensors_destroy(stepper->inputs);
    stator_session_destroy(stepper->session);
    *stepper = (tool_stepper_t){0};
}

double tool_items(const stator_plan_t *plan, const char **out_unit) {
    const stator_plan_info_t info = stator_plan_info(plan);
    *out_unit = info.n_tokens ? "tokens/s" : info.n_samples ? "samples/s" : "steps/s";
    return (double)(info.n_tokens ? info.n_tokens : info.n_samples ? info.n_samples : 1);
}
