/* Lowering: text in, one rank's text out. */
#include "shard/lower.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/golden.h"

static st_status_t decide(const ir_graph_t *graph, uint32_t n_ranks, shard_lowering_t **out) {
    const shard_axis_t axis = {.name = "data", .n_ranks = n_ranks, .splits_batch = true};
    return shard_decide(graph, &axis, out);
}

static void expect(const char *text, uint32_t n_ranks, uint32_t rank, const char *wanted) {
    ir_graph_t *graph = golden_read(text), *model = golden_read(wanted), *result = NULL;
    shard_lowering_t *lowering = NULL;
    assert_int_equal(decide(graph, n_ranks, &lowering), ST_OK);
    st_status_t status = shard_emit(lowering, rank, &result);
    if (status != ST_OK) print_error("%s\n", st_last_error());
    assert_int_equal(status, ST_OK);
    assert_prints_as(result, model);
    shard_lowering_destroy(lowering);
    ir_graph_destroy(graph);
    ir_graph_destroy(model);
    ir_graph_destroy(result);
}

/* A product over the batch is a partial sum; its update needs all of it. */
static const char gradient[] =
    "graph \"g\" {\n"
    "  %0 x = input {dtype=f32, shape=[5,3]}\n"
    "  %1 dy = input {dtype=f32, shape=[5,2]}\n"
    "  %2 w = parameter {dtype=f32, shape=[2,3]}\n"
    "  %3 dw = matmul(%1, %0) {transpose_a=true}\n"
    "  %4 other = exp(%0)\n"
    "  %5 new = sub(%2, %3)\n"
    "  update(%2, %5)\n"
    "  output \"other\" = %4\n"
    "}\n";

static void one_rank_stays_as_it_is(void **state) {
    (void)state;
    expect(gradient, 1, 0, gradient);
}

static void gradients_are_summed_between_producer_and_reader(void **state) {
    (void)state;
    expect(gradient, 2, 1,
           "graph \"g\" {\n"
           "  %0 x = input {dtype=f32, shape=[3,3]}\n" /* rows 2, 3, 4 */
           "  %1 dy = input {dtype=f32, shape=[3,2]}\n"
           "  %2 w = parameter {dtype=f32, shape=[2,3]}\n"
           "  %3 dw = matmul(%1, %0) {transpose_a=true}\n"
           "  %4 = all_reduce_start(%3)\n"
           "  %5 other = exp(%0)\n"
           "  %6 = all_reduce_wait(%4)\n"
           "  %7 new = sub(%2, %6)\n"
           "  update(%2, %7)\n"
           "  output \"other\" = %5\n"
           "}\n");
}

/* A start belongs to the phase of what it sends, a wait to its first reader's. */
static void phases_stay(void **state) {
    (void)state;
    expect(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4,3]}\n"
        "  %1 w = parameter {dtype=f32, shape=[3,3]}\n"
        "  %2 y = matmul(%0, %1)\n"
        "  phase backward\n"
        "  %3 dw = matmul(%0, %2) {transpose_a=true}\n"
        "  phase optimizer\n"
        "  %4 new = sub(%1, %3)\n"
        "  update(%1, %4)\n"
        "}\n",
        2, 1,
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[2,3]}\n"
        "  %1 w = parameter {dtype=f32, shape=[3,3]}\n"
        "  %2 y = matmul(%0, %1)\n"
        "  phase backward\n"
        "  %3 dw = matmul(%0, %2) {transpose_a=true}\n"
        "  %4 = all_reduce_start(%3)\n"
        "  phase optimizer\n"
        "  %5 = all_reduce_wait(%4)\n"
        "  %6 new = sub(%1, %5)\n"
        "  update(%1, %6)\n"
        "}\n");
}

/* A part of the moment: the sum is scattered, the weight's part cut out of it and gathered
 * again. */
