/* Which values share memory, and how long it lives. */
#include "schedule/storage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ir/text.h"

static ir_graph_t *parse(const char *text) {
    ir_graph_t *graph = NULL;
    st_status_t status = ir_graph_parse(text, strlen(text), &graph);
    if (status != ST_OK) print_error("%s\n", st_last_error());
    assert_int_equal(status, ST_OK);
    return graph;
}

/* Storage of the value whose node has this name. */
static uint32_t storage_of(const ir_graph_t *graph, const sched_memory_t *memory,
                           const char *name) {
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (strcmp(ir_node(graph, n)->name, name) == 0)
            return memory->storage_of[ir_node(graph, n)->first_output];
    fail_msg("no node '%s'", name);
    return 0;
}

static void elementwise_chains_run_in_place(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4,8]}\n"
        "  %1 a = exp(%0)\n"
        "  %2 b = tanh(%1)\n"
        "  %3 c = reshape(%2) {shape=[32]}\n"
        "  %4 d = relu(%3)\n"
        "  %5 e = add(%4, %3)\n" /* d cannot be written over c, which e reads too */
        "  %6 f = cast(%5) {dtype=f64}\n"
        "  output \"y\" = %6\n"
        "}\n");
    sched_memory_t m;
    assert_int_equal(sched_storages(graph, &m), ST_OK);
    assert_int_equal(storage_of(graph, &m, "x"), storage_of(graph, &m, "a"));
    assert_int_equal(storage_of(graph, &m, "a"), storage_of(graph, &m, "b"));
    assert_int_equal(storage_of(graph, &m, "b"), storage_of(graph, &m, "c"));
    assert_int_not_equal(storage_of(graph, &m, "c"), storage_of(graph, &m, "d"));
    assert_int_equal(storage_of(graph, &m, "d"), storage_of(graph, &m, "e"));
    assert_int_not_equal(storage_of(graph, &m, "e"),
                         storage_of(graph, &m, "f")); /* wider elements */
    const sched_storage_t *first = &m.storages[storage_of(graph, &m, "x")];
    assert_int_equal(first->begin, -1);
    assert_int_equal(first->end, 5);
    assert_int_equal(m.storages[storage_of(graph, &m, "f")].end, graph->nodes.n);
    sched_memory_free(&m);
    ir_graph_destroy(graph);
}

static void constants_and_outputs_are_not_overwritten(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"g\" {\n"
        "  %0 c = constant {dtype=f32, shape=[8], data=0.5}\n"
        "  %1 a = exp(%0)\n"
        "  %2 b = tanh(%1)\n"
        "  output \"a\" = %1\n"
        "  output \"b\" = %2\n"
        "}\n");
    sched_memory_t m;
    assert_int_equal(sched_storages(graph, &m), ST_OK);
    assert_int_equal(m.n_storages, 3);
    sched_memory_free(&m);
    ir_graph_destroy(graph);
}

static void an_update_is_written_over_its_state(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"g\" {\n"
        "  %0 w = parameter {dtype=f32, shape=[4,4]}\n"
        "  %1 x = input {dtype=f32, shape=[4,4]}\n"
        "  %2 y = matmul(%1, %0)\n"
        "  %3 w2 = sub(%0, %2)\n"
        "  update(%0, %3)\n"
        "  output \"new\" = %3\n"
        "}\n");
    sched_memory_t m;
    assert_int_equal(sched_storages(graph, &m), ST_OK);
    assert_int_equal(storage_of(graph, &m, "w"), storage_of(graph, &m, "w2"));
    assert_true(m.update_in_place[4]);
    sched_memory_free(&m);
    ir_graph_destroy(graph);
}

static void an_update_with_a_late_reader_is_copied(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"g\" {\n"
        "  %0 w = parameter {dtype=f32, shape=[4,4]}\n"
        "  %1 x = input {dtype=f32, shape=[4,4]}\n"
        "  %2 w2 = matmul(%1, %0)\n" /* reads w while it writes: never in place */
        "  %3 y = reshape(%0) {shape=[16]}\n"
        "  %4 s = reduce_sum(%3) {axes=[0]}\n"
        "  update(%0, %2)\n"
        "  output \"s\" = %4\n"
        "}\n");
    sched_memory_t m;
    assert_int_equal(sched_storages(graph, &m), ST_OK);
    assert_int_not_equal(storage_of(graph, &m, "w"), storage_of(graph, &m, "w2"));
    assert_false(m.update_in_place[5]);
    sched_memory_free(&m);
    ir_graph_destroy(graph);
}

