/* Candidates of placements, and the choice among them (sharding.h). */
#include "compile/sharding.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "shard/pins.h"
#include "shard/uniform.h"

enum { MAX_FORMS = 10, N_WEIGHTS = 3, N_BUDGETS = 3 };
/* Of communication in the energy: none of it hides, most does, some. Uniform plans take the better of the
 * first two, the rest of their solutions being much the same. */
static const double weights[N_WEIGHTS] = {1, 0.05, 0.3};
enum { FORM_WEIGHTS = 2 };
/* Of the limit, for what the energy knows of memory. */
static const double budgets[N_BUDGETS] = {0.8, 0.6, 0.4};
/* Beside those of the data axis; a tensor axis, whose inputs are whole, has this one alone. */
enum { FORM_TENSOR = SHARD_FORM_END };
/* Entries of the elimination's largest table. */
static const size_t WIDTH = (size_t)1 << 16;

typedef struct own {
    st_arena_t arena; /* rows and choices */
    shard_model_t *models[N_WEIGHTS];
} own_t;

typedef struct chooser {
    const sharding_request_t *request;
    sharding_t *out;
    own_t *own;
    uint8_t *labels;
    const uint8_t **starts; /* the model's, and the forms' */
    uint32_t n_starts;
    sharding_row_t best;  /* free choice */
    shard_choices_t room; /* choices that are being simulated */
} chooser_t;

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static bool fits(const chooser_t *c, const sharding_price_t *price) {
    const uint64_t limit = c->request->memory_limit;
    return !limit || price->state_bytes + price->live_bytes <= limit;
}

static st_status_t price_labels(chooser_t *c, const shard_model_t *model, sharding_row_t *row) {
    const ir_graph_t *graph = c->request->graph;
    shard_model_choose(model, c->labels, &c->room);
    TRY(sharding_simulate(c->request, &c->room, &row->price));
    row->fits = fits(c, &row->price);
    row->choices.nodes =
        st_arena_copy(&c->own->arena, c->room.nodes, graph->nodes.n * sizeof *c->room.nodes);
    row->choices.copies =
        st_arena_copy(&c->own->arena, c->room.copies, graph->values.n * sizeof *c->room.copies);
    if (!row->choices.nodes || !row->choices.copies)
        return st_no_memory(graph->nodes.n * sizeof *c->room.nodes, "choices");
    return ST_OK;
}

static bool is_better(const sharding_row_t *a, const sharding_row_t *b) {
    if (a->fits != b->fits) return a->fits;
    if (!a->fits)
        return a->price.state_bytes + a->price.live_bytes <
               b->price.state_bytes + b->price.live_bytes;
    return a->price.step_us < b->price.step_us;
}

/* ---- uniform plans ---- */

static st_status_t keep_start(chooser_t *c, const shard_model_t *model) {
    const uint8_t *copy =
        st_arena_copy(&c->own->arena, c->labels, shard_model_energy(model)->variables.n);
    if (!copy) return st_no_memory(shard_model_energy(model)->variables.n, "labels");
    c->starts[c->n_starts++] = copy;
    return ST_OK;
}

/* Of several rows of one name the best. */
static void keep_row(chooser_t *c, const sharding_row_t *row) {
    uint32_t at = 0;
    while (at < c->out->n_rows && strcmp(c->out->rows[at].name, row->name) != 0) at++;
    ASSERT(at < MAX_FORMS);
    if (at == c->out->n_rows || is_better(row, &c->out->rows[at])) c->out->rows[at] = *row;
    if (at == c->out->n_rows) c->out->n_rows++;
}

static st_status_t try_form(chooser_t *c, uint32_t w, uint32_t form) {
    const shard_model_t *model = c->own->models[w];
    const shard_start_t start = shard_model_starts(model);
    shard_energy_t energy;
    shard_answer_t answer;
    st_status_t status = ST_OK;
    TRY_GOTO(shard_uniform_energy(model, form, &energy), done);
    TRY_GOTO(shard_energy_solve(&energy, &start, WIDTH, c->labels, &answer), done);
    if (answer.energy == SHARD_FORBIDDEN) goto done; /* not possible here */
    sharding_row_t row = {.exact = answer.exact, .form = -1};
    snprintf(row.name, sizeof row.name, "%s", shard_uniform_name(form));
    TRY_GOTO(price_labels(c, model, &row), done);
    TRY_GOTO(keep_start(c, model), done);
    keep_row(c, &row);
done:
    shard_energy_close(&energy);
    return status;
}

