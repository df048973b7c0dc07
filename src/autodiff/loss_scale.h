/* Loss scaling and skipped steps, all on the device.
 *
 * The loss's gradient starts at `scale` instead of 1, so that small gradients stay within f16; what
 * divides them again is the scalar that the optimizers multiply by anyway. A step whose gradients'
 * norm is not finite changes no state.
 *
 * State, buffers that start at zero:
 *   optim.loss_scale         f32[]: 0 until the first step, which takes AD_SCALE_FIRST; of
 *                            micro-batches, whose gradients are those of a sum and divided later,
 *                            that divided by the number of its items, up to a power of 2
 *   optim.loss_scale_clean   i64[]: steps since the scale changed
 *   optim.skipped            i64[]: steps that were skipped
 *
 *   not finite: scale' = max(scale / 2, 2^-24), clean' = 0
 *   finite:     clean' = clean + 1; at AD_SCALE_STEPS of them scale' = 2 · scale where that is
 *               finite, clean' = 0 */
#ifndef STATOR_AUTODIFF_LOSS_SCALE_H
#define STATOR_AUTODIFF_LOSS_SCALE_H

#include "ir/build.h"

#define AD_SCALE_FIRST 65536.0
enum { AD_SCALE_STEPS = 2000 };

typedef struct ad_scaling {
    bool dynamic; /* needs skipping */
    double fixed; /* factor where not dynamic; 0: none */
    bool skip;    /* steps with a gradient that is not finite */
} ad_scaling_t;

/* Scale of the step that is being built. */
typedef struct ad_loss_scale {
    ir_value_t scale;        /* f32[]; IR_NONE: 1 */
    ir_value_t state, clean; /* buffers, IR_NONE unless dynamic */
} ad_loss_scale_t;

/* New zero-initialized state "<prefix><name>"; FAILs where the model has that name. */
ir_value_t ad_new_state(ir_build_t *b, const char *prefix, const char *name, ir_type_t type);

/* Before the backward pass. `scaling` NULL: none. `n_items`: those whose sum takes the place of
 * their mean; 1: the loss is as it is. */
st_status_t ad_loss_scale_open(ir_graph_t *graph, const ad_scaling_t *scaling, double n_items,
                               ad_loss_scale_t *out) ST_WARN_UNUSED;
/* The scale of the first step. */
double ad_loss_scale_first(double n_items);
/* After the norm: the next scale, and the count of skipped steps. `finite` bool[]: the step counts.
 */
void ad_loss_scale_close(ir_build_t *b, const ad_loss_scale_t *scale, ir_value_t finite);

/* Moves the updates that stand before `apply` (bool[]) behind it and lets them change their state
 * only where it is true: running statistics. The others have it in their values already. */
st_status_t ad_guard_updates(const ir_graph_t *graph, ir_value_t apply,
                             ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
