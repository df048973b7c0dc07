/* Plans: text, bytes, and the proof that finds what is wrong with a plan. */
#include "compile/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "compile/compile.h"
#include "ir/build.h"
#include "ir/container.h"
#include "ir/text.h"

static const char tiny[] =
    "graph \"tiny\" {\n"
    "  %0 x = input {dtype=f32, shape=[4,3]}\n"
    "  %1 w = parameter {dtype=f32, shape=[3,3]}\n"
    "  %2 y = matmul(%0, %1)\n"
    "  %3 z = tanh(%2)\n"
    "  %4 dw = matmul(%0, %3) {transpose_a=true}\n"
    "  %5 new = sub(%1, %4)\n"
    "  update(%1, %5)\n"
    "  output \"z\" = %3\n"
    "}\n";

static plan_t *compile_text(const char *text, uint32_t n_ranks) {
    ir_graph_t *graph = NULL;
    plan_t *plan = NULL;
    compile_options_t options = {.n_ranks = n_ranks, .reference_kernels = true};
    assert_int_equal(ir_graph_parse(text, strlen(text), &graph), ST_OK);
    st_status_t status = compile_plan(graph, &options, &plan);
    if (status != ST_OK) print_error("%s\n", st_last_error());
    assert_int_equal(status, ST_OK);
    ir_graph_destroy(graph);
    return plan;
}

static void text_shows_memory_and_steps(void **state) {
    (void)state;
    plan_t *plan = compile_text(tiny, 2);
    char *text;
    assert_int_equal(plan_print(plan, &text), ST_OK);
    const char *program = strstr(text, "program 0");
    assert_non_null(strstr(text, "input \"x\" f32[4,3] split dim 0 into 4\n"));
    assert_non_null(strstr(text, "output \"z\" f32[4,3] split dim 0 into 4\n"));
    assert_non_null(program);
    assert_string_equal(
        program,
        "program 0, ranks 0 1\n"
        "  state 64 bytes  work 128 bytes  comm 64 bytes  (work bound 128, gap 0.00 %)\n"
        "     0 -      input 'x' -> %0 f32[2,3] work+0\n"
        "     1 -      parameter 'w' -> %1 f32[3,3] state+0\n"
        "     2 kernel matmul 'y' (%0, %1) -> %2 f32[2,3] work+64  cpu.matmul.reference\n"
        "     3 kernel tanh 'z' (%2) -> %3 f32[2,3] work+64  cpu.tanh.reference\n"
        "     4 kernel matmul 'dw' (%0, %3) -> %4 f32[3,3] comm+0  cpu.matmul.reference\n"
        "     5 start  all_reduce_start (%4) -> %5 f32[3,3] comm+0 #0\n"
        "     6 wait   all_reduce_wait (%5) -> %6 f32[3,3] comm+0 #0\n"
        "     7 kernel sub 'new' (%1, %6) -> %7 f32[3,3] state+0  cpu.sub.reference\n"
        "     8 -      update (%1, %7)\n");
    st_free(text);
    plan_destroy(plan);
}

static void lines_of_any_length_are_whole(void **state) {
    (void)state;
    char name[3001], wanted[3032], *text;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    plan_t *plan = NULL;
    compile_options_t options = {.n_ranks = 1, .reference_kernels = true};
    ir_build_t b = {0};
    assert_int_equal(ir_graph_create(name, &b.graph), ST_OK);
    ir_value_t x = ir_b_input(&b, "x", ir_type_make(IR_F32, 1, (int64_t[]){4}), -1);
    ir_b_output(&b, "y", ir_b_unary(&b, IR_OP_EXP, x));
    assert_int_equal(b.status, ST_OK);
    assert_int_equal(compile_plan(b.graph, &options, &plan), ST_OK);
    assert_int_equal(plan_print(plan, &text), ST_OK);
    snprintf(wanted, sizeof wanted, "graph \"%s\" %016llx\n", name,
             (unsigned long long)plan->graph_hash);
    assert_non_null(strstr(text, wanted));
    st_free(text);
    plan_destroy(plan);
    ir_graph_destroy(b.graph);
}

