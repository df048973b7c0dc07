/* Gradient accumulation: one step over K micro-batches that equals the step over their union.
 *
 * That holds where the loss is a sum over items divided by a count that depends on data only:
 *
 *   loss     = (S_1 + … + S_K) / (N_1 + … + N_K)
 *   gradient = (grad S_1 + … + grad S_K) / (N_1 + … + N_K)
 *
 * A mean of the micro-batches' means would be wrong as soon as the counts differ. So the loss is
 * split into sum and counts (micro_loss.c), its sum is differentiated a micro-batch at a time in a
 * loop (micro_loop.c), and the division is left to the caller as `divisor`, who has one scalar to
 * fold it into. Before, micro_check.c looks for what mixes the items of a batch. */
#include "autodiff/micro_batch.h"
#include "ir/build.h"
#include "ir/op.h"

/* Named before composites are expanded, by the name that the model has for it. */
static st_status_t check_batch_norm(const ir_graph_t *forward) {
    for (ir_node_t i = 0; i < forward->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(forward, i);
        if ((node->op == IR_OP_BATCH_NORM || node->op == IR_OP_BATCH_NORM_APPLY) &&
            ir_attr_int(node, "train"))
            return FAIL(
                ST_UNSUPPORTED,
                "%s takes its statistics from the whole batch, which micro-batches do not have; "
                "use one micro-batch, or take statistics of each micro-batch (--batch-norm micro)",
                ir_node_label(forward, i));
    }
    return ST_OK;
}

st_status_t ad_backward_micro(const ir_graph_t *forward, ir_value_t loss, const char *loss_name,
                              const bool *frozen, const ad_scaling_t *scaling, int64_t n_micro,
                              bool allow_batch_norm, ad_backward_t *out) {
    *out = (ad_backward_t){.divisor = IR_NONE};
    if (!allow_batch_norm) TRY(check_batch_norm(forward));
    ir_graph_t *body = NULL;
    ir_value_t *totals = NULL, made;
    double n_items;
    st_status_t status = ST_OK;
    TRY_GOTO(ad_micro_body(forward, loss, &body), done);
    TRY_GOTO(ad_micro_check(body, allow_batch_norm), done);
    totals = st_calloc(body->outputs.n, sizeof *totals);
    if (!totals) TRY_GOTO(st_no_memory(body->outputs.n * sizeof *totals, "micro-batches"), done);
    TRY_GOTO(ad_backward_open(forward, out), done);
    TRY_GOTO(ir_graph_create_like(forward, &out->graph), done);
    TRY_GOTO(ad_micro_items(forward, loss, &n_items), done);
    TRY_GOTO(ad_loss_scale_open(out->graph, scaling, n_items, &out->scale), done);
    TRY_GOTO(ad_micro_loop(body, frozen, n_micro, out, totals), done);
    TRY_GOTO(
        ad_micro_divide(forward, loss, out->graph, totals[0], totals + 1, &made, &out->divisor),
        done);
    ir_build_t b = {.graph = out->graph};
    ir_b_output(&b, loss_name, made);
    out->graph->phase = IR_PHASE_FORWARD;
    status = b.status;
done:
    st_free(totals);
    ir_graph_destroy(body);
    if (status != ST_OK) ad_backward_free(out);
    return status;
}
