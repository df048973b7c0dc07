/* Shape rules of the contraction, composite, state and collective ops: what they infer, what they
 * refuse and in which words. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ir/body.h"
#include "ir/expand.h"
#include "ir/large_samples.h"
#include "ir/learning_rate.h"

/* A node to try: op, inputs, arguments. */
typedef struct trial {
    ir_op_t op;
    uint32_t n_in;
    ir_type_t in[8];
    size_t n_args;
    ir_arg_t args[8];
} trial_t;

#define F(...) LS_DIMS(F32, __VA_ARGS__)
/* Window attributes of one spatial dim. */
#define WINDOW1(stride, low, high, dilation)                                          \
    LS_INTS("strides", stride), LS_INTS("pads_low", low), LS_INTS("pads_high", high), \
        LS_INTS("dilations", dilation)
#define POOL1(kernel, stride, low, high)                                             \
    LS_INTS("kernel", kernel), LS_INTS("strides", stride), LS_INTS("pads_low", low), \
        LS_INTS("pads_high", high)

/* Adds the node over fresh inputs; output k's type comes back as text. */
static st_status_t try_node(const trial_t *trial, uint32_t k, char *text, size_t capacity) {
    ir_graph_t *graph;
    ir_value_t inputs[8], out = IR_NONE;
    assert_int_equal(ir_graph_create("test", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    for (uint32_t j = 0; j < trial->n_in; j++) {
        char name[16];
        snprintf(name, sizeof name, "in%u", j);
        inputs[j] = ir_b_buffer(&b, name, trial->in[j]);
    }
    if (b.status != ST_OK) fail_msg("%s", st_last_error());
    const size_t n_nodes = graph->nodes.n;
    st_status_t status =
        ir_graph_add(graph, trial->op, "it", trial->n_in, inputs, trial->n_args, trial->args, &out);
    if (status == ST_OK)
        ir_type_text(ir_value_type(graph, out + k), text, capacity);
    else
        assert_int_equal(graph->nodes.n, n_nodes);
    ir_graph_destroy(graph);
    return status;
}

static void gives(trial_t trial, uint32_t k, const char *expected) {
    char text[IR_TYPE_TEXT_BYTES];
    if (try_node(&trial, k, text, sizeof text) != ST_OK)
        fail_msg("%s: %s", ir_op_def(trial.op)->name, st_last_error());
    assert_string_equal(text, expected);
}

static void refuses(trial_t trial, const char *part) {
    char text[IR_TYPE_TEXT_BYTES];
    if (try_node(&trial, 0, text, sizeof text) == ST_OK)
        fail_msg("%s gives %s, expected an error with '%s'", ir_op_def(trial.op)->name, text, part);
    if (!strstr(st_last_error(), part) || !strstr(st_last_error(), "'it'"))
        fail_msg("'%s' lacks the node's name or '%s'", st_last_error(), part);
}

static void test_matmul(void **state) {
    (void)state;
    const ir_arg_t both[] = {IR_ARG_BOOL("transpose_a", true), IR_ARG_BOOL("transpose_b", true)};
    gives((trial_t){IR_OP_MATMUL, 2, {F(5, 1, 2, 4), F(3, 4, 6)}, 0, {{0}}}, 0, "f32[5,3,2,6]");
    gives((trial_t){IR_OP_MATMUL, 2, {F(4, 2), F(6, 4)}, 2, {both[0], both[1]}}, 0, "f32[2,6]");
    gives((trial_t){IR_OP_MATMUL, 2, {F(2, 0), F(0, 3)}, 0, {{0}}}, 0, "f32[2,3]");
    refuses((trial_t){IR_OP_MATMUL, 2, {F(2, 4), F(5, 3)}, 0, {{0}}},
            "f32[2,4] and f32[5,3] do not multiply: inner dims are 4 and 5");
    refuses((trial_t){IR_OP_MATMUL, 2, {F(2, 3, 4), F(5, 4, 3)}, 0, {{0}}},
            "f32[2,3,4] times f32[5,4,3]");
    refuses((trial_t){IR_OP_MATMUL, 2, {F(4), F(4, 3)}, 0, {{0}}}, "ranks of at least 2");
    refuses((trial_t){IR_OP_MATMUL, 2, {LS_DIMS(F16, 2, 4), F(4, 3)}, 0, {{0}}},
            "f16[2,4] and f32[4,3]: one float type");
    refuses((trial_t){IR_OP_MATMUL, 2, {LS_DIMS(I32, 2, 4), LS_DIMS(I32, 4, 3)}, 0, {{0}}},
            "float type");
}

static void test_conv(void **state) {
    (void)state;
    const trial_t fine = {
        IR_OP_CONV, 2, {F(2, 4, 9), F(6, 2, 3)}, 5, {WINDOW1(2, 1, 0, 1), IR_ARG_INT("groups", 2)}};
    gives(fine, 0, "f32[2,6,4]");
    trial_t bad = fine;
    bad.args[4] = IR_ARG_INT("groups", 3);
    refuses(bad, "do not fit 3 groups");
    bad.args[4] = IR_ARG_INT("groups", 0);
    refuses(bad, "do not fit 0 groups");
    bad = fine;
    bad.args[0] = LS_INTS("strides", 0);
    refuses(bad, "strides[0] is 0");
    bad.args[0] = LS_INTS("strides", 1, 1);
    refuses(bad, "strides has 2 entries");
    bad = fine;
    bad.args[3] = LS_INTS("dilations", 5);
    refuses(bad, "a window covers 11 positions (kernel 3, dilation 5), the padded input has 10");
    bad.args[3] = LS_INTS("dilations", INT64_MAX);
    refuses(bad, "the limit is");
    bad = fine;
    bad.args[1] = LS_INTS("pads_low", -1);
    refuses(bad, "pads_low[0] is -1");
    bad = fine;
    bad.in[1] =
        (ir_type_t){.dtype = IR_F32}; /* a weight of rank 0 is refused, not read past its end */
    refuses(bad, "weight f32[]");
    bad = fine;
    bad.n_in = 3;
    bad.in[2] = (ir_type_t)F(5);
    refuses(bad, "bias is f32[5], expected f32[6]");
    refuses(
        (trial_t){
            IR_OP_CONV, 2, {F(1, 1, 1, 1, 1, 1), F(1, 1, 1, 1, 1, 1)}, 4, {WINDOW1(1, 0, 0, 1)}},
        "4 spatial dims given");
    /* the stride's remainder: the last position exists although no window reaches it */
    gives((trial_t){IR_OP_CONV_GRAD_INPUT,
                    2,
                    {F(1, 1, 2), F(1, 1, 3)},
                    5,
                    {WINDOW1(2, 0, 0, 1), LS_INTS("spatial", 6)}},
          0, "f32[1,1,6]");
    refuses((trial_t){IR_OP_CONV_GRAD_INPUT,
                      2,
                      {F(1, 1, 2), F(1, 1, 3)},
                      5,
                      {WINDOW1(2, 0, 0, 1), LS_INTS("spatial", 7)}},
            "gives 3 in spatial dim 0, not 2");
    gives((trial_t){IR_OP_CONV_GRAD_WEIGHT,
                    2,
                    {F(2, 4, 9), F(2, 6, 4)},
                    6,
                    {WINDOW1(2, 1, 0, 1), IR_ARG_INT("groups", 2), LS_INTS("kernel", 3)}},
          0, "f32[6,2,3]");
}

/* A last window that starts in the padding is dropped in ceil mode: 3 windows each, the plain
 * formula gives 4. */
static void test_pool(void **state) {
    (void)state;
    const ir_arg_t ceil = IR_ARG_BOOL("ceil", true), count = IR_ARG_BOOL("count_pad", true);
    gives((trial_t){IR_OP_AVG_POOL, 1, {F(1, 1, 9)}, 5, {POOL1(4, 4, 2, 2), ceil}}, 0,
          "f32[1,1,3]");
    gives(
        (trial_t){
            IR_OP_MAX_POOL, 1, {F(1, 1, 5)}, 6, {POOL1(2, 2, 1, 1), LS_INTS("dilations", 1), ceil}},
        0, "f32[1,1,3]");
    gives(
        (trial_t){IR_OP_MAX_POOL, 1, {F(1, 1, 5)}, 5, {POOL1(2, 2, 1, 1), LS_INTS("dilations", 1)}},
        1, "i32[1,1,3]");
    /* windows in the padding only: fine where padding counts, refused where they would be 0 / 0 or
     * -inf */
    gives((trial_t){IR_OP_AVG_POOL, 1, {F(1, 1, 5)}, 5, {POOL1(2, 2, 2, 3), count}}, 0,
          "f32[1,1,5]");
    refuses((trial_t){IR_OP_AVG_POOL, 1, {F(1, 1, 5)}, 4, {POOL1(2, 2, 2, 3)}},
            "in the padding only");
    refuses(
        (trial_t){IR_OP_MAX_POOL, 1, {F(1, 1, 1)}, 5, {POOL1(2, 1, 1, 1), LS_INTS("dilations", 2)}},
        "in the padding only");
    refuses(
        (trial_t){IR_OP_MAX_POOL, 1, {F(1, 9)}, 5, {POOL1(2, 2, 1, 1), LS_INTS("dilations", 1)}},
        "0 spatial dims");
    refuses((trial_t){IR_OP_MAX_POOL_GRAD,
                      2,
                      {F(1, 1, 3), LS_DIMS(I64, 1, 1, 3)},
                      1,
                      {LS_INTS("spatial", 5)}},
            "index is i64[1,1,3], expected i32[1,1,3]");
}

static void test_attention(void **state) {
    (void)state;
    trial_t fine = {IR_OP_ATTENTION,
                    4,
                    {F(2, 4, 3, 8), F(2, 2, 5, 8), F(2, 2, 5, 6), LS_DIMS(BOOL, 3, 5)},
                    0,
                    {{0}}};
    gives(fine, 0, "f32[2,4,3,6]");
    gives(fine, 1, "f32[2,4,3]");
    trial_t bad = fine;
    bad.in[1] = bad.in[2] = (ir_type_t)F(2, 3, 5, 8);
    refuses(bad, "H a multiple of G");
    bad = fine;
    bad.in[3] = (ir_type_t)LS_DIMS(BOOL, 4, 5);
    refuses(bad, "mask bool[4,5]");
    bad.in[3] = (ir_type_t)LS_DIMS(F64, 3, 5);
    refuses(bad, "mask f64[3,5]");
    bad.in[3] = (ir_type_t)LS_DIMS(BOOL, 7, 2, 4, 3, 5);
    refuses(bad, "mask bool[7,2,4,3,5]");
    bad = fine;
    bad.n_args = 1;
    bad.args[0] = IR_ARG_INT("offset", INT64_MIN);
    refuses(bad, "offset -9223372036854775808 is beyond");
    bad.args[0] = IR_ARG_INT("offset", -7);
    gives(bad, 0, "f32[2,4,3,6]");
}

static void test_rows(void **state) {
    (void)state;
    refuses((trial_t){IR_OP_SOFTMAX, 1, {F(2, 3)}, 1, {IR_ARG_INT("axis", 2)}},
            "axis 2 is not a dim of f32[2,3]");
    refuses((trial_t){IR_OP_SOFTMAX, 1, {LS_ONE(F32)}, 1, {IR_ARG_INT("axis", 0)}}, "axis 0");
    gives((trial_t){IR_OP_LAYER_NORM, 3, {F(2, 3, 4), F(3, 4), F(3, 4)}, 0, {{0}}}, 1, "f32[2]");
    refuses((trial_t){IR_OP_LAYER_NORM, 3, {F(2, 3, 4), F(3), F(3)}, 0, {{0}}},
            "x f32[2,3,4] and weight f32[3]");
    refuses((trial_t){IR_OP_RMS_NORM, 2, {F(2, 3), F(2)}, 0, {{0}}},
            "x f32[2,3] and weight f32[2]");
    refuses((trial_t){IR_OP_ROPE, 3, {F(1, 2, 3, 5), F(3, 2), F(3, 2)}, 0, {{0}}}, "even number");
    refuses((trial_t){IR_OP_ROPE, 3, {F(1, 2, 3, 4), F(3, 2), F(4, 2)}, 0, {{0}}},
            "sin is f32[4,2], expected f32[3,2]");
    gives((trial_t){IR_OP_CROSS_ENTROPY, 2, {F(5, 3), LS_DIMS(I64, 5)}, 0, {{0}}}, 1, "f32[]");
    refuses((trial_t){IR_OP_CROSS_ENTROPY, 2, {F(5, 3), LS_DIMS(I64, 4)}, 0, {{0}}},
            "logits f32[5,3] and labels i64[4]");
    refuses((trial_t){IR_OP_CROSS_ENTROPY,
                      2,
                      {F(5, 3), LS_DIMS(I64, 5)},
                      1,
                      {IR_ARG_FLOAT("smoothing", NAN)}},
            "smoothing");
    refuses((trial_t){IR_OP_CROSS_ENTROPY, 3, {F(5, 3), LS_DIMS(I64, 5), F(5)}, 0, {{0}}},
            "class weight is f32[5], expected f32[3]");
    refuses((trial_t){IR_OP_BATCH_NORM, 5, {F(1, 3), F(3), F(3), F(3), F(3)}, 0, {{0}}},
            "at least two values a channel, there are 1");
    gives(
        (trial_t){
            IR_OP_BATCH_NORM, 5, {F(1, 3), F(3), F(3), F(3), F(3)}, 1, {IR_ARG_BOOL("train", 0)}},
        4, "f32[3]");
    refuses((trial_t){IR_OP_BATCH_NORM, 5, {F(2, 3), F(3), F(3), F(3), F(2)}, 0, {{0}}},
            "running variance is f32[2], expected f32[3]");
    refuses((trial_t){IR_OP_DROPOUT,
                      3,
                      {F(2, 3), LS_ONE(I64), LS_ONE(I64)},
                      2,
                      {IR_ARG_FLOAT("p", 1.5), IR_ARG_INT("id", 0)}},
            "p is 1.5");
}

static void test_state(void **state) {
    (void)state;
    const ir_type_t p = F(2, 3), lr = LS_ONE(F64), scale = LS_ONE(F32), step = LS_ONE(I64);
    gives((trial_t){IR_OP_SGD, 4, {p, p, lr, scale}, 0, {{0}}}, 1, "f32[]");
    gives((trial_t){IR_OP_SGD, 5, {p, p, lr, scale, p}, 1, {IR_ARG_FLOAT("momentum", 0.9)}}, 1,
          "f32[2,3]");
    refuses((trial_t){IR_OP_SGD, 4, {p, p, lr, scale}, 1, {IR_ARG_FLOAT("momentum", 0.9)}},
            "momentum buffer");
    refuses((trial_t){IR_OP_SGD, 4, {p, p, lr, scale}, 1, {IR_ARG_BOOL("nesterov", true)}},
            "nesterov");
    refuses((trial_t){IR_OP_SGD, 4, {p, p, scale, scale}, 0, {{0}}}, "lr is f32[], expected f64[]");
    gives((trial_t){IR_OP_ADAMW, 7, {p, p, p, p, lr, step, scale}, 0, {{0}}}, 2, "f32[2,3]");
    refuses((trial_t){IR_OP_ADAMW, 7, {p, p, p, p, lr, step, scale}, 1, {IR_ARG_FLOAT("beta2", 1)}},
            "betas");
    refuses((trial_t){IR_OP_ADAMW, 7, {p, (ir_type_t)F(3, 2), p, p, lr, step, scale}, 0, {{0}}},
            "gradient is f32[3,2], expected f32[2,3]");
    refuses((trial_t){IR_OP_UPDATE, 2, {p, (ir_type_t)F(3, 2)}, 0, {{0}}},
            "value is f32[3,2], expected f32[2,3]");
    refuses((trial_t){IR_OP_LR_SCHEDULE,
                      1,
                      {step},
                      2,
                      {IR_ARG_STRING("kind", "sine"), IR_ARG_FLOAT("base", 1)}},
            "schedule 'sine' is not known");
    gives((trial_t){IR_OP_ALL_REDUCE_START, 2, {p, scale}, 0, {{0}}}, 1, "f32[]");
    const int64_t zero = 0, five = 5, seven = 7, fifteen = 15;
    const ir_arg_t axis = IR_ARG_INTS("axis", &zero, 1),
                   granules = IR_ARG_INTS("granules", &five, 1);
    gives(
        (trial_t){
            IR_OP_ALL_GATHER_START, 1, {p}, 3, {axis, granules, IR_ARG_INTS("extent", &five, 1)}},
        0, "f32[5,3]");
    refuses((trial_t){IR_OP_ALL_GATHER_START,
                      1,
                      {p},
                      3,
                      {axis, granules, IR_ARG_INTS("extent", &fifteen, 1)}},
            "no whole number of granules of 3");
    refuses(
        (trial_t){
            IR_OP_ALL_GATHER_START, 1, {p}, 3, {axis, granules, IR_ARG_INTS("extent", &seven, 1)}},
        "5 equal granules");
    refuses((trial_t){IR_OP_ALL_GATHER_START,
                      2,
                      {p, p},
                      3,
                      {axis, granules, IR_ARG_INTS("extent", &five, 1)}},
            "attribute 'axis' has 1 entries for 2 inputs");
    const int64_t both[2] = {0, 1}, cuts[2] = {5, 3}, sizes[2] = {5, 9};
    gives((trial_t){IR_OP_ALL_GATHER_START,
                    2,
                    {p, p},
                    3,
                    {IR_ARG_INTS("axis", both, 2), IR_ARG_INTS("granules", cuts, 2),
                     IR_ARG_INTS("extent", sizes, 2)}},
          1, "f32[2,9]");
}

/* Values from the formulas in learning_rate.h. */
static void test_learning_rate(void **state) {
    (void)state;
    const ir_rate_t cosine = {IR_RATE_COSINE, 1.0, 0.1, 4, 14};
    const ir_rate_t linear = {IR_RATE_LINEAR, 1.0, 0.0, 0, 4};
    const struct {
        const ir_rate_t *rate;
        int64_t step;
        double expected;
    } cases[] = {{&cosine, 1, 0.25}, {&cosine, 4, 1},    {&cosine, 5, 1}, {&cosine, 10, 0.55},
                 {&cosine, 15, 0.1}, {&cosine, 99, 0.1}, {&linear, 1, 1}, {&linear, 2, 0.75},
                 {&linear, 4, 0.25}, {&linear, 5, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (!(fabs(ir_rate_at(cases[i].rate, cases[i].step) - cases[i].expected) <= 1e-15))
            fail_msg("case %zu: %.17g, expected %.17g", i, ir_rate_at(cases[i].rate, cases[i].step),
                     cases[i].expected);
    assert_int_equal(ir_rate_check(&cosine), ST_OK);
    assert_int_equal(ir_rate_check(&(ir_rate_t){IR_RATE_COSINE, 1.0, 0.1, 4, 4}), ST_INVALID);
    assert_int_equal(ir_rate_check(&(ir_rate_t){IR_RATE_CONSTANT, NAN, 0, 0, 0}), ST_INVALID);
}

/* Whatever the inputs' ranks and types are, a rule answers with types or an error and reads within
 * bounds. */
static void test_any_types(void **state) {
    (void)state;
    const ir_type_t odd[] = {LS_ONE(F32),
                             LS_ONE(BOOL),
                             F(0),
                             F(1, 1),
                             F(2, 3, 4),
                             F(0, 1, 2, 3),
                             LS_DIMS(I64, 3),
                             F(1, 1, 1, 1, 1, 1, 1, 1)};
    const size_t n_odd = sizeof odd / sizeof odd[0];
    ir_graph_t *body;
    assert_int_equal(ir_graph_create("", &body), ST_OK);
    ir_build_t b = {.graph = body};
    ir_b_body_output(&b, ir_b_unary(&b, IR_OP_NEG, ir_b_body_input(&b, &odd[4])));
    assert_int_equal(b.status, ST_OK);
    for (int op = IR_OP_MATMUL; op < IR_OP_END; op++) {
        const ir_op_def_t *def = ir_op_def((ir_op_t)op);
        if (!def) continue;
        ir_attr_t attrs[8];
        static const int64_t ones[IR_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
        uint32_t n_attrs = ir_op_n_attrs(def);
        for (size_t round = 0; round < n_odd * n_odd * 4; round++) {
            ir_type_t in[8], out[8];
            uint32_t n_in =
                (uint32_t)def->min_inputs + (def->max_inputs > def->min_inputs && round % 2);
            for (uint32_t j = 0; j < n_in; j++)
                in[j] = odd[(j == 0 ? round : j == 1 ? round / n_odd : j * round) % n_odd];
            for (uint32_t i = 0; i < n_attrs; i++) {
                attrs[i] = (ir_attr_t){.kind = def->attrs[i].kind, .i = 1};
                if (def->attrs[i].kind == IR_ATTR_FLOAT) attrs[i].f = 0.5;
                if (def->attrs[i].kind == IR_ATTR_STRING) attrs[i].s = "linear";
                if (def->attrs[i].kind == IR_ATTR_GRAPH) attrs[i].graph = body;
                if (def->attrs[i].kind == IR_ATTR_INTS) {
                    attrs[i].ints.v = ones;
                    attrs[i].ints.n = (uint32_t)(round % 4);
                }
            }
            ir_op_ctx_t ctx = {(ir_op_t)op, n_in, ir_op_n_outputs(def, n_in, attrs), in, attrs, ""};
            if (def->shape(&ctx, out) != ST_OK) continue;
            for (uint32_t k = 0; k < ctx.n_outputs; k++)
                assert_int_equal(ir_type_check(&out[k]), ST_OK);
        }
    }
    ir_graph_destroy(body);
}

static uint32_t n_found;

static void look_into_sample(const large_sample_t *sample) {
    ir_graph_t *graph, *expanded;
    ir_value_t inputs[8], out = IR_NONE;
    if (!ir_op_def(sample->op)->expand) return;
    assert_int_equal(ir_graph_create("test", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    for (uint32_t j = 0; j < sample->n_inputs; j++) {
        char name[16];
        snprintf(name, sizeof name, "in%u", j);
        inputs[j] = ir_b_buffer(&b, name, sample->in[j]);
    }
    out = ir_b_node(&b, sample->op, sample->n_inputs, inputs, sample->n_args, sample->args);
    ir_b_output(&b, "first", out);
    ir_b_output(&b, "second", out + 1);
    assert_int_equal(b.status, ST_OK);
    if (ir_expand_composites(graph, ir_expand_any, &expanded) != ST_OK)
        fail_msg("%s", st_last_error());
    for (ir_node_t i = 0; i < expanded->nodes.n; i++)
        assert_null(ir_op_def(ir_node(expanded, i)->op)->expand);
    const ir_value_t second = ir_graph_find_output(expanded, "second");
    assert_true(ir_type_equal(ir_value_type(graph, out + 1), ir_value_type(expanded, second)));
    assert_int_equal(expanded->outputs.n, 2);
    assert_int_not_equal(ir_graph_find(expanded, "in0"), IR_NONE);
    ir_graph_destroy(expanded);
    ir_graph_destroy(graph);
    n_found++;
}

static void test_expand(void **state) {
    (void)state;
    n_found = 0;
    large_samples_each(look_into_sample);
    assert_true(n_found >= 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),        cmocka_unit_test(test_conv),
        cmocka_unit_test(test_pool),          cmocka_unit_test(test_attention),
        cmocka_unit_test(test_rows),          cmocka_unit_test(test_state),
        cmocka_unit_test(test_learning_rate), cmocka_unit_test(test_any_types),
        cmocka_unit_test(test_expand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
