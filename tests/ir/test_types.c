/* Types: names, sizes and their limits, broadcasting, axes. */
#include "ir/types.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define T(name, ...)                                                                             \
    ir_type_make(IR_##name, (int32_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
                 (const int64_t[]){__VA_ARGS__})

static void names_and_sizes_are_the_table_s(void **state) {
    (void)state;
    const struct {
        const char *text;
        ir_dtype_t dtype;
        int wire;
        size_t bytes;
        bool is_float, is_integer;
    } rows[] = {
        {"f32", IR_F32, 1, 4, true, false},       {"f64", IR_F64, 2, 8, true, false},
        {"f16", IR_F16, 3, 2, true, false},       {"bf16", IR_BF16, 4, 2, true, false},
        {"f8e4m3", IR_F8E4M3, 5, 1, true, false}, {"f8e5m2", IR_F8E5M2, 6, 1, true, false},
        {"i8", IR_I8, 7, 1, false, true},         {"i32", IR_I32, 8, 4, false, true},
        {"i64", IR_I64, 9, 8, false, true},       {"u8", IR_U8, 10, 1, false, true},
        {"bool", IR_BOOL, 11, 1, false, false},
    };
    size_t n = sizeof rows / sizeof rows[0];
    assert_int_equal(IR_DTYPE_END, n + 1);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(rows[i].dtype, rows[i].wire);
        assert_string_equal(ir_dtype_text(rows[i].dtype), rows[i].text);
        assert_int_equal(ir_dtype_parse(rows[i].text), rows[i].dtype);
        assert_int_equal(ir_dtype_bytes(rows[i].dtype), rows[i].bytes);
        assert_int_equal(ir_dtype_is_float(rows[i].dtype), rows[i].is_float);
        assert_int_equal(ir_dtype_is_integer(rows[i].dtype), rows[i].is_integer);
        assert_true(ir_dtype_valid(rows[i].wire));
    }
    const int64_t foreign[] = {0, -1, IR_DTYPE_END, INT64_MAX, INT64_MIN, 1ll << 32};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        assert_false(ir_dtype_valid(foreign[i]));
    assert_int_equal(ir_dtype_parse("none"), IR_DTYPE_NONE);
    assert_int_equal(ir_dtype_parse("F32"), IR_DTYPE_NONE);
    assert_int_equal(ir_dtype_parse(""), IR_DTYPE_NONE);
    assert_string_equal(ir_dtype_text(IR_DTYPE_NONE), "none");
}

static void sizes_are_checked(void **state) {
    (void)state;
    ir_type_t type = T(F64, 3, 0, 5);
    assert_int_equal(ir_type_check(&type), ST_OK);
    assert_int_equal(ir_type_elements(&type), 0);
    type = ir_type_scalar(IR_F64);
    assert_int_equal(ir_type_elements(&type), 1);
    assert_int_equal(ir_type_bytes(&type), 8);
    type = T(I8, 1ll << 31, 1ll << 31);
    assert_int_equal(ir_type_check(&type), ST_DOES_NOT_FIT);
    type = T(I8, 1ll << 31, (1ll << 31) - 1);
    assert_int_equal(ir_type_check(&type), ST_OK);
    type = T(F64, INT64_MAX);
    assert_int_equal(ir_type_check(&type), ST_DOES_NOT_FIT);
    type = T(F64, INT64_MAX, 0); /* a zero hides nothing */
    assert_int_equal(ir_type_check(&type), ST_DOES_NOT_FIT);
    type = T(F64, 2, -1);
    assert_int_equal(ir_type_check(&type), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "dim 1 is negative"));
    type = T(F64, 2);
    type.dtype = (ir_dtype_t)99;
    assert_int_equal(ir_type_check(&type), ST_INVALID);
    type = T(F64, 2);
    type.rank = 9;
    assert_int_equal(ir_type_check(&type), ST_INVALID);
    type.rank = -1;
    assert_int_equal(ir_type_check(&type), ST_INVALID);
}