static void a_split_update_scatters_and_gathers(void **state) {
    (void)state;
    ir_graph_t *graph = golden_read(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4,3]}\n"
        "  %1 dy = input {dtype=f32, shape=[4,6]}\n"
        "  %2 w = parameter {dtype=f32, shape=[6,3]}\n"
        "  %3 m = buffer {dtype=f32, shape=[6,3]}\n"
        "  %4 dw = matmul(%1, %0) {transpose_a=true}\n"
        "  %5 n = add(%3, %4)\n"
        "  %6 v = sub(%2, %5)\n"
        "  update(%2, %6)\n"
        "  update(%3, %5)\n"
        "}\n");
    ir_graph_t *wanted = golden_read(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[2,3]}\n"
        "  %1 dy = input {dtype=f32, shape=[2,6]}\n"
        "  %2 w = parameter {dtype=f32, shape=[6,3]}\n"
        "  %3 m = buffer {dtype=f32, shape=[3,3]}\n"
        "  %4 dw = matmul(%1, %0) {transpose_a=true}\n"
        "  %5 = reduce_scatter_start(%4) {axis=[0], granules=[6], part=[3]}\n"
        "  %6 = reduce_scatter_wait(%5)\n"
        "  %7 n = add(%3, %6)\n"
        "  %8 = axis_index\n"
        "  %9 = constant {dtype=i64, shape=[], data=3}\n"
        "  %10 = mul(%8, %9)\n"
        "  %11 = iota {dtype=i64, shape=[3], axis=0}\n"
        "  %12 = add(%11, %10)\n"
        "  %13 = gather(%2, %12) {axis=0}\n"
        "  %14 v = sub(%13, %7)\n"
        "  %15 = all_gather_start(%14) {axis=[0], granules=[6], extent=[6]}\n"
        "  %16 = all_gather_wait(%15)\n"
        "  update(%2, %16)\n"
        "  update(%3, %7)\n"
        "}\n");
    ir_placement_t homes[9] = {[3] = IR_PLACE_SPLIT(0, 6)};
    const shard_axis_t axis = {.name = "data", .n_ranks = 2, .splits_batch = true, .homes = homes};
    shard_lowering_t *lowering;
    assert_int_equal(shard_decide(graph, &axis, &lowering), ST_OK);
    assert_true(shard_same_graph(lowering, 0, 1)); /* where a part lies is data */
    for (uint32_t rank = 0; rank < 2; rank++) {
        ir_graph_t *made;
        assert_int_equal(shard_emit(lowering, rank, &made), ST_OK);
        assert_prints_as(made, wanted);
        ir_graph_destroy(made);
    }
    shard_lowering_destroy(lowering);
    ir_graph_destroy(graph);
    ir_graph_destroy(wanted);
}

/* Rows become columns, as many bytes as a rank has; the exchange begins where the rows are made. */
static void parts_along_one_dim_are_exchanged_for_another(void **state) {
    (void)state;
    ir_graph_t *graph = golden_read(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[5,6]}\n"
        "  %1 y = exp(%0)\n"
        "  %2 m = buffer {dtype=f32, shape=[5,6]}\n"
        "  %3 v = add(%2, %1)\n"
        "  update(%2, %3)\n"
        "}\n");
    ir_graph_t *wanted = golden_read(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[3,6]}\n"
        "  %1 y = exp(%0)\n"
        "  %2 = all_to_all_start(%1) {axis=0, granules=5, extent=5, to=1, to_granules=6, part=3}\n"
        "  %3 m = buffer {dtype=f32, shape=[5,3]}\n"
        "  %4 = all_to_all_wait(%2)\n"
        "  %5 v = add(%3, %4)\n"
        "  update(%3, %5)\n"
        "}\n");
    ir_placement_t homes[5] = {[2] = IR_PLACE_SPLIT(1, 6)};
    const shard_axis_t axis = {.name = "data", .n_ranks = 2, .splits_batch = true, .homes = homes};
    shard_lowering_t *lowering;
    ir_graph_t *made;
    assert_int_equal(shard_decide(graph, &axis, &lowering), ST_OK);
    assert_int_equal(shard_emit(lowering, 1, &made), ST_OK);
    assert_prints_as(made, wanted);
    ir_graph_destroy(made);
    shard_lowering_destroy(lowering);
    ir_graph_destroy(graph);
    ir_graph_destroy(wanted);
}

static void homes_that_do_not_divide_are_refused(void **state) {
    (void)state;
    ir_graph_t *graph = golden_read(gradient);
    ir_placement_t homes[7] = {[2] = IR_PLACE_SPLIT(1, 2)};
    const shard_axis_t axis = {.name = "data", .n_ranks = 2, .homes = homes};
    shard_lowering_t *lowering;
    assert_int_equal(shard_decide(graph, &axis, &lowering), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "'w'"));
    ir_graph_destroy(graph);
}

/* The program that a smaller batch would have: the shapes of the first parts, no collectives. */
static void first_parts_are_a_smaller_batch(void **state) {
    (void)state;
    shard_lowering_t *lowering;
    ir_graph_t *graph = golden_read(gradient), *made, *wanted;
    assert_int_equal(decide(graph, 5, &lowering), ST_OK);
    assert_int_equal(shard_emit_first(lowering, 3, &made), ST_OK);
    wanted = golden_read(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[3,3]}\n"
        "  %1 dy = input {dtype=f32, shape=[3,2]}\n"
        "  %2 w = parameter {dtype=f32, shape=[2,3]}\n"
        "  %3 dw = matmul(%1, %0) {transpose_a=true}\n"
        "  %4 other = exp(%0)\n"
        "  %5 new = sub(%2, %3)\n"
        "  update(%2, %5)\n"
        "  output \"other\" = %4\n"
        "}\n");
    assert_prints_as(made, wanted);
    ir_graph_destroy(made);
    ir_graph_destroy(wanted);
    ir_graph_destroy(graph);
    shard_lowering_destroy(lowering);
}

