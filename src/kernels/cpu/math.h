/* Elementary functions that the vectorizer takes into loops: float by range reduction and
 * polynomials (least-squares fits on Chebyshev nodes, weighted for the relative error of the
 * result), double through libm. Float results are within about 2 units in the last place; NaN stays
 * NaN, infinities go to the limits. No branches, no conversion of a float out of an integer's
 * range. */
#ifndef STATOR_KERNELS_CPU_MATH_H
#define STATOR_KERNELS_CPU_MATH_H

#include <math.h>
#include <stdint.h>

static inline uint32_t m_bits(float x) {
    union {
        float f;
        uint32_t u;
    } pun = {.f = x};
    return pun.u;
}
static inline float m_float(uint32_t bits) {
    union {
        float f;
        uint32_t u;
    } pun = {.u = bits};
    return pun.f;
}
/* Magnitude of x, sign of s. */
static inline float m_copysign_f32(float x, float s) {
    return m_float((m_bits(x) & 0x7fffffffu) | (m_bits(s) & 0x80000000u));
}

/* 1.5 · 2^23: adding it rounds to an integer, which then stands in the low bits. */
#define M_ROUND_F32 12582912.0f

/* e^x = 2^n · e^r, |r| ≤ ln 2 / 2; the power in two factors, so that denormals come out right. */
static inline float m_exp_f32(float x) {
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    float shifted = x * 1.44269504f + M_ROUND_F32;
    float n = shifted - M_ROUND_F32;
    float r = x - n * 0.693145752f; /* ln 2 with 12 low zero bits */
    r = r - n * 1.42860677e-6f;
    float p = 1.394645535e-03f;
    p = p * r + 8.369157164e-03f;
    p = p * r + 4.166626301e-02f;
    p = p * r + 1.666651594e-01f;
    p = p * r + 5.000000081e-01f;
    p = p * (r * r) + r + 1.0f;
    int32_t power = (int32_t)(m_bits(shifted) - 0x4b400000u);
    int32_t half = power >> 1;
    float one = m_float((uint32_t)(half + 127) << 23);
    float two = m_float((uint32_t)(power - half + 127) << 23);
    return p * one * two;
}

/* log x = e · ln 2 + log m, m in [sqrt(1/2), sqrt(2)). */
static inline float m_log_f32(float x) {
    float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x;
    float shift = x < 1.17549435e-38f ? -23.0f : 0.0f;
    uint32_t bits = m_bits(scaled) - 0x3f3504f3u; /* sqrt(1/2) */
    int32_t exponent = (int32_t)bits >> 23;
    float f = m_float((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float e = (float)exponent + shift;
    float p = 6.799114867e-02f;
    p = p * f - 1.172601134e-01f;
    p = p * f + 1.189142894e-01f;
    p = p * f - 1.239656619e-01f;
    p = p * f + 1.421772328e-01f;
    p = p * f - 1.666850499e-01f;
    p = p * f + 2.000224801e-01f;
    p = p * f - 2.500000070e-01f;
    p = p * f + 3.333331011e-01f;
    float low = e * 1.42860677e-6f + (f * f) * (f * p - 0.5f);
    float y = e * 0.693145752f + (low + f);
    y = x > 3.4028235e38f ? x : y;
    y = x == 0.0f ? -INFINITY : y;
    return x >= 0.0f ? y : NAN; /* NaN compares false */
}

/* Small |x|: odd polynomial; else 1 - 2 / (e^2|x| + 1). */
static inline float m_tanh_f32(float x) {
    float a = m_float(m_bits(x) & 0x7fffffffu), s = x * x;
    float p = 2.117896578e-03f;
    p = p * s - 8.150428030e-03f;
    p = p * s + 2.168995926e-02f;
    p = p * s - 5.394482789e-02f;
    p = p * s + 1.333319081e-01f;
    p = p * s - 3.333333041e-01f;
    float small = p * (s * x) + x;
    float large = 1.0f - 2.0f / (m_exp_f32(2.0f * a) + 1.0f);
    return a < 0.625f ? small : m_copysign_f32(large, x);
}

static inline float m_sigmoid_f32(float x) {
    return 1.0f / (1.0f + m_exp_f32(-x));
}

/* Small |x|: odd polynomial; else 1 - e^q(|x|), where q is a fit of log erfc. */
static inline float m_erf_f32(float x) {
    float a = m_float(m_bits(x) & 0x7fffffffu), s = x * x;
    float p = 8.287428544e-05f;
    p = p * s - 8.123468683e-04f;
    p = p * s + 5.199376919e-03f;
    p = p * s - 2.685875338e-02f;
    p = p * s + 1.128368441e-01f;
    p = p * s - 3.761263306e-01f;
    p = p * s + 1.283791666e-01f;
    float small = p * x + x;
    float t = a > 4.0f ? 4.0f : a;
    float q = -2.134196893e-05f;
    q = q * t + 4.371906571e-04f;
    q = q * t - 4.183686124e-03f;
    q = q * t + 2.515115529e-02f;
    q = q * t - 1.083269054e-01f;
    q = q * t - 6.333063213e-01f;
    q = q * t - 1.129534087e+00f;
    q = q * t + 1.784858096e-04f;
    float large = 1.0f - m_exp_f32(q);
    return a < 0.9275f ? small : m_copysign_f32(large, x);
}

/* Sine (quadrant 0) or cosine (quadrant 1) for |x| ≤ M_TRIG_LIMIT_F32; pi/2 in three parts. */
#define M_TRIG_LIMIT_F32 8192.0f
static inline float m_trig_f32(float x, uint32_t quadrant) {
    float shifted = x * 0.636619772f + M_ROUND_F32;
    float n = shifted - M_ROUND_F32;
    float r = x - n * 1.5703125f;
    r = r - n * 4.83751297e-4f;
    r = r - n * 7.54978942e-8f;
    uint32_t k = m_bits(shifted) + quadrant;
    float s = r * r;
    float sine = 2.718189660e-06f;
    sine = sine * s - 1.983931960e-04f;
    sine = sine * s + 8.333329327e-03f;
    sine = sine * s - 1.666666664e-01f;
    sine = sine * (s * r) + r;
    float cosine = -2.720812150e-07f;
    cosine = cosine * s + 2.479949082e-05f;
    cosine = cosine * s - 1.388888362e-03f;
    cosine = cosine * s + 4.166666662e-02f;
    cosine = cosine * (s * s) + (1.0f - 0.5f * s);
    float y = k & 1u ? cosine : sine;
    return m_float(m_bits(y) ^ ((k & 2u) << 30));
}

static inline float m_abs_f32(float x) {
    return fabsf(x);
}
static inline float m_sqrt_f32(float x) {
    return sqrtf(x);
}

static inline double m_exp_f64(double x) {
    return exp(x);
}
static inline double m_log_f64(double x) {
    return log(x);
}
static inline double m_tanh_f64(double x) {
    return tanh(x);
}
static inline double m_sigmoid_f64(double x) {
    return 1.0 / (1.0 + exp(-x));
}
static inline double m_erf_f64(double x) {
    return erf(x);
}
static inline double m_abs_f64(double x) {
    return fabs(x);
}
static inline double m_sqrt_f64(double x) {
    return sqrt(x);
}

#endif
