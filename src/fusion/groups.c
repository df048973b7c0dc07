/* Groups (groups.h). */
#include "fusion/groups.h"

#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "ir/op.h"

/* ---- edges beside the data's ---- */

static st_status_t order_edges(groups_t *groups) {
    const ir_graph_t *graph = groups->graph;
    ir_edges_t edges = {0};
    st_status_t status = ST_OK;
    ir_value_t *root = st_calloc(graph->values.n, sizeof *root);
    if (!root) return st_no_memory(graph->values.n * sizeof *root, "the groups");
    ir_order_roots(graph, root);
    TRY_GOTO(ir_order_edges(graph, root, false, &edges), done);
    TRY_GOTO(ir_order_index(&edges, graph->nodes.n, true, &groups->after), done);
    TRY_GOTO(ir_order_index(&edges, graph->nodes.n, false, &groups->before), done);
done:
    st_free(root);
    ST_VEC_FREE(&edges);
    return status;
}

/* ---- life ---- */

void groups_close(groups_t *groups) {
    ir_uses_free(&groups->uses);
    ir_neighbours_free(&groups->after);
    ir_neighbours_free(&groups->before);
    st_free(groups->of);
    st_free(groups->next);
    st_free(groups->first);
    st_free(groups->last);
    st_free(groups->size);
    st_free(groups->position);
    st_free(groups->seen);
    ST_VEC_FREE(&groups->ahead);
    ST_VEC_FREE(&groups->behind);
    ST_VEC_FREE(&groups->positions);
    *groups = (groups_t){0};
}

st_status_t groups_open(const ir_graph_t *graph, groups_t *out_groups) {
    size_t n = graph->nodes.n;
    st_status_t status = ST_OK;
    *out_groups = (groups_t){.graph = graph};
    out_groups->of = st_calloc(n, sizeof *out_groups->of);
    out_groups->next = st_calloc(n, sizeof *out_groups->next);
    out_groups->first = st_calloc(n, sizeof *out_groups->first);
    out_groups->last = st_calloc(n, sizeof *out_groups->last);
    out_groups->size = st_calloc(n, sizeof *out_groups->size);
    out_groups->position = st_calloc(n, sizeof *out_groups->position);
    out_groups->seen = st_calloc(n, sizeof *out_groups->seen);
    if (!out_groups->of || !out_groups->next || !out_groups->first || !out_groups->last ||
        !out_groups->size || !out_groups->position || !out_groups->seen)
        TRY_GOTO(st_no_memory(n * sizeof *out_groups->of, "the groups"), fail);
    TRY_GOTO(ir_uses_build(graph, &out_groups->uses), fail);
    TRY_GOTO(order_edges(out_groups), fail);
    for (ir_node_t i = 0; i < n; i++) {
        out_groups->of[i] = out_groups->first[i] = out_groups->last[i] = i;
        out_groups->next[i] = IR_NONE;
        out_groups->size[i] = 1;
        out_groups->position[i] = i;
    }
    return ST_OK;
fail:
    groups_close(out_groups);
    return status;
}

/* ---- search ---- */

/* One direction of a search from `from` towards `to`, over groups that stand between the two. */
typedef struct search {
    groups_t *groups;
    group_t from, to;
    bool forward;
    uint32_t low, high; /* positions, exclusive */
    uint32_t n_edges;
    group_t third; /* by which `to` was reached */
} search_t;

static st_status_t meet(search_t *s, group_t at, ir_node_t neighbour, groups_list_t *list) {
    groups_t *groups = s->groups;
    group_t g = groups->of[neighbour];
    s->n_edges++;
    if (g == s->to) {
        if (at != s->from) s->third = at;
        return ST_OK;
    }
    if (groups->position[g] <= s->low || groups->position[g] >= s->high) return ST_OK;
    if (groups->seen[g] == groups->now) return ST_OK;
    groups->seen[g] = groups->now;
    return ST_VEC_PUSH(list, g);
}

