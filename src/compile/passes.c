/* The passes of the pipeline: each calls one entry point of another folder on the context. What a
 * pass does is told there; here is only how it reaches the graph or the ranks' programs. */
#include "compile/passes.h"

#include <stdio.h>
#include <string.h>

#include "autodiff/precision.h"
#include "autodiff/shadow.h"
#include "autodiff/wide_gradients.h"
#include "base/memory.h"
#include "compile/convert.h"
#include "compile/sharding.h"
#include "fusion/fuse.h"
#include "fusion/recognize.h"
#include "fusion/simplify.h"
#include "ir/expand.h"
#include "ir/unroll.h"
#include "schedule/hide.h"
#include "schedule/order.h"
#include "schedule/turns.h"
#include "shard/mesh.h"

/* ---- the global program ---- */

st_status_t compile_pass_dtype(compile_context_t *c) {
    ir_graph_t *made;
    TRY(compile_to_f64(c->graph, &made));
    compile_replace(&c->graph, made);
    return ST_OK;
}

st_status_t compile_pass_precision(compile_context_t *c) {
    ir_graph_t *made;
    TRY(ad_precision(c->graph, c->options.dtype, &made));
    compile_replace(&c->graph, made);
    return ST_OK;
}

st_status_t compile_pass_gradients(compile_context_t *c) {
    ir_graph_t *made;
    TRY(ad_wide_gradients(c->graph, &made));
    compile_replace(&c->graph, made);
    return ST_OK;
}

/* ---- loops ---- */

typedef struct unrolling {
    const ir_graph_t *graph;
    const shard_lowering_t *lowering; /* only what ranks run whole in it; NULL: every loop */
    double left;                      /* nodes that it may still become */
    bool any;
} unrolling_t;

static bool is_unrolled(void *context, ir_node_t node) {
    unrolling_t *u = context;
    double n = ir_unrolled_nodes(u->graph, node);
    if (n > u->left || (u->lowering && !shard_runs_whole(u->lowering, node))) return false;
    u->left -= n;
    u->any = true;
    return true;
}

/* Loops in loops come to the top one level after the other. */
static st_status_t unroll_all(compile_context_t *c) {
    unrolling_t u = {NULL, NULL, IR_UNROLL_NODES, true};
    while (u.any) {
        ir_graph_t *made;
        u.any = false;
        u.graph = c->graph;
        TRY(ir_unroll(c->graph, is_unrolled, &u, &made));
        compile_replace(&c->graph, made);
    }
    return ST_OK;
}

/* The loop over micro-batches: the only one, and of the backward phase, since forward and backward
 * pass both stand in it. IR_NONE: there is none. */
static ir_node_t find_micro_loop(const ir_graph_t *graph) {
    ir_node_t found = IR_NONE;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        if (ir_node(graph, n)->op != IR_OP_REPEAT) continue;
        if (found != IR_NONE || ir_node(graph, n)->phase != IR_PHASE_BACKWARD) return IR_NONE;
        found = n;
    }
    return found;
}

static bool is_that_node(void *context, ir_node_t node) {
    return node == *(ir_node_t *)context;
}

/* Micro-batches of a pipeline stand one after the other, so that its ranks can take them in turns;
 * those whose gradients are scattered, so that ranks can meet between them. */
st_status_t compile_pass_unroll(compile_context_t *c) {
    ir_node_t loop = find_micro_loop(c->graph);
    ir_graph_t *made;
    if (loop == IR_NONE) return ST_OK;
    const double n = ir_unrolled_nodes(c->graph, loop);
    const int64_t n_micro = ir_attr_int(ir_node(c->graph, loop), "trip");
    if (n > IR_UNROLL_NODES)
        return FAIL(
            ST_DOES_NOT_FIT,
            "%s its %lld micro-batches out, which makes %.0f nodes: at most %d are possible%s",
            compile_wants_stages(&c->options)
                ? "a pipeline writes"
                : "form 'zero2', which adds up parts of gradients, writes",
            (long long)n_micro, n, IR_UNROLL_NODES,
            compile_wants_stages(&c->options) ? "" : "; zero1 and zero3 keep a loop of any length");
    TRY(ir_unroll(c->graph, is_that_node, &loop, &made));
    compile_replace(&c->graph, made);
    c->n_micro = (uint32_t)n_micro;
    return ST_OK;
}

