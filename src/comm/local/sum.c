/* Sums over ranks' buffers, block by block: the accumulator stays in the first-level cache, and the
 * order of addition is that of the buffers, whoever computes the block. */
#include "comm/local/sum.h"

#include <string.h>

#include "ir/convert.h"

enum { BLOCK = 1024 };

#define SUM_LOOP(name, type)                                                                \
    static void name(int n_buffers, void *const *buffers, int64_t begin, int64_t n) {       \
        type sum[BLOCK];                                                                    \
        size_t bytes = (size_t)n * sizeof(type);                                            \
        memcpy(sum, (const type *)buffers[0] + begin, bytes);                               \
        for (int r = 1; r < n_buffers; r++) {                                               \
            const type *from = (const type *)buffers[r] + begin;                            \
            for (int64_t i = 0; i < n; i++) sum[i] = (type)(sum[i] + from[i]);              \
        }                                                                                   \
        for (int r = 0; r < n_buffers; r++) memcpy((type *)buffers[r] + begin, sum, bytes); \
    }

/* Integers wrap: unsigned arithmetic gives the same bits without undefined overflow. */
SUM_LOOP(sum_f32, float)
SUM_LOOP(sum_f64, double)
SUM_LOOP(sum_i32, uint32_t)
SUM_LOOP(sum_i64, uint64_t)

#define SUM_SMALL_FLOAT(name, load, store)                                                        \
    static void name(int n_buffers, void *const *buffers, int64_t begin, int64_t n) {             \
        float sum[BLOCK];                                                                         \
        uint16_t rounded[BLOCK];                                                                  \
        for (int64_t i = 0; i < n; i++) sum[i] = load(((const uint16_t *)buffers[0])[begin + i]); \
        for (int r = 1; r < n_buffers; r++) {                                                     \
            const uint16_t *from = (const uint16_t *)buffers[r] + begin;                          \
            for (int64_t i = 0; i < n; i++) sum[i] += load(from[i]);                              \
        }                                                                                         \
        for (int64_t i = 0; i < n; i++) rounded[i] = store(sum[i]);                               \
        for (int r = 0; r < n_buffers; r++)                                                       \
            memcpy((uint16_t *)buffers[r] + begin, rounded, (size_t)n * sizeof *rounded);         \
    }

SUM_SMALL_FLOAT(sum_f16, ir_f16_to_f32, ir_f32_to_f16)
SUM_SMALL_FLOAT(sum_bf16, ir_bf16_to_f32, ir_f32_to_bf16)

typedef void (*sum_loop_t)(int n_buffers, void *const *buffers, int64_t begin, int64_t n);

static const sum_loop_t loops[IR_DTYPE_END] = {
    [IR_F32] = sum_f32, [IR_F64] = sum_f64, [IR_I32] = sum_i32,
    [IR_I64] = sum_i64, [IR_F16] = sum_f16, [IR_BF16] = sum_bf16,
};

bool comm_sum_supported(ir_dtype_t dtype) {
    return ir_dtype_valid((int64_t)dtype) && loops[dtype];
}

void comm_sum(ir_dtype_t dtype, int n_buffers, void *const *buffers, int64_t begin, int64_t n) {
    for (int64_t done = 0; done < n; done += BLOCK)
        loops[dtype](n_buffers, buffers, begin + done, n - done < BLOCK ? n - done : BLOCK);
}