static void texts_fit_their_buffer(void **state) {
    (void)state;
    char text[IR_TYPE_TEXT_BYTES];
    ir_type_t type = T(F32, 4, 0, 32);
    assert_string_equal(ir_type_text(&type, text, sizeof text), "f32[4,0,32]");
    type = ir_type_scalar(IR_BOOL);
    assert_string_equal(ir_type_text(&type, text, sizeof text), "bool[]");
    type = T(F8E4M3, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX,
             INT64_MAX);
    ir_type_text(&type, text, sizeof text);
    assert_int_equal(text[strlen(text) - 1], ']'); /* the longest is whole */
    for (size_t capacity = 1; capacity < 12; capacity++) {
        memset(text, '#', sizeof text);
        ir_type_text(&type, text, capacity);
        assert_true(strlen(text) < capacity);
        assert_int_equal(text[capacity], '#');
    }
}

static void equality_looks_at_all(void **state) {
    (void)state;
    ir_type_t a = T(F32, 2, 3), b = T(F32, 2, 3), c = T(F64, 2, 3), d = T(F32, 2), e = T(F32, 3, 2);
    assert_true(ir_type_equal(&a, &b));
    assert_false(ir_type_equal(&a, &c));
    assert_true(ir_dims_equal(&a, &c));
    assert_false(ir_dims_equal(&a, &d));
    assert_false(ir_dims_equal(&a, &e));
}

static void shapes_broadcast_as_numpy_s(void **state) {
    (void)state;
    const ir_type_t rows[][3] = {
        {T(F32, 2, 3), T(F32, 3), T(F32, 2, 3)},
        {T(F32, 2, 1), T(F32, 1, 3), T(F32, 2, 3)},
        {T(F32, 1), T(F32, 0), T(F32, 0)},
        {T(F32, 5, 1, 0), T(F32, 4, 1), T(F32, 5, 4, 0)},
        {ir_type_scalar(IR_F32), T(F32, 7), T(F32, 7)},
        {ir_type_scalar(IR_F32), ir_type_scalar(IR_F32), ir_type_scalar(IR_F32)},
    };
    ir_type_t out;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(ir_dims_broadcast(&rows[i][0], &rows[i][1], &out), ST_OK);
        assert_true(ir_type_equal(&out, &rows[i][2]));
        assert_int_equal(ir_dims_broadcast(&rows[i][1], &rows[i][0], &out), ST_OK);
        assert_true(ir_type_equal(&out, &rows[i][2]));
    }
    ir_type_t two = T(F32, 2, 5), three = T(F32, 3, 1), none = T(F32, 0, 5);
    assert_int_equal(ir_dims_broadcast(&two, &three, &out), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "f32[2,5] and f32[3,1]"));
    assert_int_equal(ir_dims_broadcast(&two, &none, &out), ST_INVALID);
}

static void axes_are_normalized(void **state) {
    (void)state;
    int32_t axis;
    assert_int_equal(ir_axis_normalize(-1, 3, &axis), ST_OK);
    assert_int_equal(axis, 2);
    assert_int_equal(ir_axis_normalize(-3, 3, &axis), ST_OK);
    assert_int_equal(axis, 0);
    assert_int_equal(ir_axis_normalize(2, 3, &axis), ST_OK);
    assert_int_equal(axis, 2);
    const int64_t wrong[] = {3, -4, INT64_MAX, INT64_MIN};
    for (int i = 0; i < 4; i++) assert_int_equal(ir_axis_normalize(wrong[i], 3, &axis), ST_INVALID);
    assert_int_equal(ir_axis_normalize(0, 0, &axis), ST_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes_are_the_table_s), cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(texts_fit_their_buffer),          cmocka_unit_test(equality_looks_at_all),
        cmocka_unit_test(shapes_broadcast_as_numpy_s),     cmocka_unit_test(axes_are_normalized),
    };
    return cmocka_run_group_tests_name("types", tests, NULL, NULL);
}
