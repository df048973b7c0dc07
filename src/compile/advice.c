/* Advice about plans that do not fit (advice.h). */
#include "compile/advice.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "compile/contest.h"
#include "compile/passes.h"
#include "compile/recompute.h"

/* The mesh with as many ranks, of which more or fewer split the batch; false: there is none. */
static bool mesh_of(const compile_context_t *c, uint32_t n_ranks, ir_mesh_t *out_mesh) {
    *out_mesh = c->options.mesh;
    const uint32_t data = ir_mesh_find(out_mesh, IR_AXIS_DATA);
    if (n_ranks == c->options.n_ranks) return true;
    if (data == IR_NONE) return false;
    const uint32_t others = c->options.n_ranks / out_mesh->axes[data].size;
    if (n_ranks % others) return false;
    out_mesh->axes[data].size = n_ranks / others;
    return true;
}

/* Bytes that another plan of the same graph takes, if it fits; 0: it does not. */
static st_status_t bytes_elsewhere(const compile_context_t *c, uint64_t limit, uint32_t n_ranks,
                                   shard_form_t form, uint32_t n_items, uint64_t *out_bytes) {
    compile_options_t options = c->options;
    plan_t *plan;
    *out_bytes = 0;
    if (!mesh_of(c, n_ranks, &options.mesh)) return ST_OK;
    options.n_ranks = n_ranks;
    options.form = form;
    options.only_items = n_items;
    options.memory_limit = limit;
    options.no_advice = true;
    options.plan_cache = NULL; /* nobody asked for this plan */
    options.dump = NULL;
    options.explain = false;
    st_status_t status = compile_single(c->plan->source, &options, NULL, &plan);
    if (status == ST_DOES_NOT_FIT) return ST_OK;
    if (status != ST_OK) return status;
    *out_bytes = compile_rank_bytes(plan);
    plan_destroy(plan);
    return ST_OK;
}

static uint32_t most_ranks(const compile_context_t *c) {
    return c->options.n_ranks <= 64 ? 16 * c->options.n_ranks : 1024;
}

/* Numbers of ranks of which the fewest is looked for: `low` do not fit, `high` do, in `bytes`; 0:
 * none known. */
typedef struct range {
    const compile_context_t *c;
    uint64_t limit, bytes;
    shard_form_t form;
    uint32_t low, high;
} range_t;

/* ST_UNSUPPORTED or ST_INVALID: there is no plan for so many. */
static st_status_t try_ranks(range_t *r, uint32_t ranks) {
    uint64_t bytes;
    TRY(bytes_elsewhere(r->c, r->limit, ranks, r->form, 0, &bytes));
    if (bytes)
        r->high = ranks, r->bytes = bytes;
    else
        r->low = ranks;
    return ST_OK;
}

/* From `ranks` on by doubling, then between what fits and what does not. */
static st_status_t narrow_ranks(range_t *r, uint32_t ranks, bool guessed) {
    const uint32_t most = most_ranks(r->c);
    uint64_t bytes_of_most = r->bytes;
    const bool most_fits = r->high == most;
    r->high = 0;
    for (; !r->high && ranks < most; ranks *= 2) TRY(try_ranks(r, ranks));
    if (!r->high && most_fits) r->high = most, r->bytes = bytes_of_most;
    if (!r->high && !most_fits && ranks == most) TRY(try_ranks(r, most));
    if (guessed && r->high > r->low + 1) TRY(try_ranks(r, r->high - 1));
    while (r->high > r->low + 1) TRY(try_ranks(r, r->low + (r->high - r->low) / 2));
    return ST_OK;
}

/* The fewest ranks on which the graph fits in this form, up to 16 times as many as now, those of
 * now included if they have another form; 0: none, or the plan shares the state of another one,
 * whose ranks it has. The most come first: where they do not fit, fewer do not either. `guess`: how
 * many it may take; 0: nothing is known. */
static st_status_t ranks_that_fit(const compile_context_t *c, uint64_t limit, shard_form_t form,
                                  uint32_t guess, uint32_t *out_ranks, uint64_t *out_bytes) {
    const uint32_t now = c->options.n_ranks, most = most_ranks(c);
    const bool tries_now = form != c->options.form && now > 1;
    range_t r = {.c = c, .limit = limit, .form = form, .low = tries_now ? now - 1 : now};
    *out_ranks = 0;
    if (c->options.state_of || most <= now) return ST_OK;
    st_status_t status = try_ranks(&r, most);
    if (status == ST_OK && !r.high) return ST_OK;
    r.low = tries_now ? now - 1 : now;
    const bool guessed = guess > now && guess < most;
    if (status == ST_OK || status == ST_UNSUPPORTED || status == ST_INVALID)
        status = narrow_ranks(&r, guessed ? guess : tries_now ? now : 2 * now, guessed);
    if (status != ST_OK && status != ST_UNSUPPORTED && status != ST_INVALID) return status;
    *out_ranks = r.high;
    *out_bytes = r.bytes;
    return ST_OK;
}