static st_status_t visit_edges(search_t *s, group_t at, const ir_neighbours_t *edges,
                               ir_node_t node, groups_list_t *list) {
    for (uint32_t e = edges->first[node]; e < edges->first[node + 1]; e++)
        TRY(meet(s, at, edges->to[e], list));
    return ST_OK;
}

/* Adds the groups next to `at` to the list. */
static st_status_t visit(search_t *s, group_t at, groups_list_t *list) {
    groups_t *groups = s->groups;
    const ir_graph_t *graph = groups->graph;
    for (ir_node_t n = groups->first[at]; n != IR_NONE; n = groups->next[n]) {
        const ir_node_info_t *node = ir_node(graph, n);
        TRY(visit_edges(s, at, s->forward ? &groups->after : &groups->before, n, list));
        if (s->forward) {
            if (!node->n_outputs) continue;
            uint32_t end = groups->uses.first[node->first_output + node->n_outputs];
            for (uint32_t u = groups->uses.first[node->first_output]; u < end; u++)
                TRY(meet(s, at, groups->uses.node[u], list));
        } else {
            for (uint32_t j = 0; j < node->n_inputs; j++)
                TRY(meet(s, at, graph->values.data[node->inputs[j]].producer, list));
        }
        if (s->n_edges > GROUPS_SEARCH_EDGES) break;
    }
    return ST_OK;
}

static st_status_t run_search(search_t *s, groups_list_t *list) {
    list->n = 0;
    s->groups->now++;
    TRY(visit(s, s->from, list));
    for (size_t i = 0; i < list->n && s->third == IR_NONE && s->n_edges <= GROUPS_SEARCH_EDGES; i++)
        TRY(visit(s, list->data[i], list));
    return ST_OK;
}

/* Fills `ahead` with what follows the first of the two and `behind` with what leads to the second.
 */
static st_status_t look_between(groups_t *groups, group_t a, group_t b,
                                groups_verdict_t *out_verdict, group_t *out_third) {
    uint32_t low = groups->position[a], high = groups->position[b];
    search_t forward = {groups, a, b, true, low, high, 0, IR_NONE};
    search_t backward = {groups, b, a, false, low, high, 0, IR_NONE};
    *out_verdict = GROUPS_FREE;
    *out_third = IR_NONE;
    TRY(run_search(&forward, &groups->ahead));
    if (forward.third == IR_NONE && forward.n_edges <= GROUPS_SEARCH_EDGES)
        TRY(run_search(&backward, &groups->behind));
    if (forward.third != IR_NONE) {
        *out_verdict = GROUPS_CYCLE;
        *out_third = forward.third;
    } else if (forward.n_edges > GROUPS_SEARCH_EDGES || backward.n_edges > GROUPS_SEARCH_EDGES) {
        *out_verdict = GROUPS_FAR;
    }
    return ST_OK;
}

st_status_t groups_test(groups_t *groups, group_t a, group_t b, groups_verdict_t *out_verdict,
                        group_t *out_third) {
    if (groups->position[a] > groups->position[b])
        return groups_test(groups, b, a, out_verdict, out_third);
    return look_between(groups, a, b, out_verdict, out_third);
}

/* ---- joining ---- */

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Gives the groups of `list`, in their order, the positions from `positions` on. */
static void place(groups_t *groups, const groups_list_t *list, const uint32_t *positions) {
    for (size_t i = 0; i < list->n; i++) groups->position[list->data[i]] = positions[i];
}

/* Sorts by position; lists are short. */
static void sort_list(const groups_t *groups, groups_list_t *list) {
    const uint32_t *position = groups->position;
    for (size_t gap = list->n / 2; gap; gap /= 2)
        for (size_t i = gap; i < list->n; i++) {
            group_t moved = list->data[i];
            size_t j = i;
            for (; j >= gap && position[list->data[j - gap]] > position[moved]; j -= gap)
                list->data[j] = list->data[j - gap];
            list->data[j] = moved;
        }
}