/* A new value stands before the state that it is written over: states are there before the step. */
static void a_state_may_be_named_after_its_new_value(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"g\" {\n"
        "  %0 a = buffer {dtype=f32, shape=[4]}\n"
        "  %1 y = exp(%0)\n"
        "  %2 b = buffer {dtype=f32, shape=[4]}\n"
        "  update(%2, %1)\n"
        "}\n");
    sched_memory_t m;
    assert_int_equal(sched_storages(graph, &m), ST_OK);
    assert_true(m.update_in_place[3]);
    assert_int_equal(storage_of(graph, &m, "y"), storage_of(graph, &m, "b"));
    assert_int_not_equal(storage_of(graph, &m, "a"), storage_of(graph, &m, "b"));
    assert_int_equal(m.storages[storage_of(graph, &m, "y")].kind, SCHED_STATE);
    sched_memory_free(&m);
    ir_graph_destroy(graph);
}

/* A fused node's results stand where its nest reads element by element, and nowhere else. */
static void fused_nodes_run_in_place_where_their_nest_allows(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4,8]}\n"
        "  %1 h = input {dtype=f32, shape=[4,8]}\n"
        "  %2 w = parameter {dtype=f32, shape=[8]}\n"
        "  %3 f = fused(%0, %1) {body=graph {\n"
        "    %0 \"0\" = input {dtype=f32, shape=[4,8], batch_axis=-1}\n"
        "    %1 \"1\" = input {dtype=f32, shape=[4,8], batch_axis=-1}\n"
        "    %2 = exp(%0)\n"
        "    %3 = reduce_sum(%1) {axes=[1], keep=true}\n"
        "    %4 = mul(%2, %3)\n"
        "    output \"0\" = %4\n"
        "  }}\n"
        "  %4, %5 u = fused(%3, %2) {body=graph {\n"
        "    %0 \"0\" = input {dtype=f32, shape=[4,8], batch_axis=-1}\n"
        "    %1 \"1\" = input {dtype=f32, shape=[8], batch_axis=-1}\n"
        "    %2 = tanh(%0)\n"
        "    %3 = neg(%1)\n"
        "    output \"0\" = %2\n"
        "    output \"1\" = %3\n"
        "  }}\n"
        "  update(%2, %5)\n"
        "  output \"y\" = %4\n"
        "}\n");
    sched_memory_t m;
    assert_int_equal(sched_storages(graph, &m), ST_OK);
    assert_int_not_equal(m.storage_of[3], m.storage_of[0]); /* a reduction may come back */
    assert_int_not_equal(m.storage_of[3], m.storage_of[1]);
    assert_int_equal(m.storage_of[4], m.storage_of[3]);
    assert_int_equal(m.storage_of[5], m.storage_of[2]); /* the parameter's new value */
    assert_true(m.update_in_place[5]);
    sched_memory_free(&m);
    ir_graph_destroy(graph);
}

static void all_reduce_sums_in_place(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4]}\n"
        "  %1 a = add(%0, %0)\n"
        "  %2 kept = exp(%0)\n"
        "  %3, %4 start = all_reduce_start(%1, %2)\n"
        "  %5, %6 wait = all_reduce_wait(%3, %4)\n"
        "  %7 z = mul(%5, %2)\n"
        "  output \"z\" = %7\n"
        "  output \"w\" = %6\n"
        "}\n");
    sched_memory_t m;
    assert_int_equal(sched_storages(graph, &m), ST_OK);
    assert_int_equal(m.storage_of[1], m.storage_of[3]);
    assert_int_equal(m.storage_of[3], m.storage_of[5]);
    assert_int_equal(m.storages[m.storage_of[1]].kind, SCHED_COMM);
    assert_int_not_equal(m.storage_of[2], m.storage_of[4]); /* z reads it after the start */
    assert_int_equal(m.storages[m.storage_of[2]].kind, SCHED_WORK);
    assert_int_equal(m.storage_of[5], m.storage_of[7]);
    sched_memory_free(&m);
    ir_graph_destroy(graph);
}

static void a_gather_reads_its_input_until_the_wait(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4]}\n"
        "  %1 a = tanh(%0)\n"
        "  %2 s = all_gather_start(%1) {axis=[0], granules=[2], extent=[8]}\n"
        "  %3 b = exp(%0)\n"
        "  %4 c = exp(%3)\n"
        "  %5 w = all_gather_wait(%2)\n"
        "  output \"w\" = %5\n"
        "  output \"c\" = %4\n"
        "}\n");
    sched_memory_t m;
    assert_int_equal(sched_storages(graph, &m), ST_OK);
    assert_int_equal(m.storages[storage_of(graph, &m, "a")].end, 5);
    assert_int_equal(m.storages[storage_of(graph, &m, "w")].kind, SCHED_COMM);
    sched_memory_free(&m);
    ir_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_chains_run_in_place),
        cmocka_unit_test(constants_and_outputs_are_not_overwritten),
        cmocka_unit_test(an_update_is_written_over_its_state),
        cmocka_unit_test(an_update_with_a_late_reader_is_copied),
        cmocka_unit_test(a_state_may_be_named_after_its_new_value),
        cmocka_unit_test(fused_nodes_run_in_place_where_their_nest_allows),
        cmocka_unit_test(all_reduce_sums_in_place),
        cmocka_unit_test(a_gather_reads_its_input_until_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
