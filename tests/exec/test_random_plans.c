/* Plans of random graphs: proved by plan_check, looked at by a second, simpler rule here, and the
 * same after a trip through bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "exec/models.h"

enum { MAX_VALUES = 400 };

/* Two values of different storages whose bytes overlap must not live at the same time. */
static void check_overlaps(const plan_program_t *program) {
    const ir_graph_t *graph = program->graph;
    int64_t born[MAX_VALUES], dies[MAX_VALUES], n_nodes = (int64_t)graph->nodes.n;
    size_t n = graph->values.n;
    assert_true(n < MAX_VALUES);
    for (ir_value_t v = 0; v < n; v++) {
        const ir_node_info_t *node = ir_value_producer(graph, v);
        bool always = (ir_op_def(node->op)->flags & IR_STATE) || ir_op_is_lasting(node->op);
        born[v] = always || node->op == IR_OP_INPUT ? -1 : (int64_t)graph->values.data[v].producer;
        dies[v] = always ? n_nodes : born[v];
    }
    for (ir_node_t i = 0; i < n_nodes; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        for (uint32_t j = 0; j < node->n_inputs; j++)
            if (dies[node->inputs[j]] < i) dies[node->inputs[j]] = i;
        if (node->op == IR_OP_ALL_GATHER_WAIT || node->op == IR_OP_REDUCE_SCATTER_WAIT ||
            node->op == IR_OP_ALL_TO_ALL_WAIT)
            dies[ir_value_producer(graph, node->inputs[0])->inputs[0]] = i;
    }
    for (size_t o = 0; o < graph->outputs.n; o++) dies[graph->outputs.data[o].value] = n_nodes;
    for (ir_value_t a = 0; a < n; a++)
        for (ir_value_t b = 0; b < a; b++) {
            const plan_place_t *x = &program->places[a], *y = &program->places[b];
            bool apart = x->region != y->region || x->offset + x->bytes <= y->offset ||
                         y->offset + y->bytes <= x->offset || !x->bytes || !y->bytes;
            bool never_both = dies[a] < born[b] || dies[b] < born[a];
            if (!apart && !never_both) assert_int_equal(x->storage, y->storage);
        }
}

static void check_bytes(const plan_t *plan) {
    plan_t *back = NULL;
    uint8_t *data, *again;
    size_t n_bytes, n_again;
    assert_int_equal(plan_encode(plan, &data, &n_bytes), ST_OK);
    assert_int_equal(plan_decode(data, n_bytes, &back), ST_OK);
    assert_int_equal(plan_encode(back, &again, &n_again), ST_OK);
    assert_int_equal(n_bytes, n_again);
    assert_memory_equal(data, again, n_bytes);
    st_free(data);
    st_free(again);
    plan_destroy(back);
}

static void plans_of_random_graphs_are_sound(void **state) {
    (void)state;
    uint64_t n_starts = 0, n_gathers = 0, n_copies = 0, n_in_place = 0;
    for (unsigned seed = 100; seed < 300; seed++) {
        ir_graph_t *graph = model_random(seed, 3 + seed % 4, 5 + (int)(seed % 50));
        compile_options_t options = {.n_ranks = 1 + seed % 5, .bucket_bytes = seed % 2 ? 1 : 4096};
        plan_t *plan = compile_ok(graph, &options);
        for (uint32_t p = 0; p < plan->n_programs; p++) {
            const plan_program_t *program = &plan->programs[p];
            check_overlaps(program);
            assert_true(program->region_bytes[PLAN_WORK] >= program->live_bound_bytes);
            for (ir_node_t n = 0; n < program->graph->nodes.n; n++) {
                ir_op_t op = ir_node(program->graph, n)->op;
                n_starts += op == IR_OP_ALL_REDUCE_START;
                n_gathers += op == IR_OP_ALL_GATHER_START;
                n_copies += program->steps[n].kind == PLAN_STEP_COPY;
                n_in_place += op == IR_OP_UPDATE && program->steps[n].kind == PLAN_STEP_NOTHING;
            }
        }
        check_bytes(plan);
        plan_destroy(plan);
        ir_graph_destroy(graph);
    }
    /* the graphs must have had something to show */
    assert_true(n_starts > 50 && n_gathers > 50 && n_copies > 50 && n_in_place > 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_random_graphs_are_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
