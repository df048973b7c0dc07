/* The pipeline: all of compiling as one table. A pass reads and writes the graph of the context
 * (from "lower" on: the programs of the plan), calls one entry point of one folder, and is
 * verified, printed on request (STATOR_DUMP=<name>) and timed by the manager. A new pass is one row
 * here and one file in its folder. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/number.h"
#include "base/options.h"
#include "compile/cache.h"
#include "compile/contest.h"
#include "compile/host.h"
#include "compile/memory.h"
#include "compile/passes.h"
#include "compile/recompute.h"
#include "compile/target.h"
#include "ir/codec.h"
#include "ir/symbols.h"
#include "kernels/table.h"

static bool wants_f64(const compile_options_t *options) {
    return options->dtype == IR_F64;
}
static bool wants_mixed(const compile_options_t *options) {
    return options->dtype == IR_BF16 || options->dtype == IR_F16;
}
static bool wants_wide_gradients(const compile_options_t *options) {
    return options->wide_gradients && wants_mixed(options) && options->n_ranks > 1 &&
           !options->evaluation;
}
static bool wants_evaluation(const compile_options_t *options) {
    return options->evaluation;
}
static bool wants_shadows(const compile_options_t *options) {
    return options->shadows == COMPILE_ON && !options->evaluation;
}
bool compile_wants_stages(const compile_options_t *options) {
    const uint32_t pipe = ir_mesh_find(&options->mesh, IR_AXIS_PIPE);
    return pipe != IR_NONE && options->mesh.axes[pipe].size > 1;
}
/* Each rank adds up its parts of the micro-batches' gradients: they meet after each. */
static bool scatters_gradients(const compile_options_t *options) {
    const uint32_t data = ir_mesh_find(&options->mesh, IR_AXIS_DATA);
    return options->form == SHARD_FORM_ZERO2 && !options->auto_sharding && data != IR_NONE &&
           options->mesh.axes[data].size > 1;
}
static bool wants_unrolled(const compile_options_t *options) {
    return compile_wants_stages(options) || scatters_gradients(options);
}
static bool wants_primitives(const compile_options_t *options) {
    return options->primitives;
}
static bool wants_fusion(const compile_options_t *options) {
    return !options->no_fusion && !options->primitives;
}
static bool wants_layout(const compile_options_t *options) {
    return !options->no_layout;
}
static bool several_ranks(const compile_options_t *options) {
    return options->n_ranks > 1;
}

/* clang-format off */
static const compile_pass_t pipeline[] = {
    /* the global program: what is computed */
    {"dtype",    compile_pass_dtype,     wants_f64},        /* every float becomes float64 */
    /* norms, dropout: evaluation; no updates */
    {"mode",     compile_pass_mode,      wants_evaluation},
    {"recognize", compile_pass_recognize, NULL},            /* composites out of their spellings */
    {"precision", compile_pass_precision, wants_mixed},     /* bf16 or f16 where that is safe */
    {"gradients", compile_pass_gradients, wants_wide_gradients}, /* float32 before ranks sum */
    /* micro-batches between which ranks meet */
    {"unroll",   compile_pass_unroll,    wants_unrolled},
    {"expand",   compile_pass_expand,    NULL},             /* composites into definitions */
    {"simplify", compile_pass_simplify,  NULL},             /* folding, CSE, dead code, algebra */
    /* small weights kept, not cast each step */
    {"shadow",   compile_pass_shadow,    wants_shadows},
    /* one program a rank: who computes which part; from here on a pipeline's stages one by one */
    /* split the batch, insert collectives */
    {"lower",    compile_pass_lower,     NULL},
    {"turns",    compile_pass_turns,     scatters_gradients}, /* micro-batches each by themselves */
    {"stem",     compile_pass_stem,      wants_layout},     /* few channels, strided: as blocks */
    /* orders of dims; transposes as views */
    {"layout",   compile_pass_layout,    wants_layout},
    {"accumulate", compile_pass_accumulate, wants_fusion},  /* sums with products into products */
    /* what backward makes again, not keeps */
    {"recompute", compile_pass_recompute, NULL},
    {"primitives", compile_pass_primitives, wants_primitives}, /* composites into definitions */
    {"fuse",     compile_pass_fuse,      wants_fusion},     /* nodes into loop nests */
    {"order",    compile_pass_order,     NULL},             /* least memory */
    {"hide",     compile_pass_hide,      several_ranks},    /* collectives merged, beside kernels */
    /* the plan: with what, and where */
    {"kernels",  compile_choose_kernels, NULL},             /* first implementation that can run */
    /* region, offset and size of every value */
    {"memory",   compile_place_values,   NULL},
    /* no overlap, collectives match, or no plan */
    {"prove",    compile_pass_prove,     NULL},
};
/* clang-format on */
enum { n_passes = sizeof pipeline / sizeof pipeline[0] };

