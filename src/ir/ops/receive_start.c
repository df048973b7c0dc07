/* receive_start: begins to take what the rank at coordinate `peer` of the mesh axis `mesh` sends.
 * The lowering to stages makes it. */
#include "ir/mesh.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"dtype", IR_ATTR_DTYPE, true, 0, NULL},
                                       {"shape", IR_ATTR_INTS, true, 0, NULL},
                                       {"peer", IR_ATTR_INT, true, 0, NULL},
                                       {"mesh", IR_ATTR_STRING, false, 0, IR_AXIS_PIPE},
                                       {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    TRY(ir_need_peer(ctx));
    return ir_shape_attributes(ctx, out);
}

const ir_op_def_t ir_op_receive_start = {
    .op = IR_OP_RECEIVE_START,
    .name = "receive_start",
    .min_inputs = 0,
    .max_inputs = 0,
    .n_outputs = 1,
    .flags = IR_COLLECTIVE | IR_START,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "collective",
    .strategies = ir_strategies_none,
};