static void bytes_give_the_same_plan(void **state) {
    (void)state;
    for (uint32_t n_ranks = 1; n_ranks <= 3; n_ranks++) {
        plan_t *plan = compile_text(tiny, n_ranks), *back = NULL;
        uint8_t *data, *again;
        size_t bytes, again_bytes;
        char *before, *after;
        assert_int_equal(plan_encode(plan, &data, &bytes), ST_OK);
        assert_int_equal(plan_decode(data, bytes, &back), ST_OK);
        assert_int_equal(plan_encode(back, &again, &again_bytes), ST_OK);
        assert_int_equal(bytes, again_bytes);
        assert_memory_equal(data, again, bytes);
        assert_int_equal(plan_print(plan, &before), ST_OK);
        assert_int_equal(plan_print(back, &after), ST_OK);
        assert_string_equal(before, after);
        st_free(data);
        st_free(again);
        st_free(before);
        st_free(after);
        plan_destroy(plan);
        plan_destroy(back);
    }
}

static const ir_container_kind_t plan_file = {
    {'S', 'T', 'A', 'T', 'O', 'R', 'P', '\n'}, PLAN_VERSION, "plan"};

/* Flips of single bits: the checksum finds them; without it, decoding refuses or gives a plan that
 * is proved. Truncations are refused. */
static void corrupt_bytes_are_refused(void **state) {
    (void)state;
    plan_t *plan = compile_text(tiny, 2), *back = NULL;
    uint8_t *data;
    size_t bytes, n_refused = 0;
    assert_int_equal(plan_encode(plan, &data, &bytes), ST_OK);
    for (size_t cut = 0; cut < bytes; cut += 7) {
        assert_int_not_equal(plan_decode(data, cut, &back), ST_OK);
        assert_null(back);
    }
    for (size_t bit = 0; bit < 8 * bytes; bit += 3) {
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(plan_decode(data, bytes, &back), ST_OK);
        assert_null(back);
        if (bit / 8 >= IR_CONTAINER_HEADER_BYTES) {
            ir_container_seal(&plan_file, data, bytes - IR_CONTAINER_HEADER_BYTES);
            if (plan_decode(data, bytes, &back) == ST_OK) {
                assert_int_equal(plan_check(back), ST_OK);
                plan_destroy(back);
            } else {
                assert_string_not_equal(st_last_error(), "");
                n_refused++;
            }
        }
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ir_container_seal(&plan_file, data, bytes - IR_CONTAINER_HEADER_BYTES);
    }
    assert_true(n_refused > bytes); /* of 8/3 flips a byte */
    assert_int_equal(plan_decode(data, bytes, &back), ST_OK);
    plan_destroy(back);
    st_free(data);
    plan_destroy(plan);
}

/* A zero dim makes tensors of any other dims legal, but not the scratch space of their kernels. */
static void scratch_that_overflows_does_not_fit(void **state) {
    (void)state;
    static const struct {
        bool reference;
        const char *kernel, *node, *text;
    } rows[] = {
        /* 48 rows of 2^58 scores are 3 · 2^64 bytes */
        {false, "cpu.attention.fast", "'wide'",
         "graph \"g\" {\n"
         "  %0 q = input {dtype=f32, shape=[1,1,48,0]}\n"
         "  %1 k = input {dtype=f32, shape=[1,1,288230376151711744,0]}\n"
         "  %2, %3 wide = attention(%0, %1, %1)\n"
         "  output \"lse\" = %3\n"
         "}\n"},
        {true, "cpu.attention.reference", "'wide'", /* one row of 2^60 f64 scores: 2^63 bytes */
         "graph \"g\" {\n"
         "  %0 q = input {dtype=f16, shape=[1,1,48,0]}\n"
         "  %1 k = input {dtype=f16, shape=[1,1,1152921504606846976,0]}\n"
         "  %2, %3 wide = attention(%0, %1, %1)\n"
         "  output \"lse\" = %3\n"
         "}\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ir_graph_t *graph = NULL;
        plan_t *plan = NULL;
        compile_options_t options = {.n_ranks = 1, .reference_kernels = rows[i].reference};
        st_status_t status = ir_graph_parse(rows[i].text, strlen(rows[i].text), &graph);
        if (status != ST_OK) print_error("%s\n", st_last_error());
        assert_int_equal(status, ST_OK);
        assert_int_equal(compile_plan(graph, &options, &plan), ST_DOES_NOT_FIT);
        assert_null(plan);
        assert_non_null(strstr(st_last_error(), rows[i].kernel));
        assert_non_null(strstr(st_last_error(), rows[i].node));
        ir_graph_destroy(graph);
    }
}

/* No plan holds such a step: the input that makes it so is named, before any pass. */
static void sizes_beyond_all_plans_name_the_input(void **state) {
    (void)state;
    static const char text[] =
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[1000000000000,5]}\n"
        "  %1 w = parameter {dtype=f32, shape=[5,1000]}\n"
        "  %2 few = input {dtype=f32, shape=[5], batch_axis=-1}\n"
        "  %3 = matmul(%0, %1)\n"
        "  %4 = exp(%3)\n"
        "  %5 = exp(%4)\n"
        "  %6 = reduce_sum(%5) {axes=[0,1]}\n"
        "  %7 = reduce_sum(%2) {axes=[0]}\n"
        "  %8 = add(%6, %7)\n"
        "  output \"y\" = %8\n"
        "}\n";
    ir_graph_t *graph;
    plan_t *plan = NULL;
    assert_int_equal(ir_graph_parse(text, sizeof text - 1, &graph), ST_OK);
    assert_int_equal(compile_plan(graph, NULL, &plan), ST_DOES_NOT_FIT);
    assert_null(plan);
    /* 3 · 4 · 10^15 bytes, and 20 · 10^12 */
    assert_non_null(strstr(st_last_error(),
                           "the graph's values take 10.68 PiB together, the limit is 8.00 PiB; the "
                           "largest input is 'x', f32[1000000000000,5], 18.19 TiB"));
    ir_graph_destroy(graph);
}

