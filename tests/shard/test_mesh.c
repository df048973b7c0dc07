/* Lowering to meshes: programs, who runs which, and what lacks memory. */
#include "shard/mesh.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ir/text.h"
#include "ir/verify.h"

/* Columns, then rows; and a norm on what they give. */
static const char text[] =
    "graph \"g\" {\n"
    "  %0 x = input {dtype=f32, shape=[4,6,6]}\n"
    "  %1 w1 = parameter {dtype=f32, shape=[8,6]}\n"
    "  %2 w2 = parameter {dtype=f32, shape=[6,8]}\n"
    "  %3 n = parameter {dtype=f32, shape=[6]}\n"
    "  %4 a = matmul(%0, %1) {transpose_b=true}\n"
    "  %5 r = relu(%4)\n"
    "  %6 y = matmul(%5, %2) {transpose_b=true}\n"
    "  %7 z = add(%6, %0)\n"
    "  %8, %9 q = rms_norm(%7, %3)\n"
    "  output \"q\" = %8\n"
    "}\n";

static ir_graph_t *parse(void) {
    ir_graph_t *graph;
    assert_int_equal(ir_graph_parse(text, sizeof text - 1, &graph), ST_OK);
    return graph;
}

static st_status_t lower(const ir_graph_t *graph, const char *mesh_text, shard_form_t form,
                         const char *pins, shard_programs_t *out) {
    static ir_mesh_t mesh;
    assert_int_equal(ir_mesh_parse(mesh_text, &mesh), ST_OK);
    const shard_mesh_options_t options = {.mesh = &mesh, .form = form, .pins = pins};
    return shard_lower_mesh(graph, &options, out);
}

static size_t count(const ir_graph_t *graph, ir_op_t op) {
    size_t n = 0;
    for (ir_node_t i = 0; i < graph->nodes.n; i++) n += ir_node(graph, i)->op == op;
    return n;
}

/* The sum of the rows' product is scattered along dim 1; nothing is gathered but what comes out. */
static void columns_then_rows_scatter_one_sum(void **state) {
    (void)state;
    ir_graph_t *graph = parse();
    shard_programs_t made;
    assert_int_equal(lower(graph, "tensor=2", SHARD_FORM_DP, NULL, &made), ST_OK);
    assert_int_equal(made.n_programs, 1);
    const ir_graph_t *program = made.graphs[0];
    assert_int_equal(ir_graph_verify(program), ST_OK);
    assert_int_equal(count(program, IR_OP_REDUCE_SCATTER_START), 1);
    assert_int_equal(count(program, IR_OP_ALL_REDUCE_START), 0);
    assert_int_equal(ir_value_type(program, ir_graph_find_output(program, "q"))->dims[1], 3);
    assert_int_equal(made.nodes[1].placements[0].kind, IR_SPLIT);
    assert_int_equal(made.nodes[1].placements[0].dim, 0);
    assert_int_equal(made.nodes[2].placements[0].dim, 1);
    assert_int_equal(made.nodes[3].placements[0].kind, IR_REPLICATE);
    shard_programs_free(&made);
    ir_graph_destroy(graph);
}

