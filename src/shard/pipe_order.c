/* The order of a pipeline's passes (pipe_order.h). O(passes · (stages a rank) · time units a
 * pass). */
#include "shard/pipe_order.h"

#include <string.h>

#include "base/memory.h"

enum { UNIT = 1 };
static const uint32_t NOT_YET = UINT32_MAX;

typedef struct runner {
    pipe_order_t *order;
    uint32_t per_rank;
    bool apart, trains;
    uint32_t *done;  /* [stages][micro-batches][PIPE_PASS_END]: when the pass ends */
    uint32_t *next;  /* [stages][PIPE_PASS_END]: its next micro-batch */
    uint32_t *until; /* [ranks]: it is busy */
    uint32_t now;
} runner_t;

typedef struct choice {
    bool any;
    uint32_t stage;
    pipe_pass_t pass;
    uint64_t urgency; /* less is first */
} choice_t;

void pipe_order_free(pipe_order_t *order) {
    st_free(order->place);
    st_free(order->n_passes);
    st_free(order->most_held);
    st_free(order->begin);
    *order = (pipe_order_t){0};
}

static uint32_t *at(const runner_t *r, uint32_t *table, uint32_t stage, uint32_t micro,
                    pipe_pass_t pass) {
    return &table[((size_t)stage * r->order->n_micro + micro) * PIPE_PASS_END + (uint32_t)pass];
}

static uint32_t *next_of(const runner_t *r, uint32_t stage, pipe_pass_t pass) {
    return &r->next[stage * PIPE_PASS_END + (uint32_t)pass];
}

static bool is_done(const runner_t *r, uint32_t stage, uint32_t micro, pipe_pass_t pass) {
    return *at(r, r->done, stage, micro, pass) <= r->now; /* NOT_YET is later than any time */
}

/* F passes of the rank that have no `pass` yet. */
static uint32_t held(const runner_t *r, uint32_t rank, pipe_pass_t pass) {
    uint32_t n = 0;
    for (uint32_t s = rank; s < r->order->n_stages; s += r->order->n_ranks)
        n += *next_of(r, s, PIPE_F) - *next_of(r, s, pass);
    return n;
}

/* Passes F before the first B, as far as there are so many. */
static uint32_t warm_up(const runner_t *r, uint32_t rank) {
    const uint32_t n = r->order->n_ranks, left = n - rank - 1;
    return r->per_rank == 1 ? left : 2 * left + n * (r->per_rank - 1);
}

static bool has_f(const runner_t *r, uint32_t rank) {
    for (uint32_t s = rank; s < r->order->n_stages; s += r->order->n_ranks)
        if (*next_of(r, s, PIPE_F) < r->order->n_micro) return true;
    return false;
}

static bool is_ready(const runner_t *r, uint32_t stage, uint32_t micro, pipe_pass_t pass) {
    const bool last = stage + 1 == r->order->n_stages;
    if (pass == PIPE_F) return !stage || is_done(r, stage - 1, micro, PIPE_F);
    if (pass == PIPE_W) return is_done(r, stage, micro, PIPE_B);
    return is_done(r, stage, micro, PIPE_F) && (last || is_done(r, stage + 1, micro, PIPE_B));
}

/* The first pass of a kind on the rank, of P micro-batches at a time the first stages' (of B the
 * last stages'): if that can run; with `any_ready` the first that can. */
static choice_t choose(const runner_t *r, uint32_t rank, pipe_pass_t pass, bool any_ready) {
    const pipe_order_t *o = r->order;
    choice_t best = {.pass = pass};
    bool found = false;
    for (uint32_t s = rank; s < o->n_stages; s += o->n_ranks) {
        const uint32_t micro = *next_of(r, s, pass);
        const bool ready = micro < o->n_micro && is_ready(r, s, micro, pass);
        if (micro == o->n_micro || (any_ready && !ready)) continue;
        const uint32_t turn = pass == PIPE_F ? s : o->n_stages - 1 - s;
        const uint64_t urgency = (uint64_t)(micro / o->n_ranks) << 32 | turn;
        if (found && best.urgency <= urgency) continue;
        found = true;
        best = (choice_t){ready, s, pass, urgency};
    }
    return best;
}

