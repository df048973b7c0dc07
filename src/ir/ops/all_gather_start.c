/* all_gather_start: begins to concatenate parts along a dim over the ranks of the mesh axis `mesh`,
 * for each input by itself. The lowering to ranks makes it: input j is this rank's part, whose size
 * differs from rank to rank; output j has the global size extent[j] along dim axis[j]. Rank r holds
 * the granules from floor(r * granules[j] / n) to that of r + 1. */
#include "ir/mesh.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"axis", IR_ATTR_INTS, true, 0, NULL},
                                       {"granules", IR_ATTR_INTS, true, 0, NULL},
                                       {"extent", IR_ATTR_INTS, true, 0, NULL},
                                       {"mesh", IR_ATTR_STRING, false, 0, IR_AXIS_DATA},
                                       {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    TRY(ir_need_each(ctx, "extent"));
    const int64_t *extent = ir_ctx_attr(ctx, "extent")->ints.v;
    for (uint32_t j = 0; j < ctx->n_inputs; j++) {
        int32_t axis;
        TRY(ir_need_cut(ctx, j, &axis));
        TRY(ir_need_granules(ctx, j, extent[j], ctx->in[j].dims[axis]));
        out[j] = ctx->in[j];
        out[j].dims[axis] = extent[j];
    }
    return ST_OK;
}

const ir_op_def_t ir_op_all_gather_start = {
    .op = IR_OP_ALL_GATHER_START,
    .name = "all_gather_start",
    .min_inputs = 1,
    .max_inputs = IR_VARIADIC,
    .n_outputs = IR_VARIADIC,
    .flags = IR_COLLECTIVE | IR_START,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "collective",
    .strategies = ir_strategies_collective,
};
