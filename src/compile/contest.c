/* The contest of compiled plans (contest.h). */
#include "compile/contest.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "compile/manager.h"
#include "compile/predict.h"
#include "compile/simulate.h"

enum { MANY_NODES = 1500, N_FORMS = 5, MOST_NEAR = 2 };
/* How much more than the best price is compiled where there are many nodes. */
static const double NEAR = 0.1;

typedef struct form {
    const char *name;
    bool tensor;
    shard_form_t form;
} form_t;

static const form_t forms[N_FORMS] = {{"dp", false, SHARD_FORM_DP},
                                      {"zero1", false, SHARD_FORM_ZERO1},
                                      {"zero2", false, SHARD_FORM_ZERO2},
                                      {"zero3", false, SHARD_FORM_ZERO3},
                                      {"tp", true, SHARD_FORM_DP}};

typedef struct contest {
    const ir_graph_t *graph;
    const compile_options_t *options;
    plan_t *best;
    const char *name; /* of the best: a form's, or NULL: the search's */
    double best_us;
    double compiled_us[N_FORMS]; /* 0: not compiled */
} contest_t;

bool compile_is_contested(const compile_options_t *o) {
    const bool one_axis =
        o &&
        (o->mesh.n == 0 || (o->mesh.n == 1 && strcmp(o->mesh.axes[0].name, IR_AXIS_DATA) == 0));
    return o && o->auto_sharding && one_axis && o->n_ranks > 1 && !o->state_of && !o->only_items;
}

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

/* ---- who takes part ---- */

static const plan_alternative_t *row_of(const plan_t *plan, const char *name) {
    for (uint32_t i = 0; plan && i < plan->n_alternatives; i++)
        if (strcmp(plan->alternatives[i].name, name) == 0) return &plan->alternatives[i];
    return NULL;
}

static double best_price(const plan_t *plan) {
    double best = INFINITY;
    for (uint32_t i = 0; i < plan->n_alternatives; i++)
        if (plan->alternatives[i].chosen) best = plan->alternatives[i].step_us;
    return best;
}

/* How far the form's price is above the best one; -1 where it has none. */
static double distance(const plan_t *searched, uint32_t f) {
    const plan_alternative_t *row = row_of(searched, forms[f].name);
    return row && row->step_us > 0 ? row->step_us / best_price(searched) - 1 : -1;
}

static bool is_possible(const contest_t *c, const form_t *form) {
    /* pins are of the data axis */
    return !form->tensor || !(c->options->mesh.n || c->options->pins);
}

/* The forms to compile, in that order: all of few nodes; of many the nearest, and those without a
 * price. */
static uint32_t line_up(const contest_t *c, const plan_t *searched, uint32_t line[N_FORMS]) {
    uint32_t n = 0, n_taken = 0, n_near = 0;
    for (uint32_t f = N_FORMS; f-- > 0;)
        if (is_possible(c, &forms[f])) line[n++] = f;
    if (!searched || c->graph->nodes.n <= MANY_NODES) return n;
    for (uint32_t i = 1; i < n; i++) {
        const uint32_t f = line[i];
        uint32_t at = i;
        for (; at > 0 && distance(searched, line[at - 1]) > distance(searched, f); at--)
            line[at] = line[at - 1];
        line[at] = f;
    }
    for (uint32_t i = 0; i < n; i++) {
        const double far = distance(searched, line[i]);
        if (far < 0 || (far < NEAR && n_near++ < MOST_NEAR)) line[n_taken++] = line[i];
    }
    return n_taken;
}

/* Control flow was not searched for: the plan has its form, and says why. */
static bool has_reason(const plan_t *plan) {
    for (uint32_t i = 0; plan && i < plan->n_alternatives; i++)
        if (plan->alternatives[i].reason) return true;
    return false;
}

/* ---- compiling ---- */