/* ---- the lowering's own forms ---- */

/* Decides the form for a graph into which it is worked, and simulates what comes out. */
static st_status_t price_prepared(chooser_t *c, const shard_prepared_t *prepared,
                                  sharding_row_t *row) {
    sharding_request_t request = *c->request;
    const bool data = row->form != FORM_TENSOR;
    const shard_axis_t axis = {.name = data ? IR_AXIS_DATA : IR_AXIS_TENSOR,
                               .n_ranks = request.ring.n_ranks,
                               .splits_batch = data,
                               .forced = prepared->forced,
                               .homes = prepared->homes};
    shard_lowering_t *lowering;
    TRY(shard_decide(prepared->graph, &axis, &lowering));
    request.graph = prepared->graph;
    st_status_t status = shard_choices_of(lowering, &c->own->arena, &row->choices);
    if (status == ST_OK) status = sharding_simulate(&request, &row->choices, &row->price);
    row->fits = fits(c, &row->price);
    shard_lowering_destroy(lowering);
    return status;
}

static st_status_t settle_form(const sharding_request_t *request, int form,
                               shard_settled_t *settled) {
    if (form == FORM_TENSOR) return shard_form_tensor(request->graph, settled);
    return shard_form_data(request->graph, request->ring.n_ranks, (shard_form_t)form, settled);
}

static st_status_t try_lowering(chooser_t *c, int form, const char *name) {
    shard_settled_t settled = {0};
    shard_prepared_t prepared = {0};
    sharding_row_t row = {.form = form};
    st_status_t status = ST_OK;
    snprintf(row.name, sizeof row.name, "%s", name);
    TRY_GOTO(shard_settled_open(c->request->graph, &settled), done);
    settled.axis = form == FORM_TENSOR ? IR_AXIS_TENSOR : IR_AXIS_DATA;
    settled.n_ranks = c->request->ring.n_ranks;
    TRY_GOTO(settle_form(c->request, form, &settled), done);
    if (c->request->pins)
        TRY_GOTO(shard_pins_apply(c->request->pins, c->request->mesh, c->request->axis,
                                  c->request->graph, &settled),
                 done);
    TRY_GOTO(shard_prepare(c->request->graph, &settled, &prepared), done);
    TRY_GOTO(price_prepared(c, &prepared, &row), done);
    keep_row(c, &row);
done:
    shard_prepared_free(&prepared);
    shard_settled_free(&settled);
    return status;
}

st_status_t sharding_settle(const sharding_request_t *request, const sharding_t *sharding,
                            uint32_t row, shard_settled_t *settled) {
    const sharding_row_t *chosen = &sharding->rows[row];
    if (chosen->form >= 0) return settle_form(request, chosen->form, settled);
    return shard_choices_settle(request->graph, &chosen->choices, settled);
}

/* ---- free choices ---- */

static st_status_t try_labels(chooser_t *c, const shard_model_t *model, bool exact,
                              bool *out_fits) {
    sharding_row_t row = {.name = "auto", .exact = exact, .form = -1};
    TRY(price_labels(c, model, &row));
    *out_fits = row.fits;
    if (!c->best.choices.nodes || is_better(&row, &c->best)) c->best = row;
    return ST_OK;
}

