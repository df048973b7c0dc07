/* Forward and backward over the whole batch. See backward.h. */
#include "autodiff/backward.h"

#include "autodiff/gradient.h"
#include "ir/expand.h"

#define NOTHING ((ad_backward_t){.divisor = IR_NONE, .scale = {IR_NONE, IR_NONE, IR_NONE}})

void ad_backward_free(ad_backward_t *backward) {
    ir_graph_destroy(backward->graph);
    st_free(backward->params);
    st_free(backward->grads);
    *backward = NOTHING;
}

st_status_t ad_backward_open(const ir_graph_t *forward, ad_backward_t *out) {
    *out = NOTHING;
    for (size_t i = 0; i < forward->nodes.n; i++)
        if (forward->nodes.data[i].op == IR_OP_PARAMETER) out->n++;
    out->params = st_calloc(out->n, sizeof *out->params);
    out->grads = st_calloc(out->n, sizeof *out->grads);
    if (!out->params || !out->grads) {
        ad_backward_free(out);
        return st_no_memory(0, "the list of parameters");
    }
    for (size_t i = 0; i < out->n; i++) out->params[i] = out->grads[i] = IR_NONE;
    return ST_OK;
}

st_status_t ad_backward_grads(const ad_backward_t *backward, ir_value_t loss, const bool *frozen,
                              ir_value_t *out) {
    ir_value_t *wrt = st_calloc(backward->n, sizeof *wrt);
    ir_value_t *grads = st_calloc(backward->n, sizeof *grads);
    size_t n = 0;
    st_status_t status = ST_OK;
    if (!wrt || !grads) TRY_GOTO(st_no_memory(0, "the list of parameters"), done);
    for (size_t i = 0; i < backward->n; i++)
        if (!frozen || !frozen[i]) wrt[n++] = backward->params[i];
    if (n == 0)
        TRY_GOTO(FAIL(ST_INVALID, "there is no parameter to train: the graph has %zu, all frozen",
                      backward->n),
                 done);
    ir_value_t seed = backward->scale.scale;
    if (seed != IR_NONE) {
        ir_build_t b = {.graph = backward->graph};
        seed = ir_b_cast(&b, seed, ir_b_type(&b, loss)->dtype);
        TRY_GOTO(b.status, done);
    }
    TRY_GOTO(ad_gradient_scaled(backward->graph, loss, seed, n, wrt, grads), done);
    n = 0;
    for (size_t i = 0; i < backward->n; i++) out[i] = !frozen || !frozen[i] ? grads[n++] : IR_NONE;
done:
    st_free(wrt);
    st_free(grads);
    return status;
}

st_status_t ad_backward_whole(const ir_graph_t *forward, ir_value_t loss, const bool *frozen,
                              const ad_scaling_t *scaling, ad_backward_t *out) {
    TRY(ad_backward_open(forward, out));
    st_status_t status = ST_OK;
    size_t which = 0, n = 0;
    /* the loss is found again in the expanded graph as the output of the same place */
    while (forward->outputs.data[which].value != loss) which++;
    TRY_GOTO(ir_expand_composites(forward, ir_expand_for_gradient, &out->graph), fail);
    for (size_t i = 0; i < out->graph->nodes.n; i++)
        if (out->graph->nodes.data[i].op == IR_OP_PARAMETER)
            out->params[n++] = out->graph->nodes.data[i].first_output;
    TRY_GOTO(ad_loss_scale_open(out->graph, scaling, 1, &out->scale), fail);
    TRY_GOTO(ad_backward_grads(out, out->graph->outputs.data[which].value, frozen, out->grads),
             fail);
    return ST_OK;
fail:
    ad_backward_free(out);
    return status;
}