static st_status_t try_form(contest_t *c, uint32_t f) {
    compile_options_t options = *c->options;
    plan_t *plan = NULL;
    double us = 0;
    options.auto_sharding = false;
    options.form = forms[f].form;
    options.plan_cache = options.dump = NULL;
    options.no_advice = true;
    if (forms[f].tensor) {
        options.mesh = ir_mesh_of_ranks(options.n_ranks);
        memcpy(options.mesh.axes[0].name, IR_AXIS_TENSOR, sizeof IR_AXIS_TENSOR);
    }
    st_status_t status = compile_single(c->graph, &options, NULL, &plan);
    if (status == ST_DOES_NOT_FIT || status == ST_UNSUPPORTED) {
        st_clear_error();
        return ST_OK;
    }
    if (status == ST_OK) status = step_us(plan, &us);
    if (status != ST_OK) {
        plan_destroy(plan);
        return status;
    }
    c->compiled_us[f] = us;
    if (c->best && us >= c->best_us) {
        plan_destroy(plan);
        return ST_OK;
    }
    if (c->name) plan_destroy(c->best);
    c->best = plan;
    c->name = forms[f].name;
    c->best_us = us;
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

static st_status_t say_alternatives(contest_t *c, const plan_t *searched, double searched_us) {
    plan_t *plan = c->best;
    const uint32_t n = searched ? searched->n_alternatives : 0;
    plan_alternative_t *rows = st_arena_array(&plan->arena, n + N_FORMS, sizeof *rows);
    if (!rows) return st_no_memory(n * sizeof *rows, "the alternatives");
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        const plan_alternative_t *row = &searched->alternatives[i];
        rows[at] = *row;
        rows[at].axis = st_arena_strdup(&plan->arena, row->axis);
        rows[at].name = st_arena_strdup(&plan->arena, row->name);
        if (row->reason) rows[at].reason = st_arena_strdup(&plan->arena, row->reason);
        if (!rows[at].axis || !rows[at].name) return st_no_memory(0, "the alternatives");
        rows[at].chosen = row->chosen && !c->name;
        if (row->chosen) rows[at].compiled_us = searched_us;
        at++;
    }
    for (uint32_t f = 0; f < N_FORMS; f++) {
        if (!(c->compiled_us[f] > 0)) continue;
        const char *axis = forms[f].tensor ? IR_AXIS_TENSOR : IR_AXIS_DATA;
        uint32_t i = 0;
        while (i < at &&
               (strcmp(rows[i].name, forms[f].name) != 0 || strcmp(rows[i].axis, axis) != 0))
            i++;
        if (i == at)
            rows[at++] = (plan_alternative_t){.axis = axis, .name = forms[f].name, .fits = true};
        if (!rows[i].chosen) rows[i].compiled_us = c->compiled_us[f];
        if (c->name && strcmp(c->name, forms[f].name) == 0) rows[i].chosen = true;
    }
    plan->alternatives = rows;
    plan->n_alternatives = at;
    return ST_OK;
}

/* ---- entry ---- */

st_status_t compile_contest(const ir_graph_t *graph, const compile_options_t *options,
                            plan_t **plan) {
    contest_t c = {.graph = graph, .options = options, .best = *plan};
    plan_t *searched = *plan;
    st_status_t status = ST_OK;
    double searched_us = 0;
    uint32_t line[N_FORMS];
    char mesh[IR_MESH_TEXT_BYTES];
    const ir_mesh_t asked = options->mesh.n ? options->mesh : ir_mesh_of_ranks(options->n_ranks);
    if (has_reason(searched)) return ST_OK;
    if (searched) TRY_GOTO(step_us(searched, &searched_us), done);
    c.best_us = searched_us;
    const uint32_t n = line_up(&c, searched, line);
    for (uint32_t i = 0; i < n; i++) TRY_GOTO(try_form(&c, line[i]), done);
    if (!c.best) goto done;
    TRY_GOTO(say_alternatives(&c, searched, searched_us), done);
    TRY_GOTO(say_option(c.best, "shard", "auto"), done);
    TRY_GOTO(say_option(c.best, "mesh", ir_mesh_text(&asked, mesh, sizeof mesh)), done);
done:
    if (c.best != searched && status == ST_OK) plan_destroy(searched);
    if (status != ST_OK && c.best != searched) plan_destroy(c.best);
    if (status == ST_OK) *plan = c.best;
    return status;
}
