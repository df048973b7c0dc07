/* Target descriptions: what a device is, how fast it does what, which kernels it has. */
#ifndef STATOR_COMPILE_TARGET_H
#define STATOR_COMPILE_TARGET_H

#include "base/arena.h"
#include "ir/target.h"

/* Bytes a second while an op's operands together have this size. Sorted by size. */
typedef struct target_bandwidth {
    double bytes, gbps;
} target_bandwidth_t;

typedef struct target {
    st_arena_t arena;
    ir_machine_t machine;
    bool reference_kernels; /* the choice is among the reference kernels only */
    uint32_t n_bandwidths;
    target_bandwidth_t *bandwidths;
    double pass_gflops[IR_DTYPE_END];    /* passes over elements; 0: as f32 */
    double product_gflops[IR_DTYPE_END]; /* products; 0: as f32 */
} target_t;

/* The built-in description `name` ("cpu"). Freed with target_destroy. */
st_status_t target_open(const char *name, target_t **out_target) ST_WARN_UNUSED;
void target_destroy(target_t *target); /* NULL is fine */
/* Fills in what passes see: machine, cost and can_run; `target` becomes the context and outlives
 * it. */
void target_fill(target_t *target, ir_target_t *out);

/* ir_target_t.cost and can_run (cost.c). */
void target_cost(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types, ir_cost_t *out);
bool target_can_run(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                    const char **out_reason);

#endif