/* ---- the proof ---- */

static ir_value_t value_of(const plan_program_t *program, const char *name) {
    for (ir_node_t n = 0; n < program->graph->nodes.n; n++)
        if (strcmp(ir_node(program->graph, n)->name, name) == 0)
            return ir_node(program->graph, n)->first_output;
    fail_msg("no node '%s'", name);
    return 0;
}

static void expect_refusal(const plan_t *plan, const char *message) {
    assert_int_not_equal(plan_check(plan), ST_OK);
    if (!strstr(st_last_error(), message)) print_error("%s\n", st_last_error());
    assert_non_null(strstr(st_last_error(), message));
}

static void the_proof_finds_faults(void **state) {
    (void)state;
    plan_t *plan = compile_text(tiny, 2);
    plan_program_t *p = &plan->programs[0];
    plan_place_t *y = &p->places[value_of(p, "y")], *x = &p->places[value_of(p, "x")];
    plan_place_t *dw = &p->places[value_of(p, "dw")];
    plan_place_t old = *y;
    assert_int_equal(plan_check(plan), ST_OK);

    *y = *x; /* matmul may not write over what it reads */
    expect_refusal(plan, "which the op does not allow");
    *y = old;
    y->offset = 8;
    expect_refusal(plan, "not aligned");
    *y = old;
    y->offset = 1 << 20;
    expect_refusal(plan, "leaves region work");
    *y = old;
    y->bytes = 12;
    expect_refusal(plan, "its type needs");
    *y = old;

    old = *dw; /* z, still to be delivered, under dw */
    dw->region = PLAN_WORK;
    dw->offset = p->places[value_of(p, "z")].offset;
    expect_refusal(plan, "lies on input");
    *dw = old;

    p->region_bytes[PLAN_WORK] += (uint64_t)1 << 40;
    expect_refusal(plan, "region work has");
    p->region_bytes[PLAN_WORK] -= (uint64_t)1 << 40;
    p->region_bytes[PLAN_STATE] += (uint64_t)1 << 40;
    expect_refusal(plan, "region state has");
    p->region_bytes[PLAN_STATE] -= (uint64_t)1 << 40;
    p->steps[6].ticket = 3;
    expect_refusal(plan, "waits for another collective");
    p->steps[6].ticket = 0;
    p->steps[3].kind = PLAN_STEP_NOTHING;
    expect_refusal(plan, "does not carry out its node");
    p->steps[3].kind = PLAN_STEP_KERNEL;
    plan->program_of[1] = 7;
    expect_refusal(plan, "runs program 7");
    plan->program_of[1] = 0;
    plan->inputs[0].placements[0].granules = 3;
    expect_refusal(plan, "input 'x'");
    plan->inputs[0].placements[0].granules = 4;
    assert_int_equal(plan_check(plan), ST_OK);
    plan_destroy(plan);
}

