/* Single elements of any dtype, and the bit patterns of the small floats.
 *
 * Small floats are encoded from double, in integers: f32 widens exactly, so one routine serves both
 * and nothing is rounded twice. Rejected: double → float → f16, which rounds some values twice. */
#include "ir/convert.h"

#include <math.h>
#include <string.h>

/* A binary format of at most 16 bits: sign, exponent, mantissa. `finite` formats have no infinity
 * and one NaN (all bits but the sign set). */
typedef struct small_format {
    int exponent_bits, mantissa_bits;
    bool finite;
} small_format_t;

static const small_format_t f16 = {5, 10, false};
static const small_format_t bf16 = {8, 7, false};
static const small_format_t f8e4m3 = {4, 3, true};
static const small_format_t f8e5m2 = {5, 2, false};

/*  double      s eeeeeeeeeee mmmmmmmm…m(52)
 *  significand 1.mmmm, shifted right so that `mantissa_bits` remain behind the point (fewer below
 * the smallest normal number); the carry of rounding runs into the exponent by itself. */
static uint32_t encode(double value, small_format_t format) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int m = format.mantissa_bits;
    int bias = (1 << (format.exponent_bits - 1)) - 1;
    uint32_t sign = (uint32_t)(bits >> 63) << (format.exponent_bits + m);
    uint32_t infinity = ((1u << format.exponent_bits) - 1) << m;
    uint32_t nan = format.finite ? infinity | ((1u << m) - 1) : infinity | 1u << (m - 1);
    int exponent = (int)(bits >> 52 & 0x7ff);
    uint64_t fraction = bits & ((1ull << 52) - 1);

    if (exponent == 0x7ff && fraction) {
        uint32_t payload = format.finite ? 0 : (uint32_t)(fraction >> (52 - m));
        return sign | nan | payload;
    }
    if (exponent == 0x7ff) return sign | (format.finite ? nan : infinity);
    if (exponent == 0) return sign; /* zero, or far below the smallest small float */

    int e = exponent - 1023, e_min = 1 - bias;
    int shift = 52 - m + (e < e_min ? e_min - e : 0);
    if (shift >= 54) return sign;
    uint64_t significand = fraction | 1ull << 52;
    uint64_t kept = significand >> shift, rest = significand & ((1ull << shift) - 1);
    uint64_t half = 1ull << (shift - 1);
    if (rest > half || (rest == half && (kept & 1))) kept++;
    uint64_t magnitude = kept;
    if (e >= e_min) magnitude += ((uint64_t)(e + bias) - 1) << m;
    if (format.finite) return sign | (magnitude >= nan ? nan : (uint32_t)magnitude);
    return sign | (magnitude >= infinity ? infinity : (uint32_t)magnitude);
}

static float decode(uint32_t bits, small_format_t format) {
    int m = format.mantissa_bits;
    int bias = (1 << (format.exponent_bits - 1)) - 1;
    uint32_t exponent = bits >> m & ((1u << format.exponent_bits) - 1);
    uint32_t mantissa = bits & ((1u << m) - 1);
    bool negative = bits >> (format.exponent_bits + m) & 1;
    uint32_t top = (1u << format.exponent_bits) - 1;
    float magnitude;
    if (exponent == top && (!format.finite || mantissa == (1u << m) - 1)) {
        uint32_t special = 0x7f800000u | mantissa << (23 - m);
        memcpy(&magnitude, &special, sizeof magnitude);
    } else if (exponent == 0) {
        magnitude = ldexpf((float)mantissa, 1 - bias - m);
    } else {
        magnitude = ldexpf((float)(mantissa | 1u << m), (int)exponent - bias - m);
    }
    return copysignf(magnitude, negative ? -1.0f : 1.0f);
}

float ir_f16_to_f32(uint16_t bits) {
    return decode(bits, f16);
}
uint16_t ir_f32_to_f16(float value) {
    return (uint16_t)encode((double)value, f16);
}
float ir_bf16_to_f32(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}
uint16_t ir_f32_to_bf16(float value) {
    return (uint16_t)encode((double)value, bf16);
}
float ir_f8e4m3_to_f32(uint8_t bits) {
    return decode(bits, f8e4m3);
}
uint8_t ir_f32_to_f8e4m3(float value) {
    return (uint8_t)encode((double)value, f8e4m3);
}
float ir_f8e5m2_to_f32(uint8_t bits) {
    return decode(bits, f8e5m2);
}
uint8_t ir_f32_to_f8e5m2(float value) {
    return (uint8_t)encode((double)value, f8e5m2);
}

/* ---- elements ---- */

/* Toward zero, clamped to [low, high]; NaN gives 0. `high` may be 2^63 - 1, which no double equals.
 */
static int64_t truncate_to(double value, int64_t low, int64_t high) {
    if (isnan(value)) return 0;
    if (value <= (double)low) return low;
    if (value >= (double)high) return high;
    return (int64_t)value;
}