static void begin(runner_t *r, uint32_t rank, choice_t chosen) {
    pipe_order_t *o = r->order;
    const uint32_t micro = (*next_of(r, chosen.stage, chosen.pass))++;
    const bool both = chosen.pass == PIPE_B && !r->apart;
    const uint32_t end = r->now + (both ? 2 * UNIT : UNIT), place = o->n_passes[rank]++;
    *at(r, r->done, chosen.stage, micro, chosen.pass) = end;
    *at(r, o->place, chosen.stage, micro, chosen.pass) = place;
    r->until[rank] = end;
    o->begin[rank * (size_t)r->per_rank * o->n_micro * PIPE_PASS_END + place] = r->now;
    if (both) {
        (*next_of(r, chosen.stage, PIPE_W))++;
        *at(r, r->done, chosen.stage, micro, PIPE_W) = end;
        *at(r, o->place, chosen.stage, micro, PIPE_W) = place;
    }
    if (held(r, rank, PIPE_W) > o->most_held[rank]) o->most_held[rank] = held(r, rank, PIPE_W);
}

/* Forwards until the warm-up is over, then back and forth. */
static choice_t one_by_one(const runner_t *r, uint32_t rank) {
    const bool forward = has_f(r, rank) && held(r, rank, PIPE_B) <= warm_up(r, rank);
    return choose(r, rank, !r->trains || forward ? PIPE_F : PIPE_B, false);
}

/* Back where that is possible, else forwards as far as there is room, else what was left. */
static choice_t weights_last(const runner_t *r, uint32_t rank) {
    const uint32_t most = warm_up(r, 0) + 1; /* what the first rank holds anyway */
    choice_t chosen = choose(r, rank, PIPE_B, true);
    if (!chosen.any && held(r, rank, PIPE_B) <= warm_up(r, rank) && held(r, rank, PIPE_W) < most)
        chosen = choose(r, rank, PIPE_F, false);
    return chosen.any ? chosen : choose(r, rank, PIPE_W, true);
}

/* Whether the rank found something to do; `anyway`: out of order. */
static bool advance(runner_t *r, uint32_t rank, bool anyway) {
    choice_t chosen = r->apart ? weights_last(r, rank) : one_by_one(r, rank);
    for (int k = PIPE_PASS_END; anyway && !chosen.any && k-- > PIPE_F;)
        if (k == PIPE_F || (r->trains && (k == PIPE_B || r->apart)))
            chosen = choose(r, rank, (pipe_pass_t)k, true);
    if (chosen.any) begin(r, rank, chosen);
    return chosen.any;
}

static void run(runner_t *r) {
    const pipe_order_t *o = r->order;
    const uint64_t kinds = !r->trains ? 1 : r->apart ? 3 : 2;
    const uint64_t all = kinds * o->n_stages * o->n_micro;
    for (uint64_t n = 0; n < all; r->now++) {
        bool busy = false;
        for (uint32_t rank = 0; rank < o->n_ranks; rank++) {
            if (r->until[rank] <= r->now) n += advance(r, rank, false);
            busy |= r->until[rank] > r->now;
        }
        for (uint32_t rank = 0; !busy && n < all && rank < o->n_ranks; rank++) {
            busy = advance(r, rank, true);
            n += busy;
        }
        ASSERT(busy || n == all);
    }
}

st_status_t pipe_order_make(uint32_t n_ranks, uint32_t per_rank, uint32_t n_micro,
                            shard_schedule_t schedule, bool trains, pipe_order_t *out_order) {
    const uint32_t n_stages = n_ranks * per_rank;
    const size_t n = (size_t)n_stages * n_micro * PIPE_PASS_END;
    *out_order = (pipe_order_t){.n_ranks = n_ranks, .n_stages = n_stages, .n_micro = n_micro};
    runner_t r = {.order = out_order,
                  .per_rank = per_rank,
                  .apart = trains && schedule == SHARD_ZERO_BUBBLE,
                  .trains = trains};
    st_status_t status = ST_OK;
    out_order->place = st_calloc(n, sizeof *out_order->place);
    out_order->begin = st_calloc(n, sizeof *out_order->begin);
    out_order->n_passes = st_calloc(n_ranks, sizeof *out_order->n_passes);
    out_order->most_held = st_calloc(n_ranks, sizeof *out_order->most_held);
    r.done = st_calloc(n, sizeof *r.done);
    r.next = st_calloc((size_t)n_stages * PIPE_PASS_END, sizeof *r.next);
    r.until = st_calloc(n_ranks, sizeof *r.until);
    if (!out_order->place || !out_order->begin || !out_order->n_passes || !out_order->most_held ||
        !r.done || !r.next || !r.until)
        TRY_GOTO(st_no_memory(n * sizeof *r.done, "a pipeline's order"), done);
    for (size_t i = 0; i < n; i++) r.done[i] = NOT_YET;
    run(&r);
done:
    st_free(r.done);
    st_free(r.next);
    st_free(r.until);
    if (status != ST_OK) pipe_order_free(out_order);
    return status;
}
