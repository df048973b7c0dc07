/* The search for a grouping and an order (hide.h). */
#include "schedule/hide.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "schedule/live.h"
#include "schedule/merge.h"
#include "schedule/overlap.h"

/* Shares of all bytes that are made on the way, or of states: what a group may have. */
static const double shares_on_the_way[] = {1.0 / 16, 1, 1.0 / 4, 1.0 / 64, 1.0 / 512};
static const double shares_ahead[] = {1.0 / 32, 1.0 / 8, 1.0 / 128, 1.0 / 512};
/* Groups that are gathered ahead. */
static const double depths[] = {1, 2, 4};
/* Groups that are kept by transfers. */
static const double backlogs[] = {INFINITY, 8, 2, 1};
/* Places of the order past a reader that waits, as shares of the order. */
static const double windows[] = {1.0 / 32, 1, 1.0 / 8, 1.0 / 128, 0};
enum { ROUNDS = 2 };
/* Of a step: what is waited for is worth more memory where little hides nothing. */
static const double WORTH = 0.1;

typedef struct candidate {
    double on_the_way, ahead; /* bytes of a group */
    double depth, backlog, window;
    bool feeds_early;
} candidate_t;

typedef struct tried {
    candidate_t candidate;
    sched_overlap_time_t time;
    int64_t bytes;
} tried_t;

typedef struct search {
    sched_dag_t dag;
    sched_live_t live;
    sched_transfers_t transfers;
    ir_node_t *given, *tried; /* [nodes] */
    double on_the_way, ahead; /* bytes of all transfers */
    int64_t limit;
    tried_t now; /* the best candidate so far, within the limit or nearest to it */
    bool any;
    sched_hidden_t *out; /* the best within the limit, candidate or as given */
} search_t;

static bool is_faster(const sched_overlap_time_t *time, int64_t bytes, double step_us,
                      int64_t than_bytes) {
    if (fabs(time->step_us - step_us) > 1e-6 * step_us) return time->step_us < step_us;
    return bytes < than_bytes;
}

/* Of two that are too large the smaller one is nearer. */
static bool is_better(const search_t *s, const sched_overlap_time_t *time, int64_t bytes) {
    if (bytes > s->limit || s->now.bytes > s->limit) return bytes < s->now.bytes;
    return is_faster(time, bytes, s->now.time.step_us, s->now.bytes);
}

static void keep(search_t *s, const sched_overlap_time_t *time, int64_t bytes) {
    sched_hidden_t *out = s->out;
    memcpy(out->order, s->tried, s->dag.n * sizeof *out->order);
    for (uint32_t i = 0; i < s->transfers.n; i++)
        out->group_of[s->transfers.list[i].start] = s->transfers.list[i].group;
    out->n_groups = s->transfers.n_groups;
    out->step_us = time->step_us;
    out->exposed_us = time->exposed_us;
    out->link_us = time->link_us;
    out->bytes = bytes;
}

static st_status_t try_one(search_t *s, const candidate_t *c) {
    const sched_overlap_rule_t rule = {.window = (uint32_t)(c->window * (double)s->dag.n),
                                       .ahead_bytes = c->depth * c->ahead,
                                       .kept_bytes = c->backlog * c->on_the_way,
                                       .feeds_early = c->feeds_early};
    sched_overlap_time_t time;
    TRY(sched_transfers_group(&s->transfers, c->on_the_way, c->ahead));
    TRY(sched_overlap(&s->transfers, s->given, &rule, s->tried, &time));
    const int64_t bytes = sched_live_regions(&s->live, s->tried);
    if (bytes <= s->limit && is_faster(&time, bytes, s->out->step_us, s->out->bytes))
        keep(s, &time, bytes);
    if (s->any && !is_better(s, &time, bytes)) return ST_OK;
    s->any = true;
    s->now = (tried_t){*c, time, bytes};
    return ST_OK;
}

/* What runs as given: nothing merged, nothing moved. It is told by no numbers, so the search does
 * not start from it, but what is kept has to be faster. */
static st_status_t keep_given(search_t *s) {
    sched_overlap_time_t time;
    s->out->least_bytes = sched_live_regions(&s->live, s->given);
    TRY(sched_transfers_group(&s->transfers, 0, 0));
    TRY(sched_overlap_as_given(&s->transfers, s->given, &time));
    memcpy(s->tried, s->given, s->dag.n * sizeof *s->tried);
    keep(s, &time, s->out->least_bytes);
    return ST_OK;
}

