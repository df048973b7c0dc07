/* The contest of compiled plans (contest.h). */
#include "compile/contest.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "compile/meshes.h"
#include "compile/predict.h"
#include "compile/simulate.h"

enum { MANY_NODES = 1500, MESHES = 3, MESHES_OF_MANY = 1, MOST = 8 + 2 * MESHES };
static const char other_meshes[] = "other meshes"; /* the candidate where they cannot be priced */

typedef struct candidate {
    const char *name; /* static */
    ir_mesh_t mesh;
    bool searches;
    const char *searched_axis; /* static; NULL: all axes */
    shard_form_t form;
    mesh_price_t price; /* of another mesh than the one asked for; else zeros */
    double compiled_us; /* 0: there is no plan of it, for `reason` */
    st_status_t status; /* why it dropped out, if it did */
    const char *reason;
} candidate_t;

static const char *const form_names[] = {"dp", "zero1", "zero2", "zero3"};

typedef struct contest {
    const ir_graph_t *graph;
    const compile_options_t *options;
    st_arena_t arena; /* of reasons */
    uint32_t n;
    candidate_t list[MOST]; /* the first is the search */
    plan_t *searched;       /* the first's plan, if it did not drop out */
    plan_t *best;
    uint32_t winner;
} contest_t;

bool compile_is_contested(const compile_options_t *o) {
    if (!o || !o->auto_sharding || o->state_of || o->only_items) return false;
    return (o->mesh.n ? ir_mesh_ranks(&o->mesh) : o->n_ranks) > 1;
}

/* ---- who takes part ---- */

static bool is_one_axis(const ir_mesh_t *mesh) {
    uint32_t n = 0;
    for (uint32_t a = 0; a < mesh->n; a++) n += mesh->axes[a].size > 1;
    return n == 1;
}

static void add(contest_t *c, candidate_t candidate) {
    ASSERT(c->n < MOST);
    c->list[c->n++] = candidate;
}

static void line_up(contest_t *c) {
    const compile_options_t *o = c->options;
    const ir_mesh_t mesh = o->mesh.n ? o->mesh : ir_mesh_of_ranks(o->n_ranks);
    const uint32_t data = ir_mesh_find(&mesh, IR_AXIS_DATA);
    const bool shares = data != IR_NONE && mesh.axes[data].size > 1;
    add(c, (candidate_t){.name = "auto", .mesh = mesh, .searches = true});
    if (shares && !is_one_axis(&mesh))
        add(c, (candidate_t){.name = "auto, data only",
                             .mesh = mesh,
                             .searches = true,
                             .searched_axis = IR_AXIS_DATA});
    for (int form = 0; form < (shares ? SHARD_FORM_END : 1); form++)
        add(c, (candidate_t){.name = form_names[form], .mesh = mesh, .form = (shard_form_t)form});
    if (o->mesh.n || o->pins) return; /* pins are of the data axis */
    candidate_t tensor = {.name = "tp", .mesh = mesh};
    memcpy(tensor.mesh.axes[0].name, IR_AXIS_TENSOR, sizeof IR_AXIS_TENSOR);
    add(c, tensor);
}

static bool has_bodies(const ir_graph_t *graph) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (ir_op_def(ir_node(graph, n)->op)->flags & IR_REGION) return true;
    return false;
}

/* Nothing is left to be searched for. */
static bool is_pipe(const ir_mesh_t *mesh) {
    return mesh->n == 1 && strcmp(mesh->axes[0].name, IR_AXIS_PIPE) == 0;
}

static st_status_t price_meshes(contest_t *c, const compile_context_t *front) {
    mesh_price_t prices[MESHES];
    uint32_t n = 0;
    const meshes_request_t request = {.graph = front->graph,
                                      .target = &front->target,
                                      .n_ranks = c->options->n_ranks,
                                      .n_micro = front->n_micro,
                                      .memory_limit = c->options->memory_limit
                                                          ? c->options->memory_limit
                                                          : front->target.machine->memory_bytes};
    if (has_bodies(front->graph)) return ST_OK; /* loops that are no micro-batches */
    TRY(meshes_price(&request, c->graph->nodes.n > MANY_NODES ? MESHES_OF_MANY : MESHES, prices,
                     &n));
    for (uint32_t i = 0; i < n; i++) {
        add(c, (candidate_t){.name = form_names[prices[i].form],
                             .mesh = prices[i].mesh,
                             .form = prices[i].form,
                             .price = prices[i]});
        if (!is_pipe(&prices[i].mesh))
            add(c, (candidate_t){.name = "auto", .mesh = prices[i].mesh, .searches = true});
    }
    return ST_OK;
}