/* Slots of each item go to where their experts are, and answers back; nothing is gathered. */
static void experts_exchange_with_the_batch(void **state) {
    (void)state;
    static const char routed[] =
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4,6,8]}\n"
        "  %1 z = input {dtype=i64, shape=[4,7,5]}\n"
        "  %2 w = parameter {dtype=f32, shape=[2,5,8]}\n"
        "  %3 a = reshape(%0) {shape=[4,2,3,8]}\n"
        "  %4 b = transpose(%3) {perm=[1,0,2,3]}\n"
        "  %5 c = reshape(%4) {shape=[2,12,8]}\n"
        "  %6 y = matmul(%5, %2) {transpose_b=true}\n"
        "  %7 d = reshape(%6) {shape=[2,4,3,5]}\n"
        "  %8 e = transpose(%7) {perm=[1,0,2,3]}\n"
        "  %9 f = reshape(%8) {shape=[4,6,5]}\n"
        "  %10 g = gather_along(%9, %1) {axis=1}\n"
        "  output \"g\" = %10\n"
        "}\n";
    ir_graph_t *graph;
    shard_programs_t made;
    assert_int_equal(ir_graph_parse(routed, sizeof routed - 1, &graph), ST_OK);
    assert_int_equal(lower(graph, "expert=2", SHARD_FORM_DP, NULL, &made), ST_OK);
    assert_int_equal(made.n_programs, 1);
    const ir_graph_t *program = made.graphs[0];
    assert_int_equal(ir_graph_verify(program), ST_OK);
    assert_int_equal(count(program, IR_OP_ALL_TO_ALL_START), 2);
    assert_int_equal(count(program, IR_OP_ALL_GATHER_START), 0);
    for (ir_node_t n = 0; n < program->nodes.n; n++) {
        if (ir_node(program, n)->op != IR_OP_MATMUL) continue;
        const ir_type_t *y = ir_value_type(program, ir_node(program, n)->first_output);
        assert_true(y->dims[0] == 1 && y->dims[1] == 12);
    }
    assert_int_equal(ir_value_type(program, ir_graph_find_output(program, "g"))->dims[0], 2);
    assert_int_equal(made.nodes[2].placements[0].kind, IR_SPLIT);
    assert_int_equal(made.nodes[2].placements[0].dim, 0);
    shard_programs_free(&made);
    assert_int_equal(lower(graph, "data=2,expert=2", SHARD_FORM_DP, NULL, &made), ST_OK);
    assert_int_equal(count(made.graphs[0], IR_OP_ALL_TO_ALL_START), 2);
    assert_int_equal(count(made.graphs[0], IR_OP_ALL_GATHER_START), 0);
    assert_int_equal(
        ir_value_type(made.graphs[0], ir_graph_find_output(made.graphs[0], "g"))->dims[0], 1);
    shard_programs_free(&made);
    ir_graph_destroy(graph);
}

/* Each rank has the queries of its rows, and of keys and values all. */
static void sequences_gather_keys_and_values(void **state) {
    (void)state;
    static const char attending[] =
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[1,8,2,4]}\n"
        "  %1 q = transpose(%0) {perm=[0,2,1,3]}\n"
        "  %2 k = exp(%1)\n"
        "  %3 v = tanh(%1)\n"
        "  %4, %5 o = attention(%1, %2, %3) {causal=true}\n"
        "  output \"o\" = %4\n"
        "}\n";
    ir_graph_t *graph;
    shard_programs_t made;
    if (ir_graph_parse(attending, sizeof attending - 1, &graph) != ST_OK)
        fail_msg("%s", st_last_error());
    assert_int_equal(lower(graph, "context=2", SHARD_FORM_DP, NULL, &made), ST_OK);
    assert_int_equal(made.n_programs, 2);
    for (uint32_t p = 0; p < 2; p++) {
        const ir_graph_t *program = made.graphs[p];
        assert_int_equal(ir_graph_verify(program), ST_OK);
        assert_int_equal(count(program, IR_OP_ALL_GATHER_START), 2);
        assert_int_equal(count(program, IR_OP_ALL_TO_ALL_START), 0);
        assert_int_equal(count(program, IR_OP_ATTENTION), 1);
        for (ir_node_t n = 0; n < program->nodes.n; n++) {
            const ir_node_info_t *node = ir_node(program, n);
            if (node->op != IR_OP_ATTENTION) continue;
            assert_int_equal(node->n_inputs, 3); /* no mask */
            assert_int_equal(ir_attr_int(node, "causal"), 1);
            assert_int_equal(ir_attr_int(node, "offset"), p ? 4 : 0);
            assert_int_equal(ir_value_type(program, node->inputs[0])->dims[2], 4);
            assert_int_equal(ir_value_type(program, node->inputs[1])->dims[2], 8);
        }
    }
    assert_int_equal(made.nodes[0].placements[0].dim, 1);
    shard_programs_free(&made);
    ir_graph_destroy(graph);
}

static st_status_t lower_ring(const char *graph_text, const char *mesh_text,
                              shard_programs_t *made) {
    static ir_mesh_t mesh;
    ir_graph_t *graph;
    if (ir_graph_parse(graph_text, strlen(graph_text), &graph) != ST_OK)
        fail_msg("%s", st_last_error());
    assert_int_equal(ir_mesh_parse(mesh_text, &mesh), ST_OK);
    const shard_mesh_options_t options = {.mesh = &mesh, .context_attention = SHARD_CONTEXT_RING};
    st_status_t status = shard_lower_mesh(graph, &options, made);
    ir_graph_destroy(graph);
    return status;
}

