/* Element conversion: every pattern of the small floats, every rounding boundary between two of
 * them. */
#include "ir/convert.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef struct format {
    ir_dtype_t dtype;
    uint32_t sign;            /* the sign bit */
    uint32_t first_nonfinite; /* infinity, or the NaN where there is none */
    bool has_infinity;
    double smallest, largest;
} format_t;

static const format_t formats[] = {
    {IR_F16, 0x8000, 0x7c00, true, 0x1p-24, 65504},
    {IR_BF16, 0x8000, 0x7f80, true, 0x1p-133, 0x1.fep127},
    {IR_F8E4M3, 0x80, 0x7f, false, 0x1p-9, 448},
    {IR_F8E5M2, 0x80, 0x7c, true, 0x1p-16, 57344},
};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

static float decode(const format_t *f, uint32_t bits) {
    switch (f->dtype) {
        case IR_F16:
            return ir_f16_to_f32((uint16_t)bits);
        case IR_BF16:
            return ir_bf16_to_f32((uint16_t)bits);
        case IR_F8E4M3:
            return ir_f8e4m3_to_f32((uint8_t)bits);
        default:
            return ir_f8e5m2_to_f32((uint8_t)bits);
    }
}
static uint32_t encode(const format_t *f, float value) {
    switch (f->dtype) {
        case IR_F16:
            return ir_f32_to_f16(value);
        case IR_BF16:
            return ir_f32_to_bf16(value);
        case IR_F8E4M3:
            return ir_f32_to_f8e4m3(value);
        default:
            return ir_f32_to_f8e5m2(value);
    }
}
static uint32_t store(const format_t *f, double value) {
    uint16_t bits16 = 0;
    uint8_t bits8 = 0;
    if (ir_dtype_bytes(f->dtype) == 2) {
        ir_element_store(f->dtype, &bits16, 0, value);
        return bits16;
    }
    ir_element_store(f->dtype, &bits8, 0, value);
    return bits8;
}

static void every_pattern_survives_a_round_trip(void **state) {
    (void)state;
    for (int i = 0; i < N_FORMATS; i++) {
        const format_t *f = &formats[i];
        for (uint32_t bits = 0; bits < 2 * f->sign; bits++) {
            uint32_t magnitude = bits & (f->sign - 1);
            float value = decode(f, bits);
            bool infinite = f->has_infinity && magnitude == f->first_nonfinite;
            assert_int_equal(isinf(value) != 0, infinite);
            assert_int_equal(isnan(value) != 0, magnitude >= f->first_nonfinite && !infinite);
            assert_int_equal(signbit(value) != 0, bits >= f->sign);
            if (isnan(value)) {
                assert_true(isnan(decode(f, encode(f, value))));
                assert_int_equal(encode(f, value) & f->sign, bits & f->sign);
                continue;
            }
            assert_int_equal(encode(f, value), bits);
            assert_int_equal(store(f, (double)value), bits);
        }
    }
}

static void values_are_those_of_the_formats(void **state) {
    (void)state;
    for (int i = 0; i < N_FORMATS; i++) {
        const format_t *f = &formats[i];
        assert_true((double)decode(f, 1) == f->smallest);
        assert_true((double)decode(f, f->first_nonfinite - 1) == f->largest);
        for (uint32_t bits = 0; bits + 1 < f->first_nonfinite; bits++)
            assert_true(decode(f, bits) < decode(f, bits + 1));
    }
    assert_true(ir_f16_to_f32(0x3c00) == 1.0f && ir_f16_to_f32(0x3555) == 0x1.554p-2f);
    assert_true(ir_bf16_to_f32(0x3f80) == 1.0f && ir_bf16_to_f32(0xc049) == -3.140625f);
    assert_true(ir_f8e4m3_to_f32(0x38) == 1.0f && ir_f8e4m3_to_f32(0x6c) == 96.0f);
    assert_true(ir_f8e5m2_to_f32(0x3c) == 1.0f && ir_f8e5m2_to_f32(0xc1) == -2.5f);
}