static bool has_loops(const ir_graph_t *graph) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (ir_node(graph, n)->op == IR_OP_REPEAT) return true;
    return false;
}

/* Loops that ranks which share the batch could not run in parts, because they would meet in them,
 * are written out: then they meet between the turns. */
static st_status_t unroll_meetings(compile_context_t *c, uint32_t n_ranks) {
    const shard_axis_t axis = {.name = IR_AXIS_DATA, .n_ranks = n_ranks, .splits_batch = true};
    unrolling_t u = {NULL, NULL, IR_UNROLL_NODES, true};
    while (u.any && n_ranks > 1 && has_loops(c->graph)) {
        shard_lowering_t *lowering;
        ir_graph_t *made;
        TRY(shard_decide(c->graph, &axis, &lowering));
        u = (unrolling_t){c->graph, lowering, u.left, false};
        st_status_t status = ir_unroll(c->graph, is_unrolled, &u, &made);
        shard_lowering_destroy(lowering);
        TRY(status);
        compile_replace(&c->graph, made);
        if (!u.any) break;
        TRY(fuse_simplify(c->graph, &c->target, &made));
        compile_replace(&c->graph, made);
    }
    return ST_OK;
}

st_status_t compile_pass_mode(compile_context_t *c) {
    ir_graph_t *made;
    TRY(compile_to_evaluation(c->graph, &made));
    compile_replace(&c->graph, made);
    return ST_OK;
}

st_status_t compile_pass_recognize(compile_context_t *c) {
    ir_graph_t *made;
    TRY(fuse_capture(c->graph, &c->target, &made));
    compile_replace(&c->graph, made);
    return ST_OK;
}

st_status_t compile_pass_expand(compile_context_t *c) {
    ir_graph_t *made;
    TRY(ir_expand_composites(c->graph, ir_expand_any, &made));
    compile_replace(&c->graph, made);
    return ST_OK;
}

st_status_t compile_pass_simplify(compile_context_t *c) {
    ir_graph_t *made;
    TRY(fuse_simplify(c->graph, &c->target, &made));
    compile_replace(&c->graph, made);
    return ST_OK;
}

st_status_t compile_pass_shadow(compile_context_t *c) {
    ir_graph_t *made;
    TRY(ad_shadow(c->graph, &made));
    compile_replace(&c->graph, made);
    return ST_OK;
}

/* ---- lowering ---- */

static st_status_t make_port(plan_t *plan, const char *name, const ir_type_t *type,
                             const shard_layout_t *layout, plan_port_t *out) {
    size_t bytes = plan->mesh.n * sizeof *out->placements;
    *out = (plan_port_t){st_arena_strdup(&plan->arena, name), *type,
                         st_arena_copy(&plan->arena, layout->placements, bytes)};
    return out->name && out->placements ? ST_OK : st_no_memory(bytes, "an input or output");
}