static void the_last_rank_may_have_more_and_the_first_nothing(void **state) {
    (void)state;
    const char *text =
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[2,3]}\n"
        "  %1 y = tanh(%0)\n"
        "  output \"y\" = %1\n"
        "}\n";
    expect(text, 3, 0,
           "graph \"g\" {\n"
           "  %0 x = input {dtype=f32, shape=[0,3]}\n"
           "  %1 y = tanh(%0)\n"
           "  output \"y\" = %1\n"
           "}\n");
    expect(text, 3, 2,
           "graph \"g\" {\n"
           "  %0 x = input {dtype=f32, shape=[1,3]}\n"
           "  %1 y = tanh(%0)\n"
           "  output \"y\" = %1\n"
           "}\n");
}

static void constants_of_the_batch_are_cut_not_copied(void **state) {
    (void)state;
    expect(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4,2]}\n"
        "  %1 = constant {dtype=f32, shape=[4,1], data=[1,2,3,4]}\n"
        "  %2 = iota {dtype=f32, shape=[4,2], axis=0, start=10}\n"
        "  %3 = constant {dtype=f32, shape=[], data=7}\n"
        "  %4 = broadcast(%3) {shape=[4,2]}\n"
        "  %5 = mul(%0, %1)\n"
        "  %6 = add(%5, %2)\n"
        "  %7 = add(%6, %4)\n"
        "  output \"y\" = %7\n"
        "}\n",
        2, 1,
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[2,2]}\n"
        "  %1 = constant {dtype=f32, shape=[], data=7}\n"
        "  %2 = constant {dtype=f32, shape=[2,1], data=[3,4]}\n"
        "  %3 = mul(%0, %2)\n"
        "  %4 = iota {dtype=f32, shape=[2,2], axis=0, start=12}\n"
        "  %5 = add(%3, %4)\n"
        "  %6 = broadcast(%1) {shape=[2,2]}\n"
        "  %7 = add(%5, %6)\n"
        "  output \"y\" = %7\n"
        "}\n");
}

static void what_cannot_be_split_is_gathered(void **state) {
    (void)state;
    expect(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4]}\n"
        "  %1 c = cumsum(%0) {axis=0}\n"
        "  %2 y = mul(%1, %0)\n"
        "  output \"y\" = %2\n"
        "}\n",
        2, 1,
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[2]}\n"
        "  %1 = all_gather_start(%0) {axis=[0], granules=[4], extent=[4]}\n"
        "  %2 = all_gather_wait(%1)\n"
        "  %3 c = cumsum(%2) {axis=0}\n"
        "  %4 = axis_index\n"
        "  %5 = constant {dtype=i64, shape=[], data=2}\n"
        "  %6 = mul(%4, %5)\n"
        "  %7 = iota {dtype=i64, shape=[2], axis=0}\n"
        "  %8 = add(%7, %6)\n"
        "  %9 = gather(%3, %8) {axis=0}\n"
        "  %10 y = mul(%9, %0)\n"
        "  output \"y\" = %10\n"
        "}\n");
}

static void dropout_knows_its_place_in_the_whole(void **state) {
    (void)state;
    expect(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4,2]}\n"
        "  %1 seed = input {dtype=i64, shape=[], batch_axis=-1}\n"
        "  %2 y = dropout(%0, %1, %1) {p=0.5, id=9}\n"
        "  output \"y\" = %2\n"
        "}\n",
        2, 1,
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[2,2]}\n"
        "  %1 seed = input {dtype=i64, shape=[], batch_axis=-1}\n"
        "  %2 y = dropout(%0, %1, %1) {p=0.5, id=9, begin=[2,0], global=[4,2]}\n"
        "  output \"y\" = %2\n"
        "}\n");
}

