/* Float conversion: every 16-bit value, known roundings. */
#include "state/convert.h"

#include <math.h>

#include "support/scratch.h"

static uint16_t encode(ir_dtype_t dtype, double value) {
    uint16_t bits;
    state_store_float(&bits, dtype, 0, value);
    return bits;
}

static void every_16_bit_value_survives(void **state) {
    (void)state;
    for (int type = 0; type < 2; type++) {
        ir_dtype_t dtype = type == 0 ? IR_F16 : IR_BF16;
        for (uint32_t i = 0; i < 65536; i++) {
            uint16_t bits = (uint16_t)i;
            double value = state_load_float(&bits, dtype, 0);
            if (isnan(value))
                assert_true(isnan(state_load_float(&(uint16_t){encode(dtype, value)}, dtype, 0)));
            else
                assert_int_equal(encode(dtype, value), bits);
        }
    }
}

static void rounds_to_nearest_even(void **state) {
    (void)state;
    /* Right values: IEEE 754 by hand. f16 has 11 significant bits, bf16 has 8. */
    static const struct {
        ir_dtype_t dtype;
        double value;
        uint16_t bits;
    } cases[] = {
        {IR_F16, 1.0, 0x3c00},
        {IR_F16, -2.0, 0xc000},
        {IR_F16, 1 + 0x1p-11, 0x3c00},           /* tie, down to even */
        {IR_F16, 1 + 3 * 0x1p-11, 0x3c02},       /* tie, up to even */
        {IR_F16, 1 + 0x1p-11 + 0x1p-40, 0x3c01}, /* above the tie: f32 in between would lose it */
        {IR_F16, 65504, 0x7bff},
        {IR_F16, 65519.99, 0x7bff},
        {IR_F16, 65520, 0x7c00},
        {IR_F16, 0x1p-14, 0x0400},
        {IR_F16, 0x1p-24, 0x0001},
        {IR_F16, 0x1p-25, 0x0000},
        {IR_F16, 0x1.8p-25, 0x0001},
        {IR_F16, 0x1p-14 - 0x1p-26, 0x0400}, /* carries into the normal numbers */
        {IR_F16, -0.0, 0x8000},
        {IR_F16, 1e-300, 0x0000},
        {IR_F16, -1e300, 0xfc00},
        {IR_BF16, 1.0, 0x3f80},
        {IR_BF16, 1 + 0x1p-8, 0x3f80},
        {IR_BF16, 1 + 3 * 0x1p-8, 0x3f82},
        {IR_BF16, 0x1p-133, 0x0001},
        {IR_BF16, 3.4e38, 0x7f80},
        {IR_BF16, (double)INFINITY, 0x7f80},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(encode(cases[i].dtype, cases[i].value), cases[i].bits);
    }
}

static void arrays_convert(void **state) {
    (void)state;
    uint8_t unaligned[1 + 3 * 4];
    const float values[3] = {1.5f, -3.0f, 0.1f};
    memcpy(unaligned + 1, values, sizeof values);
    double wide[3];
    state_convert(unaligned + 1, IR_F32, wide, IR_F64, 3);
    assert_true(wide[0] == 1.5 && wide[2] == (double)0.1f);
    float back[3];
    state_convert(wide, IR_F64, back, IR_F32, 3);
    assert_memory_equal(back, values, sizeof values);
    assert_true(state_can_convert(IR_BF16) && !state_can_convert(IR_I64) &&
                !state_can_convert(IR_F8E4M3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_16_bit_value_survives),
        cmocka_unit_test(rounds_to_nearest_even),
        cmocka_unit_test(arrays_convert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
