/* Values known while importing: each small program of nodes is computed twice, by the importer (its
 * result is the shape of a ConstantOfShape, so it must be known) and by the kernels (its operands
 * are inputs). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "import/onnx_make.h"
#include "import/onnx_run.h"

enum { N = 4, SHIFT = 1000 };
static const int64_t a[N] = {7, -7, 6, 3}, b[N] = {2, 3, -4, 3};

/* Statements "Op[:attribute=integer] inputs output", ended by ';'. The result is r, i64 of 1 to 8
 * elements. */
static const char *const programs[] = {
    /* integers */
    "Add a,b r",
    "Sub a,b r",
    "Mul a,b r",
    "Div a,b r",
    "Mod a,b r",
    "Max a,b r",
    "Min a,b r",
    "Neg a r",
    "Abs a r",
    "Sign a r",
    "Sub a,a z;Div a,z r",
    "Sub a,a z;Mod a,z r",
    "Equal a,b c;Cast:to=7 c r",
    "Less a,b c;Cast:to=7 c r",
    "LessOrEqual a,b c;Cast:to=7 c r",
    "Greater a,b c;Cast:to=7 c r",
    "GreaterOrEqual a,b c;Cast:to=7 c r",
    "Less a,b l;Not l n;Greater a,b g;And n,g x;Or x,l o;Where o,a,b r",
    "Greater a,b g;Less a,b l;Xor g,l x;Where x,b,one r",
    /* floats */
    "Cast:to=1 a f;Cast:to=1 b g;Div f,g q;Floor q w;Cast:to=7 w r",
    "Cast:to=11 a f;Cast:to=11 b g;Add f,g q;Sub q,g s;Mul s,g m;Ceil m w;Cast:to=7 w r",
    "Cast:to=1 a f;Cast:to=1 b g;Max f,g q;Min q,f m;Round m w;Cast:to=7 w r",
    "Cast:to=1 a f;Abs f p;Sqrt p s;Floor s w;Cast:to=7 w r",
    "Cast:to=1 a f;Sign f s;Exp s e;Log e l;Reciprocal l i;Round i w;Cast:to=7 w r",
    "Cast:to=1 a f;Neg f n;Cast:to=6 n i;Cast:to=7 i r",
    "Cast:to=1 a f;Cast:to=1 b g;Less f,g l;Cast:to=7 l r",
    "Cast:to=9 a t;Cast:to=7 t r",
    /* shapes and indices */
    "Concat:axis=0 a,b c;Gather:axis=0 c,picks r",
    "Gather:axis=0 a,picked s;Unsqueeze s,zero r",
    "Reshape a,square m;Transpose m t;Reshape t,flat r",
    "Slice a,last,lowest,zero,last r",
    "Slice a,one,last r",
    "Reshape a,square m;Gather:axis=1 m,one g;Reshape g,flat r",
    "Reshape a,square m;Slice m,one,two,one s;Squeeze s,one r",
    "Expand one,square e;Reshape e,flat f;Add f,a r",
    "Reshape a,square m;Trilu m t;Reshape t,flat r",
    "Reshape a,square m;Add m,one p;Mul p,two q;Reshape q,flat r",
    "Range start,limit,delta k;Add k,b r",
    "Identity a r",
    "Size a s;Add s,b r",
    "Shape a s;Add s,b r",
    /* reductions */
    "Reshape a,square m;ReduceSum:keepdims=0 m,zero r",
    "Reshape a,square m;ReduceSum:keepdims=0 m,one r",
    "ReduceMax a r",
    "ReduceMin a r",
    "ReduceProd a r",
};

/* Appends the statements of a program. */
static void add_program(make_t *m, const char *program) {
    char copy[256], *rest = copy;
    snprintf(copy, sizeof copy, "%s", program);
    for (char *statement; (statement = strsep(&rest, ";"));) {
        char *op = strsep(&statement, " "), *inputs = strsep(&statement, " ");
        char *key = strchr(op, ':');
        if (key) *key++ = '\0';
        Onnx__NodeProto *node = make_node(m, op, inputs, statement);
        if (!key) continue;
        char *value = strchr(key, '=');
        *value++ = '\0';
        make_int(m, node, key, atoll(value));
    }
}

