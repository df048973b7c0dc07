/* Groups of nodes: joins against a search of all paths, on random graphs. */
#include "fusion/groups.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/build.h"
#include "ir/op.h"
#include "ir/text.h"

enum { MAX_NODES = 64 };

static ir_graph_t *parse(const char *text) {
    ir_graph_t *graph = NULL;
    st_status_t status = ir_graph_parse(text, strlen(text), &graph);
    if (status != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}

/* ---- the oracle: reachability by multiplying out ---- */

typedef struct reach {
    bool edge[MAX_NODES][MAX_NODES]; /* between groups, named by any member */
    bool path[MAX_NODES][MAX_NODES];
} reach_t;

static void find_paths(const groups_t *groups, reach_t *r) {
    const ir_graph_t *graph = groups->graph;
    uint32_t n = (uint32_t)graph->nodes.n;
    memset(r, 0, sizeof *r);
    for (ir_node_t i = 0; i < n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        for (uint32_t j = 0; j < node->n_inputs; j++)
            r->edge[groups->of[graph->values.data[node->inputs[j]].producer]][groups->of[i]] = true;
        for (uint32_t e = groups->after.first[i]; e < groups->after.first[i + 1]; e++)
            r->edge[groups->of[i]][groups->of[groups->after.to[e]]] = true;
    }
    for (uint32_t i = 0; i < n; i++) r->edge[i][i] = false;
    memcpy(r->path, r->edge, sizeof r->path);
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < n; j++) r->path[i][j] |= r->path[i][k] && r->path[k][j];
}

/* A path from a to b, or back, with a group between. */
static bool third_between(const reach_t *r, uint32_t n, group_t a, group_t b) {
    for (uint32_t k = 0; k < n; k++) {
        if (k == a || k == b) continue;
        if ((r->path[a][k] && r->path[k][b]) || (r->path[b][k] && r->path[k][a])) return true;
    }
    return false;
}

static void assert_positions(const groups_t *groups, const reach_t *r) {
    uint32_t n = (uint32_t)groups->graph->nodes.n;
    for (group_t a = 0; a < n; a++)
        for (group_t b = 0; b < n; b++) {
            if (a == b || !groups->size[a] || !groups->size[b]) continue;
            assert_int_not_equal(groups->position[a], groups->position[b]);
            if (r->edge[a][b]) assert_true(groups->position[a] < groups->position[b]);
        }
}

static void assert_order(const groups_t *groups, const ir_node_t *order) {
    const ir_graph_t *graph = groups->graph;
    uint32_t n = (uint32_t)graph->nodes.n;
    uint32_t at[MAX_NODES];
    for (uint32_t i = 0; i < n; i++) at[order[i]] = i;
    for (ir_node_t i = 0; i < n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        for (uint32_t j = 0; j < node->n_inputs; j++)
            assert_true(at[graph->values.data[node->inputs[j]].producer] < at[i]);
        for (uint32_t e = groups->after.first[i]; e < groups->after.first[i + 1]; e++)
            assert_true(at[i] < at[groups->after.to[e]]);
    }
    for (uint32_t i = 1; i < n; i++) { /* a group that ended does not come again */
        if (groups->of[order[i]] == groups->of[order[i - 1]]) continue;
        for (uint32_t j = i + 1; j < n; j++)
            assert_int_not_equal(groups->of[order[j]], groups->of[order[i - 1]]);
    }
}

static ir_graph_t *random_graph(unsigned seed, uint32_t n) {
    ir_build_t b = {0};
    ir_value_t values[MAX_NODES];
    srand(seed);
    assert_int_equal(ir_graph_create("random", &b.graph), ST_OK);
    ir_type_t type = {.dtype = IR_F32, .rank = 1, .dims = {4}};
    values[0] = ir_b_input(&b, "x", type, 0);
    values[1] = ir_b_parameter(&b, "w", type);
    uint32_t k = 2;
    for (; k < n; k++) {
        uint32_t near = 1 + (unsigned)rand() % 8;
        ir_value_t x = values[k > near ? k - near : 0], y = values[(unsigned)rand() % k];
        values[k] = rand() % 3 ? ir_b_binary(&b, IR_OP_ADD, x, y) : ir_b_unary(&b, IR_OP_EXP, x);
    }
    ir_b_update(&b, values[1], values[n - 1 - (unsigned)rand() % 4]);
    ir_b_output(&b, "y", values[n - 1]);
    assert_int_equal(b.status, ST_OK);
    return b.graph;
}