static void a_value_overwritten_too_early_is_found(void **state) {
    (void)state;
    plan_t *plan = compile_text(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[4,4]}\n"
        "  %1 a = matmul(%0, %0)\n"
        "  %2 b = matmul(%1, %1)\n"
        "  %3 c = matmul(%2, %2)\n"
        "  %4 d = matmul(%3, %1)\n"
        "  output \"d\" = %4\n"
        "}\n",
        1);
    plan_program_t *p = &plan->programs[0];
    assert_int_equal(plan_check(plan), ST_OK);
    p->places[value_of(p, "c")].offset = p->places[value_of(p, "a")].offset;
    expect_refusal(plan, "is overwritten before it is read");
    plan_destroy(plan);
}

static void ranks_that_disagree_are_found(void **state) {
    (void)state;
    plan_t *two = compile_text(
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[3,4]}\n"
        "  %1 s = reduce_sum(%0) {axes=[0]}\n"
        "  %2 y = exp(%1)\n"
        "  output \"y\" = %2\n"
        "}\n",
        2);
    assert_int_equal(two->n_programs, 2); /* one row and two */
    two->programs[1].steps[2].ticket = 1;
    two->programs[1].steps[3].ticket = 1;
    expect_refusal(two, "number the collective");
    plan_destroy(two);
}

static void state_keeps_another_plans_layout(void **state) {
    (void)state;
    ir_graph_t *graph = NULL;
    plan_t *train = compile_text(tiny, 2), *eval = NULL;
    compile_options_t options = {.n_ranks = 2, .evaluation = true, .state_of = train};
    assert_int_equal(ir_graph_parse(tiny, strlen(tiny), &graph), ST_OK);
    assert_int_equal(compile_plan(graph, &options, &eval), ST_OK);
    const plan_place_t *a = plan_state_place(&train->programs[0], "w");
    const plan_place_t *b = plan_state_place(&eval->programs[0], "w");
    assert_int_equal(a->offset, b->offset);
    assert_null(plan_state_place(&eval->programs[0], "x"));
    assert_false(train->shares_state);
    assert_true(eval->shares_state);
    for (ir_node_t n = 0; n < eval->programs[0].graph->nodes.n; n++)
        assert_int_not_equal(ir_node(eval->programs[0].graph, n)->op, IR_OP_UPDATE);
    plan_destroy(eval);
    ir_graph_destroy(graph);

    const char *other =
        "graph \"g\" {\n"
        "  %0 v = parameter {dtype=f32, shape=[3]}\n"
        "  output \"y\" = %0\n"
        "}\n";
    assert_int_equal(ir_graph_parse(other, strlen(other), &graph), ST_OK);
    assert_int_equal(compile_plan(graph, &options, &eval), ST_NOT_FOUND);
    assert_non_null(strstr(st_last_error(), "pass memory"));
    assert_non_null(strstr(st_last_error(), "'v'"));
    plan_destroy(train);
    ir_graph_destroy(graph);
}

static void every_pass_is_timed(void **state) {
    (void)state;
    const compile_timing_t *timings;
    plan_destroy(compile_text(tiny, 1));
    size_t n = compile_timings(&timings);
    assert_true(n >= 6);
    bool lowered = false;
    for (size_t i = 0; i < n; i++) {
        assert_true(timings[i].us >= 0);
        lowered |= strcmp(timings[i].pass, "lower") == 0;
    }
    assert_true(lowered);
}

/* Each allocation from graph to decoded plan fails once: an error, and nothing is lost. */
static void allocation_failures_are_reported(void **state) {
    (void)state;
    ir_graph_t *graph = NULL;
    compile_options_t options = {.n_ranks = 2, .reference_kernels = true};
    assert_int_equal(ir_graph_parse(tiny, strlen(tiny), &graph), ST_OK);
    int64_t at = 0;
    for (st_status_t status = ST_NO_MEMORY; status != ST_OK; at++) {
        plan_t *plan = NULL, *back = NULL;
        uint8_t *data = NULL;
        size_t bytes = 0;
        st_memory_fail_after(at, false);
        status = compile_plan(graph, &options, &plan);
        if (status == ST_OK) status = plan_encode(plan, &data, &bytes);
        if (status == ST_OK) status = plan_decode(data, bytes, &back);
        st_memory_fail_after(-1, false);
        if (status != ST_OK && status != ST_NO_MEMORY) print_error("%s\n", st_last_error());
        if (status != ST_OK) assert_int_equal(status, ST_NO_MEMORY);
        st_free(data);
        plan_destroy(plan);
        plan_destroy(back);
    }
    assert_true(at > 100);
    ir_graph_destroy(graph);
}

