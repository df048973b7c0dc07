/* reduce_scatter_start: begins to sum over the ranks of the mesh axis `mesh`, of which each keeps
 * its part, for each input by itself. The lowering to ranks makes it: input j is whole; output j
 * has this rank's part[j] of it along dim axis[j], whose size differs from rank to rank: the
 * granules from floor(r * granules[j] / n) to that of r + 1. The gradient of a gather. */
#include "ir/mesh.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"axis", IR_ATTR_INTS, true, 0, NULL},
                                       {"granules", IR_ATTR_INTS, true, 0, NULL},
                                       {"part", IR_ATTR_INTS, true, 0, NULL},
                                       {"mesh", IR_ATTR_STRING, false, 0, IR_AXIS_DATA},
                                       {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    TRY(ir_need_each(ctx, "part"));
    const int64_t *part = ir_ctx_attr(ctx, "part")->ints.v;
    for (uint32_t j = 0; j < ctx->n_inputs; j++) {
        int32_t axis;
        TRY(ir_check_number(ctx, j));
        TRY(ir_need_cut(ctx, j, &axis));
        TRY(ir_need_granules(ctx, j, ctx->in[j].dims[axis], part[j]));
        out[j] = ctx->in[j];
        out[j].dims[axis] = part[j];
    }
    return ST_OK;
}

const ir_op_def_t ir_op_reduce_scatter_start = {
    .op = IR_OP_REDUCE_SCATTER_START,
    .name = "reduce_scatter_start",
    .min_inputs = 1,
    .max_inputs = IR_VARIADIC,
    .n_outputs = IR_VARIADIC,
    .flags = IR_COLLECTIVE | IR_START,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "collective",
    .strategies = ir_strategies_collective,
};
