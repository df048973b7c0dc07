/* reduce_scatter_start: begins to sum over the ranks of the mesh axis `mesh`, of which each keeps its
 * part along dim `axis`. The lowering to ranks makes it: the input is whole; the output has this
 * rank's `part` of it, whose size differs from rank to rank: the granules from
 * floor(r * granules / n) to that of r + 1. The gradient of a gather. */
#include "ir/mesh.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"axis", IR_ATTR_INT, true, 0, NULL},
                                       {"granules", IR_ATTR_INT, true, 0, NULL},
                                       {"part", IR_ATTR_INT, true, 0, NULL},
                                       {"mesh", IR_ATTR_STRING, false, 0, IR_AXIS_DATA},
                                       {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    int32_t axis;
    TRY(ir_check_number(ctx, 0));
    TRY(ir_need_axis(ctx, &axis));
    const int64_t part = ir_ctx_int(ctx, "part");
    TRY(ir_need_granules(ctx, axis, ctx->in[0].dims[axis], part));
    out[0] = ctx->in[0];
    out[0].dims[axis] = part;
    return ST_OK;
}

const ir_op_def_t ir_op_reduce_scatter_start = {
    .op = IR_OP_REDUCE_SCATTER_START,
    .name = "reduce_scatter_start",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_COLLECTIVE | IR_START,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "collective",
    .strategies = ir_strategies_collective,
};
