/* stator model: the graph of a standard model. */
#include <string.h>

#include "tools/tool.h"

typedef struct model_row {
    const char *name;
    stator_status_t (*build)(const stator_options_t *options, int with_loss, stator_graph_t **out);
} model_row_t;

static const model_row_t models[] = {{"llama", stator_graph_llama},
                                     {"resnet", stator_graph_resnet}};

stator_status_t tool_model(tool_t *tool) {
    const char *output;
    TOOL_TRY(tool_require(tool, "output", &output));
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        if (strcmp(models[i].name, tool->files[0]) != 0) continue;
        stator_graph_t *graph = NULL;
        stator_status_t status = models[i].build(tool->options, 1, &graph);
        if (status == STATOR_OK) status = stator_graph_save(graph, output);
        stator_graph_destroy(graph);
        return status;
    }
    return tool_fail(STATOR_INVALID, "there is no model '%s'; llama and resnet are known",
                     tool->files[0]);
}
