/* Target descriptions (target.h). */
#include "compile/target.h"

#include <string.h>

#include "base/memory.h"

st_status_t target_open(const char *name, target_t **out_target) {
    static const target_bandwidth_t bandwidths[] = {{32e3, 60}, {1e6, 40}, {16e6, 20}, {128e6, 12}};
    *out_target = NULL;
    if (strcmp(name, "cpu") != 0)
        return FAIL(ST_NOT_FOUND, "there is no target '%s': this build has cpu", name);
    target_t *target = st_calloc(1, sizeof *target);
    if (!target) return st_no_memory(sizeof *target, "a target");
    target->machine = (ir_machine_t){.name = "cpu",
                                     .device = "cpu",
                                     .n_cores = 2,
                                     .n_threads = 1,
                                     .clock_ghz = 2.6,
                                     .cache_bytes = {32 << 10, 1 << 20, 32 << 20},
                                     .memory_gbps = 12,
                                     .launch_us = 0.5,
                                     .link_us = 5,
                                     .link_gbps = 8};
    target->n_bandwidths = sizeof bandwidths / sizeof bandwidths[0];
    target->bandwidths = st_arena_copy(&target->arena, bandwidths, sizeof bandwidths);
    if (!target->bandwidths) {
        target_destroy(target);
        return st_no_memory(sizeof bandwidths, "a target");
    }
    target->pass_gflops[IR_F32] = 4;
    target->pass_gflops[IR_F64] = 2;
    target->product_gflops[IR_F32] = 65;
    target->product_gflops[IR_F64] = 30;
    *out_target = target;
    return ST_OK;
}

void target_destroy(target_t *target) {
    if (!target) return;
    st_arena_clear(&target->arena);
    st_free(target);
}

void target_fill(target_t *target, ir_target_t *out) {
    out->name = target->machine.name;
    out->context = target;
    out->machine = &target->machine;
    out->cost = target_cost;
    out->can_run = target_can_run;
}
