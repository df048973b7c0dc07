/* The pipeline: all of compiling as one table, and the passes that only call a folder's entry
 * point. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/options.h"
#include "compile/convert.h"
#include "compile/manager.h"
#include "compile/memory.h"
#include "fusion/buckets.h"
#include "fusion/simplify.h"
#include "ir/codec.h"
#include "ir/expand.h"
#include "ir/structure.h"
#include "kernels/table.h"
#include "schedule/order.h"

/* ---- the global program ---- */

static st_status_t pass_dtype(compile_context_t *c) {
    ir_graph_t *made;
    TRY(compile_to_f64(c->graph, &made));
    compile_replace(&c->graph, made);
    return ST_OK;
}

static st_status_t pass_mode(compile_context_t *c) {
    ir_graph_t *made;
    TRY(compile_to_evaluation(c->graph, &made));
    compile_replace(&c->graph, made);
    return ST_OK;
}

static st_status_t pass_expand(compile_context_t *c) {
    ir_graph_t *made;
    TRY(ir_expand_composites(c->graph, ir_expand_any, &made));
    compile_replace(&c->graph, made);
    return ST_OK;
}

static st_status_t pass_simplify(compile_context_t *c) {
    ir_graph_t *made;
    TRY(fuse_simplify(c->graph, &c->target, &made));
    compile_replace(&c->graph, made);
    return ST_OK;
}

/* ---- lowering ---- */

static st_status_t make_port(plan_t *plan, const char *name, const ir_type_t *type,
                             ir_placement_t placement, plan_port_t *out) {
    *out = (plan_port_t){st_arena_strdup(&plan->arena, name), *type, placement};
    return out->name ? ST_OK : st_no_memory(0, "an input or output");
}

static st_status_t make_ports(compile_context_t *c) {
    plan_t *plan = c->plan;
    const ir_graph_t *graph = c->graph;
    uint32_t n_inputs = 0;
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        n_inputs += ir_node(graph, n)->op == IR_OP_INPUT;
    plan->inputs = st_arena_array(&plan->arena, n_inputs, sizeof *plan->inputs);
    plan->outputs = st_arena_array(&plan->arena, graph->outputs.n, sizeof *plan->outputs);
    if (!plan->inputs || !plan->outputs)
        return st_no_memory(n_inputs * sizeof *plan->inputs, "the inputs and outputs");
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (node->op != IR_OP_INPUT) continue;
        TRY(make_port(plan, node->name, ir_value_type(graph, node->first_output),
                      shard_value_placement(c->lowering, node->first_output),
                      &plan->inputs[plan->n_inputs++]));
    }
    for (size_t o = 0; o < graph->outputs.n; o++)
        TRY(make_port(plan, graph->outputs.data[o].name,
                      ir_value_type(graph, graph->outputs.data[o].value),
                      shard_output_placement(c->lowering, o), &plan->outputs[plan->n_outputs++]));
    return ST_OK;
}

static bool programs_equal(const ir_graph_t *a, const ir_graph_t *b) {
    if (a->nodes.n != b->nodes.n || a->outputs.n != b->outputs.n) return false;
    for (ir_node_t n = 0; n < a->nodes.n; n++) {
        const ir_node_info_t *x = ir_node(a, n), *y = ir_node(b, n);
        if (x->op != y->op || x->n_inputs != y->n_inputs ||
            memcmp(x->inputs, y->inputs, x->n_inputs * sizeof *x->inputs) ||
            !ir_attrs_equal(x->op, x->attrs, y->attrs))
            return false;
    }
    for (size_t o = 0; o < a->outputs.n; o++)
        if (a->outputs.data[o].value != b->outputs.data[o].value) return false;
    return true;
}