/* ---- entry ---- */

/* A pass that does not exist would print nothing, and leave one wondering why. */
static st_status_t check_dump(const char *dump) {
    char known[256] = "all";
    if (!dump || !dump[0] || strcmp(dump, "all") == 0) return ST_OK;
    for (size_t i = 0; i < sizeof pipeline / sizeof pipeline[0]; i++) {
        if (strcmp(dump, pipeline[i].name) == 0) return ST_OK;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, ", %s", pipeline[i].name);
    }
    return FAIL(ST_INVALID, "option 'dump' is '%s', which is no pass: %s", dump, known);
}

static size_t pass_index(const char *name) {
    size_t i = 0;
    while (strcmp(pipeline[i].name, name) != 0) ASSERT(++i < n_passes);
    return i;
}

static st_status_t fill_defaults(const compile_options_t *given, compile_options_t *out) {
    *out = given ? *given : (compile_options_t){0};
    if (!out->target) out->target = "cpu";
    if (!out->n_ranks) out->n_ranks = 1;
    /* a search may have found another mesh than the one of a number of ranks */
    if (!out->mesh.n && out->state_of && out->state_of->n_ranks == out->n_ranks)
        out->mesh = out->state_of->mesh;
    if (!out->mesh.n) out->mesh = ir_mesh_of_ranks(out->n_ranks);
    out->n_ranks = ir_mesh_ranks(&out->mesh);
    if (!out->n_threads) out->n_threads = 1;
    if (!out->stages_per_rank) out->stages_per_rank = 1;
    if (!out->dump) out->dump = st_environment("STATOR_DUMP");
    TRY(check_dump(out->dump));
    if (out->n_ranks > 1024 || out->n_threads > 1024)
        return FAIL(ST_INVALID, "%u ranks with %u threads: at most 1024 of each", out->n_ranks,
                    out->n_threads);
    if (out->dtype != IR_DTYPE_NONE && out->dtype != IR_F32 && out->dtype != IR_F64 &&
        !wants_mixed(out))
        return FAIL(ST_UNSUPPORTED,
                    "a graph is compiled in its own types, in f32, f64, bf16 or f16, not in %s",
                    ir_dtype_text(out->dtype));
    if (out->wide_gradients && !wants_mixed(out))
        return FAIL(
            ST_INVALID,
            "option 'reduce-dtype' is 'f32' and option 'dtype' '%s': gradients are of 16 bits "
            "with --dtype bf16 or --dtype f16, else they are summed in their own type",
            out->dtype == IR_DTYPE_NONE ? "auto" : ir_dtype_text(out->dtype));
    if (out->shadows == COMPILE_ON && !wants_mixed(out))
        return FAIL(ST_INVALID,
                    "option 'weight-shadows' is 'on' and option 'dtype' '%s': weights are kept in "
                    "the type of the step with --dtype bf16 or --dtype f16",
                    out->dtype == IR_DTYPE_NONE ? "auto" : ir_dtype_text(out->dtype));
    return ST_OK;
}

static bool feeds_ahead(const compile_options_t *o, const target_t *target) {
    if (o->feed_ahead != COMPILE_AUTO) return o->feed_ahead == COMPILE_ON;
    return strcmp(target->machine.device, "cpu") != 0;
}

/* Shadows of weights save a cast of each, 12 bytes an element and step, at 2 bytes kept: worth a
 * part of the memory that no plan would miss. */
enum { SHADOWS_PART = 32 };
static bool keeps_shadows(const compile_options_t *o, const ir_graph_t *graph,
                          const target_t *target) {
    const uint64_t memory = o->memory_limit ? o->memory_limit : target->machine.memory_bytes;
    uint64_t elements = 0;
    if (o->shadows != COMPILE_AUTO) return o->shadows == COMPILE_ON;
    if (!wants_mixed(o) || strcmp(target->machine.device, "cpu") == 0) return false;
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (ir_node(graph, n)->op == IR_OP_PARAMETER)
            elements +=
                (uint64_t)ir_type_elements(ir_value_type(graph, ir_node(graph, n)->first_output));
    return elements <= memory / SHADOWS_PART / ir_dtype_bytes(o->dtype);
}

