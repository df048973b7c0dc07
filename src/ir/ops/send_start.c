/* send_start: begins to give the input to the rank at coordinate `peer` of the mesh axis `mesh`,
 * and reads it until send_wait. The i-th send from one rank to another meets the i-th receive
 * there. The lowering to stages makes it; what is in flight has no elements: the data goes from
 * where it lies. */
#include "ir/mesh.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {
    {"peer", IR_ATTR_INT, true, 0, NULL}, {"mesh", IR_ATTR_STRING, false, 0, IR_AXIS_PIPE}, {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    TRY(ir_need_peer(ctx));
    out[0] = (ir_type_t){.dtype = IR_U8, .rank = 1};
    return ST_OK;
}

const ir_op_def_t ir_op_send_start = {
    .op = IR_OP_SEND_START,
    .name = "send_start",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_COLLECTIVE | IR_START,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "collective",
    .strategies = ir_strategies_none,
};