static st_status_t make_ports(compile_context_t *c, const shard_programs_t *made) {
    plan_t *plan = c->plan;
    const ir_graph_t *graph = c->graph;
    uint32_t n_inputs = 0, n_states = 0;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        n_inputs += ir_node(graph, n)->op == IR_OP_INPUT;
        n_states += (ir_op_def(ir_node(graph, n)->op)->flags & IR_STATE) != 0;
    }
    plan->inputs = st_arena_array(&plan->arena, n_inputs, sizeof *plan->inputs);
    plan->states = st_arena_array(&plan->arena, n_states, sizeof *plan->states);
    plan->outputs = st_arena_array(&plan->arena, graph->outputs.n, sizeof *plan->outputs);
    if (!plan->inputs || !plan->outputs || !plan->states)
        return st_no_memory(n_inputs * sizeof *plan->inputs, "the inputs and outputs");
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        const bool input = node->op == IR_OP_INPUT;
        if (!input && !(ir_op_def(node->op)->flags & IR_STATE)) continue;
        TRY(make_port(plan, node->name, ir_value_type(graph, node->first_output), &made->nodes[n],
                      input ? &plan->inputs[plan->n_inputs++] : &plan->states[plan->n_states++]));
    }
    for (size_t o = 0; o < graph->outputs.n; o++)
        TRY(make_port(plan, graph->outputs.data[o].name,
                      ir_value_type(graph, graph->outputs.data[o].value), &made->outputs[o],
                      &plan->outputs[plan->n_outputs++]));
    return ST_OK;
}

int64_t compile_batch_items(const ir_graph_t *graph) {
    int64_t items = 0;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        int64_t axis = node->op == IR_OP_INPUT ? ir_attr_int(node, "batch_axis") : -1;
        if (axis >= 0) items = ir_value_type(graph, node->first_output)->dims[axis];
    }
    return items;
}

static void drop_global(compile_context_t *c) {
    ir_graph_destroy(c->graph);
    c->graph = NULL;
}

static st_status_t add_programs(plan_t *plan, uint32_t n_programs, uint32_t n_ranks) {
    plan->programs = st_arena_array(&plan->arena, n_programs, sizeof *plan->programs);
    plan->program_of = st_arena_array(&plan->arena, n_ranks, sizeof *plan->program_of);
    return plan->programs && plan->program_of
               ? ST_OK
               : st_no_memory(n_programs * sizeof *plan->programs, "the programs");
}

/* The program of a part of the batch. */
static st_status_t lower_part(compile_context_t *c) {
    shard_lowering_t *lowering;
    const shard_axis_t axis = {.name = IR_AXIS_DATA,
                               .n_ranks = (uint32_t)compile_batch_items(c->graph),
                               .splits_batch = true};
    TRY(unroll_meetings(c, axis.n_ranks));
    TRY(add_programs(c->plan, 1, 1));
    TRY(shard_decide(c->graph, &axis, &lowering));
    st_status_t status =
        shard_emit_first(lowering, c->options.only_items, &c->plan->programs[0].graph);
    shard_lowering_destroy(lowering);
    TRY(status);
    c->plan->n_programs = 1;
    drop_global(c);
    return ST_OK;
}

/* Placements of a state in the plan whose state is shared. */
static const ir_placement_t *home_of(void *context, const char *name) {
    const plan_port_t *state = plan_state(context, name);
    return state ? state->placements : NULL;
}

/* The row of an axis that was not searched, or of a candidate that drops out: why. */
static st_status_t say_reason(plan_t *plan, const char *reason, plan_alternative_t *row) {
    row->reason = st_arena_strdup(&plan->arena, reason);
    return row->reason ? ST_OK : st_no_memory(0, "the alternatives");
}