/* The numbers of one coordinate, each with what is best of the others. */
#define TRY_EACH(s_, field_, values_, scale_, limit_)                        \
    for (size_t i_ = 0; i_ < sizeof(values_) / sizeof((values_)[0]); i_++) { \
        candidate_t c_ = (s_)->now.candidate;                                \
        c_.field_ = fmin((values_)[i_] * (scale_), (limit_));                \
        TRY(try_one((s_), &c_));                                             \
    }

/* Orders within `percent` more memory than the given one. */
static st_status_t search_within(search_t *s, uint64_t bucket_bytes, int percent) {
    const double limit = bucket_bytes ? (double)bucket_bytes : INFINITY;
    s->limit = s->out->least_bytes + s->out->least_bytes / 100 * percent;
    s->any = false;
    TRY(try_one(s, &(candidate_t){.on_the_way = fmin(s->on_the_way * shares_on_the_way[0], limit),
                                  .ahead = fmin(s->ahead * shares_ahead[0], limit),
                                  .depth = depths[0],
                                  .backlog = backlogs[0],
                                  .window = windows[0],
                                  .feeds_early = true}));
    for (int round = 0; round < ROUNDS; round++) {
        if (s->ahead > 0) TRY_EACH(s, ahead, shares_ahead, s->ahead, limit);
        if (s->ahead > 0) TRY_EACH(s, depth, depths, 1, INFINITY);
        if (s->on_the_way > 0) TRY_EACH(s, on_the_way, shares_on_the_way, s->on_the_way, limit);
        if (s->on_the_way > 0) TRY_EACH(s, backlog, backlogs, 1, INFINITY);
        TRY_EACH(s, window, windows, 1, 1);
        candidate_t late = s->now.candidate;
        late.feeds_early = !late.feeds_early;
        TRY(try_one(s, &late));
    }
    return ST_OK;
}

static st_status_t search(search_t *s, uint64_t bucket_bytes) {
    TRY(keep_given(s));
    const double given_us = s->out->step_us;
    TRY(search_within(s, bucket_bytes, SCHED_HIDE_PERCENT));
    if (s->out->step_us < given_us || s->out->exposed_us < WORTH * given_us) return ST_OK;
    return search_within(s, bucket_bytes, SCHED_HIDE_MOST_PERCENT);
}

static st_status_t open(search_t *s, const ir_graph_t *graph, const ir_target_t *target) {
    TRY(sched_dag_build(graph, &s->dag));
    TRY(sched_live_build(&s->dag, target, &s->live));
    s->given = st_calloc(s->dag.n, sizeof *s->given);
    s->tried = st_calloc(s->dag.n, sizeof *s->tried);
    s->out->order = st_calloc(s->dag.n, sizeof *s->out->order);
    s->out->group_of = st_calloc(s->dag.n, sizeof *s->out->group_of);
    if (!s->given || !s->tried || !s->out->order || !s->out->group_of)
        return st_no_memory(s->dag.n * sizeof *s->given, "the order");
    s->out->n_nodes = s->dag.n;
    for (ir_node_t n = 0; n < s->dag.n; n++) s->given[n] = n;
    TRY(sched_transfers_open(&s->dag, target, s->live.us, s->given, &s->transfers));
    for (uint32_t i = 0; i < s->transfers.n; i++)
        *(s->transfers.list[i].ahead ? &s->ahead : &s->on_the_way) += s->transfers.list[i].bytes;
    return ST_OK;
}

st_status_t sched_hide(const ir_graph_t *graph, const ir_target_t *target, uint64_t bucket_bytes,
                       sched_hidden_t *out) {
    search_t s = {.out = out};
    *out = (sched_hidden_t){0};
    st_status_t status = open(&s, graph, target);
    if (status == ST_OK) status = search(&s, bucket_bytes);
    st_free(s.given);
    st_free(s.tried);
    sched_transfers_close(&s.transfers);
    sched_live_free(&s.live);
    sched_dag_free(&s.dag);
    if (status != ST_OK) sched_hidden_free(out);
    return status;
}

st_status_t sched_hide_apply(const sched_hidden_t *hidden, const ir_graph_t *graph,
                             ir_graph_t **out_graph) {
    *out_graph = NULL;
    if (graph->nodes.n != hidden->n_nodes)
        return FAIL(ST_INTERNAL, "the ranks' programs differ in more than sizes");
    return sched_merge(graph, hidden->order, hidden->group_of, hidden->n_groups, out_graph);
}

void sched_hidden_free(sched_hidden_t *hidden) {
    st_free(hidden->order);
    st_free(hidden->group_of);
    *hidden = (sched_hidden_t){0};
}
