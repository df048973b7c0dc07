/* The short pipeline in front of the gradient (capture.h). */
#include "compile/capture.h"

#include "base/options.h"
#include "compile/host.h"
#include "compile/passes.h"

static const compile_pass_t passes[] = {
    {"recognize", compile_pass_recognize, NULL}, /* composites out of their spellings */
};

st_status_t compile_capture(const ir_graph_t *graph, const char *dump, ir_graph_t **out_graph) {
    compile_context_t c = {.target = {.name = "cpu", .evaluate = compile_evaluate}};
    st_status_t status = ST_OK;
    *out_graph = NULL;
    c.options.dump = dump ? dump : st_environment("STATOR_DUMP");
    TRY(ir_graph_copy(graph, &c.graph));
    TRY_GOTO(compile_run_passes(&c, passes, sizeof passes / sizeof passes[0]), done);
    *out_graph = c.graph;
    c.graph = NULL;
done:
    ir_graph_destroy(c.graph);
    return status;
}