/* `sharding` NULL: nothing was searched for, for `reason`. */
static st_status_t add_alternatives(plan_t *plan, const sharding_t *sharding, const char *axis,
                                    const char *reason) {
    const uint32_t n_rows = sharding ? sharding->n_rows : 1, n = plan->n_alternatives + n_rows;
    plan_alternative_t *rows = st_arena_array(&plan->arena, n, sizeof *rows);
    if (!rows) return st_no_memory(n * sizeof *rows, "the alternatives");
    if (plan->n_alternatives) memcpy(rows, plan->alternatives, plan->n_alternatives * sizeof *rows);
    for (uint32_t i = 0; i < n_rows; i++) {
        sharding_row_t none = {.fits = true, .reason = reason};
        const bool data = strcmp(axis, IR_AXIS_DATA) == 0;
        const bool tensor = strcmp(axis, IR_AXIS_TENSOR) == 0;
        snprintf(none.name, sizeof none.name, "%s", data ? "dp" : tensor ? "tp" : axis);
        const sharding_row_t *from = sharding ? &sharding->rows[i] : &none;
        plan_alternative_t *to = &rows[plan->n_alternatives + i];
        *to = (plan_alternative_t){.axis = st_arena_strdup(&plan->arena, axis),
                                   .name = st_arena_strdup(&plan->arena, from->name),
                                   .chosen = !sharding || i == sharding->chosen,
                                   .fits = from->fits,
                                   .step_us = from->price.step_us,
                                   .exposed_us = from->price.exposed_us,
                                   .state_bytes = from->price.state_bytes,
                                   .live_bytes = from->price.live_bytes};
        if (from->reason) TRY(say_reason(plan, from->reason, to));
        if (!to->axis || !to->name) return st_no_memory(0, "the alternatives");
    }
    plan->alternatives = rows;
    plan->n_alternatives = n;
    return ST_OK;
}

/* An expert axis that does what its name says finds its weights whole. */
static st_status_t keep_experts(compile_context_t *c, const ir_graph_t *graph,
                                const bool **out_whole) {
    const ir_mesh_t *mesh = &c->plan->mesh;
    const uint32_t expert = ir_mesh_find(mesh, IR_AXIS_EXPERT);
    *out_whole = NULL;
    if (!c->options.searched_axis || expert == IR_NONE || mesh->axes[expert].size < 2) return ST_OK;
    bool *whole = st_arena_array(&c->plan->arena, graph->nodes.n, sizeof *whole);
    if (!whole) return st_no_memory(graph->nodes.n, "the experts");
    shard_expert_weights(graph, whole);
    *out_whole = whole;
    return ST_OK;
}

/* Searches for the placements of one axis; a graph with control flow has those of its name, and
 * says so. */
static st_status_t settle_axis(void *context, const ir_graph_t *graph, uint32_t axis,
                               shard_settled_t *settled) {
    compile_context_t *c = context;
    const ir_mesh_t *mesh = &c->plan->mesh;
    const ir_machine_t *machine = c->target.machine;
    const uint32_t n_ranks = mesh->axes[axis].size;
    const char *name = mesh->axes[axis].name, *only = c->options.searched_axis;
    uint32_t order[IR_MAX_AXES];
    const shard_context_t how = c->options.context_attention;
    /* keys that go round are asked for by name */
    const bool rings = how == SHARD_CONTEXT_RING && strcmp(name, IR_AXIS_CONTEXT) == 0;
    if (rings || (only && strcmp(only, name) != 0))
        return shard_form_axis(graph, c->options.form, how, settled);
    ir_mesh_order(mesh, order);
    /* axes that are lowered after this one share out what it leaves */
    uint64_t limit = c->options.memory_limit ? c->options.memory_limit : machine->memory_bytes;
    for (uint32_t i = mesh->n; i-- > 0 && order[i] != axis;)
        limit = (uint64_t)st_size_mul(limit, mesh->axes[order[i]].size);
    const bool *whole;
    TRY(keep_experts(c, graph, &whole));
    const sharding_request_t request = {
        .graph = graph,
        .target = &c->target,
        .ring = {n_ranks, ir_links_of(machine, n_ranks, ir_mesh_stride(mesh, axis)), 1,
                 order[0] != axis, NULL},
        .link_overlap = machine->link_overlap,
        .splits_inputs = strcmp(name, IR_AXIS_TENSOR) != 0,
        .lowers = name,
        .memory_limit = limit,
        .pins = c->options.pins,
        .whole = whole,
        .mesh = mesh,
        .axis = axis,
    };
    sharding_t made;
    st_status_t status = sharding_choose(&request, &made);
    if (status == ST_UNSUPPORTED) { /* the plan tells why it has the form's */
        TRY(add_alternatives(c->plan, NULL, name, st_last_error()));
        return shard_form_axis(graph, c->options.form, how, settled);
    }
    TRY(status);
    status = sharding_settle(&request, &made, made.chosen, settled);
    if (status == ST_OK) status = add_alternatives(c->plan, &made, name, NULL);
    sharding_free(&made);
    return status;
}