/* The target, for this plan's ranks and threads; the device is the target's unless it is `null`. */
static st_status_t take_target(compile_context_t *c, const ir_graph_t *graph,
                               target_t **out_target) {
    compile_options_t *o = &c->options;
    TRY(target_open(o->target, out_target));
    target_t *target = *out_target;
    target_bind(target, &o->mesh, o->n_threads);
    target->reference_kernels = o->reference_kernels;
    if (!o->device) o->device = target->machine.device;
    if (strcmp(o->device, target->machine.device) != 0 && strcmp(o->device, "null") != 0)
        return FAIL(
            ST_UNSUPPORTED,
            "device '%s' does not run plans for target '%s': '%s' does, and 'null' computes "
            "nothing",
            o->device, target->machine.name, target->machine.device);
    o->feed_ahead = feeds_ahead(o, target) ? COMPILE_ON : COMPILE_OFF;
    o->shadows = keeps_shadows(o, graph, target) ? COMPILE_ON : COMPILE_OFF;
    target_fill(target, &c->target);
    return ST_OK;
}

/* What the plan remembers of its options. A description that is not built in goes with the plan. */
static st_status_t record_options(compile_context_t *c, const target_t *target) {
    const compile_options_t *o = &c->options;
    plan_t *plan = c->plan;
    static const char *const recompute[] = {"auto", "off", "fused", "full"};
    static const char *const forms[] = {"dp", "zero1", "zero2", "zero3"};
    static const char *const schedules[] = {"1f1b", "zb"};
    static const char *const contexts[] = {"gather", "ring"};
    char bucket[32], limit[32], mesh[IR_MESH_TEXT_BYTES], stages[16];
    snprintf(stages, sizeof stages, "%u", o->stages_per_rank);
    snprintf(bucket, sizeof bucket, "%llu", (unsigned long long)o->bucket_bytes);
    snprintf(limit, sizeof limit, "%llu", (unsigned long long)o->memory_limit);
    char *description = NULL;
    if (!target->builtin) {
        description = st_arena_printf(&plan->arena, "%.*s", (int)target->text_bytes, target->text);
        if (!description) return st_no_memory(target->text_bytes, "a plan");
    }
    const plan_option_t rows[] = {
        {"target", target->machine.name},
        {"dtype", o->dtype == IR_DTYPE_NONE ? "auto" : ir_dtype_text(o->dtype)},
        {"mode", o->evaluation ? "eval" : "train"},
        {"reference-kernels", o->reference_kernels ? "true" : "false"},
        {"fusion", o->primitives  ? "primitives"
                   : o->no_fusion ? "off"
                                  : "on"},
        {"weight-shadows", wants_shadows(o) ? "on" : "off"},
        {"reduce-dtype", wants_wide_gradients(o) ? "f32" : "same"},
        {"layout", o->no_layout ? "off" : "on"},
        {"bucket-size", o->bucket_bytes ? bucket : "auto"},
        {"recompute", recompute[o->recompute]},
        {"feed-ahead", o->feed_ahead == COMPILE_ON ? "on" : "off"},
        {"shard", o->auto_sharding ? "auto" : forms[o->form]},
        {"mesh", ir_mesh_text(&o->mesh, mesh, sizeof mesh)},
        {"context-attention", contexts[o->context_attention]},
        {"pipeline", schedules[o->schedule]},
        {"stages-per-rank", stages},
        {"memory-limit", o->memory_limit ? limit : "auto"},
        {"pin", o->pins ? o->pins : ""},
        {"kernels", kern_cpu_level()},
        {"libraries", kern_libraries()},
        {"target-description", description},
    };
    plan->n_options = sizeof rows / sizeof rows[0] - (description == NULL);
    plan->options = st_arena_copy(&plan->arena, rows, sizeof rows);
    plan->device = st_arena_strdup(&plan->arena, o->device);
    if (!plan->options || !plan->device) return st_no_memory(sizeof rows, "a plan");
    for (uint32_t i = 0; i < plan->n_options; i++) {
        plan->options[i].value = st_arena_strdup(&plan->arena, rows[i].value);
        if (!plan->options[i].value) return st_no_memory(0, "a plan");
    }
    plan->mesh = o->mesh;
    plan->n_ranks = o->n_ranks;
    plan->n_threads = o->n_threads;
    plan->timeout_ms = o->timeout_ms;
    return ST_OK;
}