/* An integer as a double that rounds to every small float as the integer itself would: bits that do
 * not fit are folded into the last one (round to odd). */
static double odd_double(int64_t value) {
    if (value >= -(1ll << 53) && value <= 1ll << 53) return (double)value;
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    uint64_t folded = magnitude >> 11 | ((magnitude & 0x7ff) != 0);
    double result = ldexp((double)folded, 11);
    return value < 0 ? -result : result;
}

double ir_element_load(ir_dtype_t dtype, const void *data, size_t index) {
    size_t bytes = ir_dtype_bytes(dtype);
    union {
        float f32;
        double f64;
        uint16_t u16;
        uint8_t u8;
    } element;
    const unsigned char *at = (const unsigned char *)data + index * bytes;
    switch (dtype) {
        case IR_F32:
            memcpy(&element.f32, at, bytes);
            return (double)element.f32;
        case IR_F64:
            memcpy(&element.f64, at, bytes);
            return element.f64;
        case IR_F16:
            memcpy(&element.u16, at, bytes);
            return (double)ir_f16_to_f32(element.u16);
        case IR_BF16:
            memcpy(&element.u16, at, bytes);
            return (double)ir_bf16_to_f32(element.u16);
        case IR_F8E4M3:
            return (double)ir_f8e4m3_to_f32(*at);
        case IR_F8E5M2:
            return (double)ir_f8e5m2_to_f32(*at);
        case IR_I8:
        case IR_I32:
        case IR_I64:
        case IR_U8:
        case IR_BOOL:
            return (double)ir_element_load_i64(dtype, data, index);
        case IR_DTYPE_NONE:
        case IR_DTYPE_END:
            break;
    }
    ASSERT(ir_dtype_valid((int64_t)dtype));
    return 0;
}

void ir_element_store(ir_dtype_t dtype, void *data, size_t index, double value) {
    unsigned char *at = (unsigned char *)data + index * ir_dtype_bytes(dtype);
    uint16_t half;
    switch (dtype) {
        case IR_F32: {
            float single = (float)value;
            memcpy(at, &single, sizeof single);
            return;
        }
        case IR_F64:
            memcpy(at, &value, sizeof value);
            return;
        case IR_F16:
            half = (uint16_t)encode(value, f16);
            memcpy(at, &half, sizeof half);
            return;
        case IR_BF16:
            half = (uint16_t)encode(value, bf16);
            memcpy(at, &half, sizeof half);
            return;
        case IR_F8E4M3:
            *at = (uint8_t)encode(value, f8e4m3);
            return;
        case IR_F8E5M2:
            *at = (uint8_t)encode(value, f8e5m2);
            return;
        case IR_I8:
            ir_element_store_i64(dtype, data, index, truncate_to(value, INT8_MIN, INT8_MAX));
            return;
        case IR_I32:
            ir_element_store_i64(dtype, data, index, truncate_to(value, INT32_MIN, INT32_MAX));
            return;
        case IR_I64:
            ir_element_store_i64(dtype, data, index, truncate_to(value, INT64_MIN, INT64_MAX));
            return;
        case IR_U8:
            ir_element_store_i64(dtype, data, index, truncate_to(value, 0, UINT8_MAX));
            return;
        case IR_BOOL:
            *at = value != 0;
            return;
        case IR_DTYPE_NONE:
        case IR_DTYPE_END:
            break;
    }
    ASSERT(ir_dtype_valid((int64_t)dtype));
}

int64_t ir_element_load_i64(ir_dtype_t dtype, const void *data, size_t index) {
    const unsigned char *at = (const unsigned char *)data + index * ir_dtype_bytes(dtype);
    int32_t i32;
    int64_t i64;
    switch (dtype) {
        case IR_I8:
            return *(const int8_t *)at;
        case IR_I32:
            memcpy(&i32, at, sizeof i32);
            return i32;
        case IR_I64:
            memcpy(&i64, at, sizeof i64);
            return i64;
        case IR_U8:
            return *at;
        case IR_BOOL:
            return *at != 0;
        default:
            return truncate_to(ir_element_load(dtype, data, index), INT64_MIN, INT64_MAX);
    }
}

void ir_element_store_i64(ir_dtype_t dtype, void *data, size_t index, int64_t value) {
    unsigned char *at = (unsigned char *)data + index * ir_dtype_bytes(dtype);
    int32_t i32 = (int32_t)value;
    float single = (float)value;
    switch (dtype) {
        case IR_I8:
        case IR_U8:
            *at = (unsigned char)value;
            return;
        case IR_I32:
            memcpy(at, &i32, sizeof i32);
            return;
        case IR_I64:
            memcpy(at, &value, sizeof value);
            return;
        case IR_BOOL:
            *at = value != 0;
            return;
        case IR_F32:
            memcpy(at, &single, sizeof single);
            return;
        case IR_F64:
            ir_element_store(dtype, data, index, (double)value);
            return;
        default:
            ir_element_store(dtype, data, index, odd_double(value));
    }
}