/* Between neighbours a < b: below the middle gives a, above it b, the middle the even one. */
static void rounds_to_nearest_even(void **state) {
    (void)state;
    for (int i = 0; i < N_FORMATS; i++) {
        const format_t *f = &formats[i];
        for (uint32_t bits = 0; bits + 1 < f->first_nonfinite; bits++) {
            double a = (double)decode(f, bits), b = (double)decode(f, bits + 1);
            double middle = a + (b - a) / 2;
            uint32_t even = bits + (bits & 1);
            assert_int_equal(store(f, middle), even);
            assert_int_equal(store(f, nextafter(middle, 0)), bits);
            assert_int_equal(store(f, nextafter(middle, INFINITY)), bits + 1);
            assert_int_equal(store(f, -middle), f->sign | even);
            float single = (float)middle;
            if ((double)single != middle) continue; /* bf16's middle of subnormals is below f32's */
            assert_int_equal(encode(f, single), even);
            assert_int_equal(encode(f, nextafterf(single, 0)), bits);
            assert_int_equal(encode(f, nextafterf(single, INFINITY)), bits + 1);
        }
    }
}

static void overflow_gives_infinity_or_nan(void **state) {
    (void)state;
    const double first_too_large[] = {65520, 0x1.ffp127, 464, 61440};
    for (int i = 0; i < N_FORMATS; i++) {
        const format_t *f = &formats[i];
        uint32_t largest = f->first_nonfinite - 1;
        double edge = first_too_large[i];
        assert_int_equal(store(f, nextafter(edge, 0)), largest);
        /* 448's mantissa is even, so the tie at 464 stays finite; the others' are odd */
        assert_int_equal(store(f, edge), f->has_infinity ? f->first_nonfinite : largest);
        assert_int_equal(store(f, nextafter(edge, INFINITY)), f->first_nonfinite);
        assert_int_equal(store(f, -2 * edge), f->sign | f->first_nonfinite);
        assert_int_equal(store(f, 1e300), f->first_nonfinite);
        assert_int_equal(store(f, INFINITY), f->first_nonfinite);
        assert_true(isnan(decode(f, store(f, (double)NAN))));
        assert_int_equal(store(f, 1e-300), 0);
        assert_int_equal(store(f, -0.0), f->sign);
        assert_int_equal(store(f, 4.9e-324), 0);
    }
}

/* 1 + 2^-11 + 2^-40 is above the middle of two f16; as f32 it is the middle itself, which would
 * fall to the even 1. */
static void doubles_are_rounded_once(void **state) {
    (void)state;
    assert_int_equal(store(&formats[0], 1 + 0x1p-11 + 0x1p-40), 0x3c01);
    assert_int_equal(store(&formats[1], 1 + 0x1p-8 + 0x1p-40), 0x3f81);
}

