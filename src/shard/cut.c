/* Labelling by cuts (energy.h): fusion moves, and exact choices for small neighbourhoods. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/flow.h"
#include "base/memory.h"
#include "shard/energy.h"

enum {
    MAX_SWAP_CLASSES = 12, /* of more classes only expansions are tried */
    MAX_ROUNDS = 50,
    BLOCK_VARIABLES = 16,
    BLOCK_ENTRIES = 4096, /* of a block's tables; a block that is too wide is halved */
};
static const uint32_t NO_VERTEX = UINT32_MAX;

typedef struct search {
    const shard_core_t *core;
    uint32_t n;
    uint8_t *labels;   /* [n]: the best so far, always allowed after the start */
    uint8_t *proposal; /* [n] */
    uint8_t *before;   /* [n] */
    uint32_t *vertex;  /* [n]: in the move's network: NO_VERTEX: keeps its label */
    int64_t *linear;   /* [n]: of taking the proposed label */
    uint32_t *scratch; /* [n]: zero */
    uint32_t *block;   /* [BLOCK_VARIABLES] */
    uint32_t now;      /* counts changes of labels */
    uint32_t *changed; /* [n]: when the label did */
    uint32_t *chosen;  /* [n]: when the block around it was chosen; 0: never */
    int64_t energy;
    st_arena_t arena;
} search_t;

static int64_t label_cost(const search_t *s, uint32_t v, uint32_t x) {
    return shard_label_cost(&s->core->energy, v, x);
}
static int64_t pair_cost(const search_t *s, const shard_pair_t *pair, uint32_t x, uint32_t y) {
    return shard_pair_cost(&s->core->energy, pair, x, y);
}

static int64_t energy_of(const search_t *s, const uint8_t *labels) {
    const shard_energy_t *energy = &s->core->energy;
    int64_t sum = 0;
    for (uint32_t v = 0; v < s->n; v++) sum = shard_cost_add(sum, label_cost(s, v, labels[v]));
    for (size_t p = 0; p < energy->pairs.n; p++) {
        const shard_pair_t *pair = &energy->pairs.data[p];
        sum = shard_cost_add(sum, pair_cost(s, pair, labels[pair->a], labels[pair->b]));
    }
    return sum;
}

/* ---- one move: each variable keeps its label or takes the proposed one ---- */

/* What a table says of a move: 0 keeps, 1 takes. */
typedef struct terms {
    int64_t cost[2][2];
} terms_t;

static terms_t terms_of(const search_t *s, const shard_pair_t *pair) {
    const uint8_t *from = s->labels, *to = s->proposal;
    return (terms_t){{{pair_cost(s, pair, from[pair->a], from[pair->b]),
                       pair_cost(s, pair, from[pair->a], to[pair->b])},
                      {pair_cost(s, pair, to[pair->a], from[pair->b]),
                       pair_cost(s, pair, to[pair->a], to[pair->b])}}};
}

/* Variables that can take part: what would be forbidden whatever the others do keeps its label. */
static uint32_t find_active(search_t *s) {
    const shard_energy_t *energy = &s->core->energy;
    uint32_t n = 0;
    for (uint32_t v = 0; v < s->n; v++)
        s->vertex[v] =
            s->proposal[v] != s->labels[v] && label_cost(s, v, s->proposal[v]) != SHARD_FORBIDDEN
                ? 0
                : NO_VERTEX;
    for (bool again = true; again;) {
        again = false;
        for (size_t p = 0; p < energy->pairs.n; p++) {
            const shard_pair_t *pair = &energy->pairs.data[p];
            uint32_t *a = &s->vertex[pair->a], *b = &s->vertex[pair->b];
            if (*a == NO_VERTEX && *b == NO_VERTEX) continue;
            const terms_t t = terms_of(s, pair);
            const bool both = t.cost[1][1] != SHARD_FORBIDDEN && *a != NO_VERTEX && *b != NO_VERTEX;
            if (*a != NO_VERTEX && t.cost[1][0] == SHARD_FORBIDDEN && !both)
                *a = NO_VERTEX, again = true;
            if (*b != NO_VERTEX && t.cost[0][1] == SHARD_FORBIDDEN && !both)
                *b = NO_VERTEX, again = true;
        }
    }
    for (uint32_t v = 0; v < s->n; v++)
        if (s->vertex[v] != NO_VERTEX) s->vertex[v] = n++;
    return n;
}

