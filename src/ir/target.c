/* What a node of a graph costs (target.h). */
#include "ir/target.h"

#include "ir/node_ctx.h"

st_status_t ir_target_cost(const ir_target_t *target, const ir_graph_t *graph, ir_node_t n,
                           ir_cost_t *out) {
    ir_node_ctx_t ctx;
    TRY(ir_node_ctx_open(&ctx, graph, n));
    target->cost(target->context, &ctx.op, ctx.out, out);
    ir_node_ctx_close(&ctx);
    return out->status;
}