/* The largest batch that fits on the one rank; 0: none, or there is more than one rank. */
static st_status_t items_that_fit(const compile_context_t *c, uint64_t limit, uint32_t *out_items,
                                  uint64_t *out_bytes) {
    int64_t items = compile_batch_items(c->plan->source);
    uint32_t low = 0, high = items > 0 && items <= UINT32_MAX ? (uint32_t)items : 1;
    while (c->options.n_ranks == 1 && high > low + 1) {
        const uint32_t middle =
            low ? low + (high - low) / 2 : 1; /* where one does not fit, none do */
        uint64_t bytes;
        st_status_t status = bytes_elsewhere(c, limit, 1, c->options.form, middle, &bytes);
        if (status == ST_UNSUPPORTED) break; /* the batch cannot be split */
        if (status != ST_OK) return status;
        if (bytes)
            low = middle, *out_bytes = bytes;
        else
            high = low ? middle : 1;
    }
    *out_items = low;
    return ST_OK;
}

static uint64_t state_bytes(const plan_t *plan) {
    uint64_t most = 0;
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const uint64_t bytes = plan->programs[p].region_bytes[PLAN_STATE];
        if (bytes > most) most = bytes;
    }
    return most;
}

static void add_advice(char *text, const char *format, ...) ST_PRINTF(2, 3);
static void add_advice(char *text, const char *format, ...) {
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, COMPILE_ADVICE_BYTES - used, format, args);
    va_end(args);
}

/* The fewest ranks on which it fits, if each holds a part of the state. *out_any: there are some.
 * */
static st_status_t advise_split_state(const compile_context_t *c, uint64_t limit, char *text,
                                      bool *out_any) {
    uint32_t ranks = 0;
    uint64_t bytes = 0;
    ir_mesh_t mesh;
    char mesh_text[IR_MESH_TEXT_BYTES], size[ST_NUMBER_BYTES];
    TRY(ranks_that_fit(c, limit, SHARD_FORM_ZERO3, 0, &ranks, &bytes));
    *out_any = ranks && mesh_of(c, ranks, &mesh);
    if (*out_any)
        add_advice(text, "; with --mesh %s --shard zero3 %u ranks (now %u) need %s each",
                   ir_mesh_text(&mesh, mesh_text, sizeof mesh_text), ranks, c->options.n_ranks,
                   st_size_text(bytes, size));
    return ST_OK;
}

/* Nothing that was tried fits: what a batch of one and the most ranks need. */
static st_status_t tell_least(const compile_context_t *c, bool batch_too, char *text) {
    const int64_t items = compile_batch_items(c->plan->source);
    const uint64_t without = INT64_MAX; /* a limit that anything keeps to */
    char size[ST_NUMBER_BYTES];
    uint64_t bytes = 0;
    if (batch_too && c->options.n_ranks == 1 && items > 1) {
        st_status_t status = bytes_elsewhere(c, without, 1, c->options.form, 1, &bytes);
        if (status != ST_OK && status != ST_UNSUPPORTED) return status;
        if (status == ST_OK && bytes)
            add_advice(text, "; a batch of 1 (now %lld) does not fit either: it needs %s",
                       (long long)items, st_size_text(bytes, size));
    }
    const uint32_t ranks = most_ranks(c);
    if (ranks == c->options.n_ranks || c->options.state_of) return ST_OK;
    st_status_t status = bytes_elsewhere(c, without, ranks, SHARD_FORM_ZERO3, 0, &bytes);
    if (status != ST_OK && status != ST_UNSUPPORTED && status != ST_INVALID) return status;
    if (status == ST_OK && bytes)
        add_advice(text,
                   "; %u ranks (now %u) with --shard zero3 do not fit either: they need %s each",
                   ranks, c->options.n_ranks, st_size_text(bytes, size));
    return ST_OK;
}

st_status_t compile_advise(const compile_context_t *c, uint64_t limit, char *text) {
    const uint64_t state = state_bytes(c->plan);
    uint32_t ranks = 0, items = 0;
    uint64_t bytes = 0;
    bool any = false;
    char size[ST_NUMBER_BYTES];
    if (state > limit && !c->options.auto_sharding) {
        add_advice(text, "; no batch fits: the state alone needs %s", st_size_text(state, size));
        if (c->options.state_of) return ST_OK;
        TRY(advise_split_state(c, limit, text, &any));
        if (any) return ST_OK;
        add_advice(text, "; more ranks that split it (--mesh data=N --shard zero3) are needed");
        return tell_least(c, false, text);
    }
    const int64_t batch = compile_batch_items(c->plan->source);
    TRY(items_that_fit(c, limit, &items, &bytes));
    if (items)
        add_advice(text, "; a batch of %u (now %lld) needs %s", items, (long long)batch,
                   st_size_text(bytes, size));
    TRY(ranks_that_fit(c, limit, c->options.form,
                       items ? (uint32_t)((batch + items - 1) / items) : 0, &ranks, &bytes));
    if (ranks)
        add_advice(text, "; %u ranks (now %u) need %s each", ranks, c->options.n_ranks,
                   st_size_text(bytes, size));
    else if (!c->options.state_of)
        TRY(advise_split_state(c, limit, text, &any));
    return items || ranks || any ? ST_OK : tell_least(c, true, text);
}
