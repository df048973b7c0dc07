/* Products on one thread: blocks packed for cache, a register tile that the compiler keeps in
 * vector registers.
 *
 *         n →   NC           for each NC columns of b, each KC of k: pack b into strips of NR
 *               columns
 *       +-----+-----+          for each MC rows of a: pack a into strips of MR rows
 *    KC |  b  |                  for each strip of b, each strip of a:
 *       +-----+-----+              MR × NR tile += a-strip · b-strip
 *  MC ┌──┐
 *  ↓  │a │   packed a (MC · KC) stays in level 2, a strip of b (KC · NR) in level 1
 *     └──┘
 *
 * The structure is that of Goto and van de Geijn, "Anatomy of high-performance matrix
 * multiplication", ACM TOMS 34 (2008). Any strides are fine since packing reads through them:
 * transposes cost nothing more. Small operands whose rows or columns lie as the tile reads them are
 * not packed: in attention that took as long as half of the arithmetic. The order of a sum depends
 * on k only: KC at a time. */
#include <string.h>

#include "kernels/cpu/cpu.h"

#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, MR = 8 };
#define VECTOR_ATTRIBUTE vector_size(64)
#elif defined(__AVX2__)
enum { VECTOR_BYTES = 32, MR = 6 };
#define VECTOR_ATTRIBUTE vector_size(32)
#else
enum { VECTOR_BYTES = 16, MR = 4 };
#define VECTOR_ATTRIBUTE vector_size(16)
#endif
enum { MC = 96, KC = CPU_GEMM_DEPTH, NC = 1024, NV = 2 /* vectors a row of the tile */ };
enum { IN_PLACE_BYTES = 49152, IN_PLACE_COLUMNS = 128 };

size_t cpu_gemm_pack_bytes(int64_t m, int64_t n, int64_t k, size_t element_bytes) {
    int64_t rows = cpu_min(cpu_max(m, 1), MC) + MR, depth = cpu_min(cpu_max(k, 1), KC);
    int64_t nr = NV * VECTOR_BYTES / (int64_t)element_bytes;
    int64_t columns = cpu_min(cpu_max(n, 1), NC) + nr;
    return (((size_t)(rows * depth) * element_bytes + 63) & ~(size_t)63) +
           (((size_t)(columns * depth) * element_bytes + 63) & ~(size_t)63);
}

size_t cpu_gemm_packed_bytes(int64_t n, int64_t k, size_t element_bytes) {
    int64_t nr = NV * VECTOR_BYTES / (int64_t)element_bytes;
    size_t columns = (size_t)(cpu_max(n, 1) + nr - 1) / (size_t)nr * (size_t)nr;
    return st_size_align(st_size_mul(st_size_mul(columns, (size_t)k), element_bytes), 64);
}

#define REAL float
#define TYPED(name) name##_f32
#include "kernels/cpu/gemm.inc"
#define REAL double
#define TYPED(name) name##_f64
#include "kernels/cpu/gemm.inc"