/* ---- memory pressure ---- */

/* Searched, and held against uniform plans: whatever was compiled by then is released. */
static void allocation_failures_of_a_contest_are_reported(void **state) {
    (void)state;
    ir_graph_t *graph = NULL;
    const compile_options_t options = {.n_ranks = 2, .auto_sharding = true};
    int64_t at = 0, n_failed = 0;
    assert_int_equal(ir_graph_parse(tiny, strlen(tiny), &graph), ST_OK);
    for (st_status_t status = ST_NO_MEMORY; status != ST_OK; at += 1 + at / 24) {
        plan_t *plan = NULL;
        st_memory_fail_after(at, false);
        status = compile_plan(graph, &options, &plan);
        st_memory_fail_after(-1, false);
        if (status != ST_OK) assert_int_equal(status, ST_NO_MEMORY);
        assert_true((plan != NULL) == (status == ST_OK));
        n_failed += status != ST_OK;
        plan_destroy(plan);
    }
    assert_true(n_failed > 100);
    ir_graph_destroy(graph);
}

/* Sessions make shadows from their weights: without the weight, or of other dims, nothing is
 * compiled. */
static void shadows_without_their_weights_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *parameter, *fault; /* NULL: fine */
    } rows[] = {
        {"w = parameter {dtype=f32, shape=[3,3]}", NULL},
        {"w = parameter {dtype=f32, shape=[9,1]}",
         "'optim.shadow.w') has bf16[3,3], its weight f32[9,1]"},
        {"v = parameter {dtype=f32, shape=[3,3]}",
         "'optim.shadow.w') is the shadow of no parameter of the program"},
        {"w = buffer {dtype=f32, shape=[3,3]}",
         "'optim.shadow.w') is the shadow of no parameter of the program"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const compile_options_t options = {.n_ranks = 1};
        ir_graph_t *graph = NULL;
        plan_t *plan = NULL;
        char text[512];
        snprintf(text, sizeof text,
                 "graph \"g\" {\n"
                 "  %%0 %s\n"
                 "  %%1 optim.shadow.w = buffer {dtype=bf16, shape=[3,3]}\n"
                 "  %%2 = tanh(%%0)\n"
                 "  %%3 = tanh(%%1)\n"
                 "  output \"y\" = %%2\n"
                 "  output \"z\" = %%3\n"
                 "}\n",
                 rows[i].parameter);
        assert_int_equal(ir_graph_parse(text, strlen(text), &graph), ST_OK);
        const st_status_t status = compile_plan(graph, &options, &plan);
        assert_int_equal(status, rows[i].fault ? ST_INVALID : ST_OK);
        if (rows[i].fault) assert_non_null(strstr(st_last_error(), rows[i].fault));
        plan_destroy(plan);
        ir_graph_destroy(graph);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_shows_memory_and_steps),
        cmocka_unit_test(lines_of_any_length_are_whole),
        cmocka_unit_test(bytes_give_the_same_plan),
        cmocka_unit_test(corrupt_bytes_are_refused),
        cmocka_unit_test(scratch_that_overflows_does_not_fit),
        cmocka_unit_test(sizes_beyond_all_plans_name_the_input),
        cmocka_unit_test(the_proof_finds_faults),
        cmocka_unit_test(a_value_overwritten_too_early_is_found),
        cmocka_unit_test(ranks_that_disagree_are_found),
        cmocka_unit_test(shadows_without_their_weights_are_refused),
        cmocka_unit_test(state_keeps_another_plans_layout),
        cmocka_unit_test(every_pass_is_timed),
        cmocka_unit_test(allocation_failures_are_reported),
        cmocka_unit_test(allocation_failures_of_a_contest_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
