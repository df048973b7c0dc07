/* Sums over ranks' buffers, block by block: the accumulator stays in the first-level cache, and the
 * order of addition is that of the buffers, whoever computes the block. */
#include "comm/sum.h"

#include <string.h>

#include "ir/convert.h"

enum { BLOCK = 1024 };

#define SUM_LOOP(name, type)                                                       \
    static void name(int n_ins, const void *const *ins, int64_t from, int n_outs,  \
                     void *const *outs, int64_t to, int64_t n) {                   \
        type sum[BLOCK];                                                           \
        size_t bytes = (size_t)n * sizeof(type);                                   \
        memcpy(sum, (const type *)ins[0] + from, bytes);                           \
        for (int r = 1; r < n_ins; r++) {                                          \
            const type *in = (const type *)ins[r] + from;                          \
            for (int64_t i = 0; i < n; i++) sum[i] = (type)(sum[i] + in[i]);       \
        }                                                                          \
        for (int o = 0; o < n_outs; o++) memcpy((type *)outs[o] + to, sum, bytes); \
    }

/* Integers wrap: unsigned arithmetic gives the same bits without undefined overflow. */
SUM_LOOP(sum_f32, float)
SUM_LOOP(sum_f64, double)
SUM_LOOP(sum_i32, uint32_t)
SUM_LOOP(sum_i64, uint64_t)

#define SUM_SMALL_FLOAT(name, load, store)                                                   \
    static void name(int n_ins, const void *const *ins, int64_t from, int n_outs,            \
                     void *const *outs, int64_t to, int64_t n) {                             \
        float sum[BLOCK];                                                                    \
        uint16_t rounded[BLOCK];                                                             \
        for (int64_t i = 0; i < n; i++) sum[i] = load(((const uint16_t *)ins[0])[from + i]); \
        for (int r = 1; r < n_ins; r++) {                                                    \
            const uint16_t *in = (const uint16_t *)ins[r] + from;                            \
            for (int64_t i = 0; i < n; i++) sum[i] += load(in[i]);                           \
        }                                                                                    \
        for (int64_t i = 0; i < n; i++) rounded[i] = store(sum[i]);                          \
        for (int o = 0; o < n_outs; o++)                                                     \
            memcpy((uint16_t *)outs[o] + to, rounded, (size_t)n * sizeof *rounded);          \
    }

SUM_SMALL_FLOAT(sum_f16, ir_f16_to_f32, ir_f32_to_f16)
SUM_SMALL_FLOAT(sum_bf16, ir_bf16_to_f32, ir_f32_to_bf16)

typedef void (*sum_loop_t)(int n_ins, const void *const *ins, int64_t from, int n_outs,
                           void *const *outs, int64_t to, int64_t n);

static const sum_loop_t loops[IR_DTYPE_END] = {
    [IR_F32] = sum_f32, [IR_F64] = sum_f64, [IR_I32] = sum_i32,
    [IR_I64] = sum_i64, [IR_F16] = sum_f16, [IR_BF16] = sum_bf16,
};

bool comm_sum_supported(ir_dtype_t dtype) {
    return ir_dtype_valid((int64_t)dtype) && loops[dtype];
}

st_status_t comm_sum_check(ir_dtype_t dtype) {
    if (comm_sum_supported(dtype)) return ST_OK;
    return FAIL(ST_UNSUPPORTED, "sums over ranks of %s do not exist: f32, f64, f16, bf16, i32, i64",
                ir_dtype_text(dtype));
}

void comm_sum(ir_dtype_t dtype, int n_ins, const void *const *ins, int64_t from, int n_outs,
              void *const *outs, int64_t to, int64_t n) {
    for (int64_t done = 0; done < n; done += BLOCK)
        loops[dtype](n_ins, ins, from + done, n_outs, outs, to + done,
                     n - done < BLOCK ? n - done : BLOCK);
}