/* 9 rows on 3 ranks, each a key back at most: keys go one rank on and no further, though there
 * are two more. Where they stand is in the offset. */
static void keys_go_as_far_as_they_are_seen(void **state) {
    (void)state;
    static const char attending[] =
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[1,9,2,4]}\n"
        "  %1 q = transpose(%0) {perm=[0,2,1,3]}\n"
        "  %2, %3 o = attention(%1, %1, %1) {causal=true, window=2}\n"
        "  output \"o\" = %2\n"
        "}\n";
    static const int64_t offsets[3][2] = {{0, -20}, {0, 3}, {0, 3}}; /* rank 0: before all keys */
    shard_programs_t made;
    assert_int_equal(lower_ring(attending, "context=3", &made), ST_OK);
    assert_int_equal(made.n_programs, 3);
    for (uint32_t r = 0; r < 3; r++) {
        const ir_graph_t *program = made.graphs[made.program_of[r]];
        size_t at = 0;
        assert_int_equal(ir_graph_verify(program), ST_OK);
        assert_int_equal(count(program, IR_OP_SEND_START), 2); /* keys and values, once */
        assert_int_equal(count(program, IR_OP_RECEIVE_WAIT), 2);
        assert_int_equal(count(program, IR_OP_ATTENTION), 2);
        for (ir_node_t n = 0; n < program->nodes.n; n++) {
            const ir_node_info_t *node = ir_node(program, n);
            if (node->op == IR_OP_SEND_START)
                assert_int_equal(ir_attr_int(node, "peer"), (r + 1) % 3);
            if (node->op == IR_OP_RECEIVE_START)
                assert_int_equal(ir_attr_int(node, "peer"), (r + 2) % 3);
            if (node->op != IR_OP_ATTENTION) continue;
            assert_int_equal(ir_value_type(program, node->inputs[1])->dims[2], 3);
            assert_int_equal(ir_attr_int(node, "offset"), offsets[r][at++]);
        }
    }
    shard_programs_free(&made);
}

/* Pairs of a query and a key that the node computes. */
static int64_t pairs_of(const ir_graph_t *graph, const ir_node_info_t *node) {
    const int64_t rows = ir_value_type(graph, node->inputs[0])->dims[2];
    const int64_t keys = ir_value_type(graph, node->inputs[1])->dims[2];
    int64_t n = 0;
    for (int64_t m = 0; m < rows; m++)
        for (int64_t s = 0; s < keys; s++) n += s <= m + ir_attr_int(node, "offset");
    return n;
}

/* 8 rows on 4 ranks see 36 keys, all of which are computed once. The last rank would have 15
 * pairs, the first one 3: those of the last rank's queries and the first one's keys are the
 * first rank's. */
static void early_ranks_work_for_late_ones(void **state) {
    (void)state;
    static const char attending[] =
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[1,8,2,4]}\n"
        "  %1 q = transpose(%0) {perm=[0,2,1,3]}\n"
        "  %2, %3 o = attention(%1, %1, %1) {causal=true}\n"
        "  output \"o\" = %2\n"
        "}\n";
    static const int64_t expected[4] = {7, 7, 11, 11};
    shard_programs_t made;
    assert_int_equal(lower_ring(attending, "context=4", &made), ST_OK);
    for (uint32_t r = 0; r < 4; r++) {
        const ir_graph_t *program = made.graphs[made.program_of[r]];
        int64_t pairs = 0;
        for (ir_node_t n = 0; n < program->nodes.n; n++)
            if (ir_node(program, n)->op == IR_OP_ATTENTION)
                pairs += pairs_of(program, ir_node(program, n));
        assert_int_equal(pairs, expected[r]);
        /* own keys and values to two ranks; queries in one round, and what they gave */
        assert_int_equal(count(program, IR_OP_SEND_START), 2 * 2 + 1 + 2);
    }
    shard_programs_free(&made);
}

/* 3 queries, which one rank of four has none of, over 8 keys, in no order: every pair is computed,
 * once. */
