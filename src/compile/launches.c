/* What a nest takes on a GPU, launch by launch (target.h): for a plan's prediction, where the cost
 * that fusion asks for takes a nest as one pass.
 *
 *   us = sum over launches of us(shape) + sum over its moves of bytes / gbps(shape, distance)
 *
 * Each launch fills the device and drains it, since the next waits for what it leaves; the more of
 * that there is to do, as a column's sums over a block, the longer. A tensor that an earlier launch
 * has read or stored comes from the cache where what was moved since leaves it there: the bandwidth
 * at that distance, in proportion. Linear in the launches' moves. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "compile/target.h"
#include "kernels/table.h"

typedef struct walk {
    const target_t *target;
    double far;   /* bytes between the last use of the operands and now */
    double moved; /* by the nest so far */
    double *last; /* [tensors] moved when it was last touched; below 0: not yet */
} walk_t;

/* Rates far from all caches, in proportion of the bandwidth at `reach`. */
static double move_us(const walk_t *w, const target_nest_t *nest, double bytes, double reach) {
    const target_t *t = w->target;
    const double near = target_bandwidth_at(t, reach) / t->bandwidths[t->n_bandwidths - 1].gbps;
    return bytes / (nest->gbps * near) * 1e-3;
}

static double launch_us(walk_t *w, const kern_launch_t *launch) {
    const target_nest_t *nest = &w->target->nests[launch->shape];
    double us = nest->us;
    for (uint32_t i = 0; i < launch->n_moves; i++) {
        const kern_move_t *m = &launch->moves[i];
        if (m->tensor == KERN_SCRATCH) { /* written by the launch before, or for the next */
            us += move_us(w, nest, m->bytes, m->bytes);
            continue;
        }
        const double since = w->moved - w->last[m->tensor];
        us += move_us(w, nest, m->bytes,
                      w->last[m->tensor] < 0 ? fmax(w->far, m->bytes) : fmax(since, m->bytes));
        us += move_us(w, nest, m->again_bytes, m->again_reach);
        /* what is touched once more lies as far as all that has come since, itself not counted
         * twice */
        w->last[m->tensor] = w->moved;
        w->moved += m->bytes;
    }
    return us;
}

static bool has_launches(const target_t *t, const ir_cost_t *cost) {
    return strcmp(t->machine.device, "cuda") == 0 && cost->kernel &&
           strcmp(cost->kernel, "nest") == 0;
}

st_status_t target_count_launches(const target_t *t, const ir_op_ctx_t *ctx,
                                  const ir_type_t *out_types, double distance_bytes,
                                  ir_cost_t *cost) {
    const kern_problem_t problem = {ctx->op,   ctx->n_inputs, ctx->n_outputs, ctx->in,
                                    out_types, ctx->attrs,    ctx->name};
    st_arena_t arena = {0};
    kern_launch_t *launches;
    uint32_t n;
    walk_t w = {.target = t};
    if (!has_launches(t, cost)) return ST_OK;
    st_status_t status = kern_nest_launches(&problem, &arena, &n, &launches);
    const size_t n_tensors = (size_t)ctx->n_inputs + ctx->n_outputs;
    if (status == ST_OK) {
        w.last = st_arena_array(&arena, n_tensors + 1, sizeof *w.last);
        if (!w.last) status = st_no_memory(n_tensors * sizeof *w.last, "a prediction");
    }
    if (status == ST_OK) {
        double us = 0, fixed = 0;
        for (size_t i = 0; i < n_tensors; i++) w.last[i] = -1;
        w.far = fmax(distance_bytes, cost->bytes_read + cost->bytes_written);
        for (uint32_t i = 0; i < n; i++) {
            us += launch_us(&w, &launches[i]);
            fixed += t->nests[launches[i].shape].us;
        }
        /* arithmetic that takes longer than what is moved */
        const double compute = cost->compute_us;
        cost->limit = fixed > us - fixed ? "launch" : compute > us - fixed ? "compute" : "memory";
        cost->us = fixed + fmax(us - fixed, compute);
    }
    st_arena_clear(&arena);
    return status;
}
