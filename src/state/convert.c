/* Float conversion: see convert.h. */
#include "state/convert.h"

#include <math.h>
#include <string.h>

#include "base/draw_math.h"
#include "base/status.h"

/* A 16-bit format: exponent and mantissa widths. */
typedef struct format {
    int exponent_bits;
    int mantissa_bits;
} format_t;

static const format_t f16_format = {5, 10};
static const format_t bf16_format = {8, 7};

static double decode(uint16_t bits, format_t format) {
    int mantissa_bits = format.mantissa_bits;
    int bias = (1 << (format.exponent_bits - 1)) - 1;
    int largest = (1 << format.exponent_bits) - 1;
    int exponent = bits >> mantissa_bits & largest;
    int mantissa = bits & ((1 << mantissa_bits) - 1);
    double value;
    if (exponent == largest)
        value = mantissa != 0 ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(mantissa, 1 - bias - mantissa_bits);
    else
        value = ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
    return (bits & 0x8000) != 0 ? -value : value;
}

bool state_can_convert(ir_dtype_t dtype) {
    return dtype == IR_F64 || dtype == IR_F32 || dtype == IR_F16 || dtype == IR_BF16;
}

double state_load_float(const void *array, ir_dtype_t dtype, size_t index) {
    const uint8_t *at = (const uint8_t *)array + index * ir_dtype_bytes(dtype);
    if (dtype == IR_F64) {
        double value;
        memcpy(&value, at, sizeof value);
        return value;
    }
    if (dtype == IR_F32) {
        float value;
        memcpy(&value, at, sizeof value);
        return (double)value;
    }
    ASSERT(state_can_convert(dtype));
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return decode(bits, dtype == IR_F16 ? f16_format : bf16_format);
}

void state_store_float(void *array, ir_dtype_t dtype, size_t index, double value) {
    uint8_t *at = (uint8_t *)array + index * ir_dtype_bytes(dtype);
    if (dtype == IR_F64) {
        memcpy(at, &value, sizeof value);
        return;
    }
    if (dtype == IR_F32) {
        float rounded = (float)value;
        memcpy(at, &rounded, sizeof rounded);
        return;
    }
    ASSERT(state_can_convert(dtype));
    uint16_t bits = dtype == IR_F16 ? draw_round16(value, 5, 10) : draw_round16(value, 8, 7);
    memcpy(at, &bits, sizeof bits);
}

void state_convert(const void *in, ir_dtype_t from, void *out, ir_dtype_t to, size_t n) {
    if (from == to) {
        if (n > 0) memcpy(out, in, n * ir_dtype_bytes(from));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        state_store_float(out, to, i, state_load_float(in, from, i));
    }
}
