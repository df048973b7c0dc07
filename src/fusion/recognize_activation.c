/* Activations: sigmoid, silu, gelu (both forms).
 *
 * Rounding: the composites round once, where the chain rounds after each step. Their constants are
 * exact: a chain with sqrt(2) rounded to float32 differs from gelu by that rounding, in float64
 * too (1e-8 relative). sigmoid's chain and the op agree where exp(-x) overflows: both are 0. */
#include "fusion/patterns.h"

static const match_definition_t definitions[] = {
    {"square", "square(?x) | mul(?x, ?x) | pow(?x, 2)"},
    {"cube", "mul(?x, <square>) | pow(?x, 3)"},
    {"sigmoid", "sigmoid(?x) | reciprocal(<one_exp>) | div(1, <one_exp>)"},
    {"one_exp", "add(1, exp(neg(?x)))"},
    {"half", "mul(?x, 0.5) | div(?x, 2)"},
    {"erf", "add(1, erf(mul(?x, 0.7071067811865476) | div(?x, 1.4142135623730951)))"},
    {"inner",
     "mul(0.7978845608028654, add(?x, mul(0.044715, <cube>)))"
     "| mul(mul(?x, 0.7978845608028654), add(1, mul(0.044715, <square>)))"
     "| mul(?x, mul(0.7978845608028654, add(1, mul(0.044715, <square>))))"
     "| mul(?x, add(0.7978845608028654, mul(0.035677408136300125, <square>)))"},
    {"tanh", "add(1, tanh(<inner>))"},
    {0},
};

static st_status_t check(fuse_site_t *site, bool *out_accepted) {
    ir_value_t x = match_value(&site->match, "x");
    *out_accepted = ir_type_equal(site_type(site, x), &site->type);
    site_add(site, x);
    return ST_OK;
}

static ir_value_t build_sigmoid(const fuse_site_t *site, ir_build_t *b, const ir_value_t *in) {
    (void)site;
    return ir_b_unary(b, IR_OP_SIGMOID, in[0]);
}
static ir_value_t build_silu(const fuse_site_t *site, ir_build_t *b, const ir_value_t *in) {
    (void)site;
    return ir_b_unary(b, IR_OP_SILU, in[0]);
}
static ir_value_t build_gelu(const fuse_site_t *site, ir_build_t *b, const ir_value_t *in) {
    (void)site;
    return ir_b_unary(b, IR_OP_GELU, in[0]);
}
static ir_value_t build_gelu_tanh(const fuse_site_t *site, ir_build_t *b, const ir_value_t *in) {
    (void)site;
    return ir_b_node(b, IR_OP_GELU, 1, in, 1, (ir_arg_t[]){IR_ARG_BOOL("tanh", true)});
}

static const fuse_row_t rows[] = {
    {"mul(<half>, <erf>) | mul(?x, mul(0.5, <erf>)) | mul(?x, div(<erf>, 2))"
     "| mul(mul(?x, <erf>), 0.5) | div(mul(?x, <erf>), 2)",
     check, build_gelu},
    {"mul(<half>, <tanh>) | mul(?x, mul(0.5, <tanh>)) | mul(?x, div(<tanh>, 2))"
     "| mul(mul(?x, <tanh>), 0.5) | div(mul(?x, <tanh>), 2)",
     check, build_gelu_tanh},
    {"mul(?x, <sigmoid>) | div(?x, <one_exp>)", check, build_silu},
    {"reciprocal(<one_exp>) | div(1, <one_exp>)", check, build_sigmoid},
    {0},
};

const fuse_patterns_t fuse_patterns_activation = {definitions, rows};