/* Beyond this, times in picoseconds and bytes times ranks leave their integers, and no machine has
 * so much: 8 PiB. */
#define MOST_VALUE_BYTES ((uint64_t)1 << 53)

/* FAILs, naming the largest input, where what a step computes is beyond all plans. */
static st_status_t check_sizes(const ir_graph_t *graph) {
    const ir_node_info_t *largest = NULL;
    uint64_t total = 0, most = 0;
    char type[IR_TYPE_TEXT_BYTES], size[3][ST_NUMBER_BYTES];
    for (ir_value_t v = 0; v < graph->values.n; v++) {
        const uint64_t bytes = ir_type_bytes(ir_value_type(graph, v));
        const ir_node_info_t *node = ir_value_producer(graph, v);
        total = bytes > UINT64_MAX - total ? UINT64_MAX : total + bytes;
        if (node->op != IR_OP_INPUT || bytes < most) continue;
        largest = node;
        most = bytes;
    }
    if (total <= MOST_VALUE_BYTES) return ST_OK;
    if (!largest)
        return FAIL(ST_DOES_NOT_FIT, "the graph's values take %s together, the limit is %s",
                    st_size_text(total, size[0]), st_size_text(MOST_VALUE_BYTES, size[1]));
    return FAIL(ST_DOES_NOT_FIT,
                "the graph's values take %s together, the limit is %s; the largest input is '%s', "
                "%s, %s: make the batch smaller",
                st_size_text(total, size[0]), st_size_text(MOST_VALUE_BYTES, size[1]),
                largest->name,
                ir_type_text(ir_value_type(graph, largest->first_output), type, sizeof type),
                st_size_text(most, size[2]));
}

/* float32 was asked for: parameters, buffers and inputs of another floating type are named. */
static st_status_t check_is_f32(const ir_graph_t *graph) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (node->op != IR_OP_INPUT && !(ir_op_def(node->op)->flags & IR_STATE)) continue;
        const ir_dtype_t dtype = ir_value_type(graph, node->first_output)->dtype;
        if (!ir_dtype_is_float(dtype) || dtype == IR_F32) continue;
        return FAIL(ST_UNSUPPORTED,
                    "option 'dtype' is 'f32', and '%s' is %s: 'auto' compiles the graph in its own "
                    "types, 'f64' in float64 throughout",
                    node->name, ir_dtype_text(dtype));
    }
    return ST_OK;
}

static st_status_t take_source(compile_context_t *c, const ir_graph_t *graph) {
    uint8_t *data;
    size_t bytes;
    if (c->options.dtype == IR_F32) TRY(check_is_f32(graph));
    TRY(ir_symbols_need_none(graph));
    TRY(check_sizes(graph));
    TRY(ir_graph_encode(graph, &data, &bytes));
    c->plan->graph_hash = st_hash64(data, bytes, 0);
    st_free(data);
    TRY(ir_graph_copy(graph, &c->plan->source));
    return ir_graph_copy(graph, &c->graph);
}

/* ---- stages ---- */

/* Stages of a pipeline have programs of other nodes, so each is compiled by itself: its programs
 * are the plan's for as long. What is told of recomputation and fusion is of the stage that
 * computes most again, and of the last one. */
typedef struct stage_view {
    compile_context_t *c;
    plan_program_t *programs;
    uint32_t n_programs, n_stages;
    plan_recompute_t recompute;
} stage_view_t;

static stage_view_t view_stages(compile_context_t *c) {
    const uint32_t pipe = ir_mesh_find(&c->plan->mesh, IR_AXIS_PIPE);
    const bool one = pipe == IR_NONE || c->options.only_items;
    return (stage_view_t){.c = c,
                          .programs = c->plan->programs,
                          .n_programs = c->plan->n_programs,
                          .n_stages = one ? 1 : c->plan->mesh.axes[pipe].size};
}

static void enter_stage(const stage_view_t *view, uint32_t stage) {
    const uint32_t each = view->n_programs / view->n_stages;
    view->c->first_program = stage * each;
    view->c->plan->programs = view->programs + stage * each;
    view->c->plan->n_programs = each;
}

static void leave_stages(stage_view_t *view) {
    view->c->first_program = 0;
    view->c->plan->programs = view->programs;
    view->c->plan->n_programs = view->n_programs;
    view->c->plan->recompute = view->recompute;
}

