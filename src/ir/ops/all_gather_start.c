/* all_gather_start: begins to concatenate the parts along dim `axis` of the ranks of the mesh axis
 * `mesh`. The lowering to ranks makes it: the input is this rank's part, whose size differs from rank to rank; the output has the
 * global size `extent`. Rank r holds the granules from floor(r * granules / n) to that of r + 1. */
#include "ir/mesh.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"axis", IR_ATTR_INT, true, 0, NULL},
                                       {"granules", IR_ATTR_INT, true, 0, NULL},
                                       {"extent", IR_ATTR_INT, true, 0, NULL},
                                       {"mesh", IR_ATTR_STRING, false, 0, IR_AXIS_DATA},
                                       {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    int32_t axis;
    TRY(ir_need_axis(ctx, &axis));
    const int64_t extent = ir_ctx_int(ctx, "extent");
    TRY(ir_need_granules(ctx, axis, extent, ctx->in[0].dims[axis]));
    out[0] = ctx->in[0];
    out[0].dims[axis] = extent;
    return ST_OK;
}

const ir_op_def_t ir_op_all_gather_start = {
    .op = IR_OP_ALL_GATHER_START,
    .name = "all_gather_start",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_COLLECTIVE | IR_START,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "collective",
    .strategies = ir_strategies_collective,
};
