/* Rows of instructions that stand for several: a b + c, (a - b) c, …
 *
 * Each step is rounded, as it is where the steps are instructions of their own, so it does not show
 * in the bits which of them the planner has joined (nest.h): this file is compiled without fused
 * multiply-adds (cmake/kernels.cmake), and nothing here may call what is faster with them. */
#include "kernels/cpu/fused.h"
#include "kernels/cpu/fused_rows.h"
#include "kernels/cpu/math.h"

/* ---- four and five sources ---- */

enum { MANY_BLOCK = 128 };

/* Made for all sources along the row and for those of `usual`, bits of the sources. Otherwise
 * single values are spread over blocks. */
#define MANY(name, sources, usual, expression)                                                     \
    static ALWAYS_INLINE void TYPED(fr_##name##_by)(REAL * y, const REAL *const *p, unsigned mask, \
                                                    int64_t n) {                                   \
        const REAL *a = p[0], *b = p[1], *c = p[2], *d = p[3], *e = p[4];                          \
        const REAL a0 = *a, b0 = *b, c0 = *c, d0 = *d, e0 = *e;                                    \
        FUSED_LOOP                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const REAL u = mask & 1 ? a[i] : a0, v = mask & 2 ? b[i] : b0;                         \
            const REAL w = mask & 4 ? c[i] : c0, x = mask & 8 ? d[i] : d0;                         \
            const REAL z = mask & 16 ? e[i] : e0;                                                  \
            (void)z;                                                                               \
            y[i] = (expression);                                                                   \
        }                                                                                          \
    }                                                                                              \
    static NOINLINE void TYPED(fr_##name##_spread)(REAL * to, const REAL *const *from,             \
                                                   unsigned mask, int64_t n) {                     \
        REAL spread[NX_SOURCES][MANY_BLOCK];                                                       \
        const REAL *p[NX_SOURCES];                                                                 \
        for (unsigned k = 0; k < NX_SOURCES; k++) {                                                \
            p[k] = mask >> k & 1 ? from[k] : spread[k];                                            \
            for (int64_t i = 0; i < MANY_BLOCK && i < n; i++) spread[k][i] = *from[k];             \
        }                                                                                          \
        for (int64_t i = 0; i < n; i += MANY_BLOCK) {                                              \
            TYPED(fr_##name##_by)(to + i, p, (1 << (sources)) - 1, cpu_min(MANY_BLOCK, n - i));    \
            for (unsigned k = 0; k < NX_SOURCES; k++) p[k] += mask >> k & 1 ? MANY_BLOCK : 0;      \
        }                                                                                          \
    }                                                                                              \
    static void TYPED(fr_##name)(void *to, const void *pa, const void *pb, const void *pc,         \
                                 const void *px, const void *pz, unsigned mask, int64_t n) {       \
        enum { ALL = (1 << (sources)) - 1 };                                                       \
        const REAL *p[NX_SOURCES] = {pa, pb, pc, px, pz};                                          \
        if (n <= 0) return;                                                                        \
        if (mask == (usual)) {                                                                     \
            TYPED(fr_##name##_by)(to, p, (usual), n);                                              \
            return;                                                                                \
        }                                                                                          \
        if (mask == ALL) {                                                                         \
            TYPED(fr_##name##_by)(to, p, ALL, n);                                                  \
            return;                                                                                \
        }                                                                                          \
        TYPED(fr_##name##_spread)(to, p, mask, n);                                                 \
    }

#define REAL float
#define TYPED(name) name##_f32
#include "kernels/cpu/fused_joined.inc"
#undef REAL
#undef TYPED
#define REAL double
#define TYPED(name) name##_f64
#include "kernels/cpu/fused_joined.inc"
#undef REAL
#undef TYPED

/* ---- tables ---- */

tile_row_t cpu_tile_joined(uint16_t code, bool f64) {
    static const struct {
        uint16_t code;
        tile_row_t row[2];
    } rows[] = {
        {NX_MUL_ADD, REAL_ROW(mul_add)},   {NX_MUL_SUB, REAL_ROW(mul_sub)},
        {NX_SUB_MUL, REAL_ROW(sub_mul)},   {NX_MUL_MUL, REAL_ROW(mul_mul)},
        {NX_DIFF_MUL, REAL_ROW(diff_mul)}, {NX_ROOT_MUL_ADD, REAL_ROW(root_mul_add)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].code == code) return rows[i].row[f64];
    return NULL;
}

many_row_t cpu_tile_many(uint16_t code, bool f64) {
    static const many_row_t rows[][2] = {
        [NX_DIFF_MUL_ADD - NX_DIFF_MUL_ADD] = REAL_ROW(diff_mul_add),
        [NX_MUL_MUL_ADD - NX_DIFF_MUL_ADD] = REAL_ROW(mul_mul_add),
        [NX_MUL_ADD_MUL - NX_DIFF_MUL_ADD] = REAL_ROW(mul_add_mul),
        [NX_MUL_SUB_MUL - NX_DIFF_MUL_ADD] = REAL_ROW(mul_sub_mul),
        [NX_MUL_ADD_TRIPLE - NX_DIFF_MUL_ADD] = REAL_ROW(mul_add_triple),
        [NX_MUL_SUB_QUOTIENT - NX_DIFF_MUL_ADD] = REAL_ROW(mul_sub_quotient),
        [NX_DIFF_SUB_MUL - NX_DIFF_MUL_ADD] = REAL_ROW(diff_sub_mul),
    };
    return rows[code - NX_DIFF_MUL_ADD][f64];
}
