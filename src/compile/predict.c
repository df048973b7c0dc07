/* What a plan's steps take (predict.h).
 *
 * An operation on operands that were just written runs from the caches; one on operands last
 * touched many bytes ago does not. The plan knows both, since it has every address: memory is seen
 * as granules, each with the count of bytes that had been touched when it was last touched. What
 * lies between that and now is the operand's distance, the classic stack distance but for repeats
 * counted again (then cut to the footprint of the whole step). A node's distance is the geometric
 * mean over its operands' bytes: half near and half far lies between. Two rounds over the program;
 * the second counts, since steps follow each other. A nest on a GPU counts as the launches that it
 * is (launches.c). O(traffic / granule). Stack distances: Mattson et al., IBM Sys. J. 1970. */
#include "compile/predict.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "ir/body.h"
#include "ir/node_ctx.h"

enum { MOST_GRANULES = 1 << 16, LEAST_GRANULE = 4 << 10 };

st_status_t predict_target(const plan_t *plan, target_t **out_target) {
    const char *text = plan_option(plan, "target-description");
    const char *reference = plan_option(plan, "reference-kernels");
    if (text)
        TRY(target_parse(plan_target(plan), text, strlen(text), out_target));
    else
        TRY(target_open(plan_target(plan), out_target));
    target_bind(*out_target, &plan->mesh, plan->n_threads);
    (*out_target)->reference_kernels = reference && strcmp(reference, "true") == 0;
    return ST_OK;
}

typedef struct trace {
    uint64_t base[PLAN_REGION_END]; /* regions one after the other */
    uint64_t granule, footprint;    /* bytes */
    double touched;                 /* so far */
    double *last;                   /* [granules]: `touched` then */
} trace_t;

/* Bytes touched since the place was, on average over it; marks it as touched now. */
static double touch(trace_t *t, const plan_place_t *place) {
    if (place->region == PLAN_NOWHERE || !place->bytes) return 0;
    uint64_t begin = t->base[place->region] + place->offset;
    uint64_t first = begin / t->granule, last = (begin + place->bytes - 1) / t->granule;
    double sum = 0;
    for (uint64_t g = first; g <= last; g++) {
        sum += t->touched - t->last[g];
        t->last[g] = t->touched;
    }
    sum /= (double)(last - first + 1);
    return sum < (double)t->footprint ? sum : (double)t->footprint;
}

/* Geometric mean of the operands' distances, weighted by bytes. */
static double touch_node(trace_t *t, const plan_program_t *program, ir_node_t n) {
    const ir_node_info_t *node = ir_node(program->graph, n);
    double bytes = 0, sum = 0;
    for (uint32_t j = 0; j < node->n_inputs + node->n_outputs; j++) {
        ir_value_t v =
            j < node->n_inputs ? node->inputs[j] : node->first_output + j - node->n_inputs;
        const plan_place_t *place = &program->places[v];
        double far = touch(t, place), own = (double)place->bytes;
        if (place->region == PLAN_NOWHERE) continue;
        bytes += own;
        sum += own * log(far > own ? far : own > 1 ? own : 1);
    }
    t->touched += bytes;
    return bytes > 0 ? exp(sum / bytes) : 0;
}

static void copy_cost(const target_t *t, const plan_program_t *program, ir_node_t n, double far,
                      ir_cost_t *out) {
    const ir_node_info_t *node = ir_node(program->graph, n);
    double bytes = (double)program->places[node->inputs[0]].bytes;
    *out = (ir_cost_t){.bytes_read = bytes,
                       .bytes_written = bytes,
                       .launches = 1,
                       .kernel = "copy",
                       .limit = "memory"};
    out->us = target_copy_us(t, 2 * bytes, far);
}

static st_status_t node_cost(const target_t *t, const plan_program_t *program, ir_node_t n,
                             double far, ir_cost_t *out) {
    ir_node_ctx_t ctx;
    TRY(ir_node_ctx_open(&ctx, program->graph, n));
    target_cost_at(t, &ctx.op, ctx.out, far, out);
    st_status_t status = out->status;
    if (status == ST_OK) status = target_count_launches(t, &ctx.op, ctx.out, far, out);
    ir_node_ctx_close(&ctx);
    TRY(status);
    if (program->steps[n].kernel) out->kernel = program->steps[n].kernel;
    out->workspace = program->steps[n].workspace.bytes;
    return ST_OK;
}

