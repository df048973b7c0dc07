/* all_to_all_start: begins to turn parts along dim `axis` of the ranks of the mesh axis `mesh` into
 * parts along dim `to`. The lowering to ranks makes it: the input has this rank's part of `axis`
 * and all of `to`, the output all of `axis`, its global size `extent`, and this rank's `part` of
 * `to`. Rank r's parts are the granules from floor(r * granules / n) to that of r + 1, of either
 * dim by its own number of them. */
#include "ir/mesh.h"
#include "ir/rules_nn.h"

static const ir_attr_spec_t attrs[] = {{"axis", IR_ATTR_INT, true, 0, NULL},
                                       {"granules", IR_ATTR_INT, true, 0, NULL},
                                       {"extent", IR_ATTR_INT, true, 0, NULL},
                                       {"to", IR_ATTR_INT, true, 0, NULL},
                                       {"to_granules", IR_ATTR_INT, true, 0, NULL},
                                       {"part", IR_ATTR_INT, true, 0, NULL},
                                       {"mesh", IR_ATTR_STRING, false, 0, IR_AXIS_DATA},
                                       {0}};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    int32_t axis;
    TRY(ir_need_axis(ctx, &axis));
    const int64_t extent = ir_ctx_int(ctx, "extent"), to = ir_ctx_int(ctx, "to");
    const int64_t part = ir_ctx_int(ctx, "part");
    TRY(ir_check_granules(axis, ir_ctx_int(ctx, "granules"), extent, ctx->in[0].dims[axis]));
    if (to < 0 || to >= ctx->in[0].rank || to == axis)
        return FAIL(ST_INVALID, "attribute 'to' is %lld; another dim than %d of %d is needed",
                    (long long)to, axis, ctx->in[0].rank);
    TRY(ir_check_granules(to, ir_ctx_int(ctx, "to_granules"), ctx->in[0].dims[to], part));
    out[0] = ctx->in[0];
    out[0].dims[axis] = extent;
    out[0].dims[to] = part;
    return ST_OK;
}

/* Under the split over another mesh axis: any dim but the two. */
static void strategies(const ir_op_ctx_t *ctx, ir_strategy_list_t *list) {
    const uint32_t both = 1u << ir_ctx_int(ctx, "axis") | 1u << ir_ctx_int(ctx, "to");
    ir_strategies_dims(ctx, list, ~both, 1u << 0, 1u << 0, 0);
    ir_strategies_linear(list, 0);
}

const ir_op_def_t ir_op_all_to_all_start = {
    .op = IR_OP_ALL_TO_ALL_START,
    .name = "all_to_all_start",
    .min_inputs = 1,
    .max_inputs = 1,
    .n_outputs = 1,
    .flags = IR_COLLECTIVE | IR_START,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "collective",
    .strategies = strategies,
};
