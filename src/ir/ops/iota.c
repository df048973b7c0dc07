/* iota: start + step * index along one axis. */
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {
    {"dtype", IR_ATTR_DTYPE, true, 0, NULL}, {"shape", IR_ATTR_INTS, true, 0, NULL},
    {"axis", IR_ATTR_INT, true, 0, NULL},    {"start", IR_ATTR_FLOAT, false, 0, NULL},
    {"step", IR_ATTR_FLOAT, false, 1, NULL}, {0},
};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    TRY(ir_shape_attributes(ctx, out));
    if (out->dtype == IR_BOOL)
        return FAIL(ST_INVALID, "bool cannot count: compare an integer iota");
    return ir_check_axis(ir_ctx_int(ctx, "axis"), out);
}

static st_status_t localize(const ir_op_ctx_t *global, const ir_part_t *in, const ir_part_t *out,
                            st_arena_t *arena, ir_attr_t *attrs) {
    TRY(ir_localize_shape(global, in, out, arena, attrs));
    if (out[0].placement.kind == IR_SPLIT && out[0].placement.dim == ir_ctx_int(global, "axis"))
        ir_attr_of(global->op, attrs, "start")->f +=
            ir_ctx_attr(global, "step")->f * (double)out[0].begin;
    return ST_OK;
}

const ir_op_def_t ir_op_iota = {
    .op = IR_OP_IOTA,
    .name = "iota",
    .min_inputs = 0,
    .max_inputs = 0,
    .n_outputs = 1,
    .flags = IR_SOURCE,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "zero",
    .strategies = ir_strategies_none,
    .localize = localize,
};
