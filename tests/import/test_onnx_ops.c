/* ONNX ops whose rules others have got wrong, with numbers worked out by hand from the definitions;
 * the forms of older opsets; and those that ONNX's own node tests do not reach. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "import/onnx_make.h"
#include "import/onnx_run.h"
#include "ir/convert.h"

#define DIMS(...)   \
    (int64_t[]) {   \
        __VA_ARGS__ \
    }
#define F(...)      \
    (float[]) {     \
        __VA_ARGS__ \
    }
#define L(...)      \
    (int64_t[]) {   \
        __VA_ARGS__ \
    }

/* Model of one f32 input x with those dims. */
static void open_x(make_t *m, int64_t opset, size_t rank, const int64_t *dims) {
    make_open(m, opset);
    make_input(m, "x", MAKE_F32, rank, dims);
}

/* Imports, runs with x, and compares output y with dims and values within 1e-6 relative. */
static void check(make_t *m, const float *x, size_t rank, const int64_t *dims, const float *y) {
    import_result_t *result;
    onnx_run_t run;
    const ir_type_t *type;
    ir_type_t wanted = ir_type_make(IR_F32, (int32_t)rank, dims);
    make_output(m, "y");
    if (make_import(m, NULL, &result) != ST_OK) fail_msg("%s", st_last_error());
    make_close(m);
    assert_int_equal(onnx_run_open(&run, result), ST_OK);
    void *at = onnx_run_at(&run, "x", &type);
    if (at && ir_type_bytes(type)) memcpy(at, x, ir_type_bytes(type));
    if (onnx_run_nodes(&run) != ST_OK) fail_msg("%s", st_last_error());
    ir_value_t value = run.graph->outputs.data[0].value;
    const ir_type_t *given = ir_value_type(run.graph, value);
    char text[IR_TYPE_TEXT_BYTES];
    wanted.dtype = given->dtype;
    if (!ir_type_equal(&wanted, given))
        fail_msg("the result is %s", ir_type_text(given, text, sizeof text));
    for (int64_t i = 0; i < ir_type_elements(given); i++)
        if (!(fabs(ir_element_load(given->dtype, run.data[value], (size_t)i) - (double)y[i]) <=
              1e-6 * (1 + fabs((double)y[i]))))
            fail_msg("element %lld is %g, expected %g", (long long)i,
                     ir_element_load(given->dtype, run.data[value], (size_t)i), (double)y[i]);
    onnx_run_close(&run);
    import_result_destroy(result);
}

static void expect_fail(make_t *m, const char *part) {
    import_result_t *result;
    make_output(m, "y");
    if (make_import(m, NULL, &result) == ST_OK) fail_msg("imports, expected '%s'", part);
    if (!strstr(st_last_error(), part)) fail_msg("'%s' lacks '%s'", st_last_error(), part);
    make_close(m);
}

/* ---- windows ---- */

/* A last window that would start in the padding does not exist (ceil_mode). */
static void test_ceil_mode(void **state) {
    (void)state;
    make_t m;
    open_x(&m, 19, 3, DIMS(1, 1, 9));
    Onnx__NodeProto *node = make_node(&m, "AveragePool", "x", "y");
    make_ints(&m, node, "kernel_shape", 1, L(4));
    make_ints(&m, node, "strides", 1, L(4));
    make_ints(&m, node, "pads", 2, L(2, 2));
    make_int(&m, node, "ceil_mode", 1);
    check(&m, F(1, 2, 3, 4, 5, 6, 7, 8, 9), 3, DIMS(1, 1, 3), F(1.5f, 4.5f, 8));
    open_x(&m, 12, 3, DIMS(1, 1, 5));
    node = make_node(&m, "MaxPool", "x", "y");
    make_ints(&m, node, "kernel_shape", 1, L(2));
    make_ints(&m, node, "strides", 1, L(2));
    make_ints(&m, node, "pads", 2, L(1, 1));
    make_int(&m, node, "ceil_mode", 1);
    check(&m, F(-1, -2, -3, -4, -5), 3, DIMS(1, 1, 3), F(-1, -2, -4));
}

/* Pads larger than the kernel: windows of padding alone average to 0 where padding counts, and have
 * no value where it does not. */
static void test_pads_beyond_the_kernel(void **state) {
    (void)state;
    make_t m;
    for (int count = 1; count >= 0; count--) {
        open_x(&m, 11, 3, DIMS(1, 1, 5));
        Onnx__NodeProto *node = make_node(&m, "AveragePool", "x", "y");
        make_ints(&m, node, "kernel_shape", 1, L(2));
        make_ints(&m, node, "strides", 1, L(2));
        make_ints(&m, node, "pads", 2, L(2, 3));
        make_int(&m, node, "count_include_pad", count);
        if (count)
            check(&m, F(1, 2, 3, 4, 5), 3, DIMS(1, 1, 5), F(0, 1.5f, 3.5f, 2.5f, 0));
        else
            expect_fail(&m, "padding only");
    }
}

