/* axis_index: the rank's coordinate on the mesh axis `mesh`. The lowering to ranks makes it, so
 * that ranks whose parts differ only in where they lie have one program. The runtime writes it
 * once, before the first step, like a constant. */
#include "ir/mesh.h"

static const ir_attr_spec_t attrs[] = {{"mesh", IR_ATTR_STRING, false, 0, IR_AXIS_DATA}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    (void)ctx;
    *out = ir_type_scalar(IR_I64);
    return ST_OK;
}

const ir_op_def_t ir_op_axis_index = {
    .op = IR_OP_AXIS_INDEX,
    .name = "axis_index",
    .min_inputs = 0,
    .max_inputs = 0,
    .n_outputs = 1,
    .flags = IR_SOURCE,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "zero",
    .strategies = ir_strategies_none,
};