typedef enum form {
    FORM_PLAIN = 0, /* one vertex a variable; needs submodular terms */
    FORM_DOUBLED,   /* roof duality: a vertex and its complement */
    FORM_RAISED,    /* one vertex; the terms that are not submodular are raised until they are */
} form_t;

typedef struct move {
    form_t form;
    uint32_t n; /* active variables */
    st_flow_t flow;
    int64_t constant;
} move_t;

/* Vertices: source, sink, x_i, and in the doubled form not-x_i. x_i = 1 is the sink's side. */
static uint32_t positive(uint32_t i) {
    return 2 + i;
}
static uint32_t negative(const move_t *m, uint32_t i) {
    return 2 + m->n + i;
}

/* cost · (1 - x_i) · x_j */
static st_status_t add_rise(move_t *m, uint32_t i, uint32_t j, uint64_t cost) {
    if (!cost) return ST_OK;
    TRY(st_flow_arc(&m->flow, positive(i), positive(j), cost, NULL));
    if (m->form != FORM_DOUBLED) return ST_OK;
    return st_flow_arc(&m->flow, negative(m, j), negative(m, i), cost, NULL);
}

/* cost · x_i · x_j, in the doubled form only */
static st_status_t add_both(move_t *m, uint32_t i, uint32_t j, uint64_t cost) {
    if (!cost) return ST_OK;
    TRY(st_flow_arc(&m->flow, negative(m, j), positive(i), cost, NULL));
    return st_flow_arc(&m->flow, negative(m, i), positive(j), cost, NULL);
}

static st_status_t add_linear(move_t *m, uint32_t i, int64_t cost) {
    if (cost == 0) return ST_OK;
    const uint64_t size =
        cost == SHARD_FORBIDDEN ? ST_FLOW_INFINITE : (uint64_t)(cost < 0 ? -cost : cost);
    if (cost < 0) m->constant += cost;
    TRY(st_flow_arc(&m->flow, cost > 0 ? 0 : positive(i), cost > 0 ? positive(i) : 1, size, NULL));
    if (m->form != FORM_DOUBLED) return ST_OK;
    return st_flow_arc(&m->flow, cost > 0 ? negative(m, i) : 0, cost > 0 ? 1 : negative(m, i), size,
                       NULL);
}

/* Whether the two together may cost more than the two one by one. */
static bool is_submodular(const terms_t *t) {
    if (t->cost[0][1] == SHARD_FORBIDDEN || t->cost[1][0] == SHARD_FORBIDDEN) return true;
    if (t->cost[1][1] == SHARD_FORBIDDEN) return false;
    return t->cost[0][0] + t->cost[1][1] <= t->cost[0][1] + t->cost[1][0];
}

/* A term that is not submodular: 1,0 and 0,1 are allowed. */
static st_status_t add_supermodular(search_t *s, move_t *m, uint32_t a, uint32_t b, terms_t t) {
    const uint32_t i = s->vertex[a], j = s->vertex[b];
    const int64_t keep = t.cost[0][0];
    if (m->form == FORM_DOUBLED) {
        s->linear[a] += t.cost[1][0] - keep;
        s->linear[b] += t.cost[0][1] - keep;
        if (t.cost[1][1] == SHARD_FORBIDDEN) return add_both(m, i, j, ST_FLOW_INFINITE);
        return add_both(m, i, j, (uint64_t)(keep + t.cost[1][1] - t.cost[0][1] - t.cost[1][0]));
    }
    /* the dearer of taking a alone and b alone is raised */
    const bool raise_b = t.cost[0][1] >= t.cost[1][0];
    const uint32_t free_one = raise_b ? a : b, raised = raise_b ? b : a;
    const int64_t alone = raise_b ? t.cost[1][0] : t.cost[0][1];
    s->linear[free_one] += alone - keep;
    if (t.cost[1][1] != SHARD_FORBIDDEN)
        s->linear[raised] += t.cost[1][1] - alone;
    else
        return add_linear(m, s->vertex[raised], SHARD_FORBIDDEN);
    return ST_OK;
}