/* Begin pads stay at the beginning. */
static void test_unequal_pads(void **state) {
    (void)state;
    make_t m;
    for (int reversed = 0; reversed < 2; reversed++) {
        open_x(&m, 11, 3, DIMS(1, 1, 3));
        make_tensor(&m, "w", MAKE_F32, 3, DIMS(1, 1, 2), F(1, 10), 8);
        make_ints(&m, make_node(&m, "Conv", "x,w", "y"), "pads", 2, reversed ? L(0, 1) : L(1, 0));
        check(&m, F(1, 2, 3), 3, DIMS(1, 1, 3), reversed ? F(21, 32, 3) : F(10, 21, 32));
    }
}

/* SAME with an odd total: the extra pad is last (UPPER) or first (LOWER). */
static void test_auto_pad(void **state) {
    (void)state;
    make_t m;
    for (int lower = 0; lower < 2; lower++) {
        open_x(&m, 11, 3, DIMS(1, 1, 3));
        make_tensor(&m, "w", MAKE_F32, 3, DIMS(1, 1, 2), F(1, 10), 8);
        make_string(&m, make_node(&m, "Conv", "x,w", "y"), "auto_pad",
                    lower ? "SAME_LOWER" : "SAME_UPPER");
        check(&m, F(1, 2, 3), 3, DIMS(1, 1, 3), lower ? F(10, 21, 32) : F(21, 32, 3));
    }
}

/* The gradient of a stride-2 convolution: what the stride leaves over exists and is 0. */
static void test_transposed_remainder(void **state) {
    (void)state;
    make_t m;
    open_x(&m, 11, 3, DIMS(1, 1, 2));
    make_tensor(&m, "w", MAKE_F32, 3, DIMS(1, 1, 3), F(1, 1, 1), 12);
    Onnx__NodeProto *node = make_node(&m, "ConvTranspose", "x,w", "y");
    make_ints(&m, node, "strides", 1, L(2));
    make_ints(&m, node, "output_padding", 1, L(1));
    check(&m, F(1, 1), 3, DIMS(1, 1, 6), F(1, 1, 2, 1, 1, 0));
}

/* ---- slices ---- */

static void slice_case(size_t n, const float *x, int64_t start, int64_t end, int64_t step,
                       size_t n_out, const float *y) {
    make_t m;
    open_x(&m, 13, 1, DIMS((int64_t)n));
    make_longs(&m, "start", 1, &start);
    make_longs(&m, "end", 1, &end);
    make_longs(&m, "axis", 1, L(0));
    make_longs(&m, "step", 1, &step);
    make_node(&m, "Slice", "x,start,end,axis,step", "y");
    check(&m, x, 1, DIMS((int64_t)n_out), y);
}

static void test_slices(void **state) {
    (void)state;
    const float *x = F(0, 1, 2, 3);
    slice_case(4, x, -1, INT32_MAX, -1, 0, NULL);
    slice_case(4, x, -1, INT64_MAX, -1, 0, NULL);
    slice_case(4, x, -1, INT64_MIN, -1, 4, F(3, 2, 1, 0));
    slice_case(4, x, -1, -INT32_MAX, -1, 4, F(3, 2, 1, 0));
    slice_case(4, x, -1, -5, -2, 2, F(3, 1));
    slice_case(4, x, INT64_MAX, 0, -1, 3, F(3, 2, 1));
    slice_case(4, x, INT64_MIN, INT64_MAX, 3, 2, F(0, 3));
    slice_case(4, x, 1, -1, 1, 2, F(1, 2));
    slice_case(4, x, 3, INT64_MIN, INT64_MIN, 1, F(3));
    slice_case(0, x, -1, INT64_MIN, -1, 0, NULL); /* a dim of 0, walked down */
    make_t m;
    open_x(&m, 9, 2, DIMS(2, 3)); /* attributes */
    Onnx__NodeProto *node = make_node(&m, "Slice", "x", "y");
    make_ints(&m, node, "axes", 1, L(1));
    make_ints(&m, node, "starts", 1, L(-2));
    make_ints(&m, node, "ends", 1, L(1000));
    check(&m, F(0, 1, 2, 3, 4, 5), 2, DIMS(2, 2), F(1, 2, 4, 5));
}

/* ---- shapes ---- */

static void test_broadcast_with_zero(void **state) {
    (void)state;
    make_t m;
    open_x(&m, 13, 1, DIMS(0));
    make_floats(&m, "one", 1, F(1));
    make_node(&m, "Add", "x,one", "y");
    check(&m, NULL, 1, DIMS(0), NULL);
}