/* Appends the members of `small` to `large`. */
static void merge_members(groups_t *groups, group_t large, group_t small) {
    for (ir_node_t n = groups->first[small]; n != IR_NONE; n = groups->next[n])
        groups->of[n] = large;
    groups->next[groups->last[large]] = groups->first[small];
    groups->last[large] = groups->last[small];
    groups->size[large] += groups->size[small];
    groups->size[small] = 0;
}

st_status_t groups_join(groups_t *groups, group_t a, group_t b, group_t *out_joined) {
    if (groups->position[a] > groups->position[b]) return groups_join(groups, b, a, out_joined);
    groups_verdict_t verdict;
    group_t third;
    TRY(look_between(groups, a, b, &verdict, &third));
    ASSERT(verdict == GROUPS_FREE);
    /* the positions of all concerned go to: what leads to b, the joined group, what follows a */
    size_t n_behind = groups->behind.n, n_ahead = groups->ahead.n;
    groups->positions.n = 0;
    TRY(ST_VEC_RESERVE(&groups->positions, n_behind + n_ahead + 2));
    uint32_t *positions = groups->positions.data;
    size_t n = 0;
    positions[n++] = groups->position[a];
    positions[n++] = groups->position[b];
    for (size_t i = 0; i < n_behind; i++) positions[n++] = groups->position[groups->behind.data[i]];
    for (size_t i = 0; i < n_ahead; i++) positions[n++] = groups->position[groups->ahead.data[i]];
    qsort(positions, n, sizeof *positions, by_number);
    sort_list(groups, &groups->behind);
    sort_list(groups, &groups->ahead);
    group_t large = groups->size[a] >= groups->size[b] ? a : b, small = large == a ? b : a;
    merge_members(groups, large, small);
    place(groups, &groups->behind, positions);
    groups->position[large] = positions[n_behind];
    place(groups, &groups->ahead, positions + n_behind + 1);
    *out_joined = large;
    return ST_OK;
}

/* ---- all at once ---- */

group_t groups_join_all(groups_t *groups, uint32_t n, const group_t *list) {
    ASSERT(n > 0);
    for (uint32_t i = 1; i < n; i++) merge_members(groups, list[0], list[i]);
    return list[0];
}

typedef struct ready {
    ir_node_t key;
    group_t group;
} ready_t;

/* Kahn's algorithm over the groups, ready ones by the node they end with. */
typedef struct walk {
    const groups_t *groups;
    uint32_t *n_before;    /* [groups]: edges from other groups that have not been taken */
    ir_node_t *key;        /* [groups]: last node */
    ST_VEC(ready_t) ready; /* heap, least key first */
} walk_t;

static bool ends_before(const void *a, const void *b) {
    return ((const ready_t *)a)->key < ((const ready_t *)b)->key;
}

static st_status_t push_ready(walk_t *w, group_t g) {
    TRY(ST_VEC_PUSH(&w->ready, ((ready_t){w->key[g], g})));
    st_heap_rise(w->ready.data, w->ready.n, sizeof *w->ready.data, ends_before);
    return ST_OK;
}

static group_t pop_ready(walk_t *w) {
    st_heap_drop(w->ready.data, w->ready.n--, sizeof *w->ready.data, ends_before);
    return w->ready.data[w->ready.n].group;
}

/* Called for each edge that leaves group `from`. */
typedef st_status_t (*on_edge_t)(void *context, group_t from, group_t to);

static st_status_t each_edge(const groups_t *groups, group_t g, on_edge_t tell, void *context) {
    for (ir_node_t n = groups->first[g]; n != IR_NONE; n = groups->next[n]) {
        const ir_node_info_t *node = ir_node(groups->graph, n);
        for (uint32_t e = groups->after.first[n]; e < groups->after.first[n + 1]; e++)
            if (groups->of[groups->after.to[e]] != g)
                TRY(tell(context, g, groups->of[groups->after.to[e]]));
        if (!node->n_outputs) continue;
        uint32_t end = groups->uses.first[node->first_output + node->n_outputs];
        for (uint32_t u = groups->uses.first[node->first_output]; u < end; u++)
            if (groups->of[groups->uses.node[u]] != g)
                TRY(tell(context, g, groups->of[groups->uses.node[u]]));
    }
    return ST_OK;
}

