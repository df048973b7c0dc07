/* Evaluation on the host (host.h): with the kernels of the CPU, whatever the plan is for. */
#include "compile/host.h"

#include "kernels/table.h"

st_status_t compile_evaluate(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                             const void *const *in, void *const *out) {
    (void)context;
    if (!kern_list("cpu", ctx->op)[0])
        return FAIL(ST_UNSUPPORTED, "op %s has no kernel on the host", ir_op_def(ctx->op)->name);
    kern_problem_t problem = {ctx->op,   ctx->n_inputs, ctx->n_outputs, ctx->in,
                              out_types, ctx->attrs,    ctx->name};
    return kern_run_once(&problem, in, out);
}