static void test_negative_pads(void **state) {
    (void)state;
    make_t m;
    open_x(&m, 9, 1, DIMS(4));
    Onnx__NodeProto *node = make_node(&m, "Pad", "x", "y");
    make_ints(&m, node, "pads", 2, L(-1, 2));
    make_float(&m, node, "value", 7);
    check(&m, F(0, 1, 2, 3), 1, DIMS(5), F(1, 2, 3, 7, 7));
    open_x(&m, 19, 1, DIMS(3));
    make_longs(&m, "pads", 2, L(2, 4));
    make_string(&m, make_node(&m, "Pad", "x,pads", "y"), "mode", "wrap");
    check(&m, F(0, 1, 2), 1, DIMS(9), F(1, 2, 0, 1, 2, 0, 1, 2, 0));
}

/* The last part of an uneven split is smaller (opset 18); before, it is an error. */
static void test_uneven_split(void **state) {
    (void)state;
    make_t m;
    open_x(&m, 18, 1, DIMS(5));
    make_int(&m, make_node(&m, "Split", "x", "a,b,y"), "num_outputs", 3);
    check(&m, F(0, 1, 2, 3, 4), 1, DIMS(1), F(4));
    open_x(&m, 13, 1, DIMS(5));
    make_node(&m, "Split", "x", "a,y");
    expect_fail(&m, "equal parts");
}

/* Opsets to 12 normalize over all dims from the axis on; from 13 on over the axis. */
static void test_softmax_by_opset(void **state) {
    (void)state;
    make_t m;
    float e = expf(1), all = 2 + 2 * e;
    open_x(&m, 12, 3, DIMS(1, 2, 2));
    make_int(&m, make_node(&m, "Softmax", "x", "y"), "axis", 1);
    check(&m, F(0, 1, 0, 1), 3, DIMS(1, 2, 2), F(1 / all, e / all, 1 / all, e / all));
    open_x(&m, 13, 3, DIMS(1, 2, 2));
    make_int(&m, make_node(&m, "Softmax", "x", "y"), "axis", 1);
    check(&m, F(0, 1, 0, 1), 3, DIMS(1, 2, 2), F(0.5f, 0.5f, 0.5f, 0.5f));
}

/* Axes are an attribute to opset 17 (ReduceSum: 12), an input later; an empty list means all or
 * nothing. */
static void test_reduction_axes(void **state) {
    (void)state;
    make_t m;
    open_x(&m, 17, 2, DIMS(2, 2));
    make_ints(&m, make_node(&m, "ReduceMean", "x", "y"), "axes", 1, L(-1));
    check(&m, F(0, 2, 4, 8), 2, DIMS(2, 1), F(1, 6));
    open_x(&m, 18, 2, DIMS(2, 2));
    make_longs(&m, "axes", 1, L(0));
    make_int(&m, make_node(&m, "ReduceMean", "x,axes", "y"), "keepdims", 0);
    check(&m, F(0, 2, 4, 8), 1, DIMS(2), F(2, 5));
    for (int noop = 0; noop < 2; noop++) {
        open_x(&m, 18, 2, DIMS(2, 2));
        make_longs(&m, "axes", 0, L(0));
        make_int(&m, make_node(&m, "ReduceMax", "x,axes", "y"), "noop_with_empty_axes", noop);
        if (noop)
            check(&m, F(0, 2, 4, 8), 2, DIMS(2, 2), F(0, 2, 4, 8));
        else
            check(&m, F(0, 2, 4, 8), 2, DIMS(1, 1), F(8));
    }
    open_x(&m, 18, 2, DIMS(2, 2));
    make_longs(&m, "axes", 2, L(1, -1));
    make_node(&m, "ReduceSum", "x,axes", "y");
    expect_fail(&m, "given twice");
}

/* Rows of -inf alone give -inf, and large numbers do not overflow. */
static void test_log_sum_exp(void **state) {
    (void)state;
    make_t m;
    open_x(&m, 17, 2, DIMS(1, 2));
    make_ints(&m, make_node(&m, "ReduceLogSumExp", "x", "l"), "axes", 1, L(1));
    make_node(&m, "Exp", "l", "y");
    check(&m, F(-INFINITY, -INFINITY), 2, DIMS(1, 1), F(0));
    open_x(&m, 17, 2, DIMS(1, 2));
    make_ints(&m, make_node(&m, "ReduceLogSumExp", "x", "y"), "axes", 1, L(1));
    check(&m, F(1000, 1000), 2, DIMS(1, 1), F(1000 + logf(2)));
}

