/* Reference kernels of the regions: their bodies node by node (body.h). */
#include "kernels/reference/body.h"
#include "kernels/reference/reference.h"

static const ir_graph_t *body_of(const kern_problem_t *problem) {
    return kern_attr(problem, "body")->graph;
}

static size_t fused_workspace(const kern_problem_t *problem, int n_threads) {
    return ref_body_workspace(body_of(problem), n_threads);
}

static st_status_t fused_prepare(const kern_problem_t *problem, int n_threads,
                                 void **out_prepared) {
    ref_body_t *made;
    TRY(ref_body_create(body_of(problem), n_threads, &made));
    *out_prepared = made;
    return ST_OK;
}

static void fused_release(void *prepared) {
    ref_body_destroy(prepared);
}

static st_status_t fused(const kern_call_t *call) {
    return ref_body_run(call->prepared, call, call->in, call->out, call->workspace);
}

static const kern_impl_t ref_impl_fused = {.name = "cpu.fused.reference",
                                           .op = IR_OP_FUSED,
                                           .reference = true,
                                           .workspace = fused_workspace,
                                           .prepare = fused_prepare,
                                           .release = fused_release,
                                           .launch = fused};

extern ref_array_t kern_reference_region;
ref_array_t kern_reference_region = {&ref_impl_fused, NULL};
