/* random_uniform: numbers in [0, 1) that depend on seed, step, id and the element's global
 * row-major index only, so that ranks and recomputation draw the same. `begin` and `global` say
 * which window of the global tensor this is; both empty: all of it. The optional `part` puts the
 * global tensor after so many others like it: iterations of a repeat draw different numbers. */
#include "ir/op.h"

static const ir_attr_spec_t attrs[] = {
    {"dtype", IR_ATTR_DTYPE, true, 0, NULL},  {"shape", IR_ATTR_INTS, true, 0, NULL},
    {"id", IR_ATTR_INT, true, 0, NULL},       {"begin", IR_ATTR_INTS, false, 0, NULL},
    {"global", IR_ATTR_INTS, false, 0, NULL}, {0},
};

static st_status_t shape(const ir_op_ctx_t *ctx, ir_type_t *out) {
    char ta[IR_TYPE_TEXT_BYTES], tb[IR_TYPE_TEXT_BYTES];
    const ir_type_t counter = ir_type_scalar(IR_I64);
    TRY(ir_shape_attributes(ctx, out));
    if (!ir_type_equal(&ctx->in[0], &counter) || !ir_type_equal(&ctx->in[1], &counter))
        return FAIL(ST_INVALID, "seed is %s and step %s: two i64[] are needed",
                    ir_type_text(&ctx->in[0], ta, sizeof ta),
                    ir_type_text(&ctx->in[1], tb, sizeof tb));
    if (ctx->n_inputs > 2 && !ir_type_equal(&ctx->in[2], &counter))
        return FAIL(ST_INVALID, "part is %s: i64[] is needed",
                    ir_type_text(&ctx->in[2], ta, sizeof ta));
    if (!ir_dtype_is_float(out->dtype))
        return FAIL(ST_INVALID, "%s cannot hold numbers in [0, 1): a float type is needed",
                    ir_type_text(out, ta, sizeof ta));
    return ir_check_window(ctx, out);
}

static st_status_t localize(const ir_op_ctx_t *global, const ir_part_t *in, const ir_part_t *out,
                            st_arena_t *arena, ir_attr_t *attrs) {
    TRY(ir_localize_window(global, in, out, arena, attrs));
    return ir_localize_shape(global, in, out, arena, attrs);
}

const ir_op_def_t ir_op_random_uniform = {
    .op = IR_OP_RANDOM_UNIFORM,
    .name = "random_uniform",
    .min_inputs = 2,
    .max_inputs = 3,
    .n_outputs = 1,
    .flags = IR_RANDOM,
    .attrs = attrs,
    .shape = shape,
    .no_gradient = "zero",
    .strategies = ir_strategies_none,
    .localize = localize,
};