/* Ranks whose graphs are equal share a program. */
static st_status_t pass_lower(compile_context_t *c) {
    plan_t *plan = c->plan;
    TRY(shard_decide(c->graph, plan->n_ranks, &c->lowering));
    TRY(make_ports(c));
    plan->programs = st_arena_array(&plan->arena, plan->n_ranks, sizeof *plan->programs);
    plan->program_of = st_arena_array(&plan->arena, plan->n_ranks, sizeof *plan->program_of);
    if (!plan->programs || !plan->program_of)
        return st_no_memory(plan->n_ranks * sizeof *plan->programs, "the programs");
    for (uint32_t rank = 0; rank < plan->n_ranks; rank++) {
        ir_graph_t *made;
        uint32_t p = 0;
        TRY(shard_emit(c->lowering, rank, &made));
        while (p < plan->n_programs && !programs_equal(plan->programs[p].graph, made))
            p++;
        if (p == plan->n_programs)
            plan->programs[plan->n_programs++].graph = made;
        else
            ir_graph_destroy(made);
        plan->program_of[rank] = p;
    }
    shard_lowering_destroy(c->lowering);
    c->lowering = NULL;
    ir_graph_destroy(c->graph);
    c->graph = NULL;
    return ST_OK;
}

/* ---- the ranks' programs ---- */

static bool several_ranks(const compile_options_t *options) {
    return options->n_ranks > 1;
}

/* A quarter of what is summed, so that most of it is on its way while the rest is still being made;
 * between 256 KiB, where latency counts, and 4 MiB. Sums are of whole values: the same on all
 * ranks. */
static uint64_t default_bucket_bytes(const ir_graph_t *graph) {
    const uint64_t least = (uint64_t)256 << 10, most = (uint64_t)4 << 20;
    uint64_t total = 0;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (node->op != IR_OP_ALL_REDUCE_START) continue;
        for (uint32_t j = 0; j < node->n_inputs; j++)
            total += ir_type_bytes(ir_value_type(graph, node->inputs[j]));
    }
    return total / 4 < least ? least : total / 4 > most ? most : total / 4;
}

static st_status_t pass_buckets(compile_context_t *c) {
    uint64_t bytes = c->options.bucket_bytes;
    if (!bytes) bytes = default_bucket_bytes(c->plan->programs[0].graph);
    for (uint32_t p = 0; p < c->plan->n_programs; p++) {
        ir_graph_t *made;
        TRY(fuse_buckets(c->plan->programs[p].graph, bytes, &made));
        compile_replace(&c->plan->programs[p].graph, made);
    }
    return ST_OK;
}

static uint64_t total_bytes(const ir_graph_t *graph) {
    uint64_t bytes = 0;
    for (ir_value_t v = 0; v < graph->values.n; v++)
        bytes += ir_type_bytes(ir_value_type(graph, v));
    return bytes;
}

/* The order is found on the largest program and applied to all: it must be one order. */
static st_status_t pass_order(compile_context_t *c) {
    const plan_t *plan = c->plan;
    uint32_t largest = 0;
    for (uint32_t p = 1; p < plan->n_programs; p++)
        if (total_bytes(plan->programs[p].graph) > total_bytes(plan->programs[largest].graph))
            largest = p;
    size_t n = plan->programs[largest].graph->nodes.n;
    ir_node_t *order = st_calloc(n, sizeof *order);
    st_status_t status = ST_OK;
    if (!order) return st_no_memory(n * sizeof *order, "the order");
    TRY_GOTO(sched_order(plan->programs[largest].graph, order), done);
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        ir_graph_t *made;
        if (plan->programs[p].graph->nodes.n != n)
            TRY_GOTO(FAIL(ST_INTERNAL, "the ranks' programs differ in more than sizes"), done);
        TRY_GOTO(sched_apply(plan->programs[p].graph, order, &made), done);
        compile_replace(&c->plan->programs[p].graph, made);
    }
done:
    st_free(order);
    return status;
}

static st_status_t pass_prove(compile_context_t *c) {
    return plan_check(c->plan);
}

/* ---- the table ---- */

static bool wants_f64(const compile_options_t *options) {
    return options->dtype == IR_F64;
}
static bool wants_evaluation(const compile_options_t *options) {
    return options->evaluation;
}

static const compile_pass_t pipeline[] = {
    /* the global program */
    {"dtype", pass_dtype, wants_f64},
    {"mode", pass_mode, wants_evaluation},
    {"expand", pass_expand, NULL},
    {"simplify", pass_simplify, NULL},
    /* from here on one program a rank */
    {"lower", pass_lower, NULL},
    {"buckets", pass_buckets, several_ranks},
    {"order", pass_order, NULL},
    {"kernels", compile_choose_kernels, NULL},
    {"memory", compile_place_values, NULL},
    {"prove", pass_prove, NULL},
};

/* ---- entry ---- */

