/* Gradients summed over ranks in float32 (wide_gradients.h).
 *
 * Problem: with bf16 or f16 compute the gradient of a weight is of 16 bits, and so is its sum over
 * ranks: what a rank adds is lost where it is less than the last of 8 or 11 bits of the sum.
 * Algorithm: a cast is linear, so the lowering sums what it reads or what it makes; it sums where
 * somebody needs the whole, which is behind the cast if all readers are.
 *
 *   dw bf16 ──► adamw, norm     →     dw bf16 ── cast f32 ──► adamw, norm
 *
 * Each rank's own part is rounded before it is summed, once, as it is without ranks. Linear. */
#include "autodiff/wide_gradients.h"

#include "base/memory.h"
#include "ir/op.h"

typedef struct wide {
    bool *is_gradient; /* [values] of 16 bits that an optimizer's node takes */
    ir_value_t *cast;  /* [values]: in the copy; IR_NONE: none */
} wide_t;

static bool is_small_float(ir_dtype_t dtype) {
    return dtype == IR_BF16 || dtype == IR_F16;
}

/* What nodes of the optimizer phase take is the cast. */
static st_status_t clone_over_casts(const wide_t *w, ir_graph_t *to, const ir_graph_t *from,
                                    ir_node_t n, ir_value_t *map) {
    const ir_node_info_t *node = ir_node(from, n);
    ir_value_t *own = st_calloc(node->n_inputs + 1, sizeof *own);
    if (!own) return st_no_memory(node->n_inputs * sizeof *own, "a node");
    for (uint32_t j = 0; j < node->n_inputs; j++) own[j] = map[node->inputs[j]];
    for (uint32_t j = 0; j < node->n_inputs; j++)
        if (w->cast[node->inputs[j]] != IR_NONE) map[node->inputs[j]] = w->cast[node->inputs[j]];
    st_status_t status = ir_graph_clone_node(to, from, n, NULL, map);
    for (uint32_t j = 0; j < node->n_inputs; j++) map[node->inputs[j]] = own[j];
    st_free(own);
    return status;
}

static st_status_t emit(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                        ir_value_t *map) {
    const wide_t *w = context;
    const ir_node_info_t *node = ir_node(from, n);
    const ir_arg_t f32 = IR_ARG_DTYPE("dtype", IR_F32);
    if (node->phase == IR_PHASE_OPTIMIZER) return clone_over_casts(w, to, from, n, map);
    TRY(ir_graph_clone_node(to, from, n, NULL, map));
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        const ir_value_t v = node->first_output + k;
        if (!w->is_gradient[v]) continue;
        TRY(ir_graph_add(to, IR_OP_CAST, NULL, 1, &map[v], 1, &f32, &w->cast[v]));
    }
    return ST_OK;
}

st_status_t ad_wide_gradients(const ir_graph_t *graph, ir_graph_t **out_graph) {
    st_status_t status = ST_OK;
    *out_graph = NULL;
    wide_t w = {.is_gradient = st_calloc(graph->values.n + 1, sizeof *w.is_gradient),
                .cast = st_calloc(graph->values.n + 1, sizeof *w.cast)};
    if (!w.is_gradient || !w.cast)
        TRY_GOTO(st_no_memory(graph->values.n * sizeof *w.cast, "gradients"), done);
    for (ir_value_t v = 0; v < graph->values.n; v++) w.cast[v] = IR_NONE;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (!(ir_op_def(node->op)->flags & IR_STEP) || node->n_inputs < 2) continue;
        const ir_value_t gradient = node->inputs[1];
        w.is_gradient[gradient] = is_small_float(ir_value_type(graph, gradient)->dtype);
    }
    TRY_GOTO(ir_graph_rewrite(graph, NULL, emit, &w, out_graph), done);
done:
    st_free(w.is_gradient);
    st_free(w.cast);
    return status;
}
