/* Loss scaling and skipped steps. See loss_scale.h.
 *
 * Everything is selects on scalars: no branch of the host, so that a captured step can skip. The
 * formulas are those of PyTorch's gradient scaler. Found-inf is the norm's affair: it is summed
 * over all gradients and all ranks, and one that is not finite makes it so. */
#include "autodiff/loss_scale.h"

#include <math.h>
#include <stdio.h>

#include "ir/op.h"

enum { NAME_BYTES = 1024 };
static const double LEAST_SCALE = 0x1p-24;

ir_value_t ad_new_state(ir_build_t *b, const char *prefix, const char *name, ir_type_t type) {
    char full[NAME_BYTES];
    int length = snprintf(full, sizeof full, "%s%s", prefix, name);
    if (b->status != ST_OK) return IR_NONE;
    if (length < 0 || (size_t)length >= sizeof full)
        b->status = FAIL(ST_DOES_NOT_FIT, "the name '%s%.60s…' is longer than %d bytes", prefix,
                         name, NAME_BYTES - 1);
    else if (ir_graph_find(b->graph, full) != IR_NONE)
        b->status = FAIL(ST_INVALID,
                         "the model has a parameter, buffer or input named '%s', which "
                         "training needs for its own state",
                         full);
    return ir_b_buffer(b, full, type);
}

static ir_value_t number(ir_build_t *b, int64_t value) {
    return ir_b_constant(b, ir_type_scalar(IR_I64), &value, sizeof value);
}

double ad_loss_scale_first(double n_items) {
    double scale = AD_SCALE_FIRST;
    while (scale * n_items > AD_SCALE_FIRST && scale > LEAST_SCALE) scale /= 2;
    return scale;
}

st_status_t ad_loss_scale_open(ir_graph_t *graph, const ad_scaling_t *scaling, double n_items,
                               ad_loss_scale_t *out) {
    ir_build_t b = {.graph = graph};
    *out = (ad_loss_scale_t){IR_NONE, IR_NONE, IR_NONE};
    if (!scaling) return ST_OK;
    if (!scaling->dynamic) {
        /* a cast of a float is a demand to mixed precision: what is divided by the scale is so in
         * float32, or it would vanish */
        if (scaling->fixed != 0)
            out->scale = ir_b_cast(&b, ir_b_scalar(&b, IR_F64, scaling->fixed), IR_F32);
        return b.status;
    }
    const ir_type_t f32 = ir_type_scalar(IR_F32);
    out->state = ad_new_state(&b, "optim.", "loss_scale", f32);
    out->clean = ad_new_state(&b, "optim.", "loss_scale_clean", ir_type_scalar(IR_I64));
    ir_value_t none = ir_b_binary(&b, IR_OP_EQ, out->state, ir_b_scalar(&b, IR_F32, 0));
    ir_value_t first = ir_b_scalar(&b, IR_F32, ad_loss_scale_first(n_items));
    out->scale = ir_b_select(&b, none, first, out->state);
    return b.status;
}

void ad_loss_scale_close(ir_build_t *b, const ad_loss_scale_t *scale, ir_value_t finite) {
    ir_value_t skipped = ad_new_state(b, "optim.", "skipped", ir_type_scalar(IR_I64));
    ir_value_t now = ir_b_cast(b, ir_b_unary(b, IR_OP_LOGICAL_NOT, finite), IR_I64);
    ir_b_update(b, skipped, ir_b_binary(b, IR_OP_ADD, skipped, now));
    ir_b_output(b, "skipped", now);
    if (scale->scale != IR_NONE) ir_b_output(b, "loss_scale", scale->scale);
    if (scale->state == IR_NONE) return;
    ir_value_t half = ir_b_binary(b, IR_OP_MAXIMUM, ir_b_scale(b, scale->scale, 0.5),
                                  ir_b_scalar(b, IR_F32, LEAST_SCALE));
    ir_value_t twice = ir_b_scale(b, scale->scale, 2);
    ir_value_t fits = ir_b_binary(b, IR_OP_LT, twice, ir_b_scalar(b, IR_F32, INFINITY));
    twice = ir_b_select(b, fits, twice, scale->scale);
    ir_value_t clean = ir_b_binary(b, IR_OP_ADD, scale->clean, number(b, 1));
    ir_value_t grows = ir_b_binary(b, IR_OP_GE, clean, number(b, AD_SCALE_STEPS));
    ir_value_t kept = ir_b_select(b, grows, twice, scale->scale);
    ir_b_update(b, scale->state, ir_b_select(b, finite, kept, half));
    ir_value_t restart = ir_b_select(b, grows, number(b, 0), clean);
    ir_b_update(b, scale->clean, ir_b_select(b, finite, restart, number(b, 0)));
}

/* ---- updates of the forward graph ---- */

typedef struct guard {
    ir_value_t apply;
    ir_node_t producer;
} guard_t;

/* Updates before the flag's producer wait for it. */
static st_status_t rewrite(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                           ir_value_t *map) {
    const guard_t *guard = context;
    if (n < guard->producer && ir_node(from, n)->op == IR_OP_UPDATE) return ST_OK;
    TRY(ir_graph_clone_node(to, from, n, NULL, map));
    if (n != guard->producer) return ST_OK;
    ir_build_t b = {.graph = to};
    for (ir_node_t i = 0; i < n; i++) {
        const ir_node_info_t *node = ir_node(from, i);
        if (node->op != IR_OP_UPDATE) continue;
        ir_value_t old = map[node->inputs[0]], made = map[node->inputs[1]];
        to->phase = IR_PHASE_OPTIMIZER; /* it waits for the gradients, whatever it updates */
        ir_b_update(&b, old, ir_b_select(&b, map[guard->apply], made, old));
    }
    return b.status;
}

st_status_t ad_guard_updates(const ir_graph_t *graph, ir_value_t apply, ir_graph_t **out_graph) {
    guard_t guard = {apply, graph->values.data[apply].producer};
    return ir_graph_rewrite(graph, NULL, rewrite, &guard, out_graph);
}
