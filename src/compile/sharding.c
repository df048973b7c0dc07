/* Candidates of placements, and the choice among them (sharding.h). */
#include "compile/sharding.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "shard/pins.h"
#include "shard/uniform.h"

enum { MAX_FORMS = 10, N_WEIGHTS = 3, N_BUDGETS = 3 };
/* Of communication in the energy: none of it hides, most does, some. Uniform plans take the better
 * of the first two, the rest of their solutions being much the same. */
static const double weights[N_WEIGHTS] = {1, 0.05, 0.3};
enum { FORM_WEIGHTS = 2 };
/* Of the limit, for what the energy knows of memory. */
static const double budgets[N_BUDGETS] = {0.8, 0.6, 0.4};
/* Entries of the elimination's largest table. */
static const size_t WIDTH = (size_t)1 << 16;

typedef struct own {
    st_arena_t arena; /* rows and choices */
    shard_prices_t *prices;
    shard_model_t *model;
    shard_energy_t energies[N_WEIGHTS]; /* of it */
} own_t;

typedef struct chooser {
    sharding_request_t kept; /* the request, with prices */
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

static st_status_t price_labels(chooser_t *c, sharding_row_t *row) {
    const ir_graph_t *graph = c->request->graph;
    shard_model_choose(c->own->model, c->labels, &c->room);
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

/* The axis's name, for its forms and what is lowered to be sure. */
static const char *axis_of(const sharding_request_t *r) {
    return r->lowers ? r->lowers : r->splits_inputs ? IR_AXIS_DATA : IR_AXIS_TENSOR;
}

static bool is_better(const sharding_row_t *a, const sharding_row_t *b) {
    if (a->reason || b->reason) return !a->reason;
    if (a->fits != b->fits) return a->fits;
    if (!a->fits)
        return a->price.state_bytes + a->price.live_bytes <
               b->price.state_bytes + b->price.live_bytes;
    return a->price.step_us < b->price.step_us;
}

/* ---- uniform plans ---- */

static st_status_t keep_start(chooser_t *c) {
    const size_t n = shard_model_energy(c->own->model)->variables.n;
    const uint8_t *copy = st_arena_copy(&c->own->arena, c->labels, n);
    if (!copy) return st_no_memory(n, "labels");
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
    const shard_model_t *model = c->own->model;
    const shard_start_t start = shard_model_starts(model);
    shard_energy_t energy;
    shard_answer_t answer;
    st_status_t status = ST_OK;
    TRY_GOTO(shard_uniform_energy(model, &c->own->energies[w], form, &energy), done);
    TRY_GOTO(shard_energy_solve(&energy, &start, WIDTH, c->labels, &answer), done);
    if (answer.energy == SHARD_FORBIDDEN) goto done; /* not possible here */
    sharding_row_t row = {.exact = answer.exact, .form = -1};
    snprintf(row.name, sizeof row.name, "%s", shard_uniform_name(form));
    TRY_GOTO(price_labels(c, &row), done);
    TRY_GOTO(keep_start(c), done);
    keep_row(c, &row);
done:
    shard_energy_close(&energy);
    return status;
}

/* ---- lowering ---- */

/* What is settled, worked in and decided; where `row` is a form's, simulated as well. */
static st_status_t lower_prepared(chooser_t *c, const shard_prepared_t *prepared,
                                  sharding_row_t *row) {
    sharding_request_t request = *c->request;
    const shard_axis_t axis = {.name = axis_of(&request),
                               .n_ranks = request.ring.n_ranks,
                               .splits_batch = request.splits_inputs,
                               .forced = prepared->forced,
                               .homes = prepared->homes,
                               .places_inputs = prepared->places_inputs};
    shard_lowering_t *lowering;
    TRY(shard_decide(prepared->graph, &axis, &lowering));
    request.graph = prepared->graph;
    st_status_t status = ST_OK;
    if (row->form >= 0) status = shard_choices_of(lowering, &c->own->arena, &row->choices);
    if (row->form >= 0 && status == ST_OK)
        status = sharding_simulate(&request, &row->choices, &row->price);
    if (row->form >= 0) row->fits = fits(c, &row->price);
    shard_lowering_destroy(lowering);
    return status;
}

static st_status_t settle_row(const sharding_request_t *request, const sharding_row_t *row,
                              shard_settled_t *settled) {
    return row->form >= 0 ? shard_form_axis(request->graph, (shard_form_t)row->form,
                                            SHARD_CONTEXT_GATHER, settled)
                          : shard_choices_settle(request->graph, &row->choices, settled);
}

/* Lowers the row's placements: `reason` says why that cannot be. */
static st_status_t lower_row(chooser_t *c, sharding_row_t *row) {
    const sharding_request_t *r = c->request;
    shard_settled_t settled = {0};
    shard_prepared_t prepared = {0};
    st_status_t status = ST_OK;
    TRY_GOTO(shard_settled_open(r->graph, &settled), done);
    settled.axis = axis_of(r);
    settled.n_ranks = r->ring.n_ranks;
    TRY_GOTO(settle_row(r, row, &settled), done);
    if (r->pins) TRY_GOTO(shard_pins_apply(r->pins, r->mesh, r->axis, r->graph, &settled), done);
    TRY_GOTO(shard_prepare(r->graph, &settled, &prepared), done);
    TRY_GOTO(lower_prepared(c, &prepared, row), done);
done:
    shard_prepared_free(&prepared);
    shard_settled_free(&settled);
    if (status != ST_UNSUPPORTED && status != ST_INVALID) return status;
    row->reason = st_arena_strdup(&c->own->arena, st_last_error());
    st_clear_error();
    return row->reason ? ST_OK : st_no_memory(0, "a reason");
}

/* The forms that the lowering has of the axis. */
static st_status_t try_lowering(chooser_t *c) {
    static const char *const names[] = {"dp", "zero1", "zero2", "zero3"};
    const char *axis = c->request->lowers;
    const bool data = strcmp(axis, IR_AXIS_DATA) == 0, tensor = strcmp(axis, IR_AXIS_TENSOR) == 0;
    const int n_forms = !data ? 1 : c->request->whole ? SHARD_FORM_ZERO3 : SHARD_FORM_END;
    for (int form = SHARD_FORM_DP; form < n_forms; form++) {
        sharding_row_t row = {.form = form};
        snprintf(row.name, sizeof row.name, "%s", data ? names[form] : tensor ? "tp" : axis);
        TRY(lower_row(c, &row));
        keep_row(c, &row);
    }
    return ST_OK;
}

st_status_t sharding_settle(const sharding_request_t *request, const sharding_t *sharding,
                            uint32_t row, shard_settled_t *settled) {
    return settle_row(request, &sharding->rows[row], settled);
}

/* ---- free choices ---- */

static st_status_t try_labels(chooser_t *c, bool exact, bool *out_fits) {
    sharding_row_t row = {.name = "auto", .exact = exact, .form = -1};
    TRY(price_labels(c, &row));
    *out_fits = row.fits;
    if (!c->best.choices.nodes || is_better(&row, &c->best)) c->best = row;
    return ST_OK;
}

static st_status_t try_free(chooser_t *c, uint32_t w) {
    const sharding_request_t *r = c->request;
    const shard_start_t start = {c->n_starts, c->starts};
    const shard_energy_t *energy = &c->own->energies[w];
    shard_answer_t answer;
    TRY(shard_energy_solve(energy, &start, WIDTH, c->labels, &answer));
    bool fits_already;
    TRY(try_labels(c, answer.exact, &fits_already));
    for (int b = 0; r->memory_limit && !fits_already && b < N_BUDGETS; b++) {
        shard_limited_t limited;
        TRY(shard_energy_limited(energy, &start, WIDTH,
                                 (uint64_t)(budgets[b] * (double)r->memory_limit), c->labels,
                                 &limited));
        TRY(try_labels(c, limited.answer.exact, &fits_already));
    }
    return ST_OK;
}

/* ---- the choice ---- */

/* The best that can be lowered. */
static st_status_t choose(chooser_t *c) {
    sharding_t *out = c->out;
    out->rows[out->n_rows++] = c->best;
    for (;;) {
        for (uint32_t i = 0; i < out->n_rows; i++)
            if (is_better(&out->rows[i], &out->rows[out->chosen])) out->chosen = i;
        sharding_row_t *best = &out->rows[out->chosen];
        if (best->reason) return FAIL(ST_UNSUPPORTED, "%s", best->reason);
        if (best->form >= 0) return ST_OK; /* it has been lowered */
        TRY(lower_row(c, best));
        if (!best->reason) return ST_OK;
    }
}

static st_status_t open_chooser(chooser_t *c) {
    const ir_graph_t *graph = c->request->graph;
    st_arena_t *arena = &c->own->arena;
    const shard_start_t given = shard_model_starts(c->own->model);
    c->starts = st_arena_array(arena, given.n + FORM_WEIGHTS * MAX_FORMS, sizeof *c->starts);
    c->room.nodes = st_arena_array(arena, graph->nodes.n, sizeof *c->room.nodes);
    c->room.copies = st_arena_array(arena, graph->values.n, sizeof *c->room.copies);
    c->labels = st_arena_array(arena, shard_model_energy(c->own->model)->variables.n, 1);
    c->out->rows = st_arena_array(arena, MAX_FORMS + 1, sizeof *c->out->rows);
    if (!c->starts || !c->room.nodes || !c->room.copies || !c->labels || !c->out->rows)
        return st_no_memory(graph->nodes.n * sizeof *c->room.nodes, "a choice of placements");
    memcpy(c->starts, given.labels, given.n * sizeof *c->starts);
    c->n_starts = given.n;
    return ST_OK;
}

/* Pins of what stays whole, beside those asked for. */
static st_status_t pin_whole(chooser_t *c, const ir_placement_t *const **pinned) {
    static const ir_placement_t whole = {.kind = IR_REPLICATE};
    const sharding_request_t *r = c->request;
    const size_t n_nodes = r->graph->nodes.n;
    const ir_placement_t **all = st_arena_array(&c->own->arena, n_nodes, sizeof *all);
    if (!all) return st_no_memory(n_nodes * sizeof *all, "a choice of placements");
    for (ir_node_t n = 0; n < n_nodes; n++)
        all[n] = r->whole[n] ? &whole : *pinned ? (*pinned)[n] : NULL;
    *pinned = all;
    return ST_OK;
}

/* From here on the request's prices are kept. */
static st_status_t keep_prices(chooser_t *c) {
    TRY(shard_prices_create(&c->own->prices));
    c->kept = *c->request;
    c->kept.ring.prices = c->own->prices;
    c->request = &c->kept;
    return ST_OK;
}

static st_status_t run(chooser_t *c) {
    c->own = st_calloc(1, sizeof *c->own);
    c->out->own = c->own;
    if (!c->own) return st_no_memory(sizeof *c->own, "a choice of placements");
    TRY(keep_prices(c));
    const sharding_request_t *r = c->request;
    const ir_placement_t *const *pinned = NULL;
    if (r->pins)
        TRY(shard_pins_states(r->pins, r->mesh, r->axis, r->graph, &c->own->arena, &pinned));
    if (r->whole) TRY(pin_whole(c, &pinned));
    TRY(shard_model_open(r->graph, r->target, &r->ring, r->splits_inputs, pinned, &c->own->model));
    TRY(open_chooser(c));
    for (uint32_t w = 0; w < N_WEIGHTS; w++) {
        TRY(shard_model_weigh(c->own->model, r->ring.weight * weights[w], &c->own->energies[w]));
        for (uint32_t form = 0; w < FORM_WEIGHTS && shard_uniform_name(form); form++) {
            ASSERT(form < MAX_FORMS);
            TRY(try_form(c, w, form));
        }
    }
    if (r->lowers) TRY(try_lowering(c));
    for (uint32_t w = 0; w < N_WEIGHTS; w++) TRY(try_free(c, w));
    return choose(c);
}

st_status_t sharding_price_form(const sharding_request_t *request, shard_form_t form,
                                sharding_price_t *out_price, bool *out_possible) {
    own_t own = {0};
    chooser_t c = {.request = request, .own = &own};
    sharding_row_t row = {.form = (int)form};
    st_status_t status = keep_prices(&c);
    if (status == ST_OK) status = lower_row(&c, &row);
    *out_price = row.price;
    *out_possible = status == ST_OK && !row.reason;
    st_arena_clear(&own.arena);
    shard_prices_destroy(own.prices);
    return status;
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
    for (uint32_t w = 0; own && w < N_WEIGHTS; w++) shard_energy_close(&own->energies[w]);
    if (own) shard_model_destroy(own->model);
    if (own) shard_prices_destroy(own->prices);
    if (own) st_arena_clear(&own->arena);
    st_free(own);
    *sharding = (sharding_t){0};
}