static void joins_agree_with_all_paths(void **state) {
    (void)state;
    static reach_t r;
    for (unsigned seed = 0; seed < 60; seed++) {
        ir_graph_t *graph = random_graph(seed, 20 + seed % 40);
        uint32_t n = (uint32_t)graph->nodes.n, n_joined = 0, n_refused = 0;
        groups_t groups;
        ir_node_t order[MAX_NODES];
        assert_int_equal(groups_open(graph, &groups), ST_OK);
        find_paths(&groups, &r);
        for (int attempt = 0; attempt < 120; attempt++) {
            group_t a = groups.of[(unsigned)rand() % n], b = groups.of[(unsigned)rand() % n], third;
            groups_verdict_t verdict;
            if (a == b) continue;
            assert_int_equal(groups_test(&groups, a, b, &verdict, &third), ST_OK);
            assert_int_equal(verdict, third_between(&r, n, a, b) ? GROUPS_CYCLE : GROUPS_FREE);
            if (verdict == GROUPS_CYCLE) {
                assert_true((r.path[a][third] && r.path[third][b]) ||
                            (r.path[b][third] && r.path[third][a]));
                n_refused++;
                continue;
            }
            group_t joined;
            uint32_t size = groups.size[a] + groups.size[b];
            assert_int_equal(groups_join(&groups, a, b, &joined), ST_OK);
            assert_int_equal(groups.size[joined], size);
            n_joined++;
            find_paths(&groups, &r);
            assert_positions(&groups, &r);
        }
        assert_int_equal(groups_order(&groups, order), ST_OK);
        assert_order(&groups, order);
        assert_true(n_joined > 0);
        if (n > 30) assert_true(n_refused > 0);
        groups_close(&groups);
        ir_graph_destroy(graph);
    }
}

/* Groups of one level do not depend on each other, so all of them join at once. */
static void levels_join_at_once(void **state) {
    (void)state;
    static reach_t r;
    for (unsigned seed = 0; seed < 40; seed++) {
        ir_graph_t *graph = random_graph(seed, 50);
        uint32_t n = (uint32_t)graph->nodes.n, level[MAX_NODES] = {0}, deepest = 0;
        bool marked[MAX_NODES] = {false};
        groups_t groups;
        ir_node_t order[MAX_NODES];
        assert_int_equal(groups_open(graph, &groups), ST_OK);
        for (uint32_t i = 0; i < n; i++) marked[i] = rand() % 3 == 0;
        assert_int_equal(groups_levels(&groups, marked, level), ST_OK);
        find_paths(&groups, &r);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < n; j++)
                if (marked[i] && marked[j] && i != j && level[i] == level[j])
                    assert_false(r.path[i][j]);
        for (uint32_t i = 0; i < n; i++)
            if (level[i] > deepest) deepest = level[i];
        for (uint32_t at = 1; at <= deepest; at++) {
            group_t list[MAX_NODES];
            uint32_t n_list = 0;
            for (uint32_t i = 0; i < n; i++)
                if (marked[i] && level[i] == at) list[n_list++] = i;
            assert_true(n_list > 0);
            assert_int_equal(groups.size[groups_join_all(&groups, n_list, list)], n_list);
        }
        assert_int_equal(groups_order(&groups, order), ST_OK);
        assert_order(&groups, order);
        groups_close(&groups);
        ir_graph_destroy(graph);
    }
}

/* A node that reads a state comes before the one that makes its new value, and no group may turn
 * that round. */
static void readers_of_a_state_stay_before_its_new_value(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4,4]}\n"
        "  %1 w = parameter {dtype=f32, shape=[4,4]}\n"
        "  %2 = exp(%0)\n"
        "  %3 = matmul(%2, %1)\n"
        "  %4 = sub(%1, %2)\n"
        "  update(%1, %4)\n"
        "  output \"y\" = %3\n"
        "}\n");
    groups_t groups;
    groups_verdict_t verdict;
    group_t third;
    assert_int_equal(groups_open(graph, &groups), ST_OK);
    assert_int_equal(groups_test(&groups, 2, 4, &verdict, &third), ST_OK);
    assert_int_equal(verdict, GROUPS_CYCLE); /* exp, matmul, sub */
    assert_int_equal(third, 3);
    groups_close(&groups);
    ir_graph_destroy(graph);
}

/* Beyond the bound of the search nothing is known, and the two stay apart. */
static void a_far_pair_is_left_alone(void **state) {
    (void)state;
    ir_build_t b = {0};
    assert_int_equal(ir_graph_create("far", &b.graph), ST_OK);
    ir_type_t type = {.dtype = IR_F32, .rank = 1, .dims = {4}};
    ir_value_t x = ir_b_input(&b, "x", type, 0), first = ir_b_unary(&b, IR_OP_EXP, x), y = first;
    for (int i = 0; i < 2 * GROUPS_SEARCH_EDGES; i++) y = ir_b_unary(&b, IR_OP_SIN, y);
    ir_b_output(&b, "y", ir_b_binary(&b, IR_OP_ADD, first, y));
    ir_value_t z = ir_b_unary(&b, IR_OP_COS, x);
    ir_b_output(&b, "z", z);
    assert_int_equal(b.status, ST_OK);
    groups_t groups;
    groups_verdict_t verdict;
    group_t third;
    assert_int_equal(groups_open(b.graph, &groups), ST_OK);
    assert_int_equal(groups_test(&groups, 1, (group_t)b.graph->nodes.n - 1, &verdict, &third),
                     ST_OK);
    assert_int_equal(verdict, GROUPS_FAR);
    groups_close(&groups);
    ir_graph_destroy(b.graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_agree_with_all_paths),
        cmocka_unit_test(levels_join_at_once),
        cmocka_unit_test(readers_of_a_state_stay_before_its_new_value),
        cmocka_unit_test(a_far_pair_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
