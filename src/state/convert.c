/* Float conversion: see convert.h. */
#include "state/convert.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

/* A 16-bit format: exponent and mantissa widths. */
typedef struct format {
    int exponent_bits;
    int mantissa_bits;
} format_t;

static const format_t f16_format = {5, 10};
static const format_t bf16_format = {8, 7};

static uint16_t encode(double value, format_t format) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int mantissa_bits = format.mantissa_bits;
    int bias = (1 << (format.exponent_bits - 1)) - 1;
    uint32_t sign = (uint32_t)(bits >> 63) << 15;
    uint32_t infinity = ((1u << format.exponent_bits) - 1) << mantissa_bits;
    if (isnan(value)) return (uint16_t)(sign | infinity | 1u << (mantissa_bits - 1));
    if (isinf(value)) return (uint16_t)(sign | infinity);
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    uint64_t mantissa = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1 << 52;
    int smallest = 1 - bias;
    int shift = 52 - mantissa_bits;
    if (exponent < smallest) shift += smallest - exponent;
    if (shift > 53) return (uint16_t)sign; /* below half of the smallest subnormal */
    uint64_t half = (uint64_t)1 << (shift - 1);
    uint64_t rest = mantissa & ((half << 1) - 1);
    uint64_t rounded = mantissa >> shift;
    if (rest > half || (rest == half && (rounded & 1) != 0)) rounded++;
    /* For a normal number the leading one adds 1 to the exponent field, hence the - 1; a carry out
     * of the mantissa moves to the next exponent by itself. */
    uint64_t field = exponent < smallest ? 0 : (uint64_t)(exponent + bias - 1);
    uint64_t result = (field << mantissa_bits) + rounded;
    return (uint16_t)(sign | (result < infinity ? (uint32_t)result : infinity));
}

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
    uint16_t bits = encode(value, dtype == IR_F16 ? f16_format : bf16_format);
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