/* Whether `status` is about the candidate, and not about this process or what it writes. */
static bool drops_out(st_status_t status) {
    return status != ST_OK && status != ST_NO_MEMORY && status != ST_INTERRUPTED && status != ST_IO;
}

/* The error becomes the candidate's reason. */
static st_status_t drop_out(contest_t *c, candidate_t *candidate, st_status_t status) {
    candidate->status = status;
    candidate->reason = st_arena_strdup(&c->arena, st_last_error());
    st_clear_error();
    return candidate->reason ? ST_OK : st_no_memory(0, "a reason");
}

/* Nobody asked for a mesh: others take part. They are priced with micro-batches written out, as a
 * pipeline has them, if there are some and they are not too many. */
static st_status_t add_meshes(contest_t *c) {
    compile_options_t options = *c->options;
    compile_context_t front;
    target_t *target;
    if (options.mesh.n || options.pins) return ST_OK;
    options.mesh = (ir_mesh_t){.n = 1, .axes = {{IR_AXIS_PIPE, options.n_ranks}}};
    options.plan_cache = options.dump = NULL;
    st_status_t status = compile_front(c->graph, &options, &front, &target);
    if (status == ST_OK) status = price_meshes(c, &front);
    compile_front_close(&front, target);
    if (!drops_out(status)) return status;
    add(c, (candidate_t){.name = other_meshes, .mesh = options.mesh});
    return drop_out(c, &c->list[c->n - 1], status);
}

/* ---- compiling ---- */

static st_status_t step_us(const plan_t *plan, double *out_us) {
    target_t *target = NULL;
    simulation_t *simulation = NULL;
    TRY(predict_target(plan, &target));
    st_status_t status = simulate_plan(plan, target, &simulation);
    if (status == ST_OK) *out_us = simulation->step_us;
    simulate_destroy(simulation);
    target_destroy(target);
    return status;
}

static st_status_t compile_candidate(const contest_t *c, const candidate_t *candidate,
                                     bool *out_found, plan_t **out_plan) {
    compile_options_t options = *c->options;
    bool found; /* what the contest compiles is not kept one by one */
    if (candidate == c->list) return compile_single(c->graph, &options, out_found, out_plan);
    options.mesh = candidate->mesh;
    options.auto_sharding = candidate->searches;
    options.searched_axis = candidate->searched_axis;
    options.form = candidate->form;
    options.plan_cache = options.dump = NULL;
    options.no_advice = true;
    return compile_single(c->graph, &options, &found, out_plan);
}

/* Control flow is not searched for on any axis: the plan is that of the first form, which takes its
 * place. */
static void take_form(contest_t *c) {
    bool any = false;
    for (uint32_t r = 0; r < c->searched->n_alternatives; r++)
        any |= c->searched->alternatives[r].chosen && !c->searched->alternatives[r].reason;
    if (any) return;
    uint32_t n = 1;
    c->list[0].name = "dp";
    for (uint32_t i = 1; i < c->n; i++)
        if (!c->list[i].searches && strcmp(c->list[i].name, "dp") != 0) c->list[n++] = c->list[i];
    c->n = n;
}

/* *out_found: the plan is the cache's, and there is no contest. */
static st_status_t run_candidate(contest_t *c, uint32_t i, bool *out_found) {
    candidate_t *candidate = &c->list[i];
    plan_t *plan = NULL;
    if (candidate->reason) return ST_OK; /* known before */
    st_status_t status = compile_candidate(c, candidate, out_found, &plan);
    if (status == ST_OK && !*out_found) status = step_us(plan, &candidate->compiled_us);
    if (status != ST_OK) {
        plan_destroy(plan);
        return drops_out(status) ? drop_out(c, candidate, status) : status;
    }
    if (!i) c->searched = plan;
    if (!i && !*out_found) take_form(c);
    if (c->best && candidate->compiled_us >= c->list[c->winner].compiled_us) {
        plan_destroy(plan);
        return ST_OK;
    }
    if (c->best != c->searched) plan_destroy(c->best);
    c->best = plan;
    c->winner = i;
    return ST_OK;
}

/* ---- what the winner says of itself ---- */

/* Options of the search: a plan is found again by what was asked for. */
static st_status_t say_option(plan_t *plan, const char *key, const char *value) {
    for (uint32_t i = 0; i < plan->n_options; i++) {
        if (strcmp(plan->options[i].key, key) != 0) continue;
        plan->options[i].value = st_arena_strdup(&plan->arena, value);
        return plan->options[i].value ? ST_OK : st_no_memory(0, "a plan");
    }
    return ST_OK;
}