/* Constant folding runs the device's host kernels. */
static st_status_t evaluate(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                            const void *const *in, void *const *out) {
    (void)context;
    if (!kern_list("cpu", ctx->op)[0])
        return FAIL(ST_UNSUPPORTED, "op %s has no kernel on the host", ir_op_def(ctx->op)->name);
    kern_problem_t problem = {ctx->op,   ctx->n_inputs, ctx->n_outputs, ctx->in,
                              out_types, ctx->attrs,    ctx->name};
    return kern_run_once(&problem, in, out);
}

static st_status_t fill_defaults(const compile_options_t *given, compile_options_t *out) {
    *out = given ? *given : (compile_options_t){0};
    if (!out->device) out->device = "cpu";
    if (!out->n_ranks) out->n_ranks = 1;
    if (!out->n_threads) out->n_threads = 1;
    if (!out->dump) out->dump = st_environment("STATOR_DUMP");
    if (strcmp(out->device, "cpu") != 0)
        return FAIL(ST_UNSUPPORTED, "device '%s' cannot be compiled for: this build has cpu",
                    out->device);
    if (out->n_ranks > 1024 || out->n_threads > 1024)
        return FAIL(ST_INVALID, "%u ranks with %u threads: at most 1024 of each", out->n_ranks,
                    out->n_threads);
    if (out->dtype != IR_DTYPE_NONE && out->dtype != IR_F64)
        return FAIL(ST_UNSUPPORTED, "a graph is compiled in its own types or in f64, not in %s",
                    ir_dtype_text(out->dtype));
    return ST_OK;
}

/* What the plan remembers of its options. */
static st_status_t record_options(compile_context_t *c) {
    const compile_options_t *o = &c->options;
    plan_t *plan = c->plan;
    char bucket[32];
    snprintf(bucket, sizeof bucket, "%llu", (unsigned long long)o->bucket_bytes);
    const plan_option_t rows[] = {
        {"dtype", o->dtype == IR_F64 ? "f64" : "auto"},
        {"mode", o->evaluation ? "eval" : "train"},
        {"reference-kernels", o->reference_kernels ? "true" : "false"},
        {"bucket-size", o->bucket_bytes ? bucket : "auto"},
        {"kernels", kern_cpu_level()},
        {"libraries", kern_libraries()},
    };
    plan->n_options = sizeof rows / sizeof rows[0];
    plan->options = st_arena_copy(&plan->arena, rows, sizeof rows);
    plan->device = st_arena_strdup(&plan->arena, o->device);
    if (!plan->options || !plan->device) return st_no_memory(sizeof rows, "a plan");
    for (uint32_t i = 0; i < plan->n_options; i++) {
        plan->options[i].value = st_arena_strdup(&plan->arena, rows[i].value);
        if (!plan->options[i].value) return st_no_memory(0, "a plan");
    }
    plan->n_ranks = o->n_ranks;
    plan->n_threads = o->n_threads;
    plan->timeout_ms = o->timeout_ms;
    return ST_OK;
}

static st_status_t take_source(compile_context_t *c, const ir_graph_t *graph) {
    uint8_t *data;
    size_t bytes;
    TRY(ir_graph_encode(graph, &data, &bytes));
    c->plan->graph_hash = st_hash64(data, bytes, 0);
    st_free(data);
    TRY(ir_graph_copy(graph, &c->plan->source));
    return ir_graph_copy(graph, &c->graph);
}

st_status_t compile_plan(const ir_graph_t *graph, const compile_options_t *options,
                         plan_t **out_plan) {
    *out_plan = NULL;
    compile_context_t c = {.target = {.name = "cpu", .evaluate = evaluate}};
    st_status_t status = ST_OK;
    TRY(fill_defaults(options, &c.options));
    c.plan = st_calloc(1, sizeof *c.plan);
    if (!c.plan) return st_no_memory(sizeof *c.plan, "a plan");
    TRY_GOTO(record_options(&c), done);
    TRY_GOTO(take_source(&c, graph), done);
    TRY_GOTO(compile_run_passes(&c, pipeline, sizeof pipeline / sizeof pipeline[0]), done);
    *out_plan = c.plan;
    c.plan = NULL;
done:
    shard_lowering_destroy(c.lowering);
    ir_graph_destroy(c.graph);
    plan_destroy(c.plan);
    return status;
}
