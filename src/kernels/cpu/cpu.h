/* What the files of this folder share. They are compiled once a processor level (KERN_ARCH), so
 * every symbol that leaves a file goes through KERN_SYMBOL.
 *
 * Loops are written for the compiler's vectorizer: plain arrays, no calls, no early exits. All work
 * is cut by dev_team_for at sizes that depend on shapes only, and every sum has an order that
 * depends on shapes only: the bits are the same on any number of threads. */
#ifndef STATOR_KERNELS_CPU_CPU_H
#define STATOR_KERNELS_CPU_CPU_H

#include "device/cpu/team.h"
#include "kernels/problem.h"

typedef const kern_impl_t *const cpu_array_t[];

#define CPU_IMPL(op_enum, text, can_fn, workspace_fn, launch_fn)              \
    static const kern_impl_t cpu_impl_##text = {.name = "cpu." #text ".fast", \
                                                .op = IR_OP_##op_enum,        \
                                                .can_run = (can_fn),          \
                                                .workspace = (workspace_fn),  \
                                                .launch = (launch_fn)};

/* The iterations of the next loop are independent, also where the output is one of the inputs. */
#if defined(__clang__)
#define CPU_VECTOR /* vectorizes after a check at run time */
#else
#define CPU_VECTOR _Pragma("GCC ivdep")
#endif

/* Elements a chunk of an elementwise loop: two thirds of a level 2 cache with three f32 operands.
 */
enum { CPU_GRAIN = 16384 };