/* The table of two active variables. Keeping both is allowed. */
static st_status_t add_terms(search_t *s, move_t *m, const shard_pair_t *pair) {
    const terms_t t = terms_of(s, pair);
    const uint32_t a = pair->a, b = pair->b, i = s->vertex[a], j = s->vertex[b];
    const int64_t keep = t.cost[0][0];
    m->constant += keep;
    if (!is_submodular(&t)) return add_supermodular(s, m, a, b, t);
    const int64_t take_a = t.cost[1][0], take_b = t.cost[0][1], both = t.cost[1][1];
    ASSERT(both != SHARD_FORBIDDEN); /* or one of the two were not active */
    if (take_a == SHARD_FORBIDDEN) { /* in terms of x_b and of x_a (1 - x_b) */
        if (take_b == SHARD_FORBIDDEN) {
            s->linear[a] += both - keep;
        } else {
            s->linear[b] += take_b - keep;
            s->linear[a] += both - take_b;
        }
        TRY(add_rise(m, j, i, ST_FLOW_INFINITE));
        return add_rise(m, i, j, take_b == SHARD_FORBIDDEN ? ST_FLOW_INFINITE : 0);
    }
    s->linear[a] += take_a - keep;
    s->linear[b] += both - take_a;
    if (take_b == SHARD_FORBIDDEN) return add_rise(m, i, j, ST_FLOW_INFINITE);
    return add_rise(m, i, j, (uint64_t)(take_b + take_a - keep - both));
}

static st_status_t build(search_t *s, move_t *m, uint32_t *out_others) {
    const shard_energy_t *energy = &s->core->energy;
    *out_others = 0;
    st_flow_open(2 + m->n * (m->form == FORM_DOUBLED ? 2 : 1), &m->flow);
    for (uint32_t v = 0; v < s->n; v++) {
        const int64_t keep = label_cost(s, v, s->labels[v]);
        m->constant += keep;
        s->linear[v] = s->vertex[v] == NO_VERTEX ? 0 : label_cost(s, v, s->proposal[v]) - keep;
    }
    for (size_t p = 0; p < energy->pairs.n; p++) {
        const shard_pair_t *pair = &energy->pairs.data[p];
        const bool a = s->vertex[pair->a] != NO_VERTEX, b = s->vertex[pair->b] != NO_VERTEX;
        if (a && b) {
            const terms_t t = terms_of(s, pair);
            *out_others += !is_submodular(&t);
            TRY(add_terms(s, m, pair));
            continue;
        }
        const terms_t t = terms_of(s, pair);
        m->constant += t.cost[0][0];
        if (a) s->linear[pair->a] += t.cost[1][0] - t.cost[0][0];
        if (b) s->linear[pair->b] += t.cost[0][1] - t.cost[0][0];
    }
    for (uint32_t v = 0; v < s->n; v++)
        if (s->vertex[v] != NO_VERTEX) TRY(add_linear(m, s->vertex[v], s->linear[v]));
    return ST_OK;
}

typedef struct moved {
    uint32_t n_others; /* terms that are not submodular */
    bool proved;       /* the labels are the best of all that the move could choose */
} moved_t;