static void test_gelu(void **state) {
    (void)state;
    make_t m;
    for (int tanh_form = 0; tanh_form < 2; tanh_form++) {
        open_x(&m, 20, 1, DIMS(2));
        Onnx__NodeProto *node = make_node(&m, "Gelu", "x", "y");
        if (tanh_form) make_string(&m, node, "approximate", "tanh");
        float exact = 0.5f * (1 + erff(sqrtf(0.5f)));
        float near = 0.5f * (1 + tanhf(sqrtf(2 / 3.14159265f) * 1.044715f));
        check(&m, F(0, 1), 1, DIMS(2), F(0, tanh_form ? near : exact));
    }
}

static void test_einsum(void **state) {
    (void)state;
    make_t m;
    open_x(&m, 12, 2, DIMS(2, 2)); /* an outer letter summed before, a result in another order */
    make_tensor(&m, "w", MAKE_F32, 2, DIMS(2, 2), F(1, 10, 100, 1000), 16);
    make_string(&m, make_node(&m, "Einsum", "x,w", "y"), "equation", "ij,jk->ki");
    check(&m, F(1, 2, 3, 4), 2, DIMS(2, 2), F(201, 403, 2010, 4030));
    open_x(&m, 12, 2, DIMS(2, 2)); /* no arrow: letters that occur once */
    make_floats(&m, "w", 2, F(1, 10));
    make_string(&m, make_node(&m, "Einsum", "x,w", "y"), "equation", "ij,j");
    check(&m, F(1, 2, 3, 4), 1, DIMS(2), F(21, 43));
    open_x(&m, 12, 2, DIMS(2, 2));
    make_string(&m, make_node(&m, "Einsum", "x", "y"), "equation", "ii->i");
    expect_fail(&m, "no diagonals");
}

/* ---- indices ---- */

/* An index out of range is an error that names it, when the step runs. */
static void test_index_out_of_range(void **state) {
    (void)state;
    static const int64_t bad[] = {3, -4};
    static const char *const ops[] = {"Gather", "GatherElements", "ScatterElements"};
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < 3; k++) {
            make_t m;
            import_result_t *result;
            onnx_run_t run;
            char number[24];
            snprintf(number, sizeof number, "%lld", (long long)bad[i]);
            open_x(&m, 16, 1, DIMS(3));
            make_longs(&m, "i", 1, &bad[i]);
            make_floats(&m, "u", 1, F(1));
            make_node(&m, ops[k], k == 2 ? "x,i,u" : "x,i", "y");
            make_output(&m, "y");
            assert_int_equal(make_import(&m, NULL, &result), ST_OK);
            make_close(&m);
            assert_int_equal(onnx_run_open(&run, result), ST_OK);
            st_status_t status = onnx_run_nodes(&run);
            if (status == ST_OK || !strstr(st_last_error(), number))
                fail_msg("%s with index %s: status %d, '%s'", ops[k], number, status,
                         st_last_error());
            onnx_run_close(&run);
            import_result_destroy(result);
        }
    }
}

/* Fills and bounds that are floating initializers are settings, not parameters. */
static void test_settings_are_constants(void **state) {
    (void)state;
    make_t m;
    import_result_t *result;
    open_x(&m, 13, 1, DIMS(3));
    make_tensor(&m, "low", MAKE_F32, 0, NULL, F(0), 4);
    make_tensor(&m, "high", MAKE_F32, 0, NULL, F(1), 4);
    make_node(&m, "Clip", "x,low,high", "y");
    make_output(&m, "y");
    assert_int_equal(make_import(&m, NULL, &result), ST_OK);
    make_close(&m);
    assert_int_equal(result->tensors.n, 0);
    import_result_destroy(result);
}

/* Shapes that data decides cannot be planned. */
static void test_shape_from_data(void **state) {
    (void)state;
    make_t m;
    open_x(&m, 13, 1, DIMS(4));
    make_node(&m, "Cast", "x", "shape");
    make_int(&m, m.nodes[0], "to", MAKE_I64);
    make_node(&m, "Reshape", "x,shape", "y");
    expect_fail(&m, "'shape') is computed from data");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ceil_mode),
        cmocka_unit_test(test_pads_beyond_the_kernel),
        cmocka_unit_test(test_unequal_pads),
        cmocka_unit_test(test_auto_pad),
        cmocka_unit_test(test_transposed_remainder),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_broadcast_with_zero),
        cmocka_unit_test(test_negative_pads),
        cmocka_unit_test(test_uneven_split),
        cmocka_unit_test(test_softmax_by_opset),
        cmocka_unit_test(test_reduction_axes),
        cmocka_unit_test(test_log_sum_exp),
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_einsum),
        cmocka_unit_test(test_index_out_of_range),
        cmocka_unit_test(test_settings_are_constants),
        cmocka_unit_test(test_shape_from_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
