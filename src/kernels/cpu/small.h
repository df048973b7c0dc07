/* bf16 and f16 to and from f32, in runs. Storage is small, arithmetic is f32: rounding to nearest
 * even, f16 denormals kept, overflow to infinity, NaN stays a quiet NaN. */
#ifndef STATOR_KERNELS_CPU_SMALL_H
#define STATOR_KERNELS_CPU_SMALL_H

#ifdef __F16C__
#include <immintrin.h>
#endif

#include "ir/types.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

/* Elements of a block that is widened on the stack: 4 KiB of f32. */
enum { CPU_SMALL_BLOCK = 1024 };

static inline bool cpu_is_small(ir_dtype_t dtype) {
    return dtype == IR_BF16 || dtype == IR_F16;
}

static inline float cpu_f16_value(uint16_t half) {
    /* exponent and mantissa as those of a float, then 2^112 corrects the bias, denormals too */
    uint32_t bits = m_bits(m_float((uint32_t)(half & 0x7fffu) << 13) * 0x1p112f);
    bits |= (half & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0;
    bits |= (half & 0x7fffu) > 0x7c00u ? 0x00400000u : 0;
    return m_float(bits | (uint32_t)(half & 0x8000u) << 16);
}
static inline uint16_t cpu_f16_bits(float x) {
    const uint32_t bits = m_bits(x) & 0x7fffffffu, sign = m_bits(x) >> 16 & 0x8000u;
    /* adding 0.5 leaves multiples of 2^-24, the step of denormals, in the low bits */
    uint32_t small = m_bits(m_float(bits) + 0.5f) - 0x3f000000u;
    uint32_t normal = ((bits + 0xfffu + (bits >> 13 & 1u)) >> 13) - (112u << 10);
    uint32_t half = bits < 0x38800000u ? small : normal; /* 2^-14 */
    half = bits >= 0x477ff000u ? 0x7c00u : half;         /* 65520 */
    uint32_t quiet = (bits >> 13 & 0x3ffu) | 0x7e00u;
    return (uint16_t)((bits > 0x7f800000u ? quiet : half) | sign);
}

static inline void cpu_widen_bf16(const uint16_t *restrict from, float *restrict to, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = m_float((uint32_t)from[i] << 16);
}
static inline void cpu_narrow_bf16(const float *restrict from, uint16_t *restrict to, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = m_bits(from[i]);
        uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        uint32_t quiet = bits >> 16 | 0x40u;
        to[i] = (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
    }
}
static inline void cpu_widen_f16(const uint16_t *restrict from, float *restrict to, int64_t n) {
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
#endif
    for (; i < n; i++) to[i] = cpu_f16_value(from[i]);
}
static inline void cpu_narrow_f16(const float *restrict from, uint16_t *restrict to, int64_t n) {
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++) to[i] = cpu_f16_bits(from[i]);
}

static inline void cpu_widen(ir_dtype_t dtype, const void *from, float *to, int64_t n) {
    if (dtype == IR_BF16)
        cpu_widen_bf16(from, to, n);
    else
        cpu_widen_f16(from, to, n);
}
static inline void cpu_narrow(ir_dtype_t dtype, const float *from, void *to, int64_t n) {
    if (dtype == IR_BF16)
        cpu_narrow_bf16(from, to, n);
    else
        cpu_narrow_f16(from, to, n);
}

#endif