static st_status_t cut_move(search_t *s, form_t form, moved_t *out) {
    move_t m = {.form = form, .n = find_active(s)};
    bool *sink = NULL;
    uint64_t value;
    st_status_t status = ST_OK;
    *out = (moved_t){.proved = true};
    if (!m.n) return ST_OK;
    TRY_GOTO(build(s, &m, &out->n_others), done);
    if (form == FORM_PLAIN && out->n_others) { /* no network of this form */
        out->proved = false;
        goto done;
    }
    sink = st_calloc(m.flow.n, sizeof *sink);
    if (!sink) TRY_GOTO(st_no_memory(m.flow.n, "a move"), done);
    TRY_GOTO(st_flow_cut(&m.flow, 0, 1, sink, &value), done);
    memcpy(s->before, s->labels, s->n);
    for (uint32_t v = 0; v < s->n; v++) {
        const uint32_t i = s->vertex[v];
        if (i == NO_VERTEX || !sink[positive(i)]) continue;
        if (form != FORM_DOUBLED || !sink[negative(&m, i)]) s->labels[v] = s->proposal[v];
    }
    const int64_t energy = energy_of(s, s->labels);
    ASSERT(energy <= s->energy);
    ASSERT(form != FORM_PLAIN || energy == m.constant + (int64_t)value);
    out->proved = form == FORM_PLAIN ||
                  (form == FORM_DOUBLED && energy == m.constant + (int64_t)((value + 1) / 2));
    if (energy == s->energy) memcpy(s->labels, s->before, s->n);
    for (uint32_t v = 0; energy < s->energy && v < s->n; v++)
        if (s->labels[v] != s->before[v]) s->changed[v] = ++s->now;
    s->energy = energy;
done:
    st_free(sink);
    st_flow_close(&m.flow);
    return status;
}

/* Towards s->proposal, as good as the forms can. */
static st_status_t fuse(search_t *s, moved_t *out) {
    moved_t again;
    TRY(cut_move(s, FORM_PLAIN, out));
    if (!out->n_others) return ST_OK;
    TRY(cut_move(s, FORM_DOUBLED, out));
    if (out->proved) return ST_OK;
    return cut_move(s, FORM_RAISED, &again);
}

/* ---- exact choices of a few neighbours, the others fixed ---- */

/* The variables around `from`, nearest first. */
static uint32_t grow_block(search_t *s, uint32_t from) {
    const shard_energy_t *energy = &s->core->energy;
    uint32_t n = 1;
    s->block[0] = from;
    s->scratch[from] = 1;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = s->core->first[s->block[i]];
             k < s->core->first[s->block[i] + 1] && n < BLOCK_VARIABLES; k++) {
            const uint32_t w =
                shard_other_end(&energy->pairs.data[s->core->adjacent[k]], s->block[i]);
            if (s->scratch[w] || energy->variables.data[w].n_labels < 2) continue;
            s->scratch[w] = 1;
            s->block[n++] = w;
        }
    for (uint32_t i = 0; i < n; i++) s->scratch[s->block[i]] = 0;
    return n;
}

static st_status_t choose_block(search_t *s, uint32_t n, bool *out_wide) {
    shard_energy_t part;
    shard_answer_t answer;
    uint8_t now[BLOCK_VARIABLES], labels[BLOCK_VARIABLES];
    st_status_t status = ST_OK;
    shard_energy_open(&part);
    TRY_GOTO(shard_core_restrict(s->core, s->block, n, s->labels, s->scratch, &part), done);
    for (uint32_t i = 0; i < n; i++) now[i] = s->labels[s->block[i]];
    TRY_GOTO(shard_energy_eliminate(&part, BLOCK_ENTRIES, labels, &answer), done);
    *out_wide = answer.too_wide;
    if (answer.too_wide) goto done;
    const int64_t gain = shard_energy_of(&part, now) - answer.energy;
    ASSERT(gain >= 0);
    s->energy -= gain;
    for (uint32_t i = 0; gain && i < n; i++) {
        if (s->labels[s->block[i]] != labels[i]) s->changed[s->block[i]] = ++s->now;
        s->labels[s->block[i]] = labels[i];
    }
done:
    shard_energy_close(&part);
    return status;
}

/* Whether a label of the block or beside it has changed since the block around `v` was chosen: else
 * the same would be chosen again. */
static bool is_stale(const search_t *s, uint32_t v, uint32_t n) {
    if (!s->chosen[v]) return true;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t w = s->block[i];
        if (s->changed[w] > s->chosen[v]) return true;
        for (uint32_t k = s->core->first[w]; k < s->core->first[w + 1]; k++)
            if (s->changed[shard_other_end(&s->core->energy.pairs.data[s->core->adjacent[k]], w)] >
                s->chosen[v])
                return true;
    }
    return false;
}