/* Ranks whose graphs are equal share a program; those that another plan keeps apart, since their
 * state lies in its regions, stay apart. */
static st_status_t lower_ranks(compile_context_t *c, shard_programs_t *made) {
    plan_t *plan = c->plan;
    const plan_t *model = c->options.state_of;
    if (model && !ir_mesh_equal(&model->mesh, &plan->mesh)) {
        char own[IR_MESH_TEXT_BYTES], other[IR_MESH_TEXT_BYTES];
        return FAIL(ST_INVALID, "the mesh is %s, that of the plan whose state is to be shared %s",
                    ir_mesh_text(&plan->mesh, own, sizeof own),
                    ir_mesh_text(&model->mesh, other, sizeof other));
    }
    const uint32_t data = ir_mesh_find(&plan->mesh, IR_AXIS_DATA);
    /* ranks of these axes meet within a batch: to exchange tokens, to gather keys */
    const bool meets = ir_mesh_find(&plan->mesh, IR_AXIS_EXPERT) != IR_NONE ||
                       ir_mesh_find(&plan->mesh, IR_AXIS_CONTEXT) != IR_NONE;
    if (meets) TRY(unroll_all(c));
    if (data != IR_NONE) TRY(unroll_meetings(c, plan->mesh.axes[data].size));
    const shard_mesh_options_t options = {.mesh = &plan->mesh,
                                          .form = c->options.form,
                                          .context_attention = c->options.context_attention,
                                          .pins = c->options.pins,
                                          .settle = c->options.auto_sharding ? settle_axis : NULL,
                                          .settle_context = c,
                                          .home_of = model ? home_of : NULL,
                                          .context = (void *)(uintptr_t)model,
                                          .class_of = model ? model->program_of : NULL,
                                          .pipe = {.per_rank = c->options.stages_per_rank,
                                                   .n_micro = c->n_micro ? c->n_micro : 1,
                                                   .schedule = c->options.schedule,
                                                   .target = &c->target}};
    TRY(shard_lower_mesh(c->graph, &options, made));
    TRY(make_ports(c, made));
    TRY(add_programs(plan, made->n_programs, plan->n_ranks));
    memcpy(plan->program_of, made->program_of, plan->n_ranks * sizeof *plan->program_of);
    for (uint32_t p = 0; p < made->n_programs; p++) {
        plan->programs[plan->n_programs++].graph = made->graphs[p];
        made->graphs[p] = NULL;
    }
    drop_global(c);
    return plan_make_ports(plan);
}

st_status_t compile_pass_lower(compile_context_t *c) {
    shard_programs_t made = {0};
    if (c->options.only_items) return lower_part(c);
    st_status_t status = lower_ranks(c, &made);
    shard_programs_free(&made);
    return status;
}

/* ---- the ranks' programs ---- */

/* A pipeline's are marked where its ranks get them. */
st_status_t compile_pass_turns(compile_context_t *c) {
    if (compile_wants_stages(&c->options) || !c->n_micro) return ST_OK;
    for (uint32_t p = 0; p < c->plan->n_programs; p++)
        TRY(sched_mark_turns(c->plan->programs[p].graph, c->n_micro));
    return ST_OK;
}

uint32_t compile_largest_program(const plan_t *plan) {
    uint32_t largest = 0;
    for (uint32_t p = 1; p < plan->n_programs; p++)
        if (ir_graph_value_bytes(plan->programs[p].graph) >
            ir_graph_value_bytes(plan->programs[largest].graph))
            largest = p;
    return largest;
}