/* What the search priced, axis by axis. */
static st_status_t copy_rows(const contest_t *c, plan_alternative_t *rows) {
    st_arena_t *arena = &c->best->arena;
    for (uint32_t i = 0; c->searched && i < c->searched->n_alternatives; i++) {
        const plan_alternative_t *row = &c->searched->alternatives[i];
        rows[i] = *row;
        rows[i].axis = st_arena_strdup(arena, row->axis);
        rows[i].name = st_arena_strdup(arena, row->name);
        if (row->reason) rows[i].reason = st_arena_strdup(arena, row->reason);
        rows[i].chosen = row->chosen && c->winner == 0;
        if (!rows[i].axis || !rows[i].name || (row->reason && !rows[i].reason))
            return st_no_memory(0, "the alternatives");
    }
    return ST_OK;
}

/* The candidate's row: that of the search where its axis is the only one, else one of the whole
 * mesh. */
static st_status_t say_candidate(const contest_t *c, uint32_t i, plan_alternative_t *rows,
                                 uint32_t *n) {
    const candidate_t *candidate = &c->list[i];
    st_arena_t *arena = &c->best->arena;
    char text[IR_MESH_TEXT_BYTES];
    const char *axis = ir_mesh_text(&candidate->mesh, text, sizeof text);
    uint32_t at = *n;
    if (candidate->mesh.n == 1) axis = candidate->mesh.axes[0].name;
    for (uint32_t r = 0; candidate->mesh.n == 1 && r < *n; r++)
        if (strcmp(rows[r].axis, axis) == 0 && !rows[r].reason &&
            (i ? strcmp(rows[r].name, candidate->name) == 0
               : c->searched && c->searched->alternatives[r].chosen))
            at = r;
    if (at < *n && rows[at].compiled_us > 0) { /* the search took that form, and said so */
        if (!candidate->reason) return ST_OK;
        at = *n;
    }
    if (at == *n) {
        const mesh_price_t *price = &candidate->price;
        rows[at] = (plan_alternative_t){.axis = st_arena_strdup(arena, axis),
                                        .name = st_arena_strdup(arena, candidate->name),
                                        .fits = !price->mesh.n || price->fits,
                                        .step_us = price->step_us,
                                        .exposed_us = price->exposed_us,
                                        .state_bytes = price->state_bytes,
                                        .live_bytes = price->live_bytes};
        if (!rows[at].axis || !rows[at].name) return st_no_memory(0, "the alternatives");
        ++*n;
    }
    rows[at].compiled_us = candidate->compiled_us;
    rows[at].chosen |= i == c->winner;
    rows[at].fits &= candidate->status != ST_DOES_NOT_FIT;
    if (candidate->reason) rows[at].reason = st_arena_strdup(arena, candidate->reason);
    return candidate->reason && !rows[at].reason ? st_no_memory(0, "the alternatives") : ST_OK;
}

static st_status_t say_alternatives(const contest_t *c) {
    uint32_t n = c->searched ? c->searched->n_alternatives : 0;
    plan_alternative_t *rows = st_arena_array(&c->best->arena, n + c->n, sizeof *rows);
    if (!rows) return st_no_memory(n * sizeof *rows, "the alternatives");
    TRY(copy_rows(c, rows));
    for (uint32_t i = 0; i < c->n; i++) TRY(say_candidate(c, i, rows, &n));
    c->best->alternatives = rows;
    c->best->n_alternatives = n;
    return ST_OK;
}

static st_status_t say_winner(const contest_t *c) {
    char mesh[IR_MESH_TEXT_BYTES];
    TRY(say_alternatives(c));
    TRY(say_option(c->best, "shard", "auto"));
    return say_option(c->best, "mesh", ir_mesh_text(&c->list[0].mesh, mesh, sizeof mesh));
}

/* ---- entry ---- */

st_status_t compile_contest(const ir_graph_t *graph, const compile_options_t *options,
                            bool *out_found, plan_t **out_plan) {
    contest_t c = {.graph = graph, .options = options};
    st_status_t status = ST_OK;
    *out_found = false;
    line_up(&c);
    for (uint32_t i = 0; status == ST_OK && i < c.n && !*out_found; i++) {
        status = run_candidate(&c, i, out_found);
        if (!i && status == ST_OK && !*out_found) status = add_meshes(&c);
    }
    if (status == ST_OK && !c.best) status = st_error_adopt(c.list[0].status, c.list[0].reason);
    if (status == ST_OK && !*out_found) status = say_winner(&c);
    if (c.searched != c.best) plan_destroy(c.searched);
    if (status == ST_OK)
        *out_plan = c.best;
    else
        plan_destroy(c.best);
    st_arena_clear(&c.arena);
    return status;
}