static void open_program(make_t *m, const char *program) {
    static const struct {
        const char *name;
        size_t rank, n;
        int64_t values[5];
    } lists[] = {
        {"zero", 1, 1, {0}},      {"one", 1, 1, {1}},    {"two", 1, 1, {2}},
        {"last", 1, 1, {-1}},     {"flat", 1, 1, {-1}},  {"lowest", 1, 1, {INT64_MIN}},
        {"square", 1, 2, {2, 2}}, {"picked", 0, 1, {2}}, {"picks", 1, 5, {7, 0, -1, 3, -8}},
        {"start", 0, 1, {9}},     {"limit", 0, 1, {-1}}, {"delta", 0, 1, {-3}},
    };
    make_open(m, 15);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        int64_t n = (int64_t)lists[i].n;
        make_tensor(m, lists[i].name, MAKE_I64, lists[i].rank, &n, lists[i].values, lists[i].n * 8);
    }
    add_program(m, program);
}

/* The program's result as the importer computes it. Returns the number of elements. */
static int32_t compute_known(const char *program, int64_t *out) {
    make_t m;
    import_result_t *result;
    int64_t shift = SHIFT;
    open_program(&m, program);
    make_longs(&m, "a", N, a);
    make_longs(&m, "b", N, b);
    make_longs(&m, "shift", 1, &shift);
    make_node(&m, "Add", "r,shift", "shape");
    make_node(&m, "ConstantOfShape", "shape", "y");
    make_output(&m, "y");
    if (make_import(&m, NULL, &result) != ST_OK) fail_msg("%s: %s", program, st_last_error());
    make_close(&m);
    assert_int_equal(result->graph->nodes.n, 1);
    const ir_type_t *type = ir_value_type(result->graph, result->graph->outputs.data[0].value);
    int32_t n = type->rank;
    for (int32_t i = 0; i < n; i++) out[i] = type->dims[i] - SHIFT;
    import_result_destroy(result);
    return n;
}

static void check_program(const char *program) {
    make_t m;
    import_result_t *result;
    onnx_run_t run;
    int64_t known[IR_MAX_RANK], n = N;
    int32_t n_known = compute_known(program, known);
    open_program(&m, program);
    make_input(&m, "a", MAKE_I64, 1, &n);
    make_input(&m, "b", MAKE_I64, 1, &n);
    make_output(&m, "r");
    if (make_import(&m, NULL, &result) != ST_OK) fail_msg("%s: %s", program, st_last_error());
    make_close(&m);
    assert_int_equal(onnx_run_open(&run, result), ST_OK);
    memcpy(onnx_run_at(&run, "a", NULL), a, sizeof a);
    memcpy(onnx_run_at(&run, "b", NULL), b, sizeof b);
    if (onnx_run_nodes(&run) != ST_OK) fail_msg("%s: %s", program, st_last_error());
    ir_value_t value = run.graph->outputs.data[0].value;
    const ir_type_t *type = ir_value_type(run.graph, value);
    assert_int_equal(type->dtype, IR_I64);
    assert_int_equal(ir_type_elements(type), n_known);
    for (int32_t i = 0; i < n_known; i++) {
        int64_t computed = ((const int64_t *)run.data[value])[i];
        if (computed != known[i])
            fail_msg("%s: element %d is %lld for the importer, %lld for the kernels", program, i,
                     (long long)known[i], (long long)computed);
    }
    onnx_run_close(&run);
    import_result_destroy(result);
}

static void test_importer_and_kernels_agree(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) check_program(programs[i]);
}

/* A value above the limits is not known, and the message says what is needed. */
static void test_limits(void **state) {
    (void)state;
    make_t m;
    import_result_t *result;
    int64_t many = 1 << 17;
    make_open(&m, 15);
    make_longs(&m, "n", 1, &many);
    make_longs(&m, "axis", 1, (int64_t[]){0});
    make_node(&m, "ConstantOfShape", "n", "zeros");
    make_int(&m, make_node(&m, "Cast", "zeros", "longs"), "to", MAKE_I64);
    make_node(&m, "ReduceSum", "longs,axis", "sum");
    make_node(&m, "ConstantOfShape", "sum", "y");
    make_output(&m, "y");
    assert_int_equal(make_import(&m, NULL, &result), ST_UNSUPPORTED);
    assert_non_null(strstr(st_last_error(), "'sum'"));
    make_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_importer_and_kernels_agree),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