/* The programs become those of `made`, all or, where one failed, none; returns `status`. */
static st_status_t replace_all(plan_t *plan, ir_graph_t **made, st_status_t status) {
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        if (status == ST_OK)
            compile_replace(&plan->programs[p].graph, made[p]);
        else
            ir_graph_destroy(made[p]);
    }
    st_free(made);
    return status;
}

st_status_t compile_pass_primitives(compile_context_t *c) {
    plan_t *plan = c->plan;
    const ir_graph_t **graphs = st_calloc(plan->n_programs, sizeof *graphs);
    ir_graph_t **made = st_calloc(plan->n_programs, sizeof *made);
    st_status_t status = ST_OK;
    if (!graphs || !made)
        TRY_GOTO(st_no_memory(plan->n_programs * sizeof *made, "the programs"), fail);
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        ir_graph_t *expanded;
        TRY_GOTO(ir_expand_definitions(plan->programs[p].graph, &expanded), fail);
        compile_replace(&plan->programs[p].graph, expanded);
        graphs[p] = expanded;
    }
    status = fuse_simplify_alike(plan->n_programs, graphs, &c->target, made);
    st_free(graphs);
    return replace_all(plan, made, status);
fail:
    st_free(graphs);
    st_free(made);
    return status;
}

/* Programs of ranks have the same nodes: all do as the largest one's costs say. */
st_status_t compile_pass_fuse(compile_context_t *c) {
    plan_t *plan = c->plan;
    fuse_decision_t *decision = c->fit.chosen;
    st_status_t status = ST_OK;
    const uint32_t largest = decision ? c->fit.model : compile_largest_program(plan);
    if (!decision) TRY(fuse_decide(plan->programs[largest].graph, &c->target, NULL, &decision));
    fuse_report_destroy(plan->fusion);
    plan->fusion = NULL;
    for (uint32_t p = 0; p < plan->n_programs; p++)
        if (p != largest) TRY_GOTO(fuse_restrict(decision, plan->programs[p].graph), done);
    if (c->options.explain) TRY_GOTO(fuse_explain(decision, &plan->fusion), done);
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        ir_graph_t *made;
        TRY_GOTO(fuse_apply(decision, plan->programs[p].graph, &made), done);
        compile_replace(&plan->programs[p].graph, made);
    }
done:
    if (decision != c->fit.chosen) fuse_decision_destroy(decision);
    return status;
}

bool compile_fuses(const compile_context_t *context) {
    return !context->options.no_fusion && !context->options.primitives;
}

/* The order is found on the largest program and applied to all: it must be one order. */
st_status_t compile_pass_order(compile_context_t *c) {
    const plan_t *plan = c->plan;
    const uint32_t largest = compile_largest_program(plan);
    size_t n = plan->programs[largest].graph->nodes.n;
    ir_node_t *order = st_calloc(n, sizeof *order);
    st_status_t status = ST_OK;
    if (!order) return st_no_memory(n * sizeof *order, "the order");
    TRY_GOTO(sched_order(plan->programs[largest].graph, &c->target, order, NULL), done);
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

/* Merged and placed as the largest program's sizes and times say; of a pipeline, each stage's. */
st_status_t compile_pass_hide(compile_context_t *c) {
    plan_t *plan = c->plan;
    sched_hidden_t hidden;
    ir_graph_t **made = st_calloc(plan->n_programs, sizeof *made);
    if (!made) return st_no_memory(plan->n_programs * sizeof *made, "the programs");
    const ir_graph_t *model = plan->programs[compile_largest_program(plan)].graph;
    st_status_t status = sched_hide(model, &c->target, c->options.bucket_bytes, &hidden);
    for (uint32_t p = 0; p < plan->n_programs && status == ST_OK; p++)
        status = sched_hide_apply(&hidden, plan->programs[p].graph, &made[p]);
    sched_hidden_free(&hidden);
    return replace_all(plan, made, status);
}

st_status_t compile_pass_prove(compile_context_t *c) {
    return plan_check(c->plan);
}
