/* ATen operators: each imported from a small archive, run with the reference kernels, and compared
 * with numbers worked out from PyTorch's definition. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "import/aten.h"
#include "pt2_make.h"

#define D(...) ((const double[]){__VA_ARGS__})
enum { MAX_FEEDS = 4 };

/* Inputs "x:f32[2,3]" with their values. */
typedef struct op_case {
    const char *target, *arguments, *results;
    const char *inputs[MAX_FEEDS];
    const double *feeds[MAX_FEEDS];
    const char *output, *type; /* expected */
    const double *values;
} op_case_t;

static import_result_t *import_case(const op_case_t *c, feed_t feeds[MAX_FEEDS], size_t *n_feeds,
                                    uint8_t **file) {
    static char names[MAX_FEEDS][16];
    pt2_maker_t m = {0};
    size_t bytes;
    *n_feeds = 0;
    for (int i = 0; i < MAX_FEEDS && c->inputs[i]; i++) {
        const char *colon = strchr(c->inputs[i], ':');
        snprintf(names[i], sizeof names[i], "%.*s", (int)(colon - c->inputs[i]), c->inputs[i]);
        pt2_input(&m, names[i], colon + 1);
        feeds[(*n_feeds)++] = (feed_t){names[i], c->feeds[i]};
    }
    pt2_node(&m, c->target, c->arguments, c->results);
    pt2_output(&m, c->output);
    *file = pt2_finish(&m, &bytes);
    import_result_t *result = NULL;
    return import_memory(*file, bytes, "case", NULL, &result) == ST_OK ? result : NULL;
}

static void check_values(const char *what, const double *got, const double *want, size_t n) {
    for (size_t i = 0; i < n; i++) {
        bool same = got[i] == want[i] || (isnan(want[i]) && isnan(got[i])) ||
                    fabs(got[i] - want[i]) <= 2e-6 * (1 + fabs(want[i]));
        if (!same) fail_msg("%s: element %zu is %.9g, expected %.9g", what, i, got[i], want[i]);
    }
}

static void check(const op_case_t *c) {
    feed_t feeds[MAX_FEEDS];
    size_t n_feeds;
    uint8_t *file;
    import_result_t *result = import_case(c, feeds, &n_feeds, &file);
    if (!result) fail_msg("%s: %s", c->target, st_last_error());
    ir_type_t type, want = type_of(c->type);
    const char *output = result->graph->outputs.data[0].name; /* "loss" where it is a scalar */
    double *values = run_graph(result, feeds, n_feeds, output, &type);
    char text[IR_TYPE_TEXT_BYTES];
    if (!ir_type_equal(&type, &want))
        fail_msg("%s: %s, expected %s", c->target, ir_type_text(&type, text, sizeof text), c->type);
    check_values(c->target, values, c->values, (size_t)ir_type_elements(&type));
    free(values);
    import_result_destroy(result);
    free(file);
}

static void check_fails(const op_case_t *c, const char *text) {
    feed_t feeds[MAX_FEEDS];
    size_t n_feeds;
    uint8_t *file;
    st_clear_error();
    import_result_t *result = import_case(c, feeds, &n_feeds, &file);
    if (result) fail_msg("%s was imported, expected '%s'", c->target, text);
    if (!strstr(st_last_error(), text))
        fail_msg("%s: '%s', expected '%s'", c->target, st_last_error(), text);
    free(file);
}

#define X23                 \
    {"x:f32[2,3]"}, {       \
        D(1, 2, 3, 4, 5, 6) \
    }
#define CASE(...) check(&(op_case_t){__VA_ARGS__})
#define REFUSED(text, ...) check_fails(&(op_case_t){__VA_ARGS__}, text)