static void floats_to_integers_truncate_and_saturate(void **state) {
    (void)state;
    int8_t i8[1];
    uint8_t u8[1];
    int32_t i32[2] = {7, 7};
    int64_t i64[1];
    const struct {
        double value;
        int64_t i8, u8, i32, i64;
    } rows[] = {
        {2.9, 2, 2, 2, 2},
        {-2.9, -2, 0, -2, -2},
        {127.99, 127, 127, 127, 127},
        {300, 127, 255, 300, 300},
        {-300, -128, 0, -300, -300},
        {3e9, 127, 255, INT32_MAX, 3000000000},
        {-3e9, -128, 0, INT32_MIN, -3000000000},
        {1e19, 127, 255, INT32_MAX, INT64_MAX},
        {-1e19, -128, 0, INT32_MIN, INT64_MIN},
        {(double)INFINITY, 127, 255, INT32_MAX, INT64_MAX},
        {(double)NAN, 0, 0, 0, 0},
        {-0.5, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ir_element_store(IR_I8, i8, 0, rows[i].value);
        ir_element_store(IR_U8, u8, 0, rows[i].value);
        ir_element_store(IR_I32, i32, 1, rows[i].value);
        ir_element_store(IR_I64, i64, 0, rows[i].value);
        assert_int_equal(i8[0], rows[i].i8);
        assert_int_equal(u8[0], rows[i].u8);
        assert_int_equal(i32[1], rows[i].i32);
        assert_true(i64[0] == rows[i].i64);
        assert_int_equal(i32[0], 7);
    }
    const double wide[] = {-2.7, (double)NAN, 1e300};
    assert_true(ir_element_load_i64(IR_F64, wide, 0) == -2);
    assert_true(ir_element_load_i64(IR_F64, wide, 1) == 0);
    assert_true(ir_element_load_i64(IR_F64, wide, 2) == INT64_MAX);
}

static void bools_are_zero_or_one(void **state) {
    (void)state;
    uint8_t b[4] = {9, 9, 9, 9};
    ir_element_store(IR_BOOL, b, 0, 0.25);
    ir_element_store(IR_BOOL, b, 1, -0.0);
    ir_element_store(IR_BOOL, b, 2, (double)NAN);
    ir_element_store_i64(IR_BOOL, b, 3, 256);
    assert_int_equal(b[0], 1);
    assert_int_equal(b[1], 0);
    assert_int_equal(b[2], 1);
    assert_int_equal(b[3], 1);
    b[0] = 200;
    assert_true(ir_element_load(IR_BOOL, b, 0) == 1);
    assert_true(ir_element_load_i64(IR_BOOL, b, 0) == 1);
}

static void integers_keep_their_value(void **state) {
    (void)state;
    const int64_t values[] = {INT64_MAX, INT64_MIN, (1ll << 53) + 1, -1, 0};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        int64_t element = 5;
        ir_element_store_i64(IR_I64, &element, 0, values[i]);
        assert_true(ir_element_load_i64(IR_I64, &element, 0) == values[i]);
    }
    int32_t narrow = 0;
    ir_element_store_i64(IR_I32, &narrow, 0, (1ll << 32) + 5); /* as C converts */
    assert_int_equal(narrow, 5);
    int8_t byte = 0;
    ir_element_store_i64(IR_I8, &byte, 0, 200);
    assert_int_equal(byte, -56);
    assert_true(ir_element_load(IR_I8, &byte, 0) == -56);
    uint8_t octet = 200;
    assert_true(ir_element_load(IR_U8, &octet, 0) == 200);
}

/* Each integer rounds to a float once, also where a double on the way would have rounded it to a
 * tie. */
static void integers_to_floats_are_rounded_once(void **state) {
    (void)state;
    float single;
    int64_t value = (1ll << 62) + (1ll << 38) + 1; /* just above the middle of two f32 */
    ir_element_store_i64(IR_F32, &single, 0, value);
    assert_true(single == 0x1p62f + 0x1p39f);
    uint16_t half;
    value = (1ll << 62) + (1ll << 54) + 1; /* just above the middle of two bf16 */
    ir_element_store_i64(IR_BF16, &half, 0, value);
    assert_true((double)ir_bf16_to_f32(half) == 0x1p62 + 0x1p55);
    ir_element_store_i64(IR_BF16, &half, 0, -value);
    assert_true((double)ir_bf16_to_f32(half) == -0x1p62 - 0x1p55);
    ir_element_store_i64(IR_F16, &half, 0, 2049); /* a tie: to even */
    assert_true(ir_f16_to_f32(half) == 2048);
    ir_element_store_i64(IR_BF16, &half, 0, INT64_MIN);
    assert_true(ir_bf16_to_f32(half) == -0x1p63f);
    double wide;
    ir_element_store_i64(IR_F64, &wide, 0, -3);
    assert_true(wide == -3);
}

static void elements_lie_at_any_address(void **state) {
    (void)state;
    unsigned char raw[33] = {0};
    const ir_dtype_t dtypes[] = {IR_F32, IR_F64, IR_F16, IR_BF16, IR_I32, IR_I64};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        ir_element_store(dtypes[i], raw + 1, 2, -5);
        assert_true(ir_element_load(dtypes[i], raw + 1, 2) == -5);
        assert_true(ir_element_load_i64(dtypes[i], raw + 1, 2) == -5);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_survives_a_round_trip),
        cmocka_unit_test(values_are_those_of_the_formats),
        cmocka_unit_test(rounds_to_nearest_even),
        cmocka_unit_test(overflow_gives_infinity_or_nan),
        cmocka_unit_test(doubles_are_rounded_once),
        cmocka_unit_test(floats_to_integers_truncate_and_saturate),
        cmocka_unit_test(bools_are_zero_or_one),
        cmocka_unit_test(integers_keep_their_value),
        cmocka_unit_test(integers_to_floats_are_rounded_once),
        cmocka_unit_test(elements_lie_at_any_address),
    };
    return cmocka_run_group_tests_name("convert", tests, NULL, NULL);
}