static void all_pairs_are_computed_once(void **state) {
    (void)state;
    static const char attending[] =
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[1,3,2,4]}\n"
        "  %1 y = input {dtype=f32, shape=[1,8,2,4]}\n"
        "  %2, %3 o = attention(%0, %1, %1) {rows_first=true}\n"
        "  output \"o\" = %2\n"
        "}\n";
    shard_programs_t made;
    int64_t pairs = 0;
    assert_int_equal(lower_ring(attending, "context=4", &made), ST_OK);
    for (uint32_t r = 0; r < 4; r++) {
        const ir_graph_t *program = made.graphs[made.program_of[r]];
        for (ir_node_t n = 0; n < program->nodes.n; n++) {
            const ir_node_info_t *node = ir_node(program, n);
            if (node->op != IR_OP_ATTENTION) continue;
            pairs += ir_value_type(program, node->inputs[0])->dims[1] *
                     ir_value_type(program, node->inputs[1])->dims[1];
        }
    }
    assert_int_equal(pairs, 3 * 8);
    shard_programs_free(&made);
}

static void what_cannot_go_round_is_refused(void **state) {
    (void)state;
    static const char masked[] =
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[1,8,2,4]}\n"
        "  %1 m = input {dtype=bool, shape=[8,8], batch_axis=-1}\n"
        "  %2 q = transpose(%0) {perm=[0,2,1,3]}\n"
        "  %3, %4 o = attention(%2, %2, %2, %1)\n"
        "  output \"o\" = %3\n"
        "}\n";
    shard_programs_t made;
    assert_int_equal(lower_ring(masked, "context=2", &made), ST_UNSUPPORTED);
    assert_non_null(strstr(st_last_error(), "attention 'o'"));
    assert_non_null(strstr(st_last_error(), "has a mask"));
    shard_programs_free(&made);
    assert_int_equal(lower_ring(masked, "context=2,pipe=2", &made), ST_UNSUPPORTED);
    assert_non_null(strstr(st_last_error(), "within stages of a pipeline"));
    shard_programs_free(&made);
}

/* 4 rows on 3 ranks: one of two rows, two of one; the same for each coordinate of the other
 * axis. */
static void equal_ranks_share_a_program(void **state) {
    (void)state;
    ir_graph_t *graph = parse();
    shard_programs_t made;
    assert_int_equal(lower(graph, "data=3,tensor=2", SHARD_FORM_DP, NULL, &made), ST_OK);
    assert_int_equal(made.n_programs, 2);
    for (uint32_t d = 0; d < 3; d++)
        assert_int_equal(made.program_of[2 * d], made.program_of[2 * d + 1]);
    assert_int_equal(made.program_of[0], made.program_of[2]);
    assert_int_not_equal(made.program_of[0], made.program_of[4]);
    shard_programs_free(&made);
    assert_int_equal(lower(graph, "data=1024", SHARD_FORM_DP, NULL, &made), ST_OK);
    assert_int_equal(made.n_programs, 2); /* with one of the four rows, and without any */
    shard_programs_free(&made);
    ir_graph_destroy(graph);
}

static void lack_of_memory_is_reported(void **state) {
    (void)state;
    ir_graph_t *graph = parse();
    st_status_t status = ST_NO_MEMORY;
    for (long n = 0; status != ST_OK; n++) {
        shard_programs_t made;
        st_memory_fail_after(n, true);
        status = lower(graph, "data=2,tensor=2", SHARD_FORM_ZERO3, "n=split(0,tensor)", &made);
        st_memory_fail_after(-1, false);
        shard_programs_free(&made);
        assert_true(status == ST_OK || status == ST_NO_MEMORY);
        assert_true(n < 100000);
    }
    ir_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_then_rows_scatter_one_sum),
        cmocka_unit_test(experts_exchange_with_the_batch),
        cmocka_unit_test(sequences_gather_keys_and_values),
        cmocka_unit_test(keys_go_as_far_as_they_are_seen),
        cmocka_unit_test(early_ranks_work_for_late_ones),
        cmocka_unit_test(all_pairs_are_computed_once),
        cmocka_unit_test(what_cannot_go_round_is_refused),
        cmocka_unit_test(equal_ranks_share_a_program),
        cmocka_unit_test(lack_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
