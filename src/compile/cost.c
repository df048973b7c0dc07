/* What a node costs on a target.
 *
 *   us = launches · launch_us + max(units · ns a unit, flop / rate, bytes / bandwidth)
 *
 * Where the description has rates of the op and the element type, ns a unit comes from them: for
 * passes over elements interpolated over the logarithm of the bytes that the op touches (or of
 * those that lie between the last use of its operands and now, if that is more: then they have left
 * the nearer caches), for products from the nearest measured shapes, weighted by the inverse fourth
 * power of their distance in log2 of the sizes. Elsewhere a roofline: arithmetic at the type's
 * rate, bytes at the bandwidth of operands of this size. A collective of n ranks is a ring: 2 (n -
 * 1) steps with 1/n of the bytes each for a sum, n - 1 to gather. O(rates of the op) a node.
 *
 * Rooflines: Williams, Waterman, Patterson, CACM 2009. Weighting: Shepard, ACM 1968. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "compile/target.h"
#include "ir/link.h"
#include "kernels/table.h"

/* ---- rates ---- */

/* Between two sizes the time, not the rate, is interpolated, over the logarithm of the size. */
double target_bandwidth_at(const target_t *t, double bytes) {
    const target_bandwidth_t *b = t->bandwidths;
    uint32_t n = t->n_bandwidths;
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

/* Speed of the plan's threads against one. Between the rows linear, beyond the last in proportion,
 * never for more threads than there are cores. */
static double speed(const target_t *t, bool products) {
    double n = t->machine.n_threads, at = 1, so_far = 1;
    if (n > t->machine.n_cores) n = t->machine.n_cores;
    for (uint32_t i = 0; i < t->n_threads && at < n; i++) {
        double value = products ? t->threads[i].products : t->threads[i].passes;
        double next = t->threads[i].n;
        if (next > n) value = so_far + (value - so_far) * (n - at) / (next - at);
        at = next > n ? n : next;
        so_far = value;
    }
    return so_far * n / at;
}

static double octaves(int64_t n) {
    return log2((double)(n > 0 ? n : 1));
}

void target_place(work_kind_t kind, const work_dims_t *d, double out[TARGET_AXES]) {
    memset(out, 0, TARGET_AXES * sizeof *out);
    if (kind == WORK_PRODUCT) {
        out[0] = octaves(d->b);
        out[1] = octaves(d->m);
        out[2] = octaves(d->n);
        out[3] = octaves(d->k);
    } else if (kind == WORK_CONV) {
        out[0] = (octaves(d->n) + octaves(d->p)) / 2;
        out[1] = octaves(d->c);
        out[2] = octaves(d->o);
        out[3] = octaves(d->g) * 2;
        out[4] = octaves(d->r);
        out[5] = octaves(d->s);
    } else {
        out[0] = (octaves(d->b) + octaves(d->h)) / 2;
        out[1] = octaves(d->m);
        out[2] = octaves(d->s);
        out[3] = octaves(d->d);
        out[4] = (octaves(d->h) - octaves(d->g)) / 2;
    }
}

/* Rates of the op that fit: of its variant, else those that hold for any. */
static uint32_t rates_for(const target_t *t, ir_op_t op, const char *variant, ir_dtype_t dtype,
                          const target_rate_t **out) {
    uint32_t n = 0;
    for (uint32_t i = t->first_rate[op]; i < t->first_rate[op + 1]; i++) {
        const target_rate_t *r = &t->rates[i];
        if (r->dtype != dtype || strcmp(r->variant, variant) != 0) continue;
        if (!n++) *out = r; /* they stand together */
    }
    return n || !variant[0] ? n : rates_for(t, op, "", dtype, out);
}

static double pass_ns(const target_rate_t *r, uint32_t n, double bytes) {
    if (bytes <= r[0].bytes) return r[0].ns;
    for (uint32_t i = 1; i < n; i++) {
        if (bytes > r[i].bytes) continue;
        double x = log(bytes / r[i - 1].bytes) / log(r[i].bytes / r[i - 1].bytes);
        return (1 - x) * r[i - 1].ns + x * r[i].ns;
    }
    return r[n - 1].ns;
}

static double product_ns(const target_rate_t *r, uint32_t n, const work_t *w) {
    double weights = 0, sum = 0, place[TARGET_AXES];
    target_place(w->kind, &w->dims, place);
    for (uint32_t i = 0; i < n; i++) {
        double d2 = 1e-4;
        for (int a = 0; a < TARGET_AXES; a++)
            d2 += (place[a] - r[i].place[a]) * (place[a] - r[i].place[a]);
        weights += 1 / (d2 * d2);
        sum += r[i].log_ns / (d2 * d2);
    }
    return exp(sum / weights);
}

/* Nanoseconds a unit on one thread; 0: the description has no rate of it. */
static double unit_ns(const target_t *t, ir_op_t op, const work_t *w, double bytes) {
    const target_rate_t *rates = NULL;
    uint32_t n = rates_for(t, op, w->variant, w->dtype, &rates);
    /* both types of 16 bits run at one rate wherever there are units for them */
    if (!n && w->dtype == IR_F16 && w->kind != WORK_EACH)
        n = rates_for(t, op, w->variant, IR_BF16, &rates);
    if (!n) return 0;
    return w->kind == WORK_EACH ? pass_ns(rates, n, bytes) : product_ns(rates, n, w);
}

/* A body's arithmetic: the sum of what its nodes take on values in the nearest cache or in
 * registers. */
typedef struct body_time {
    const target_t *target;
    double ns;
    st_status_t status;
} body_time_t;

static void add_time(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types) {
    body_time_t *sum = context;
    const target_t *t = sum->target;
    work_t w;
    work_of(ctx, out_types, &w);
    if (w.status != ST_OK) sum->status = w.status;
    double ns = t->tile_ns[ctx->op][w.dtype];
    if (ns > 0)
        sum->ns += w.units * ns;
    else if (w.kind == WORK_EACH)
        sum->ns += w.flop / rate_of(t->pass_gflops, w.dtype);
    else
        sum->ns += w.product_flop / rate_of(t->product_gflops, w.dtype);
}
static body_time_t body_time(const target_t *t, const ir_op_ctx_t *ctx) {
    body_time_t sum = {t, 0, ST_OK};
    st_status_t status = work_each_node(ir_ctx_attr(ctx, "body")->graph, add_time, &sum);
    if (status != ST_OK) sum.status = status;
    return sum;
}

/* ---- kernels ---- */

static _Thread_local char reasons[512];

/* A kernel with epilogues runs a body of one of its ops followed by those. */
static bool runs_body(const target_kernel_t *k, const ir_op_ctx_t *ctx, char *reason,
                      size_t capacity) {
    const ir_graph_t *body = ir_ctx_attr(ctx, "body")->graph;
    uint32_t n_own = 0;
    for (ir_node_t n = 0; n < body->nodes.n; n++) {
        ir_op_t op = ir_node(body, n)->op;
        if (ir_op_def(op)->flags & (IR_SOURCE | IR_VIEW)) continue;
        if (n_own ? !k->epilogues[op] : !k->ops[op]) {
            snprintf(reason, capacity, "not for %s in a body", ir_op_def(op)->name);
            return false;
        }
        n_own++;
    }
    if (!n_own) snprintf(reason, capacity, "the body does nothing");
    return n_own > 0;
}

static bool lists(const target_kernel_t *k, ir_op_t op) {
    if (k->ops[op] || op != IR_OP_FUSED) return k->ops[op];
    for (int e = 0; e < IR_OP_END; e++)
        if (k->epilogues[e]) return true;
    return false;
}

static const char *choose_listed(const target_t *t, const ir_op_ctx_t *ctx,
                                 const ir_type_t *out_types, const work_t *w, size_t *out_workspace,
                                 uint32_t *out_launches) {
    const kern_problem_t problem = {ctx->op,   ctx->n_inputs, ctx->n_outputs, ctx->in,
                                    out_types, ctx->attrs,    ctx->name};
    const bool cuda = strcmp(t->machine.device, "cuda") == 0;
    size_t used = (size_t)snprintf(reasons, sizeof reasons, "no kernel on %s for %s",
                                   t->machine.name, ir_op_def(ctx->op)->name);
    for (uint32_t i = 0; i < t->n_kernels; i++) {
        const target_kernel_t *k = &t->kernels[i];
        char text[160];
        const char *reason = text;
        if (!lists(k, ctx->op)) continue;
        *out_launches = k->launches;
        bool runs = !k->dtypes || k->dtypes >> w->dtype & 1;
        if (!runs)
            snprintf(text, sizeof text, "not for %s", ir_dtype_text(w->dtype));
        else if (cuda)
            runs = kern_runs_on_gpu(k->name, &problem, out_workspace, out_launches, &reason);
        else if (ctx->op == IR_OP_FUSED)
            runs = runs_body(k, ctx, text, sizeof text);
        if (runs) return k->name;
        if (used < sizeof reasons)
            used += (size_t)snprintf(reasons + used, sizeof reasons - used, "; %s: %s", k->name,
                                     reason);
    }
    return NULL;
}

static const char *choose(const target_t *t, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                          const work_t *w, size_t *out_workspace, uint32_t *out_launches,
                          const char **out_reason) {
    *out_workspace = 0;
    *out_launches = 1;
    *out_reason = reasons;
    if (strcmp(t->machine.device, "cpu") != 0)
        return choose_listed(t, ctx, out_types, w, out_workspace, out_launches);
    kern_problem_t problem = {ctx->op,   ctx->n_inputs, ctx->n_outputs, ctx->in,
                              out_types, ctx->attrs,    ctx->name};
    const kern_impl_t *impl = NULL;
    if (kern_choose("cpu", &problem, t->reference_kernels, &impl) != ST_OK) {
        snprintf(reasons, sizeof reasons, "%s", st_last_error());
        return NULL;
    }
    if (impl->workspace) *out_workspace = impl->workspace(&problem, (int)t->machine.n_threads);
    return impl->name;
}

const char *target_choose(const target_t *t, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                          size_t *out_workspace, uint32_t *out_launches, const char **out_reason) {
    work_t w;
    work_of(ctx, out_types, &w);
    return choose(t, ctx, out_types, &w, out_workspace, out_launches, out_reason);
}

void target_refusals(const target_t *t, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                     char *out, size_t capacity) {
    size_t workspace;
    uint32_t launches;
    const char *reason;
    out[0] = '\0';
    if (strcmp(t->machine.device, "cpu") == 0) return;
    const char *kernel = target_choose(t, ctx, out_types, &workspace, &launches, &reason);
    const char *first = kernel ? strstr(reasons, "; ") : NULL;
    if (first) snprintf(out, capacity, "%s", first + 2);
}

/* ---- cost ---- */

static void collective(const target_t *t, const ir_op_ctx_t *ctx, const work_t *w, ir_cost_t *out) {
    const ir_mesh_t *mesh = &t->machine.mesh;
    uint32_t axis = IR_NONE;
    if (ir_op_def(ctx->op)->flags & IR_START)
        axis = ir_mesh_find(mesh, ir_ctx_attr(ctx, "mesh")->s);
    const ir_links_t links = axis == IR_NONE ? ir_links_of(&t->machine, 1, 1)
                                             : ir_links_of(&t->machine, mesh->axes[axis].size,
                                                           ir_mesh_stride(mesh, axis));
    out->limit = "link";
    out->launches = links.n > 1;
    out->us = ir_start_us(&links, ctx->op, fmax(w->bytes_read, w->bytes_written));
}

/* What the description says of this kernel alone; 0: nothing. */
static double gflops_of(const target_t *t, ir_op_t op, const char *kernel) {
    for (uint32_t i = 0; kernel && i < t->n_kernels; i++)
        if (t->kernels[i].ops[op] && strcmp(t->kernels[i].name, kernel) == 0)
            return t->kernels[i].gflops;
    return 0;
}

/* Of the shorter of a nest's arithmetic and traffic on a processor, what the longer does not hide.
 * Strips of elements are read, computed and written one after the other, yet the processor runs
 * ahead into the next: bench_nests gave from less than 0 (silu times up) to 0.6 (gelu_grad beside
 * its bias gradient). Reductions end that: such a nest takes both. */
static const double STRIPS_APART = 0.3;

static bool each_by_itself(const ir_graph_t *body) {
    for (ir_node_t n = 0; n < body->nodes.n; n++)
        if (!(ir_op_def(ir_node(body, n)->op)->flags & (IR_ELEMENTWISE | IR_SOURCE | IR_VIEW)))
            return false;
    return true;
}

/* `reach`: bytes that bandwidths and rates are those of. */
static void time_of(const target_t *t, const ir_op_ctx_t *ctx, const work_t *w, double reach,
                    ir_cost_t *out) {
    double bytes = w->bytes_read + w->bytes_written;
    double launch = out->launches * t->machine.launch_us;
    double passes = speed(t, false), products = speed(t, true);
    double compute, memory = bytes / target_bandwidth_at(t, reach) / passes * 1e-3;
    double ns = unit_ns(t, ctx->op, w, reach), gflops = gflops_of(t, ctx->op, out->kernel);
    if (gflops > 0) {
        compute = w->flop / gflops * 1e-3;
        out->us = launch + fmax(compute, memory);
        out->limit = compute > memory ? "compute" : "memory";
        if (launch > out->us - launch) out->limit = "launch";
        return;
    }
    if (ns > 0 && w->kind == WORK_EACH) {
        out->us = launch + w->units * ns / passes * 1e-3;
        out->limit = memory > 0.5 * (out->us - launch) ? "memory" : "compute";
        if (launch > out->us - launch) out->limit = "launch";
        return;
    }
    if (ctx->op == IR_OP_FUSED) {
        if (t->nest_us > 0) launch = t->nest_us;
        double edges = bytes / (double)ir_dtype_bytes(w->dtype) * t->edge_ns[w->dtype];
        memory = fmax(memory, edges / passes * 1e-3);
        const body_time_t body = body_time(t, ctx);
        if (body.status != ST_OK) out->status = body.status;
        out->compute_us = compute = body.ns / passes * 1e-3;
        out->us = launch + fmax(compute, memory);
        double apart = each_by_itself(ir_ctx_attr(ctx, "body")->graph) ? STRIPS_APART : 1;
        if (edges > 0) out->us += apart * fmin(compute, memory);
        out->limit = compute > memory ? "compute" : "memory";
        if (launch > out->us - launch) out->limit = "launch";
        return;
    }
    compute = (w->flop - w->product_flop) / rate_of(t->pass_gflops, w->dtype) / passes * 1e-3;
    if (ns > 0) {
        /* On a processor rates are measured on operands in its caches: from farther away they come
         * first. */
        double own = bytes / target_bandwidth_at(t, bytes) / passes * 1e-3;
        bool warm = strcmp(t->machine.device, "cpu") == 0;
        compute = w->units * ns / products * 1e-3 + (warm ? memory - own : 0);
    } else {
        compute += w->product_flop / rate_of(t->product_gflops, w->dtype) / products * 1e-3;
    }
    out->us = launch + fmax(compute, memory);
    out->compute_us = compute;
    out->limit = compute > memory ? "compute" : "memory";
    if (launch > fmax(compute, memory)) out->limit = "launch";
}

void target_work_only(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                      ir_cost_t *out) {
    work_t w;
    (void)context;
    work_of(ctx, out_types, &w);
    *out = (ir_cost_t){.flop = w.flop,
                       .product_flop = w.product_flop,
                       .bytes_read = w.bytes_read,
                       .bytes_written = w.bytes_written,
                       .limit = "launch",
                       .status = w.status};
}

/* ---- regions: their bodies' nodes are kernels of their own ---- */

typedef struct region_sum {
    const target_t *target;
    double us;
    uint32_t launches;
    st_status_t status;
} region_sum_t;

static void add_node(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types) {
    region_sum_t *sum = context;
    ir_cost_t cost;
    target_cost_at(sum->target, ctx, out_types, 0, &cost);
    sum->us += cost.us;
    sum->launches += cost.launches;
    if (cost.status != ST_OK) sum->status = cost.status;
}
static region_sum_t region_cost(const target_t *t, const ir_op_ctx_t *ctx, const char *body) {
    region_sum_t sum = {t, 0, 0, ST_OK};
    st_status_t status = work_each_node(ir_ctx_attr(ctx, body)->graph, add_node, &sum);
    if (status != ST_OK) sum.status = status;
    return sum;
}
static bool is_region(ir_op_t op) {
    return op == IR_OP_REPEAT || op == IR_OP_COND;
}
static void region(const target_t *t, const ir_op_ctx_t *ctx, ir_cost_t *out) {
    region_sum_t sum;
    if (ctx->op == IR_OP_REPEAT) {
        int64_t trip = ir_ctx_int(ctx, "trip");
        sum = region_cost(t, ctx, "body");
        sum.us *= (double)trip;
        sum.launches = (uint32_t)fmin((double)sum.launches * (double)trip, UINT32_MAX);
    } else {
        region_sum_t other = region_cost(t, ctx, "else");
        sum = region_cost(t, ctx, "then");
        const st_status_t status = sum.status != ST_OK ? sum.status : other.status;
        if (other.us > sum.us) sum = other;
        sum.status = status;
    }
    if (sum.status != ST_OK) out->status = sum.status;
    out->us = sum.us + t->machine.launch_us;
    out->launches = sum.launches;
    out->limit = "compute";
}

void target_cost_at(const target_t *t, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                    double distance_bytes, ir_cost_t *out) {
    const char *reason;
    work_t w;
    work_of(ctx, out_types, &w);
    target_work_only(NULL, ctx, out_types, out);
    if (w.kind == WORK_NOTHING) return;
    if (w.kind == WORK_COLLECTIVE) {
        collective(t, ctx, &w, out);
        return;
    }
    out->kernel = choose(t, ctx, out_types, &w, &out->workspace, &out->launches, &reason);
    if (is_region(ctx->op)) {
        region(t, ctx, out);
        return;
    }
    double reach = fmax(distance_bytes, w.bytes_read + w.bytes_written);
    if (ctx->op == IR_OP_FUSED)
        w.bytes_read += target_bytes_again(t, ir_ctx_attr(ctx, "body")->graph);
    out->bytes_read = w.bytes_read;
    time_of(t, ctx, &w, reach, out);
    /* a processor's product goes on from a copy of what it is added to */
    if (ctx->op == IR_OP_MATMUL && ctx->n_inputs > 2 && strcmp(t->machine.device, "cpu") == 0)
        out->us += 2 * (double)ir_type_bytes(&out_types[0]) / target_bandwidth_at(t, reach) /
                   speed(t, false) * 1e-3;
}

double target_copy_us(const target_t *t, double bytes, double distance) {
    double reach = distance > bytes ? distance : bytes;
    return t->machine.launch_us + bytes / target_bandwidth_at(t, reach) / speed(t, false) * 1e-3;
}

void target_cost(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                 ir_cost_t *out) {
    target_cost_at(context, ctx, out_types, 0, out);
}

bool target_can_run(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                    const char **out_reason) {
    size_t workspace;
    uint32_t launches;
    work_t w;
    *out_reason = "";
    work_of(ctx, out_types, &w);
    if (w.kind == WORK_NOTHING || w.kind == WORK_COLLECTIVE) return true;
    return choose(context, ctx, out_types, &w, &workspace, &launches, out_reason) != NULL;
}

st_status_t target_sums(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                        uint64_t *out_hash) {
    const target_t *t = context;
    size_t workspace;
    uint32_t launches;
    const char *reason;
    const kern_problem_t problem = {ctx->op,   ctx->n_inputs, ctx->n_outputs, ctx->in,
                                    out_types, ctx->attrs,    ctx->name};
    const char *kernel = target_choose(t, ctx, out_types, &workspace, &launches, &reason);
    *out_hash = 0;
    return kernel ? kern_sums_hash(t->machine.device, kernel, &problem, out_hash) : ST_OK;
}

double target_peak_gflops(const target_t *t, ir_dtype_t dtype) {
    double peak = rate_of(t->product_gflops, dtype);
    for (uint32_t i = t->first_rate[IR_OP_MATMUL]; i < t->first_rate[IR_OP_MATMUL + 1]; i++)
        if (t->rates[i].dtype == dtype && 2 / t->rates[i].ns > peak) peak = 2 / t->rates[i].ns;
    return peak * speed(t, true);
}

double target_peak_gbps(const target_t *t) {
    return t->machine.memory_gbps * speed(t, false);
}