/* torch.promote_types and torch.result_type, as PyTorch documents them. */
static void test_promotion(void **state) {
    (void)state;
    assert_int_equal(aten_promote(IR_F16, IR_BF16), IR_F32);
    assert_int_equal(aten_promote(IR_I64, IR_F16), IR_F16);
    assert_int_equal(aten_promote(IR_BOOL, IR_U8), IR_U8);
    assert_int_equal(aten_promote(IR_I32, IR_I64), IR_I64);
    assert_int_equal(aten_promote(IR_F32, IR_F64), IR_F64);
    assert_int_equal(aten_promote(IR_F8E4M3, IR_F32), IR_DTYPE_NONE);
    assert_int_equal(aten_promote(IR_U8, IR_I8), IR_DTYPE_NONE);
    for (ir_dtype_t x = 1; x < IR_DTYPE_END; x++) /* it commutes */
        for (ir_dtype_t y = 1; y < IR_DTYPE_END; y++)
            if (ir_dtype_valid(x) && ir_dtype_valid(y))
                assert_int_equal(aten_promote(x, y), aten_promote(y, x));
    static const struct {
        const char *x, *y, *arguments, *type;
    } rows[] = {
        {"x:bf16[2]", "y:f64[]", "self=%x other=%y", "bf16[2]"},
        {"x:i64[2]", "y:f64[]", "self=%x other=%y", "f64[2]"},
        {"x:i64[2]", "y:f16[]", "self=%x other=%y", "f16[2]"},
        {"x:f16[2]", "y:f32[2]", "self=%x other=%y", "f32[2]"},
        {"x:i32[2]", "y:i64[]", "self=%x other=%y", "i32[2]"},
        {"x:f32[]", "y:f64[]", "self=%x other=%y", "f64[]"},
        {"x:i64[2]", "y:f32[]", "self=%x other=2", "i64[2]"},
        {"x:i64[2]", "y:f32[]", "self=%x other=2.5", "f32[2]"},
        {"x:bf16[2]", "y:f32[]", "self=%x other=2.5", "bf16[2]"},
        {"x:i32[2]", "y:f32[]", "self=%x other=2", "i32[2]"},
        {"x:u8[2]", "y:bool[2]", "self=%x other=%y", "u8[2]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool scalar = strstr(rows[i].arguments, "other=2") != NULL;
        double other = scalar && strstr(rows[i].arguments, "2.5") ? 2.5 : scalar ? 2 : 1;
        op_case_t c = {"add.Tensor",           rows[i].arguments,      "z",
                       {rows[i].x, rows[i].y}, {D(1, 2), D(1, 1)},     "z",
                       rows[i].type,           D(1 + other, 2 + other)};
        check(&c);
    }
    /* 0.1 and -0.1 in bf16 cancel exactly */
    CASE("add.Tensor", "self=%x other=%y", "z", {"x:bf16[1]", "y:f64[]"}, {D(0.1), D(-0.1)}, "z",
         "bf16[1]", D(0));
    REFUSED("no common type", "add.Tensor", "self=%x other=%y", "z", {"x:u8[2]", "y:i8[2]"},
            {D(1, 2), D(1, 1)}, "z", NULL, NULL);
    REFUSED("needs one type", "matmul.default", "self=%x other=%y", "z",
            {"x:f16[2,2]", "y:f32[2,2]"}, {D(1, 2, 3, 4), D(1, 2, 3, 4)}, "z", NULL, NULL);
}

static void test_arithmetic(void **state) {
    (void)state;
    CASE("sub.Tensor", "self=%x other=%y alpha=2", "z", {"x:f32[2]", "y:f32[2]"},
         {D(5, 7), D(1, 2)}, "z", "f32[2]", D(3, 3));
    CASE("rsub.Scalar", "self=%x other=10", "z", {"x:f32[2]"}, {D(5, 7)}, "z", "f32[2]", D(5, 3));
    CASE("div.Tensor", "self=%x other=%y", "z", {"x:i64[2]", "y:i64[2]"}, {D(7, -7), D(2, 2)}, "z",
         "f32[2]", D(3.5, -3.5));
    CASE("div.Tensor_mode", "self=%x other=%y rounding_mode='floor'", "z", {"x:i64[3]", "y:i64[3]"},
         {D(7, -7, 6), D(2, 2, -4)}, "z", "i64[3]", D(3, -4, -2));
    CASE("div.Tensor_mode", "self=%x other=%y rounding_mode='trunc'", "z", {"x:f32[2]", "y:f32[2]"},
         {D(7, -7), D(2, 2)}, "z", "f32[2]", D(3, -3));
    CASE("pow.Tensor_Scalar", "self=%x exponent=3", "z", {"x:i64[2]"}, {D(2, -3)}, "z", "i64[2]",
         D(8, -27));
    CASE("pow.Tensor_Scalar", "self=%x exponent=-0.5", "z", {"x:f32[2]"}, {D(4, 16)}, "z", "f32[2]",
         D(0.5, 0.25));
    CASE("pow.Scalar", "self=2 exponent=%x", "z", {"x:f32[2]"}, {D(3, -1)}, "z", "f32[2]",
         D(8, 0.5));
    CASE("remainder.Scalar", "self=%x other=3", "z", {"x:i64[2]"}, {D(7, -7)}, "z", "i64[2]",
         D(1, 2));
    CASE("clamp.default", "self=%x min=0 max=None", "z", {"x:f32[3]"}, {D(-1, 2, NAN)}, "z",
         "f32[3]", D(0, 2, NAN));
    CASE("clamp.default", "self=%x max=2.5", "z", {"x:i64[2]"}, {D(1, 4)}, "z", "f32[2]",
         D(1, 2.5));
    CASE("exp.default", "self=%x", "z", {"x:i64[2]"}, {D(0, 1)}, "z", "f32[2]", D(1, 2.718281828));
    CASE("mul.Tensor", "self=%x other=%y", "z", {"x:bool[2]", "y:bool[2]"}, {D(1, 1), D(1, 0)}, "z",
         "bool[2]", D(1, 0));
    CASE("__and__.Tensor", "self=%x other=%y", "z", {"x:bool[2]", "y:bool[2]"}, {D(1, 1), D(1, 0)},
         "z", "bool[2]", D(1, 0));
    CASE("ne.Scalar", "self=%x other=1.5", "z", {"x:i64[2]"}, {D(1, 2)}, "z", "bool[2]", D(1, 1));
    CASE("where.ScalarOther", "condition=%c self=%x other=0.5", "z", {"c:bool[2]", "x:f32[2]"},
         {D(1, 0), D(7, 8)}, "z", "f32[2]", D(7, 0.5));
    CASE("masked_fill.Scalar", "self=%x mask=%m value=-1", "z", {"x:f32[2,2]", "m:bool[2]"},
         {D(1, 2, 3, 4), D(0, 1)}, "z", "f32[2,2]", D(1, -1, 3, -1));
    REFUSED("bitwise", "bitwise_and.Tensor", "self=%x other=%x", "z", {"x:i64[2]"}, {D(1, 2)}, "z",
            NULL, NULL);
    REFUSED("argument 'surprise' is not supported", "relu.default", "self=%x surprise=1", "z",
            {"x:f32[2]"}, {D(1, 2)}, "z", NULL, NULL);
}

#define UNARY(target, arguments, x, n, z) \
    CASE(target, "self=%x" arguments, "z", {"x:f32[" #n "]"}, {x}, "z", "f32[" #n "]", z)
static void test_activations(void **state) {
    (void)state;
    double l2 = log(2), l3 = log(3), e = exp(1);
    UNARY("log1p.default", "", D(0, 1, -0.5, -1, INFINITY, NAN), 6,
          D(0, l2, -l2, -INFINITY, INFINITY, NAN));
    UNARY("log1p.default", "", D(-2, 1e30), 2, D(NAN, 30 * log(10)));
    UNARY("expm1.default", "", D(-1, -l2, 10), 3, D(1 / e - 1, -0.5, exp(10) - 1));
    UNARY("expm1.default", "", D(0, l2, 1, -INFINITY, INFINITY, NAN), 6,
          D(0, 1, e - 1, -1, INFINITY, NAN));
    CASE("expm1.default", "self=%x", "z", {"x:i64[2]"}, {D(0, 1)}, "z", "f32[2]", D(0, e - 1));
    UNARY("softplus.default", "", D(0, l3, -l3, 100, -100, INFINITY, -INFINITY, NAN), 8,
          D(l2, log(4), log(4. / 3), 100, 0, INFINITY, 0, NAN));
    UNARY("softplus.default", " beta=2 threshold=1", D(l3 / 2, 0.75), 2, D(l3 / 2, 0.75));
    UNARY("softplus.default", " beta=2", D(l3 / 2, -l3 / 2), 2, D(log(4) / 2, log(4. / 3) / 2));
    UNARY("log_sigmoid.default", "", D(0, -l3, l3, 100, -100, -INFINITY), 6,
          D(-l2, -log(4), -log(4. / 3), 0, -100, -INFINITY));
    CASE("log_sigmoid_forward.default", "self=%x", "z,buffer", {"x:f32[1]"}, {D(0)}, "z", "f32[1]",
         D(-l2));
    UNARY("mish.default", "", D(0, 1, 100), 3,
          D(0, ((1 + e) * (1 + e) - 1) / ((1 + e) * (1 + e) + 1), 100));
    UNARY("elu.default", "", D(-l2, 3, 1000, -INFINITY, 0), 5, D(-0.5, 3, 1000, -1, 0));
    UNARY("elu.default", " alpha=2 scale=3 input_scale=2", D(-l2 / 2, 1), 2, D(-3, 3));
    UNARY("selu.default", "", D(1, -l2), 2, D(1.05070098735548, -1.75809934084738 / 2));
    UNARY("celu.default", " alpha=2.0", D(-2 * l2, 3), 2, D(-1, 3));
    UNARY("leaky_relu.default", " negative_slope=0.25", D(-4, 0, 3), 3, D(-1, 0, 3));
    UNARY("hardsigmoid.default", "", D(-4, -3, 0, 1, 3, 9), 6, D(0, 0, 0.5, 2. / 3, 1, 1));
    UNARY("hardswish.default", "", D(-4, -3, -1, 1, 3, 9), 6, D(0, 0, -1. / 3, 2. / 3, 3, 9));
    REFUSED("'beta' is 0", "softplus.default", "self=%x beta=0", "z", {"x:f32[1]"}, {D(1)}, "z",
            NULL, NULL);
    REFUSED("'alpha' is 0", "celu.default", "self=%x alpha=0.0", "z", {"x:f32[1]"}, {D(1)}, "z",
            NULL, NULL);
}

/* Results far below 1 keep their digits: 1 + exp(-20) in f32 has lost all of them. */
static void test_small_results(void **state) {
    (void)state;
    static const double tiny = 2.0611536203e-9; /* log(1 + exp(-20)) */
    static const struct {
        const char *target, *arguments;
        double x, result;
    } rows[] = {
        {"log1p.default", "self=%x", 1e-10, 1e-10},
        {"log1p.default", "self=%x", -1e-4, -1.00005000333e-4},
        {"expm1.default", "self=%x", 1e-10, 1e-10},
        {"expm1.default", "self=%x", -1e-3, -9.99500166625e-4},
        {"elu.default", "self=%x", -1e-3, -9.99500166625e-4},
        {"softplus.default", "self=%x", -20, tiny},
        {"log_sigmoid.default", "self=%x", 20, -tiny},
        {"binary_cross_entropy_with_logits.default", "self=%x target=%y", 20, tiny},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        op_case_t c = {rows[i].target,
                       rows[i].arguments,
                       "z",
                       {"x:f32[1]", "y:f32[1]"},
                       {&rows[i].x, D(1)},
                       "z",
                       NULL,
                       NULL};
        feed_t feeds[MAX_FEEDS];
        size_t n_feeds;
        uint8_t *file;
        import_result_t *result = import_case(&c, feeds, &n_feeds, &file);
        if (!result) fail_msg("%s: %s", c.target, st_last_error());
        ir_type_t type;
        const char *output = result->graph->outputs.data[0].name;
        double *z = run_graph(result, feeds, n_feeds, output, &type);
        if (!(fabs(*z / rows[i].result - 1) < 1e-6))
            fail_msg("%s of %g: %.9g, expected %.9g", c.target, rows[i].x, *z, rows[i].result);
        free(z);
        import_result_destroy(result);
        free(file);
    }
}

static void test_creation(void **state) {
    (void)state;
    CASE("full_like.default", "self=%x fill_value=2.5", "z", X23, "z", "f32[2,3]",
         D(2.5, 2.5, 2.5, 2.5, 2.5, 2.5));
    CASE("new_ones.default", "self=%x size=[2] dtype=#bool", "z", X23, "z", "bool[2]", D(1, 1));
    CASE("full.default", "size=[2] fill_value=3", "z", X23, "z", "i64[2]", D(3, 3));
    CASE("arange.default", "end=3", "z", X23, "z", "i64[3]", D(0, 1, 2));
    CASE("arange.start_step", "start=1 end=2.0 step=0.25", "z", X23, "z", "f32[4]",
         D(1, 1.25, 1.5, 1.75));
    CASE("arange.start_step", "start=5 end=0 step=-2", "z", X23, "z", "i64[3]", D(5, 3, 1));
    CASE("scalar_tensor.default", "s=3 dtype=#i64", "z", X23, "z", "i64[]", D(3));
    CASE("to.dtype", "self=%x dtype=#i64", "z", {"x:f32[2]"}, {D(1.7, -1.7)}, "z", "i64[2]",
         D(1, -1));
}

static void test_shapes(void **state) {
    (void)state;
    CASE("view.default", "self=%x size=[3,-1]", "z", X23, "z", "f32[3,2]", D(1, 2, 3, 4, 5, 6));
    CASE("flatten.using_ints", "self=%x", "z", X23, "z", "f32[6]", D(1, 2, 3, 4, 5, 6));
    CASE("permute.default", "self=%x dims=[1,0]", "z", X23, "z", "f32[3,2]", D(1, 4, 2, 5, 3, 6));
    CASE("t.default", "self=%x", "z", X23, "z", "f32[3,2]", D(1, 4, 2, 5, 3, 6));
    CASE("expand.default", "self=%x size=[2,-1,2]", "z", {"x:f32[2,1]"}, {D(1, 2)}, "z",
         "f32[2,2,2]", D(1, 1, 2, 2, 1, 1, 2, 2));
    CASE("broadcast_tensors.default", "tensors=[%x,%y]", "[z,b]", {"x:f32[2,1]", "y:f32[3]"},
         {D(1, 2), D(3, 4, 5)}, "z", "f32[2,3]", D(1, 1, 1, 2, 2, 2));
    CASE("broadcast_tensors.default", "tensors=[%x,%y]", "[a,z]", {"x:f32[2,1]", "y:f32[3]"},
         {D(1, 2), D(3, 4, 5)}, "z", "f32[2,3]", D(3, 4, 5, 3, 4, 5));
    REFUSED("tensor 1 has 3 in dim 0, those before it 2", "broadcast_tensors.default",
            "tensors=[%x,%y]", "[a,z]", {"x:f32[2]", "y:f32[3]"}, {D(1, 2), D(3, 4, 5)}, "z", NULL,
            NULL);
    CASE("repeat.default", "self=%x repeats=[2,2]", "z", {"x:f32[2]"}, {D(1, 2)}, "z", "f32[2,4]",
         D(1, 2, 1, 2, 1, 2, 1, 2));
    CASE("repeat_interleave.self_int", "self=%x repeats=2 dim=0", "z", {"x:f32[2]"}, {D(1, 2)}, "z",
         "f32[4]", D(1, 1, 2, 2));
    CASE("cat.default", "tensors=[%x,%y] dim=-1", "z", {"x:f32[2,1]", "y:i64[2,2]"},
         {D(1, 2), D(3, 4, 5, 6)}, "z", "f32[2,3]", D(1, 3, 4, 2, 5, 6));
    CASE("stack.default", "tensors=[%x,%x] dim=1", "z", {"x:f32[2]"}, {D(1, 2)}, "z", "f32[2,2]",
         D(1, 1, 2, 2));
    CASE("split.Tensor", "self=%x split_size=2 dim=1", "[a,z]", X23, "z", "f32[2,1]", D(3, 6));
    CASE("split_with_sizes.default", "self=%x split_sizes=[1,2] dim=1", "[a,z]", X23, "z",
         "f32[2,2]", D(2, 3, 5, 6));
    CASE("chunk.default", "self=%x chunks=2 dim=1", "[z,b]", X23, "z", "f32[2,2]", D(1, 2, 4, 5));
    CASE("unbind.int", "self=%x", "[a,z]", X23, "z", "f32[3]", D(4, 5, 6));
    CASE("select.int", "self=%x dim=1 index=-1", "z", X23, "z", "f32[2]", D(3, 6));
    CASE("slice.Tensor", "self=%x dim=1 start=-2 end=9223372036854775807", "z", X23, "z",
         "f32[2,2]", D(2, 3, 5, 6));
    CASE("slice.Tensor", "self=%x dim=1 start=0 end=9 step=2", "z", X23, "z", "f32[2,2]",
         D(1, 3, 4, 6));
    CASE("movedim.int", "self=%x source=0 destination=-1", "z", X23, "z", "f32[3,2]",
         D(1, 4, 2, 5, 3, 6));
    CASE("movedim.intlist", "self=%x source=[1,0] destination=[0,1]", "z", X23, "z", "f32[3,2]",
         D(1, 4, 2, 5, 3, 6));
    CASE("flip.default", "self=%x dims=[-1]", "z", X23, "z", "f32[2,3]", D(3, 2, 1, 6, 5, 4));
    CASE("roll.default", "self=%x shifts=[1] dims=[1]", "z", X23, "z", "f32[2,3]",
         D(3, 1, 2, 6, 4, 5));
    CASE("constant_pad_nd.default", "self=%x pad=[1,-1] value=9", "z", X23, "z", "f32[2,3]",
         D(9, 1, 2, 9, 4, 5));
    CASE("diff.default", "self=%x dim=-1", "z", {"x:i64[4]"}, {D(1, 4, 9, 16)}, "z", "i64[3]",
         D(3, 5, 7));
    CASE("diff.default", "self=%x n=1 dim=-1 prepend=%y", "z", {"x:i64[3]", "y:i64[1]"},
         {D(1, 4, 9), D(0)}, "z", "i64[3]", D(1, 3, 5));
    CASE("tril.default", "self=%x", "z", X23, "z", "f32[2,3]", D(1, 0, 0, 4, 5, 0));
    CASE("triu.default", "self=%x diagonal=1", "z", X23, "z", "f32[2,3]", D(0, 2, 3, 0, 0, 6));
    CASE("squeeze.dims", "self=%x dim=[0,2]", "z", {"x:f32[1,2,1,1]"}, {D(1, 2)}, "z", "f32[2,1]",
         D(1, 2));
    REFUSED("argument 'index' is 3", "select.int", "self=%x dim=1 index=3", "z", X23, "z", NULL,
            NULL);
    REFUSED("do not divide", "view.default", "self=%x size=[4,-1]", "z", X23, "z", NULL, NULL);
}

static void test_indices(void **state) {
    (void)state;
    CASE("index.Tensor", "self=%x indices=[None,%i]", "z", {"x:f32[2,3]", "i:i64[2]"},
         {D(1, 2, 3, 4, 5, 6), D(2, -3)}, "z", "f32[2,2]", D(3, 1, 6, 4));
    CASE("index.Tensor", "self=%x indices=[%i,%j]", "z", {"x:f32[2,3]", "i:i64[2,1]", "j:i64[2]"},
         {D(1, 2, 3, 4, 5, 6), D(0, 1), D(0, 2)}, "z", "f32[2,2]", D(1, 3, 4, 6));
    /* adjacent indices behind a whole dim keep their place; apart, they come first */
    CASE("index.Tensor", "self=%x indices=[None,%i,%j]", "z",
         {"x:f32[2,2,2]", "i:i64[3]", "j:i64[3]"},
         {D(0, 1, 2, 3, 4, 5, 6, 7), D(0, 1, 1), D(1, 0, 1)}, "z", "f32[2,3]", D(1, 2, 3, 5, 6, 7));
    CASE("index.Tensor", "self=%x indices=[%i,None,%j]", "z",
         {"x:f32[2,2,2]", "i:i64[3]", "j:i64[3]"},
         {D(0, 1, 2, 3, 4, 5, 6, 7), D(0, 1, 1), D(1, 0, 1)}, "z", "f32[3,2]", D(1, 3, 4, 6, 5, 7));
    CASE("gather.default", "self=%x dim=1 index=%i", "z", {"x:f32[2,3]", "i:i64[1,2]"},
         {D(1, 2, 3, 4, 5, 6), D(2, 0)}, "z", "f32[1,2]", D(3, 1));
    CASE("index_select.default", "self=%x dim=0 index=%i", "z", {"x:f32[2,3]", "i:i64[3]"},
         {D(1, 2, 3, 4, 5, 6), D(1, 0, 1)}, "z", "f32[3,3]", D(4, 5, 6, 1, 2, 3, 4, 5, 6));
    CASE("embedding.default", "weight=%x indices=%i", "z", {"x:f32[2,3]", "i:i64[2]"},
         {D(1, 2, 3, 4, 5, 6), D(1, 0)}, "z", "f32[2,3]", D(4, 5, 6, 1, 2, 3));
    REFUSED("mask", "index.Tensor", "self=%x indices=[%m]", "z", {"x:f32[2,3]", "m:bool[2]"},
            {D(1, 2, 3, 4, 5, 6), D(1, 0)}, "z", NULL, NULL);
}

static void test_reductions(void **state) {
    (void)state;
    CASE("sum.dim_IntList", "self=%x dim=[-1] keepdim=true", "z", X23, "z", "f32[2,1]", D(6, 15));
    CASE("sum.default", "self=%x", "z", {"x:bool[3]"}, {D(1, 0, 1)}, "z", "i64[]", D(2));
    CASE("mean.dim", "self=%x dim=[0]", "z", X23, "z", "f32[3]", D(2.5, 3.5, 4.5));
    CASE("max.dim", "self=%x dim=1", "z,i", {"x:f32[2,3]"}, {D(1, 3, 3, 6, 5, 4)}, "z", "f32[2]",
         D(3, 6));
    CASE("max.dim", "self=%x dim=1", "v,z", {"x:f32[2,3]"}, {D(1, 3, 3, 6, 5, 4)}, "z", "i64[2]",
         D(1, 0));
    CASE("argmax.default", "self=%x", "z", {"x:f32[2,3]"}, {D(1, 3, 2, 6, 5, 4)}, "z", "i64[]",
         D(3));
    CASE("argmin.default", "self=%x dim=1", "z", {"x:f32[2,3]"}, {D(1, 3, 2, 6, 5, 4)}, "z",
         "i64[2]", D(0, 2));
    CASE("var.correction", "self=%x dim=[1]", "z", X23, "z", "f32[2]", D(1, 1));
    CASE("var.correction", "self=%x dim=[1] correction=0", "z", X23, "z", "f32[2]",
         D(2. / 3, 2. / 3));
    CASE("std.dim", "self=%x dim=[1] unbiased=false", "z", X23, "z", "f32[2]",
         D(sqrt(2. / 3), sqrt(2. / 3)));
    CASE("any.dim", "self=%x dim=1", "z", {"x:bool[2,2]"}, {D(0, 0, 0, 1)}, "z", "bool[2]",
         D(0, 1));
    CASE("all.dim", "self=%x dim=1", "z", {"x:bool[2,2]"}, {D(1, 1, 0, 1)}, "z", "bool[2]",
         D(1, 0));
    CASE("cumsum.default", "self=%x dim=-1", "z", {"x:bool[3]"}, {D(1, 0, 1)}, "z", "i64[3]",
         D(1, 1, 2));
    CASE("logsumexp.default", "self=%x dim=[1]", "z", {"x:f32[1,2]"}, {D(1000, 1000)}, "z",
         "f32[1]", D(1000 + log(2)));
    CASE("_softmax.default", "self=%x dim=-1 half_to_float=false", "z", {"x:f32[2]"},
         {D(0, log(3))}, "z", "f32[2]", D(0.25, 0.75));
    REFUSED("mean of i64", "mean.default", "self=%x", "z", {"x:i64[2]"}, {D(1, 2)}, "z", NULL,
            NULL);
}

static void test_products(void **state) {
    (void)state;
    CASE("linear.default", "input=%x weight=%w bias=%b", "z",
         {"x:f32[1,2,2]", "w:f32[1,2]", "b:f32[1]"}, {D(1, 2, 3, 4), D(10, 1), D(5)}, "z",
         "f32[1,2,1]", D(17, 39));
    CASE("matmul.default", "self=%x other=%y", "z", {"x:f32[2]", "y:f32[2]"}, {D(1, 2), D(3, 4)},
         "z", "f32[]", D(11));
    CASE("matmul.default", "self=%x other=%y", "z", {"x:f32[2]", "y:f32[2,2]"},
         {D(1, 2), D(3, 4, 5, 6)}, "z", "f32[2]", D(13, 16));
    CASE("matmul.default", "self=%x other=%y", "z", {"x:f32[2,1,2]", "y:f32[2]"},
         {D(1, 2, 3, 4), D(5, 6)}, "z", "f32[2,1]", D(17, 39));
    CASE("addmm.default", "self=%b mat1=%x mat2=%y beta=2 alpha=0.5", "z",
         {"b:f32[2]", "x:f32[1,2]", "y:f32[2,2]"}, {D(1, 2), D(1, 2), D(3, 4, 5, 6)}, "z",
         "f32[1,2]", D(8.5, 12));
    CASE("einsum.default", "equation='bhd,bkd->bhk' tensors=[%x,%y]", "z",
         {"x:f32[1,2,2]", "y:f32[1,1,2]"}, {D(1, 2, 3, 4), D(5, 6)}, "z", "f32[1,2,1]", D(17, 39));
    CASE("einsum.default", "equation='ij->ji' tensors=[%x]", "z", X23, "z", "f32[3,2]",
         D(1, 4, 2, 5, 3, 6));
    CASE("einsum.default", "equation='i,j' tensors=[%x,%y]", "z", {"x:f32[2]", "y:f32[2]"},
         {D(1, 2), D(3, 4)}, "z", "f32[2,2]", D(3, 4, 6, 8));
    CASE("einsum.default", "equation='ij,jk->k' tensors=[%x,%y]", "z", {"x:f32[2,2]", "y:f32[2,1]"},
         {D(1, 2, 3, 4), D(5, 6)}, "z", "f32[1]", D(56));
    /* one query, two keys whose scaled products are 0 and log 3 */
    CASE("scaled_dot_product_attention.default", "query=%q key=%k value=%v scale=1.0", "z",
         {"q:f32[1,1,1,1]", "k:f32[1,1,2,1]", "v:f32[1,1,2,1]"}, {D(1), D(0, log(3)), D(4, 8)}, "z",
         "f32[1,1,1,1]", D(7));
    CASE("scaled_dot_product_attention.default", "query=%q key=%k value=%v is_causal=true", "z",
         {"q:f32[2,1]", "k:f32[2,1]", "v:f32[2,1]"}, {D(1, 1), D(0, log(3)), D(4, 8)}, "z",
         "f32[2,1]", D(4, 7));
    CASE("scaled_dot_product_attention.default", "query=%q key=%k value=%v attn_mask=%m", "z",
         {"q:f32[1,1,1]", "k:f32[1,2,1]", "v:f32[1,2,1]", "m:bool[1,2]"},
         {D(1), D(0, 5), D(4, 8), D(1, 0)}, "z", "f32[1,1,1]", D(4));
    /* a dropout that keeps nothing */
    CASE("scaled_dot_product_attention.default",
         "query=%q key=%q value=%q dropout_p=1.0 is_causal=true", "z", {"q:f32[1,1,2,1]"},
         {D(1, 2)}, "z", "f32[1,1,2,1]", D(0, 0));
    REFUSED("dropout_p", "scaled_dot_product_attention.default",
            "query=%q key=%q value=%q dropout_p=1.5", "z", {"q:f32[1,1,1,1]"}, {D(1)}, "z", NULL,
            NULL);
}

static void test_windows(void **state) {
    (void)state;
    CASE("conv1d.default", "input=%x weight=%w stride=[1] padding=[1]", "z",
         {"x:f32[1,1,3]", "w:f32[1,1,2]"}, {D(1, 2, 3), D(1, 10)}, "z", "f32[1,1,4]",
         D(10, 21, 32, 3));
    CASE("conv1d.padding", "input=%x weight=%w padding='same'", "z",
         {"x:f32[1,1,3]", "w:f32[1,1,2]"}, {D(1, 2, 3), D(1, 10)}, "z", "f32[1,1,3]", D(21, 32, 3));
    CASE("conv_transpose1d.default", "input=%x weight=%w stride=[2] output_padding=[1]", "z",
         {"x:f32[1,1,2]", "w:f32[1,1,2]"}, {D(1, 2), D(1, 10)}, "z", "f32[1,1,5]",
         D(1, 10, 2, 20, 0));
    CASE("max_pool2d_with_indices.default", "self=%x kernel_size=[2,2]", "y,z", {"x:f32[1,2,2]"},
         {D(1, 3, 2, 0)}, "z", "i64[1,1,1]", D(1));
    CASE("avg_pool1d.default", "self=%x kernel_size=[2] stride=[] padding=[1]", "z",
         {"x:f32[1,1,2]"}, {D(2, 4)}, "z", "f32[1,1,2]", D(1, 2));
    CASE("adaptive_avg_pool2d.default", "self=%x output_size=[1,2]", "z", {"x:f32[1,2,4]"},
         {D(1, 2, 3, 4, 5, 6, 7, 8)}, "z", "f32[1,1,2]", D(3.5, 5.5));
    REFUSED("multiple of the output", "adaptive_avg_pool2d.default", "self=%x output_size=[1,3]",
            "z", {"x:f32[1,2,4]"}, {D(1, 2, 3, 4, 5, 6, 7, 8)}, "z", NULL, NULL);
}

static void test_norms(void **state) {
    (void)state;
    CASE("layer_norm.default", "input=%x normalized_shape=[2] eps=0.0", "z", {"x:f32[2,2]"},
         {D(1, 3, 2, 6)}, "z", "f32[2,2]", D(-1, 1, -1, 1));
    CASE("native_layer_norm.default", "input=%x normalized_shape=[2] weight=None bias=None eps=0.0",
         "y,z,r", {"x:f32[2,2]"}, {D(1, 3, 2, 6)}, "z", "f32[2,1]", D(2, 4));
    CASE("rms_norm.default", "input=%x normalized_shape=[4] weight=None eps=1e-6", "z",
         {"x:f32[1,4]"}, {D(1e-3, 1e-3, 1e-3, 1e-3)}, "z", "f32[1,4]",
         D(0.70710678, 0.70710678, 0.70710678, 0.70710678));
    CASE("rms_norm.default", "input=%x normalized_shape=[4]", "z", {"x:f32[1,4]"},
         {D(1e-3, 1e-3, 1e-3, 1e-3)}, "z", "f32[1,4]", D(0.945245, 0.945245, 0.945245, 0.945245));
    CASE("group_norm.default", "input=%x num_groups=1 weight=%w bias=%b eps=0.0", "z",
         {"x:f32[1,2,1]", "w:f32[2]", "b:f32[2]"}, {D(1, 3), D(10, 20), D(5, 6)}, "z", "f32[1,2,1]",
         D(-5, 26));
}

/* Two rows of logits whose softmax is [1/4, 3/4]. */
#define LOGITS "x:f32[2,2]"
#define LOGIT_VALUES D(0, log(3), 0, log(3))
static void test_losses(void **state) {
    (void)state;
    double a = log(4), b = log(4. / 3);
    CASE("cross_entropy_loss.default", "self=%x target=%y", "z", {LOGITS, "y:i64[2]"},
         {LOGIT_VALUES, D(0, 1)}, "z", "f32[]", D((a + b) / 2));
    CASE("cross_entropy_loss.default", "self=%x target=%y weight=None reduction=2", "z",
         {LOGITS, "y:i64[2]"}, {LOGIT_VALUES, D(0, -100)}, "z", "f32[]", D(a));
    CASE("cross_entropy_loss.default", "self=%x target=%y weight=%w reduction=1", "z",
         {LOGITS, "y:i64[2]", "w:f32[2]"}, {LOGIT_VALUES, D(0, 1), D(1, 3)}, "z", "f32[]",
         D((a + 3 * b) / 4));
    CASE("cross_entropy_loss.default", "self=%x target=%y weight=None reduction=0", "z",
         {LOGITS, "y:i64[2]"}, {LOGIT_VALUES, D(0, 1)}, "z", "f32[2]", D(a, b));
    CASE("cross_entropy_loss.default",
         "self=%x target=%y weight=None reduction=1 ignore_index=-100 label_smoothing=0.5", "z",
         {LOGITS, "y:i64[2]"}, {LOGIT_VALUES, D(0, 0)}, "z", "f32[]", D(0.5 * a + 0.25 * (a + b)));
    /* classes in dim 1 of [1, 2, 2]: columns are the rows */
    CASE("cross_entropy_loss.default", "self=%x target=%y weight=None reduction=0", "z",
         {"x:f32[1,2,2]", "y:i64[1,2]"}, {D(0, 0, log(3), log(3)), D(0, 1)}, "z", "f32[1,2]",
         D(a, b));
    CASE("cross_entropy_loss.default", "self=%x target=%y", "z", {LOGITS, "y:f32[2,2]"},
         {LOGIT_VALUES, D(1, 0, 0.5, 0.5)}, "z", "f32[]", D((a + (a + b) / 2) / 2));
    CASE("nll_loss_forward.default", "self=%x target=%y weight=None reduction=1 ignore_index=-100",
         "z,w", {LOGITS, "y:i64[2]"}, {D(-1, -2, -3, -4), D(1, 0)}, "z", "f32[]", D(2.5));
    CASE("nll_loss_nd.default", "self=%x target=%y weight=%w reduction=1 ignore_index=1", "z",
         {LOGITS, "y:i64[2]", "w:f32[2]"}, {D(-1, -2, -3, -4), D(1, 0), D(5, 7)}, "z", "f32[]",
         D(3));
    CASE("mse_loss.default", "self=%x target=%y", "z", {"x:f32[2]", "y:f32[2]"}, {D(1, 2), D(2, 4)},
         "z", "f32[]", D(2.5));
    REFUSED("do not fit", "cross_entropy_loss.default", "self=%x target=%y", "z",
            {LOGITS, "y:i64[3]"}, {LOGIT_VALUES, D(0, 1, 1)}, "z", NULL, NULL);
}

#define PAIR \
    { "x:f32[2]", "y:f32[2]" }
static void test_distances(void **state) {
    (void)state;
    CASE("mse_loss.default", "self=%x target=%y reduction=0", "z", PAIR, {D(1, 2), D(2, 4)}, "z",
         "f32[2]", D(1, 4));
    CASE("l1_loss.default", "self=%x target=%y", "z", PAIR, {D(1, 2), D(2, 4)}, "z", "f32[]",
         D(1.5));
    CASE("l1_loss.default", "self=%x target=%y reduction=2", "z", PAIR, {D(1, 2), D(2, 4)}, "z",
         "f32[]", D(3));
    /* differences 1/2 and -3 */
    CASE("smooth_l1_loss.default", "self=%x target=%y", "z", PAIR, {D(1, 1), D(0.5, 4)}, "z",
         "f32[]", D((0.125 + 2.5) / 2));
    CASE("smooth_l1_loss.default", "self=%x target=%y reduction=0 beta=2.0", "z", PAIR,
         {D(1, 1), D(0.5, 4)}, "z", "f32[2]", D(0.0625, 2));
    CASE("smooth_l1_loss.default", "self=%x target=%y reduction=0 beta=0.0", "z", PAIR,
         {D(1, 1), D(0.5, 4)}, "z", "f32[2]", D(0.5, 3));
    CASE("huber_loss.default", "self=%x target=%y", "z", PAIR, {D(1, 1), D(0.5, 4)}, "z", "f32[]",
         D((0.125 + 2.5) / 2));
    CASE("huber_loss.default", "self=%x target=%y reduction=0 delta=2.0", "z", PAIR,
         {D(1, 1), D(0.5, 4)}, "z", "f32[2]", D(0.125, 4));
    REFUSED("'reduction' is 3", "mse_loss.default", "self=%x target=%y reduction=3", "z", PAIR,
            {D(1, 2), D(2, 4)}, "z", NULL, NULL);
    REFUSED("'delta' is 0", "huber_loss.default", "self=%x target=%y delta=0.0", "z", PAIR,
            {D(1, 2), D(2, 4)}, "z", NULL, NULL);
    REFUSED("'beta' is -1", "smooth_l1_loss.default", "self=%x target=%y beta=-1.0", "z", PAIR,
            {D(1, 2), D(2, 4)}, "z", NULL, NULL);
}

/* -log of the probability: of log 3, 3/4 for 1 and 1/4 for 0. */
static void test_bce_with_logits(void **state) {
    (void)state;
    const char *target = "binary_cross_entropy_with_logits.default";
    double l2 = log(2), l3 = log(3), l4 = log(4), l43 = log(4. / 3);
    CASE(target, "self=%x target=%y weight=None pos_weight=None reduction=0", "z",
         {"x:f32[6]", "y:f32[6]"}, {D(0, l3, l3, -100, 1000, l3), D(1, 1, 0, 1, 1, 0.5)}, "z",
         "f32[6]", D(l2, l43, l4, 100, 0, (l43 + l4) / 2));
    CASE(target, "self=%x target=%y", "z", PAIR, {D(l3, l3), D(1, 0)}, "z", "f32[]",
         D((l43 + l4) / 2));
    CASE(target, "self=%x target=%y weight=%w reduction=2", "z",
         {"x:f32[2]", "y:f32[2]", "w:f32[2]"}, {D(0, l3), D(1, 0), D(2, 3)}, "z", "f32[]",
         D(2 * l2 + 3 * l4));
    CASE(target, "self=%x target=%y weight=None pos_weight=%p reduction=0", "z",
         {"x:f32[3,2]", "y:f32[3,2]", "p:f32[2]"},
         {D(l3, l3, l3, -100, l3, 0), D(1, 1, 0, 1, 0.5, 0), D(3, 5)}, "z", "f32[3,2]",
         D(3 * l43, 5 * l43, l4, 500, l4 / 2 + 1.5 * l43, l2));
    REFUSED("different shapes", target, "self=%x target=%y", "z", {"x:f32[2]", "y:f32[2,1]"},
            {D(1, 2), D(1, 0)}, "z", NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_promotion),   cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_activations), cmocka_unit_test(test_small_results),
        cmocka_unit_test(test_creation),    cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_indices),     cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_products),    cmocka_unit_test(test_windows),
        cmocka_unit_test(test_norms),       cmocka_unit_test(test_losses),
        cmocka_unit_test(test_distances),   cmocka_unit_test(test_bce_with_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