static st_status_t choose_blocks(search_t *s) {
    for (uint32_t v = 0; v < s->n; v++) {
        if (s->core->energy.variables.data[v].n_labels < 2) continue;
        uint32_t n = grow_block(s, v);
        if (!is_stale(s, v, n)) continue;
        for (bool wide = true; wide && n; n /= 2) TRY(choose_block(s, n, &wide));
        s->chosen[v] = s->now;
    }
    return ST_OK;
}

/* ---- proposals ---- */

/* v's cheapest label of a class; UINT32_MAX: none. */
static uint32_t of_class(const search_t *s, uint32_t v, uint32_t class) {
    const shard_variable_t *variable = &s->core->energy.variables.data[v];
    uint32_t best = UINT32_MAX;
    for (uint32_t x = 0; x < variable->n_labels; x++)
        if (s->core->energy.classes.data[variable->first + x] == class &&
            (best == UINT32_MAX || label_cost(s, v, x) < label_cost(s, v, best)))
            best = x;
    return best;
}

static uint32_t class_at(const search_t *s, uint32_t v) {
    const shard_variable_t *variable = &s->core->energy.variables.data[v];
    return s->core->energy.classes.data[variable->first + s->labels[v]];
}

static st_status_t expand(search_t *s, uint32_t class) {
    moved_t moved;
    for (uint32_t v = 0; v < s->n; v++) {
        const uint32_t x = of_class(s, v, class);
        s->proposal[v] = x == UINT32_MAX ? s->labels[v] : (uint8_t)x;
    }
    return fuse(s, &moved);
}

static st_status_t swap(search_t *s, uint32_t class_a, uint32_t class_b) {
    moved_t moved;
    for (uint32_t v = 0; v < s->n; v++) {
        const uint32_t now = class_at(s, v);
        const uint32_t x = now == class_a   ? of_class(s, v, class_b)
                           : now == class_b ? of_class(s, v, class_a)
                                            : UINT32_MAX;
        s->proposal[v] = x == UINT32_MAX ? s->labels[v] : (uint8_t)x;
    }
    return fuse(s, &moved);
}