static st_status_t count_edge(void *context, group_t from, group_t to) {
    (void)from;
    ((walk_t *)context)->n_before[to]++;
    return ST_OK;
}

static st_status_t free_edge(void *context, group_t from, group_t to) {
    walk_t *w = context;
    (void)from;
    return --w->n_before[to] == 0 ? push_ready(w, to) : ST_OK;
}

static st_status_t walk_groups(const groups_t *groups, group_t *out_list, uint32_t *out_n) {
    size_t n = groups->graph->nodes.n;
    walk_t w = {.groups = groups};
    st_status_t status = ST_OK;
    uint32_t n_groups = 0, n_taken = 0;
    w.n_before = st_calloc(n, sizeof *w.n_before);
    w.key = st_calloc(n, sizeof *w.key);
    if (!w.n_before || !w.key) TRY_GOTO(st_no_memory(n * sizeof *w.key, "the order"), done);
    for (ir_node_t i = 0; i < n; i++) w.key[groups->of[i]] = i;
    for (group_t g = 0; g < n; g++)
        if (groups->size[g]) TRY_GOTO(each_edge(groups, g, count_edge, &w), done);
    for (group_t g = 0; g < n; g++) {
        if (!groups->size[g]) continue;
        n_groups++;
        if (!w.n_before[g]) TRY_GOTO(push_ready(&w, g), done);
    }
    while (w.ready.n) {
        group_t g = pop_ready(&w);
        out_list[n_taken++] = g;
        TRY_GOTO(each_edge(groups, g, free_edge, &w), done);
    }
    if (n_taken != n_groups)
        TRY_GOTO(FAIL(ST_INTERNAL, "groups of nodes depend on each other in a circle"), done);
    *out_n = n_taken;
done:
    st_free(w.n_before);
    st_free(w.key);
    ST_VEC_FREE(&w.ready);
    return status;
}

typedef struct levels {
    const bool *marked;
    uint32_t *level; /* [groups] */
} levels_t;

static st_status_t raise_level(void *context, group_t from, group_t to) {
    levels_t *levels = context;
    uint32_t own = levels->level[from] + levels->marked[to];
    if (levels->level[to] < own) levels->level[to] = own;
    return ST_OK;
}

st_status_t groups_levels(const groups_t *groups, const bool *marked, uint32_t *out_level) {
    size_t n = groups->graph->nodes.n;
    levels_t levels = {marked, out_level};
    uint32_t n_list = 0;
    st_status_t status = ST_OK;
    group_t *list = st_calloc(n, sizeof *list);
    if (!list) return st_no_memory(n * sizeof *list, "the levels");
    for (group_t g = 0; g < n; g++) out_level[g] = marked[g];
    TRY_GOTO(walk_groups(groups, list, &n_list), done);
    for (uint32_t i = 0; i < n_list; i++)
        TRY_GOTO(each_edge(groups, list[i], raise_level, &levels), done);
done:
    st_free(list);
    return status;
}

st_status_t groups_order(groups_t *groups, ir_node_t *out_order) {
    size_t n = groups->graph->nodes.n, at = 0;
    uint32_t n_list = 0;
    st_status_t status = ST_OK;
    group_t *list = st_calloc(n, sizeof *list);
    if (!list) return st_no_memory(n * sizeof *list, "the order");
    TRY_GOTO(walk_groups(groups, list, &n_list), done);
    for (uint32_t i = 0; i < n_list; i++) {
        size_t begin = at;
        groups->position[list[i]] = i;
        for (ir_node_t m = groups->first[list[i]]; m != IR_NONE; m = groups->next[m])
            out_order[at++] = m;
        if (at - begin > 1) qsort(out_order + begin, at - begin, sizeof *out_order, by_number);
    }
done:
    st_free(list);
    return status;
}
