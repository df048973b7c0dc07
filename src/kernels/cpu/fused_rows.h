/* How rows are written: sources have stride 0 or 1. */
#ifndef STATOR_KERNELS_CPU_FUSED_ROWS_H
#define STATOR_KERNELS_CPU_FUSED_ROWS_H

#define ROW_ARGS                                                                                 \
    void *d, const void *pa, int64_t sa, const void *pb, int64_t sb, const void *pc, int64_t sc, \
        int64_t n
#define UNUSED_B (void)pb, (void)sb, (void)pc, (void)sc

/* Independent iterations. Unrolling them gains nothing. */
#if defined(__clang__)
#define FUSED_LOOP
#else
#define FUSED_LOOP _Pragma("GCC ivdep")
#endif

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))

#define REAL_ROW(name) \
    { fr_##name##_f32, fr_##name##_f64 }

#define TERNARY(name, expression)                        \
    static void TYPED(fr_##name)(ROW_ARGS) {             \
        const REAL *a = pa, *b = pb, *c = pc;            \
        REAL *y = d;                                     \
        if (sa && sb && sc) {                            \
            FUSED_LOOP                                   \
            for (int64_t i = 0; i < n; i++) {            \
                const REAL u = a[i], v = b[i], w = c[i]; \
                y[i] = (expression);                     \
            }                                            \
        } else if (sa && sb) {                           \
            const REAL w = *c;                           \
            FUSED_LOOP                                   \
            for (int64_t i = 0; i < n; i++) {            \
                const REAL u = a[i], v = b[i];           \
                y[i] = (expression);                     \
            }                                            \
        } else if (sa && sc) {                           \
            const REAL v = *b;                           \
            FUSED_LOOP                                   \
            for (int64_t i = 0; i < n; i++) {            \
                const REAL u = a[i], w = c[i];           \
                y[i] = (expression);                     \
            }                                            \
        } else if (sb && sc) {                           \
            const REAL u = *a;                           \
            FUSED_LOOP                                   \
            for (int64_t i = 0; i < n; i++) {            \
                const REAL v = b[i], w = c[i];           \
                y[i] = (expression);                     \
            }                                            \
        } else if (sa) {                                 \
            const REAL v = *b, w = *c;                   \
            FUSED_LOOP                                   \
            for (int64_t i = 0; i < n; i++) {            \
                const REAL u = a[i];                     \
                y[i] = (expression);                     \
            }                                            \
        } else if (sb) {                                 \
            const REAL u = *a, w = *c;                   \
            FUSED_LOOP                                   \
            for (int64_t i = 0; i < n; i++) {            \
                const REAL v = b[i];                     \
                y[i] = (expression);                     \
            }                                            \
        } else if (sc) {                                 \
            const REAL u = *a, v = *b;                   \
            FUSED_LOOP                                   \
            for (int64_t i = 0; i < n; i++) {            \
                const REAL w = c[i];                     \
                y[i] = (expression);                     \
            }                                            \
        } else {                                         \
            for (int64_t i = 0; i < n; i++) {            \
                const REAL u = *a, v = *b, w = *c;       \
                y[i] = (expression);                     \
            }                                            \
        }                                                \
    }

#endif