/* A sum that has been made whole once is not summed again further down. */
static void a_sum_is_reduced_once(void **state) {
    (void)state;
    ir_graph_t *graph = golden_read(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4,2]}\n"
        "  %1 s = reduce_sum(%0) {axes=[0]}\n"
        "  %2 a = exp(%1)\n"
        "  %3 b = neg(%1)\n"
        "  output \"a\" = %2\n"
        "  output \"b\" = %3\n"
        "}\n");
    shard_lowering_t *lowering = NULL;
    ir_graph_t *result = NULL;
    int starts = 0;
    assert_int_equal(decide(graph, 2, &lowering), ST_OK);
    assert_int_equal(shard_value_placement(lowering, 1).kind, IR_PARTIAL);
    assert_int_equal(shard_output_placement(lowering, 0).kind, IR_REPLICATE);
    assert_int_equal(shard_emit(lowering, 0, &result), ST_OK);
    for (ir_node_t n = 0; n < result->nodes.n; n++)
        starts += ir_node(result, n)->op == IR_OP_ALL_REDUCE_START;
    assert_int_equal(starts, 1);
    shard_lowering_destroy(lowering);
    ir_graph_destroy(result);
    ir_graph_destroy(graph);
}

/* Two linear readers of one sum: it is summed before them, not after each. */
static void a_sum_with_several_readers_is_reduced_first(void **state) {
    (void)state;
    expect(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4,2]}\n"
        "  %1 s = reduce_sum(%0) {axes=[0]}\n"
        "  %2 a = neg(%1)\n"
        "  %3 b = add(%1, %1)\n"
        "  output \"a\" = %2\n"
        "  output \"b\" = %3\n"
        "}\n",
        2, 0,
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[2,2]}\n"
        "  %1 s = reduce_sum(%0) {axes=[0]}\n"
        "  %2 = all_reduce_start(%1)\n"
        "  %3 = all_reduce_wait(%2)\n"
        "  %4 a = neg(%3)\n"
        "  %5 b = add(%3, %3)\n"
        "  output \"a\" = %4\n"
        "  output \"b\" = %5\n"
        "}\n");
}

static void batch_extents_have_to_fit(void **state) {
    (void)state;
    ir_graph_t *graph = golden_read(
        "graph \"g\" {\n"
        "  %0 images = input {dtype=f32, shape=[7,2]}\n"
        "  %1 labels = input {dtype=f32, shape=[5]}\n"
        "}\n");
    shard_lowering_t *lowering = NULL;
    assert_int_equal(decide(graph, 2, &lowering), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "'images' has 7 rows"));
    assert_non_null(strstr(st_last_error(), "5 of input 'labels'"));
    assert_null(lowering);
    ir_graph_destroy(graph);
}

/* One row is there to be broadcast: it must not leave all but one rank without work. */
static void one_row_is_not_split(void **state) {
    (void)state;
    expect(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4,3]}\n"
        "  %1 mask = input {dtype=f32, shape=[1,3]}\n"
        "  %2 y = mul(%0, %1)\n"
        "  output \"y\" = %2\n"
        "}\n",
        2, 0,
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[2,3]}\n"
        "  %1 mask = input {dtype=f32, shape=[1,3]}\n"
        "  %2 y = mul(%0, %1)\n"
        "  output \"y\" = %2\n"
        "}\n");
}

static void allocation_failures_are_reported(void **state) {
    (void)state;
    ir_graph_t *graph = golden_read(gradient);
    int64_t at = 0;
    for (st_status_t status = ST_NO_MEMORY; status != ST_OK; at++) {
        shard_lowering_t *lowering = NULL;
        ir_graph_t *result = NULL;
        st_memory_fail_after(at, false);
        status = decide(graph, 2, &lowering);
        if (status == ST_OK) status = shard_emit(lowering, 1, &result);
        st_memory_fail_after(-1, false);
        if (status != ST_OK) assert_int_equal(status, ST_NO_MEMORY);
        shard_lowering_destroy(lowering);
        ir_graph_destroy(result);
    }
    assert_true(at > 5);
    ir_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_split_update_scatters_and_gathers),
        cmocka_unit_test(parts_along_one_dim_are_exchanged_for_another),
        cmocka_unit_test(homes_that_do_not_divide_are_refused),
        cmocka_unit_test(one_rank_stays_as_it_is),
        cmocka_unit_test(gradients_are_summed_between_producer_and_reader),
        cmocka_unit_test(phases_stay),
        cmocka_unit_test(first_parts_are_a_smaller_batch),
        cmocka_unit_test(the_last_rank_may_have_more_and_the_first_nothing),
        cmocka_unit_test(constants_of_the_batch_are_cut_not_copied),
        cmocka_unit_test(what_cannot_be_split_is_gathered),
        cmocka_unit_test(dropout_knows_its_place_in_the_whole),
        cmocka_unit_test(a_sum_is_reduced_once),
        cmocka_unit_test(a_sum_with_several_readers_is_reduced_first),
        cmocka_unit_test(batch_extents_have_to_fit),
        cmocka_unit_test(one_row_is_not_split),
        cmocka_unit_test(allocation_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