static int by_number(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Distinct classes, ascending, in the arena. */
static st_status_t list_classes(search_t *s, uint32_t **out_classes, uint32_t *out_n) {
    const size_t n_labels = s->core->energy.classes.n;
    uint32_t *classes =
        st_arena_copy(&s->arena, s->core->energy.classes.data, n_labels * sizeof *classes);
    *out_n = 0;
    *out_classes = classes;
    if (!classes) return st_no_memory(n_labels * sizeof *classes, "the labels' classes");
    qsort(classes, n_labels, sizeof *classes, by_number);
    for (size_t i = 0; i < n_labels; i++)
        if (!i || classes[i] != classes[i - 1]) classes[(*out_n)++] = classes[i];
    return ST_OK;
}

/* Moves until a whole round gains nothing. */
static st_status_t improve(search_t *s, const shard_start_t *start) {
    uint32_t n_classes, *classes;
    moved_t moved;
    TRY(list_classes(s, &classes, &n_classes));
    for (int round = 0; round < MAX_ROUNDS; round++) {
        const int64_t before = s->energy;
        for (uint32_t i = 0; i < n_classes; i++) TRY(expand(s, classes[i]));
        for (uint32_t i = 0; n_classes <= MAX_SWAP_CLASSES && i < n_classes; i++)
            for (uint32_t j = i + 1; j < n_classes; j++) TRY(swap(s, classes[i], classes[j]));
        for (uint32_t i = 0; i < start->n; i++) {
            shard_core_gather(s->core, start->labels[i], s->proposal);
            TRY(fuse(s, &moved));
        }
        TRY(choose_blocks(s));
        if (s->energy == before) break;
    }
    return ST_OK;
}

/* ---- starts ---- */

static void start_cheap(search_t *s) {
    for (uint32_t v = 0; v < s->n; v++) {
        s->labels[v] = 0;
        for (uint32_t x = 1; x < s->core->energy.variables.data[v].n_labels; x++)
            if (label_cost(s, v, x) < label_cost(s, v, s->labels[v])) s->labels[v] = (uint8_t)x;
    }
    s->energy = energy_of(s, s->labels);
}

/* The best of the labellings given. */
static void take_start(search_t *s, const shard_start_t *start) {
    start_cheap(s);
    for (uint32_t i = 0; i < start->n; i++) {
        shard_core_gather(s->core, start->labels[i], s->proposal);
        const int64_t energy = energy_of(s, s->proposal);
        if (energy >= s->energy) continue;
        s->energy = energy;
        memcpy(s->labels, s->proposal, s->n);
    }
}

/* Labels that nothing compatible is left for are struck out. False: some variable has none left. */
static bool strike_out(const search_t *s, bool *out_allowed) {
    const shard_energy_t *energy = &s->core->energy;
    for (uint32_t v = 0; v < s->n; v++)
        for (uint32_t x = 0; x < energy->variables.data[v].n_labels; x++)
            out_allowed[energy->variables.data[v].first + x] =
                label_cost(s, v, x) != SHARD_FORBIDDEN;
    for (bool again = true; again;) {
        again = false;
        for (uint32_t v = 0; v < s->n; v++) {
            const shard_variable_t *variable = &energy->variables.data[v];
            uint32_t n_left = 0;
            for (uint32_t x = 0; x < variable->n_labels; x++) {
                bool *allowed = &out_allowed[variable->first + x];
                for (uint32_t k = s->core->first[v]; *allowed && k < s->core->first[v + 1]; k++) {
                    const shard_pair_t *pair = &energy->pairs.data[s->core->adjacent[k]];
                    const uint32_t w = shard_other_end(pair, v);
                    bool goes = false;
                    for (uint32_t y = 0; y < energy->variables.data[w].n_labels && !goes; y++)
                        goes = out_allowed[energy->variables.data[w].first + y] &&
                               shard_end_cost(energy, pair, v, x, y) != SHARD_FORBIDDEN;
                    if (!goes) *allowed = false, again = true;
                }
                n_left += *allowed;
            }
            if (!n_left) return false;
        }
    }
    return true;
}

/* Two labels a variable at most: one move between them decides. *out_done: it is the answer. */
static st_status_t solve_two(search_t *s, shard_answer_t *out_answer, bool *out_done) {
    const shard_energy_t *energy = &s->core->energy;
    moved_t moved;
    *out_done = false;
    for (uint32_t v = 0; v < s->n; v++)
        if (energy->variables.data[v].n_labels > 2) return ST_OK;
    bool *allowed = st_arena_array(&s->arena, energy->costs.n, sizeof *allowed);
    if (!allowed) return st_no_memory(energy->costs.n, "an energy");
    if (!strike_out(s, allowed)) {
        out_answer->exact = *out_done = true;
        return ST_OK;
    }
    for (uint32_t v = 0; v < s->n; v++) {
        const shard_variable_t *variable = &energy->variables.data[v];
        const bool *of = &allowed[variable->first];
        s->labels[v] = of[0] ? 0 : 1;
        s->proposal[v] = variable->n_labels == 2 && of[1] ? 1 : s->labels[v];
    }
    s->energy = energy_of(s, s->labels);
    if (s->energy == SHARD_FORBIDDEN) return ST_OK; /* then some table is not submodular */
    TRY(cut_move(s, FORM_PLAIN, &moved));
    out_answer->submodular = moved.n_others == 0;
    if (moved.n_others) TRY(cut_move(s, FORM_DOUBLED, &moved));
    out_answer->exact = *out_done = moved.proved;
    return ST_OK;
}

static st_status_t open_search(const shard_core_t *core, search_t *s) {
    *s = (search_t){.core = core, .n = (uint32_t)core->energy.variables.n, .now = 1};
    s->labels = st_arena_array(&s->arena, s->n, 1);
    s->proposal = st_arena_array(&s->arena, s->n, 1);
    s->before = st_arena_array(&s->arena, s->n, 1);
    s->vertex = st_arena_array(&s->arena, s->n, sizeof *s->vertex);
    s->linear = st_arena_array(&s->arena, s->n, sizeof *s->linear);
    s->scratch = st_arena_array(&s->arena, s->n, sizeof *s->scratch);
    s->block = st_arena_array(&s->arena, BLOCK_VARIABLES, sizeof *s->block);
    s->changed = st_arena_array(&s->arena, s->n, sizeof *s->changed);
    s->chosen = st_arena_array(&s->arena, s->n, sizeof *s->chosen);
    if (!s->labels || !s->proposal || !s->before || !s->vertex || !s->linear || !s->scratch ||
        !s->block || !s->changed || !s->chosen)
        return st_no_memory(s->n * sizeof *s->linear, "a search for labels");
    return ST_OK;
}

/* A start that is allowed: labels of which the fewest are forbidden, in an energy where that is all
 * that costs. */
static st_status_t find_start(search_t *s) {
    const shard_energy_t *energy = &s->core->energy;
    const shard_start_t here = {1, (const uint8_t *const[]){s->labels}};
    int64_t *costs = st_arena_array(&s->arena, SHARD_MAX_LABELS * SHARD_MAX_LABELS, sizeof *costs);
    shard_energy_t count;
    shard_answer_t answer;
    st_status_t status = ST_OK;
    if (!costs) return st_no_memory(sizeof *costs * SHARD_MAX_LABELS, "an energy");
    shard_energy_open(&count);
    for (uint32_t v = 0; v < s->n; v++) {
        const shard_variable_t *variable = &energy->variables.data[v];
        for (uint32_t x = 0; x < variable->n_labels; x++)
            costs[x] = label_cost(s, v, x) == SHARD_FORBIDDEN;
        TRY_GOTO(shard_energy_variable(&count, variable->n_labels, costs,
                                       energy->classes.data + variable->first, NULL, NULL),
                 done);
    }
    for (size_t p = 0; p < energy->pairs.n; p++) {
        const shard_pair_t *pair = &energy->pairs.data[p];
        const size_t n = (size_t)energy->variables.data[pair->a].n_labels *
                         energy->variables.data[pair->b].n_labels;
        for (size_t i = 0; i < n; i++)
            costs[i] = energy->tables.data[pair->first + i] == SHARD_FORBIDDEN;
        TRY_GOTO(shard_energy_pair(&count, pair->a, pair->b, costs), done);
    }
    TRY_GOTO(shard_energy_cut(&count, &here, s->proposal, &answer), done);
    memcpy(s->labels, s->proposal, s->n);
    s->energy = energy_of(s, s->labels);
done:
    shard_energy_close(&count);
    return status;
}

static st_status_t search_all(search_t *s, const shard_start_t *start, shard_answer_t *out_answer) {
    bool done;
    TRY(solve_two(s, out_answer, &done));
    if (done) return ST_OK;
    take_start(s, start);
    if (s->energy == SHARD_FORBIDDEN) TRY(find_start(s));
    return s->energy == SHARD_FORBIDDEN ? ST_OK : improve(s, start);
}

st_status_t shard_energy_cut(const shard_energy_t *energy, const shard_start_t *start,
                             uint8_t *labels, shard_answer_t *out_answer) {
    shard_core_t core;
    search_t search = {0};
    st_status_t status = ST_OK;
    *out_answer = (shard_answer_t){.energy = SHARD_FORBIDDEN};
    TRY(shard_core_open(energy, &core));
    TRY_GOTO(open_search(&core, &search), done);
    TRY_GOTO(search_all(&search, start, out_answer), done);
    shard_core_spread(&core, search.labels, labels);
    out_answer->energy = shard_energy_of(energy, labels);
done:
    st_arena_clear(&search.arena);
    shard_core_close(&core);
    return status;
}

st_status_t shard_energy_solve(const shard_energy_t *energy, const shard_start_t *start,
                               size_t max_entries, uint8_t *labels, shard_answer_t *out_answer) {
    TRY(shard_energy_eliminate(energy, max_entries, labels, out_answer));
    return out_answer->too_wide ? shard_energy_cut(energy, start, labels, out_answer) : ST_OK;
}
