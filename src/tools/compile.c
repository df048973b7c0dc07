/* stator compile: graph in, plan out. */
#include <string.h>

#include "tools/tool.h"

static void report(const tool_t *tool, const stator_plan_t *plan) {
    stator_plan_info_t i = stator_plan_info(plan);
    if (tool_flag(tool, "json")) {
        printf(
            "{\"ranks\":%u,\"threads\":%u,\"kernels\":%u,\"collectives\":%u,\"regions\":{\"state\":"
            "%llu,"
            "\"work\":%llu,\"comm\":%llu,\"feeds\":%llu},\"live_bound_bytes\":%llu,\"packing_gap_"
            "percent\":%.3f,"
            "\"compile_us\":%.0f}\n",
            i.n_ranks, i.n_threads, i.n_kernels, i.n_collectives, (unsigned long long)i.state_bytes,
            (unsigned long long)i.work_bytes, (unsigned long long)i.comm_bytes,
            (unsigned long long)i.feeds_bytes, (unsigned long long)i.live_bound_bytes,
            tool_packing_gap(&i), i.compile_us);
        return;
    }
    char state[32], work[32], comm[32];
    printf("compiled in %.1f ms: %u ranks, %u kernels a step; state %s, work %s, comm %s a rank\n",
           i.compile_us * 1e-3, i.n_ranks, i.n_kernels, tool_bytes(i.state_bytes, state),
           tool_bytes(i.work_bytes, work), tool_bytes(i.comm_bytes, comm));
}

stator_status_t tool_compile(tool_t *tool) {
    stator_graph_t *graph = NULL, *step = NULL;
    stator_plan_t *plan = NULL;
    stator_status_t status;
    bool training = strcmp(tool_text(tool, "mode"), "train") == 0;
    TOOL_TRY_GOTO(tool_load_bound(tool, tool->files[0], &graph), done);
    if (training) TOOL_TRY_GOTO(stator_graph_make_training(graph, tool->options, &step), done);
    TOOL_TRY_GOTO(stator_plan_compile(training ? step : graph, tool->options, NULL, &plan), done);
    if (tool_text(tool, "output")[0])
        TOOL_TRY_GOTO(stator_plan_save(plan, tool_text(tool, "output")), done);
    if (tool_flag(tool, "text")) {
        char *text = NULL;
        TOOL_TRY_GOTO(stator_plan_print(plan, &text), done);
        fputs(text, stdout);
        stator_free(text);
    } else {
        report(tool, plan);
    }
done:
    stator_plan_destroy(plan);
    stator_graph_destroy(step);
    stator_graph_destroy(graph);
    return status;
}