static st_status_t try_free(chooser_t *c, uint32_t w) {
    const sharding_request_t *r = c->request;
    const shard_start_t start = {c->n_starts, c->starts};
    const shard_model_t *model = c->own->models[w];
    shard_answer_t answer;
    TRY(shard_energy_solve(shard_model_energy(model), &start, WIDTH, c->labels, &answer));
    bool fits_already;
    TRY(try_labels(c, model, answer.exact, &fits_already));
    for (int b = 0; r->memory_limit && !fits_already && b < N_BUDGETS; b++) {
        shard_limited_t limited;
        TRY(shard_energy_limited(shard_model_energy(model), &start, WIDTH,
                                 (uint64_t)(budgets[b] * (double)r->memory_limit), c->labels,
                                 &limited));
        TRY(try_labels(c, model, limited.answer.exact, &fits_already));
    }
    return ST_OK;
}

/* ---- the choice ---- */

static void choose(chooser_t *c) {
    sharding_t *out = c->out;
    out->rows[out->n_rows++] = c->best;
    for (uint32_t i = 1; i < out->n_rows; i++)
        if (is_better(&out->rows[i], &out->rows[out->chosen])) out->chosen = i;
}

static st_status_t open_chooser(chooser_t *c) {
    const ir_graph_t *graph = c->request->graph;
    st_arena_t *arena = &c->own->arena;
    const shard_start_t given = shard_model_starts(c->own->models[0]);
    c->starts = st_arena_array(arena, given.n + FORM_WEIGHTS * MAX_FORMS, sizeof *c->starts);
    c->room.nodes = st_arena_array(arena, graph->nodes.n, sizeof *c->room.nodes);
    c->room.copies = st_arena_array(arena, graph->values.n, sizeof *c->room.copies);
    c->labels = st_arena_array(arena, shard_model_energy(c->own->models[0])->variables.n, 1);
    c->out->rows = st_arena_array(arena, MAX_FORMS + 1, sizeof *c->out->rows);
    if (!c->starts || !c->room.nodes || !c->room.copies || !c->labels || !c->out->rows)
        return st_no_memory(graph->nodes.n * sizeof *c->room.nodes, "a choice of placements");
    memcpy(c->starts, given.labels, given.n * sizeof *c->starts);
    c->n_starts = given.n;
    return ST_OK;
}

static st_status_t run(chooser_t *c) {
    const sharding_request_t *r = c->request;
    c->own = st_calloc(1, sizeof *c->own);
    c->out->own = c->own;
    if (!c->own) return st_no_memory(sizeof *c->own, "a choice of placements");
    const ir_placement_t *const *pinned = NULL;
    if (r->pins)
        TRY(shard_pins_states(r->pins, r->mesh, r->axis, r->graph, &c->own->arena, &pinned));
    for (uint32_t w = 0; w < N_WEIGHTS; w++) {
        shard_ring_t ring = r->ring;
        ring.weight *= weights[w];
        TRY(shard_model_open(r->graph, r->target, &ring, r->splits_inputs, pinned,
                             &c->own->models[w]));
        if (!w) TRY(open_chooser(c));
        for (uint32_t form = 0; w < FORM_WEIGHTS && shard_uniform_name(form); form++) {
            ASSERT(form < MAX_FORMS);
            TRY(try_form(c, w, form));
        }
    }
    static const char *const forms[] = {"dp", "zero1", "zero2", "zero3", "tp"};
    for (int form = SHARD_FORM_DP; r->lowers_forms && form <= FORM_TENSOR; form++)
        if (r->splits_inputs == (form != FORM_TENSOR)) TRY(try_lowering(c, form, forms[form]));
    for (uint32_t w = 0; w < N_WEIGHTS; w++) TRY(try_free(c, w));
    choose(c);
    return ST_OK;
}

st_status_t sharding_choose(const sharding_request_t *request, sharding_t *out_sharding) {
    const double begin = now_us();
    chooser_t c = {.request = request, .out = out_sharding};
    *out_sharding = (sharding_t){0};
    const st_status_t status = run(&c);
    out_sharding->us = now_us() - begin;
    if (status != ST_OK) sharding_free(out_sharding);
    return status;
}

void sharding_free(sharding_t *sharding) {
    own_t *own = sharding->own;
    for (uint32_t w = 0; own && w < N_WEIGHTS; w++) shard_model_destroy(own->models[w]);
    if (own) st_arena_clear(&own->arena);
    st_free(own);
    *sharding = (sharding_t){0};
}