static inline int64_t cpu_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t cpu_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static inline int64_t cpu_ceil(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
/* Rows a chunk, so that a chunk has about CPU_GRAIN elements. */
static inline int64_t cpu_row_grain(int64_t row) {
    return cpu_max(1, CPU_GRAIN / cpu_max(1, row));
}

/* Is an operand a float smaller than f32? Such problems go to small.c. */
static inline bool cpu_any_small(const kern_problem_t *problem) {
    for (uint32_t j = 0; j < problem->n_in + problem->n_out; j++) {
        ir_dtype_t dtype =
            (j < problem->n_in ? problem->in[j] : problem->out[j - problem->n_in]).dtype;
        if (ir_dtype_is_float(dtype) && ir_dtype_bytes(dtype) < sizeof(float)) return true;
    }
    return false;
}
/* Every float operand is f32, or every one is f64; labels, masks, seeds and scalars may differ. */
static inline bool cpu_can_real_as(ir_dtype_t dtype, const kern_problem_t *problem,
                                   const char **out_reason) {
    if ((dtype == IR_F32 || dtype == IR_F64) && !cpu_any_small(problem)) return true;
    *out_reason = "f32 or f64 is needed";
    return false;
}
static inline bool cpu_can_real(const kern_problem_t *problem, const char **out_reason) {
    return cpu_can_real_as(problem->out[0].dtype, problem, out_reason);
}
static inline bool cpu_can_real_input(const kern_problem_t *problem, const char **out_reason) {
    return cpu_can_real_as(problem->in[0].dtype, problem, out_reason);
}

/* ---- walks: an output in row-major order with up to 4 strided operands ---- */

/* Dims of extent 1 are gone and neighbours that can be one are merged, so the last dim is as long
 * as possible; a walk has at least one dim. */
enum { CPU_WALK_OPERANDS = 4 };
typedef struct cpu_walk {
    int32_t rank, n;
    int64_t elements;
    int64_t dims[IR_MAX_RANK];
    int64_t stride[CPU_WALK_OPERANDS][IR_MAX_RANK];
} cpu_walk_t;

static inline void cpu_walk_merge(cpu_walk_t *walk) {
    int32_t rank = 0;
    for (int32_t d = 0; d < walk->rank; d++) {
        int64_t size = walk->dims[d]; /* its place may be the one written below */
        if (size == 1) continue;
        bool joins = rank > 0;
        for (int32_t k = 0; k < walk->n && joins; k++)
            joins = walk->stride[k][rank - 1] == walk->stride[k][d] * size;
        if (!joins) walk->dims[rank++] = 1;
        walk->dims[rank - 1] *= size;
        for (int32_t k = 0; k < walk->n; k++) walk->stride[k][rank - 1] = walk->stride[k][d];
    }
    if (rank == 0) {
        walk->dims[rank++] = 1;
        for (int32_t k = 0; k < walk->n; k++) walk->stride[k][0] = 1;
    }
    walk->rank = rank;
}

/* Walk over `out` with `n` operands that broadcast to it. */
static inline cpu_walk_t cpu_walk_broadcast(const ir_type_t *out, int32_t n, const ir_type_t *in) {
    cpu_walk_t walk = {.rank = out->rank, .n = n, .elements = ir_type_elements(out)};
    for (int32_t d = 0; d < out->rank; d++) walk.dims[d] = out->dims[d];
    for (int32_t k = 0; k < n; k++) kern_broadcast_strides(&in[k], out, walk.stride[k]);
    if (walk.elements > 0) cpu_walk_merge(&walk);
    return walk;
}

/* Position within a walk: coordinates and the operands' offsets. */
typedef struct cpu_cursor {
    int64_t coord[IR_MAX_RANK];
    int64_t at[CPU_WALK_OPERANDS];
} cpu_cursor_t;

static inline cpu_cursor_t cpu_cursor_at(const cpu_walk_t *walk, int64_t element) {
    cpu_cursor_t cursor = {{0}, {0}};
    for (int32_t d = walk->rank - 1; d >= 0; d--) {
        cursor.coord[d] = element % walk->dims[d];
        element /= walk->dims[d];
        for (int32_t k = 0; k < walk->n; k++) cursor.at[k] += cursor.coord[d] * walk->stride[k][d];
    }
    return cursor;
}
/* Moves on by `n` elements, which end at or before the end of the last dim. */
static inline void cpu_cursor_move(const cpu_walk_t *walk, cpu_cursor_t *cursor, int64_t n) {
    int32_t d = walk->rank - 1;
    for (int32_t k = 0; k < walk->n; k++) cursor->at[k] += n * walk->stride[k][d];
    cursor->coord[d] += n;
    while (d > 0 && cursor->coord[d] == walk->dims[d]) {
        for (int32_t k = 0; k < walk->n; k++)
            cursor->at[k] += walk->stride[k][d - 1] - walk->dims[d] * walk->stride[k][d];
        cursor->coord[d] = 0;
        cursor->coord[--d]++;
    }
}

/* ---- products on one thread: gemm.c ---- */

/* c[m,n] = (accumulate ? c : 0) + a · b with any strides of a and b; c has unit column stride. */
#define cpu_gemm_f32 KERN_SYMBOL(kern_cpu_gemm_f32)
#define cpu_gemm_f64 KERN_SYMBOL(kern_cpu_gemm_f64)
#define cpu_gemm_pack_bytes KERN_SYMBOL(kern_cpu_gemm_pack_bytes)
#define CPU_GEMM_ARGS(real)                                                                      \
    int64_t m, int64_t n, int64_t k, const real *a, int64_t a_row, int64_t a_col, const real *b, \
        int64_t b_row, int64_t b_col, real *c, int64_t c_row, bool accumulate, void *pack
void cpu_gemm_f32(CPU_GEMM_ARGS(float));
void cpu_gemm_f64(CPU_GEMM_ARGS(double));
/* Scratch of one call with dims up to these; a multiple of 64. `pack` is aligned to 64 bytes. */
size_t cpu_gemm_pack_bytes(int64_t m, int64_t n, int64_t k, size_t element_bytes);

/* b packed once for several products c = a · b with k ≤ CPU_GEMM_DEPTH, which may have any of its
 * first columns. Their pack scratch is that of cpu_gemm. */
enum { CPU_GEMM_DEPTH = 256 };
#define cpu_gemm_packed_bytes KERN_SYMBOL(kern_cpu_gemm_packed_bytes)
size_t cpu_gemm_packed_bytes(int64_t n, int64_t k, size_t element_bytes);
#define cpu_gemm_pack_f32 KERN_SYMBOL(kern_cpu_gemm_pack_f32)
#define cpu_gemm_pack_f64 KERN_SYMBOL(kern_cpu_gemm_pack_f64)
#define CPU_GEMM_PACK_ARGS(real) \
    real *to, const real *b, int64_t b_row, int64_t b_col, int64_t k, int64_t n
void cpu_gemm_pack_f32(CPU_GEMM_PACK_ARGS(float));
void cpu_gemm_pack_f64(CPU_GEMM_PACK_ARGS(double));
#define cpu_gemm_packed_f32 KERN_SYMBOL(kern_cpu_gemm_packed_f32)
#define cpu_gemm_packed_f64 KERN_SYMBOL(kern_cpu_gemm_packed_f64)
#define CPU_GEMM_PACKED_ARGS(real)                                                \
    int64_t m, int64_t n, int64_t k, const real *a, int64_t a_row, int64_t a_col, \
        const real *packed, real *c, int64_t c_row, void *pack
void cpu_gemm_packed_f32(CPU_GEMM_PACKED_ARGS(float));
void cpu_gemm_packed_f64(CPU_GEMM_PACKED_ARGS(double));

#endif