static st_status_t compile_stages(compile_context_t *c) {
    const size_t begin = pass_index("lower") + 1, first = pass_index("recompute"),
                 last = pass_index("prove");
    stage_view_t view = view_stages(c);
    st_status_t status = ST_OK;
    for (uint32_t s = 0; status == ST_OK && s < view.n_stages; s++) {
        enter_stage(&view, s);
        c->plan->recompute = (plan_recompute_t){0};
        status = compile_run_passes(c, pipeline + begin, first - begin);
        /* the passes that may run again and again until the plan fits */
        if (status == ST_OK) status = compile_run_fitting(c, pipeline + first, last - first);
        if (status != ST_OK && view.n_stages > 1) st_error_context(status, "pipe rank %u", s);
        if (c->plan->recompute.n_nodes >= view.recompute.n_nodes)
            view.recompute = c->plan->recompute;
        compile_fit_close(&c->fit);
    }
    leave_stages(&view);
    return status;
}

/* The cache's plan, or `*out_plan` NULL and the folder to write to, if there is one. */
static st_status_t look_up(const compile_context_t *c, const char **out_folder, plan_t **out_plan) {
    /* a plan for another one's state layout depends on that one, too */
    *out_folder = c->options.state_of || c->options.only_items ? NULL : c->options.plan_cache;
    return *out_folder ? plan_cache_read(*out_folder, plan_key(c->plan), out_plan) : ST_OK;
}

/* The context before the first pass. */
static st_status_t open_context(const ir_graph_t *graph, const compile_options_t *options,
                                compile_context_t *c, target_t **out_target) {
    *c = (compile_context_t){.target = {.name = "cpu", .evaluate = compile_evaluate}};
    *out_target = NULL;
    TRY(fill_defaults(options, &c->options));
    c->plan = st_calloc(1, sizeof *c->plan);
    if (!c->plan) return st_no_memory(sizeof *c->plan, "a plan");
    TRY(take_target(c, graph, out_target));
    TRY(record_options(c, *out_target));
    return take_source(c, graph);
}

st_status_t compile_front(const ir_graph_t *graph, const compile_options_t *options,
                          compile_context_t *context, target_t **out_target) {
    TRY(open_context(graph, options, context, out_target));
    return compile_run_passes(context, pipeline, pass_index("lower"));
}

void compile_front_close(compile_context_t *context, target_t *target) {
    ir_graph_destroy(context->graph);
    plan_destroy(context->plan);
    compile_fit_close(&context->fit);
    target_destroy(target);
}

st_status_t compile_single(const ir_graph_t *graph, const compile_options_t *options,
                           bool *out_found, plan_t **out_plan) {
    *out_plan = NULL;
    if (out_found) *out_found = false;
    compile_context_t c;
    target_t *target;
    const char *cache = NULL;
    st_status_t status = ST_OK;
    const size_t ranks = pass_index("lower") + 1, last = pass_index("prove");
    TRY_GOTO(open_context(graph, options, &c, &target), done);
    TRY_GOTO(look_up(&c, &cache, out_plan), done);
    if (*out_plan) {
        if (out_found) *out_found = true;
        goto done;
    }
    TRY_GOTO(compile_run_passes(&c, pipeline, ranks), done);
    TRY_GOTO(compile_stages(&c), done);
    if (!c.options.only_items)
        TRY_GOTO(compile_run_passes(&c, pipeline + last, n_passes - last), done);
    if (cache && !out_found) TRY_GOTO(plan_cache_write(cache, c.plan), done);
    *out_plan = c.plan;
    c.plan = NULL;
done:
    compile_front_close(&c, target);
    return status;
}

/* The plan of a search is held against others before it is kept. */
static st_status_t compile_contested(const ir_graph_t *graph, const compile_options_t *options,
                                     plan_t **out_plan) {
    bool found;
    plan_t *plan = NULL;
    TRY(compile_contest(graph, options, &found, &plan));
    st_status_t status = ST_OK;
    if (!found && options->plan_cache) status = plan_cache_write(options->plan_cache, plan);
    if (status != ST_OK)
        plan_destroy(plan);
    else
        *out_plan = plan;
    return status;
}

st_status_t compile_plan(const ir_graph_t *graph, const compile_options_t *options,
                         plan_t **out_plan) {
    *out_plan = NULL;
    compile_begin();
    return compile_is_contested(options) ? compile_contested(graph, options, out_plan)
                                         : compile_single(graph, options, NULL, out_plan);
}