static st_status_t step_cost(const target_t *t, const plan_program_t *program, ir_node_t n,
                             double far, ir_cost_t *out);

/* Control flow: the steps of a body, as often as it runs; of two bodies the dearer one. What a body
 * touches is taken to be near, as it is from the second iteration on. */
static st_status_t region_cost(const target_t *t, const plan_program_t *program, ir_node_t n,
                               ir_cost_t *out) {
    const ir_node_info_t *node = ir_node(program->graph, n);
    const ir_region_info_t info = ir_region_info(node);
    *out = (ir_cost_t){.kernel = ir_op_def(node->op)->name,
                       .limit = "launch",
                       .workspace = program->steps[n].workspace.bytes};
    for (uint32_t b = 0; b < program->steps[n].n_bodies; b++) {
        const plan_program_t *body = &program->steps[n].bodies[b];
        ir_cost_t sum = {0};
        double dearest = 0;
        for (ir_node_t i = 0; i < body->graph->nodes.n; i++) {
            ir_cost_t one = {.limit = "launch"};
            TRY(step_cost(t, body, i, 0, &one));
            sum.us += one.us;
            sum.flop += one.flop;
            sum.product_flop += one.product_flop;
            sum.bytes_read += one.bytes_read;
            sum.bytes_written += one.bytes_written;
            sum.launches += one.launches;
            if (one.us > dearest) dearest = one.us, sum.limit = one.limit;
        }
        double trip = (double)info.trip;
        if (sum.us * trip < out->us) continue;
        out->us = sum.us * trip;
        out->flop = sum.flop * trip;
        out->product_flop = sum.product_flop * trip;
        out->bytes_read = sum.bytes_read * trip;
        out->bytes_written = sum.bytes_written * trip;
        out->launches = (uint32_t)fmin((double)sum.launches * trip, UINT32_MAX);
        if (sum.limit) out->limit = sum.limit;
    }
    return ST_OK;
}

static st_status_t step_cost(const target_t *t, const plan_program_t *program, ir_node_t n,
                             double far, ir_cost_t *out) {
    plan_step_kind_t kind = program->steps[n].kind;
    if (kind == PLAN_STEP_NOTHING) return ST_OK;
    if (kind == PLAN_STEP_REGION) return region_cost(t, program, n, out);
    if (kind != PLAN_STEP_COPY) return node_cost(t, program, n, far, out);
    copy_cost(t, program, n, far, out);
    return ST_OK;
}

st_status_t predict_turn(const target_t *target, const plan_program_t *body, ir_cost_t *out_costs) {
    for (ir_node_t n = 0; n < body->graph->nodes.n; n++) {
        out_costs[n] = (ir_cost_t){.limit = "launch"};
        TRY(step_cost(target, body, n, 0, &out_costs[n]));
    }
    return ST_OK;
}

static st_status_t round_of(trace_t *trace, const target_t *t, const plan_program_t *program,
                            ir_cost_t *out) {
    for (ir_node_t n = 0; n < program->graph->nodes.n; n++) {
        plan_step_kind_t kind = program->steps[n].kind;
        if (out) out[n] = (ir_cost_t){.limit = "launch"};
        if (kind == PLAN_STEP_NOTHING) continue;
        double far = touch_node(trace, program, n);
        if (!out) continue;
        TRY(step_cost(t, program, n, far, &out[n]));
    }
    return ST_OK;
}

st_status_t predict_steps(const plan_t *plan, const target_t *target, uint32_t p,
                          ir_cost_t *out_costs) {
    const plan_program_t *program = &plan->programs[p];
    trace_t trace = {0};
    for (int r = PLAN_STATE; r < PLAN_REGION_END; r++) {
        trace.base[r] = trace.footprint;
        trace.footprint += program->region_bytes[r];
    }
    trace.granule = trace.footprint / MOST_GRANULES;
    if (trace.granule < LEAST_GRANULE) trace.granule = LEAST_GRANULE;
    size_t n = trace.footprint / trace.granule + 2;
    trace.last = st_calloc(n, sizeof *trace.last);
    if (!trace.last) return st_no_memory(n * sizeof *trace.last, "a prediction");
    st_status_t status = round_of(&trace, target, program, NULL);
    if (status == ST_OK) status = round_of(&trace, target, program, out_costs);
    st_free(trace.last);
    return status;
}
