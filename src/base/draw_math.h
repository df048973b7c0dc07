/* Random numbers as initial values: what one element is, in code that C and CUDA compile alike.
 *
 * The same bits everywhere: whole numbers, and of floats only +, -, *, / and square root of
 * float64, which IEEE 754 rounds in one way, never fused (DRAW_… below; C sources that include this
 * are compiled with -ffp-contract=off). No library's logarithm or sine has such a promise, so they
 * are series here. */
#ifndef STATOR_BASE_DRAW_MATH_H
#define STATOR_BASE_DRAW_MATH_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define DRAW_FN static __device__ __forceinline__
#define DRAW_ADD(a, b) __dadd_rn(a, b)
#define DRAW_MUL(a, b) __dmul_rn(a, b)
#define DRAW_DIV(a, b) __ddiv_rn(a, b)
#define DRAW_SQRT(a) __dsqrt_rn(a)
#else
#include <math.h>
#define DRAW_FN static inline
#define DRAW_ADD(a, b) ((a) + (b))
#define DRAW_MUL(a, b) ((a) * (b))
#define DRAW_DIV(a, b) ((a) / (b))
#define DRAW_SQRT(a) sqrt(a)
#endif

enum { ST_DRAW_MAX_RANK = 8 };
typedef enum st_draw_kind { ST_DRAW_CONSTANT = 0, ST_DRAW_NORMAL, ST_DRAW_UNIFORM } st_draw_kind_t;
typedef enum st_draw_format {
    ST_DRAW_F64 = 0,
    ST_DRAW_F32,
    ST_DRAW_F16,
    ST_DRAW_BF16
} st_draw_format_t;

/* What fills a tensor, or the box of it that begins at begin[] and has extent[] elements a dim. */
typedef struct st_draw {
    int32_t kind, format; /* the format of draws that are no constant */
    uint32_t width;       /* bytes an element */
    uint64_t bits;        /* the constant, in the low bytes */
    double scale;         /* deviation, or bound */
    uint64_t seed, stream;
    int32_t rank;
    int64_t dims[ST_DRAW_MAX_RANK], begin[ST_DRAW_MAX_RANK], extent[ST_DRAW_MAX_RANK];
} st_draw_t;

/* Philox 4x32-10: four words, a function of key and counter (Salmon et al., SC 2011). */
DRAW_FN void draw_words(uint64_t key, uint64_t counter_low, uint64_t counter_high,
                        uint32_t out[4]) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter_low, c1 = (uint32_t)(counter_low >> 32);
    uint32_t c2 = (uint32_t)counter_high, c3 = (uint32_t)(counter_high >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0, c1 = (uint32_t)p1, c2 = n2, c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Nearest value of a 16-bit format, ties to even; NaN stays NaN. */
DRAW_FN uint16_t draw_round16(double value, int exponent_bits, int mantissa_bits) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    const int bias = (1 << (exponent_bits - 1)) - 1, smallest = 1 - bias;
    const uint32_t sign = (uint32_t)(bits >> 63) << 15;
    const uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
    const int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    const uint64_t fraction = bits & (((uint64_t)1 << 52) - 1);
    if (exponent == 1024)
        return (uint16_t)(sign | infinity | (fraction ? 1u << (mantissa_bits - 1) : 0));
    int shift = 52 - mantissa_bits;
    if (exponent < smallest) shift += smallest - exponent;
    if (shift > 53) return (uint16_t)sign; /* below half of the smallest subnormal */
    const uint64_t mantissa = fraction | (uint64_t)1 << 52, half = (uint64_t)1 << (shift - 1);
    const uint64_t rest = mantissa & ((half << 1) - 1);
    uint64_t rounded = mantissa >> shift;
    if (rest > half || (rest == half && (rounded & 1) != 0)) rounded++;
    /* For a normal number the leading one adds 1 to the exponent field, hence the - 1; a carry out
     * of the mantissa moves to the next exponent by itself. */
    const uint64_t field = exponent < smallest ? 0 : (uint64_t)(exponent + bias - 1);
    const uint64_t result = (field << mantissa_bits) + rounded;
    return (uint16_t)(sign | (result < infinity ? (uint32_t)result : infinity));
}

/* log((word + 1) / 2^32), within 2 units in the last place. The number is m 2^e with m in [0.707,
 * 1.414]; log m = 2 artanh s with s = (m - 1) / (m + 1), |s| < 0.1716: the terms after s^21 / 21
 * are below 2^-58. */
