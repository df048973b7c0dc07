/* What a node costs on a target: the longer of its arithmetic and its bytes, and its launches.
 *
 *   us = launches · launch_us + max(flop / rate, bytes / bandwidth(bytes))
 *
 * The bandwidth is that of operands of this size together, so that what fits a cache moves at the
 * cache's. A collective of n ranks is a ring: 2 (n - 1) steps of 1/n of the bytes for a sum, n - 1 to
 * gather. O(1) a node. Rooflines: Williams, Waterman, Patterson, CACM 2009. */
#include <math.h>

#include "compile/target.h"
#include "compile/work.h"
#include "kernels/table.h"

/* Between two sizes the time, not the rate, is interpolated, over the logarithm of the size. */
static double bandwidth_at(const target_t *t, double bytes) {
    const target_bandwidth_t *b = t->bandwidths;
    uint32_t n = t->n_bandwidths;
    if (!n) return t->machine.memory_gbps;
    if (bytes <= b[0].bytes) return b[0].gbps;
    for (uint32_t i = 1; i < n; i++) {
        if (bytes > b[i].bytes) continue;
        double x = log(bytes / b[i - 1].bytes) / log(b[i].bytes / b[i - 1].bytes);
        return 1 / ((1 - x) / b[i - 1].gbps + x / b[i].gbps);
    }
    return b[n - 1].gbps;
}

static double rate_of(const double *by_dtype, ir_dtype_t dtype) {
    return by_dtype[dtype] > 0 ? by_dtype[dtype] : by_dtype[IR_F32];
}

static void roofline(const target_t *t, const work_t *w, ir_cost_t *out) {
    double bytes = w->bytes_read + w->bytes_written;
    double threads = t->machine.n_threads;
    double passes = w->flop - w->product_flop;
    double compute = (passes / rate_of(t->pass_gflops, w->dtype) +
                      w->product_flop / rate_of(t->product_gflops, w->dtype)) *
                     1e-3 / threads;
    double memory = bytes / bandwidth_at(t, bytes) * 1e-3;
    out->us = t->machine.launch_us + fmax(compute, memory);
    out->limit = compute > memory ? "compute" : "memory";
    if (t->machine.launch_us > fmax(compute, memory)) out->limit = "launch";
}

static const kern_impl_t *choose(const target_t *t, const ir_op_ctx_t *ctx,
                                 const ir_type_t *out_types, const char **out_reason,
                                 size_t *out_workspace) {
    kern_problem_t problem = {ctx->op,   ctx->n_inputs, ctx->n_outputs, ctx->in,
                              out_types, ctx->attrs,    ctx->name};
    const kern_impl_t *impl = NULL;
    *out_workspace = 0;
    if (kern_choose(t->machine.device, &problem, t->reference_kernels, &impl) != ST_OK) {
        *out_reason = st_last_error();
        return NULL;
    }
    if (impl->workspace) *out_workspace = impl->workspace(&problem, (int)t->machine.n_threads);
    return impl;
}

void target_cost(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                 ir_cost_t *out) {
    const target_t *t = context;
    const char *reason;
    work_t w;
    work_of(ctx, out_types, &w);
    *out = (ir_cost_t){.flop = w.flop,
                       .product_flop = w.product_flop,
                       .bytes_read = w.bytes_read,
                       .bytes_written = w.bytes_written,
                       .limit = "launch"};
    if (w.kind == WORK_NOTHING) return;
    if (w.kind == WORK_COLLECTIVE) {
        out->us = t->machine.link_us + w.bytes_read / t->machine.link_gbps * 1e-3;
        out->limit = "link";
        return;
    }
    out->launches = 1;
    const kern_impl_t *impl = choose(t, ctx, out_types, &reason, &out->workspace);
    if (impl) out->kernel = impl->name;
    roofline(t, &w, out);
}

bool target_can_run(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                    const char **out_reason) {
    const target_t *t = context;
    size_t workspace;
    work_t w;
    *out_reason = "";
    work_of(ctx, out_types, &w);
    if (w.kind == WORK_NOTHING || w.kind == WORK_COLLECTIVE) return true;
    return choose(t, ctx, out_types, out_reason, &workspace) != NULL;
}