DRAW_FN double draw_log(uint32_t word) {
    const double x = (double)word + 1; /* exact, 1 to 2^32 */
    uint64_t bits;
    double m;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1023 << 52;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m = DRAW_MUL(m, 0.5);
        exponent++;
    }
    const double s = DRAW_DIV(DRAW_ADD(m, -1.0), DRAW_ADD(m, 1.0)), z = DRAW_MUL(s, s);
    double sum = 1.0 / 21;
    sum = DRAW_ADD(DRAW_MUL(sum, z), 1.0 / 19);
    sum = DRAW_ADD(DRAW_MUL(sum, z), 1.0 / 17);
    sum = DRAW_ADD(DRAW_MUL(sum, z), 1.0 / 15);
    sum = DRAW_ADD(DRAW_MUL(sum, z), 1.0 / 13);
    sum = DRAW_ADD(DRAW_MUL(sum, z), 1.0 / 11);
    sum = DRAW_ADD(DRAW_MUL(sum, z), 1.0 / 9);
    sum = DRAW_ADD(DRAW_MUL(sum, z), 1.0 / 7);
    sum = DRAW_ADD(DRAW_MUL(sum, z), 1.0 / 5);
    sum = DRAW_ADD(DRAW_MUL(sum, z), 1.0 / 3);
    const double tail = DRAW_MUL(DRAW_MUL(s, z), sum); /* artanh s - s */
    return DRAW_ADD(DRAW_MUL((double)(exponent - 32), 0.6931471805599453),
                    DRAW_MUL(2.0, DRAW_ADD(s, tail)));
}

/* Cosine and sine of word / 2^32 of a turn, within 1e-16: the nearest quarter turn is taken off in
 * whole numbers, what is left is within an eighth, where the series to t^16 do. */
DRAW_FN void draw_turn(uint32_t word, double *out_cos, double *out_sin) {
    const uint32_t quarter = (word + (1u << 29)) >> 30; /* 4 is 0: it wraps */
    const int32_t rest = (int32_t)(word - (quarter << 30));
    const double t = DRAW_MUL((double)rest, 1.4629180792671596e-9); /* 2 pi / 2^32 */
    const double z = DRAW_MUL(t, t);
    double s = -1.0 / 1307674368000.0, c = 1.0 / 20922789888000.0; /* 15!, 16! */
    s = DRAW_ADD(DRAW_MUL(s, z), 1.0 / 6227020800.0);
    s = DRAW_ADD(DRAW_MUL(s, z), -1.0 / 39916800);
    s = DRAW_ADD(DRAW_MUL(s, z), 1.0 / 362880);
    s = DRAW_ADD(DRAW_MUL(s, z), -1.0 / 5040);
    s = DRAW_ADD(DRAW_MUL(s, z), 1.0 / 120);
    s = DRAW_ADD(DRAW_MUL(s, z), -1.0 / 6);
    c = DRAW_ADD(DRAW_MUL(c, z), -1.0 / 87178291200.0);
    c = DRAW_ADD(DRAW_MUL(c, z), 1.0 / 479001600);
    c = DRAW_ADD(DRAW_MUL(c, z), -1.0 / 3628800);
    c = DRAW_ADD(DRAW_MUL(c, z), 1.0 / 40320);
    c = DRAW_ADD(DRAW_MUL(c, z), -1.0 / 720);
    c = DRAW_ADD(DRAW_MUL(c, z), 1.0 / 24);
    c = DRAW_ADD(DRAW_MUL(c, z), -1.0 / 2);
    const double sine = DRAW_ADD(t, DRAW_MUL(DRAW_MUL(t, z), s));
    const double cosine = DRAW_ADD(1.0, DRAW_MUL(z, c));
    const double x = quarter & 1 ? -sine : cosine, y = quarter & 1 ? cosine : sine;
    *out_cos = quarter & 2 ? -x : x;
    *out_sin = quarter & 2 ? -y : y;
}

/* Two draws from two words: normal ones by Box and Muller. */
DRAW_FN void draw_two(int32_t kind, double scale, const uint32_t words[2], double out[2]) {
    if (kind == ST_DRAW_UNIFORM) { /* exact up to the product: odd numbers of 2^-32 in (-1, 1) */
        for (int i = 0; i < 2; i++)
            out[i] = DRAW_MUL(scale, ((double)words[i] + 0.5) * 0x1p-31 - 1);
        return;
    }
    const double radius = DRAW_MUL(scale, DRAW_SQRT(DRAW_MUL(-2.0, draw_log(words[0]))));
    double x, y;
    draw_turn(words[1], &x, &y);
    out[0] = DRAW_MUL(radius, x);
    out[1] = DRAW_MUL(radius, y);
}

DRAW_FN void draw_store(int32_t format, void *array, int64_t index, double value) {
    if (format == ST_DRAW_F64)
        ((double *)array)[index] = value;
    else if (format == ST_DRAW_F32)
        ((float *)array)[index] = (float)value;
    else if (format == ST_DRAW_F16)
        ((uint16_t *)array)[index] = draw_round16(value, 5, 10);
    else
        ((uint16_t *)array)[index] = draw_round16(value, 8, 7);
}

/* Place in the whole tensor of element `i` of the box. */
DRAW_FN int64_t draw_index(const st_draw_t *draw, int64_t i) {
    int64_t index = 0, pitch = 1;
    for (int32_t d = draw->rank - 1; d >= 0; d--) {
        index += (draw->begin[d] + i % draw->extent[d]) * pitch;
        pitch *= draw->dims[d];
        i /= draw->extent[d];
    }
    return index;
}

#endif
