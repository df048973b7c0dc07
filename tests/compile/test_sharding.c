/* The choice of placements by simulation, against schedules worked out by hand. */
#include "compile/sharding.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/train_graph.h"
#include "base/memory.h"
#include "compile/host.h"
#include "compile/target.h"
#include "fusion/simplify.h"
#include "ir/expand.h"
#include "ir/text.h"

static ir_graph_t *parse(const char *text) {
    ir_graph_t *graph = NULL;
    st_status_t status = ir_graph_parse(text, strlen(text), &graph);
    if (status != ST_OK) print_error("%s\n", st_last_error());
    assert_int_equal(status, ST_OK);
    return graph;
}

/* ---- schedules by hand ---- */

/* Products take 8 us for each row of their result, everything else nothing. */
static void cost(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out, ir_cost_t *result) {
    (void)context;
    *result = (ir_cost_t){.kernel = "k", .limit = "compute"};
    if (ctx->op == IR_OP_MATMUL) result->us = 8.0 * (double)out[0].dims[0];
}
static const ir_machine_t machine = {
    .name = "test", .device = "null", .n_cores = 1, .n_threads = 1, .n_ranks = 4};
static const ir_target_t bare = {.name = "test", .machine = &machine, .cost = cost};

/* 4 ranks; no latency, 1,000 bytes a microsecond. */
static sharding_request_t request_of(const ir_graph_t *graph) {
    return (sharding_request_t){.graph = graph,
                                .target = &bare,
                                .ring = {4, {4, 4, 0, 1, 0, 0}, 1, false, NULL},
                                .link_overlap = 1,
                                .splits_inputs = true};
}

#define P_ROWS IR_PLACE_SPLIT(0, 16)
#define P_ALL IR_PLACE_REPLICATE

static const char gradients[] =
    "graph \"g\" {\n"
    "  %0 x = input {dtype=f32, shape=[16,100]}\n"
    "  %1 w = parameter {dtype=f32, shape=[100,100]}\n"
    "  %2 y = matmul(%0, %1)\n" /* 4 of 16 rows: 32 us */
    "  phase backward\n"
    "  %3 dw = matmul(%0, %2) {transpose_a=true}\n" /* 100 rows: 800 us */
    "  %4 dx = matmul(%2, %1) {transpose_b=true}\n" /* 32 us */
    "  phase optimizer\n"
    "  %5 new = sub(%1, %3)\n"
    "  update(%1, %5)\n"
    "  output \"dx\" = %4\n"
    "}\n";

/* 40,000 bytes summed among four: 2 · 3/4 of them, 60 us, of which the last product hides 32. */
static void sums_start_when_made_and_are_waited_for_when_read(void **state) {
    (void)state;
    const ir_strategy_t input = {.out = {P_ROWS}}, whole = {0};
    const ir_strategy_t product = {.in = {P_ROWS}, .out = {P_ROWS}};
    const ir_strategy_t sum = {.in = {P_ROWS, P_ROWS}, .out = {IR_PLACE_PARTIAL}};
    const ir_strategy_t *nodes[] = {&input, &whole, &product, &sum, &product, &whole, &whole};
    const shard_choices_t choices = {nodes, NULL};
    ir_graph_t *graph = parse(gradients);
    sharding_request_t request = request_of(graph);
    sharding_price_t price;
    assert_int_equal(sharding_simulate(&request, &choices, &price), ST_OK);
    assert_true(price.compute_us == 864 && price.link_us == 60);
    assert_true(fabs(price.exposed_us - 28) < 1e-9 && fabs(price.step_us - 892) < 1e-9);
    assert_int_equal(price.state_bytes, 40000);
    /* when the gradient has been made, x, y and it are alive, and what it is summed to */
    assert_int_equal(price.live_bytes, 4 * 400 + 4 * 400 + 40000 + 40000);
    request.link_overlap = 0;
    assert_int_equal(sharding_simulate(&request, &choices, &price), ST_OK);
    assert_true(fabs(price.step_us - 924) < 1e-9);
    ir_graph_destroy(graph);
}

/* The weight in parts: gathered before the first product, again for the backward pass (behind the
 * first one and dw), and its gradient summed into parts. */
static void weights_in_parts_are_gathered_for_each_phase(void **state) {
    (void)state;
    const ir_placement_t part = IR_PLACE_SPLIT(0, 100);
    const ir_strategy_t input = {.out = {P_ROWS}}, weight = {.out = {part}};
    const ir_strategy_t product = {.in = {P_ROWS}, .out = {P_ROWS}};
    const ir_strategy_t sum = {.in = {P_ROWS, P_ROWS}, .out = {IR_PLACE_PARTIAL}};
    const ir_strategy_t step = {.in = {part, part}, .out = {part}};
    const ir_strategy_t *nodes[] = {&input, &weight, &product, &sum, &product, &step, &step};
    const shard_choices_t choices = {nodes, NULL};
    ir_graph_t *graph = parse(gradients);
    const sharding_request_t request = request_of(graph);
    sharding_price_t price;
    assert_int_equal(sharding_simulate(&request, &choices, &price), ST_OK);
    assert_true(price.compute_us == 864 && price.link_us == 90);
    /* 30 at the beginning; the sum of 30 is hidden by the last product */
    assert_true(fabs(price.exposed_us - 30) < 1e-9);
    assert_int_equal(price.state_bytes, 10000);
    ir_graph_destroy(graph);
}

/* ---- choices ---- */

static ir_graph_t *training(const char *text) {
    ir_graph_t *forward = parse(text), *step, *expanded, *simple;
    ad_train_options_t options;
    ir_target_t host = {.name = "cpu", .evaluate = compile_evaluate};
    assert_int_equal(ad_train_defaults("adamw", &options), ST_OK);
    options.clip_norm = 1;
    assert_int_equal(ad_train_graph(forward, &options, &step), ST_OK);
    assert_int_equal(ir_expand_composites(step, ir_expand_any, &expanded), ST_OK);
    assert_int_equal(fuse_simplify(expanded, &host, &simple), ST_OK);
    ir_graph_destroy(forward);
    ir_graph_destroy(step);
    ir_graph_destroy(expanded);
    return simple;
}

static const char *mlp(int batch, int wide) {
    static char text[1024];
    snprintf(text, sizeof text,
             "graph \"mlp\" {\n"
             "  %%x x = input {dtype=f32, shape=[%d,%d], batch_axis=0}\n"
             "  %%a a = parameter {dtype=f32, shape=[%d,%d]}\n"
             "  %%b b = parameter {dtype=f32, shape=[%d,%d]}\n"
             "  %%h = matmul(%%x, %%a)\n  %%t = tanh(%%h)\n  %%y = matmul(%%t, %%b)\n"
             "  %%s = square(%%y)\n  %%l = reduce_mean(%%s) {axes=[0,1]}\n"
             "  output \"loss\" = %%l\n}\n",
             batch, wide, wide, 4 * wide, 4 * wide, wide);
    return text;
}

typedef struct fixture {
    target_t *target;
    ir_target_t ir;
    ir_graph_t *graph;
    sharding_request_t request;
} fixture_t;

static void open_fixture(fixture_t *f, const char *text, uint32_t n_ranks) {
    assert_int_equal(target_open("h200", &f->target), ST_OK);
    const ir_mesh_t mesh = ir_mesh_of_ranks(n_ranks);
    target_bind(f->target, &mesh, 1);
    target_fill(f->target, &f->ir);
    f->graph = training(text);
    f->request = (sharding_request_t){
        .graph = f->graph,
        .target = &f->ir,
        .ring = {n_ranks, ir_links_of(f->ir.machine, n_ranks, 1), 1, false, NULL},
        .link_overlap = 1,
        .splits_inputs = true,
        .lowers = IR_AXIS_DATA,
    };
}

static void close_fixture(fixture_t *f) {
    ir_graph_destroy(f->graph);
    target_destroy(f->target);
}

static const sharding_row_t *row_of(const sharding_t *sharding, const char *name) {
    for (uint32_t i = 0; i < sharding->n_rows; i++)
        if (strcmp(sharding->rows[i].name, name) == 0) return &sharding->rows[i];
    fail_msg("no row '%s'", name);
    return NULL;
}

static const ir_strategy_t *choice(const fixture_t *f, const sharding_row_t *row,
                                   const char *name) {
    return row->choices.nodes[ir_graph_find(f->graph, name)];
}

static void no_uniform_plan_is_better_than_the_choice(void **state) {
    (void)state;
    const struct {
        int batch, wide;
        uint32_t n_ranks;
    } cases[] = {{65536, 512, 4}, {64, 4096, 8}, {7, 300, 3}, {256, 1024, 16}, {1, 256, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture_t f;
        sharding_t made;
        open_fixture(&f, mlp(cases[i].batch, cases[i].wide), cases[i].n_ranks);
        assert_int_equal(sharding_choose(&f.request, &made), ST_OK);
        assert_true(made.n_rows >= 4);
        for (uint32_t r = 0; r < made.n_rows; r++) {
            sharding_price_t again;
            const bool lowered = made.rows[r].form >= 0;
            assert_true(made.rows[made.chosen].price.step_us <= made.rows[r].price.step_us);
            if (lowered) continue; /* its choices are for another graph */
            assert_int_equal(sharding_simulate(&f.request, &made.rows[r].choices, &again), ST_OK);
            assert_true(again.step_us == made.rows[r].price.step_us);
        }
        sharding_free(&made);
        close_fixture(&f);
    }
}

/* A layer of many rows before one of few rows and a large weight: the batch for the one, the weight
 * for the other. */
static void mixed_graphs_gain_by_mixed_placements(void **state) {
    (void)state;
    fixture_t f;
    sharding_t made;
    double uniform = INFINITY;
    open_fixture(&f,
                 "graph \"mixed\" {\n"
                 "  %x x = input {dtype=f32, shape=[32,32768,128], batch_axis=0}\n"
                 "  %a a = parameter {dtype=f32, shape=[128,128]}\n"
                 "  %b b = parameter {dtype=f32, shape=[128,524288]}\n"
                 "  %c c = parameter {dtype=f32, shape=[524288,128]}\n"
                 "  %h = matmul(%x, %a)\n  %t = tanh(%h)\n"
                 "  %m = reduce_mean(%t) {axes=[1]}\n"
                 "  %y = matmul(%m, %b)\n  %u = tanh(%y)\n  %z = matmul(%u, %c)\n"
                 "  %s = square(%z)\n  %l = reduce_mean(%s) {axes=[0,1]}\n"
                 "  output \"loss\" = %l\n}\n",
                 8);
    assert_int_equal(sharding_choose(&f.request, &made), ST_OK);
    const sharding_row_t *best = &made.rows[made.chosen];
    for (uint32_t r = 0; r + 1 < made.n_rows; r++)
        uniform = fmin(uniform, made.rows[r].price.step_us);
    print_message("uniform %.0f us, chosen %.0f us\n", uniform, best->price.step_us);
    assert_string_equal(best->name, "auto");
    assert_true(best->price.step_us < 0.95 * uniform);
    assert_true(choice(&f, best, "x")->out[0].kind == IR_SPLIT);
    assert_true(choice(&f, best, "b")->out[0].kind == IR_SPLIT);
    sharding_free(&made);
    close_fixture(&f);
}

/* What the forms are called is what they do. */
static void uniform_plans_are_what_their_names_say(void **state) {
    (void)state;
    fixture_t f;
    sharding_t made;
    open_fixture(&f, mlp(4096, 512), 4);
    f.request.lowers = NULL;
    assert_int_equal(sharding_choose(&f.request, &made), ST_OK);
    const struct {
        const char *form;
        ir_placement_kind_t x, a, m;
    } expected[] = {{"dp", IR_SPLIT, IR_REPLICATE, IR_REPLICATE},
                    {"zero1", IR_SPLIT, IR_REPLICATE, IR_SPLIT},
                    {"zero3", IR_SPLIT, IR_SPLIT, IR_SPLIT},
                    {"none", IR_REPLICATE, IR_REPLICATE, IR_REPLICATE}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const sharding_row_t *row = row_of(&made, expected[i].form);
        assert_int_equal(choice(&f, row, "x")->out[0].kind, expected[i].x);
        assert_int_equal(choice(&f, row, "a")->out[0].kind, expected[i].a);
        assert_int_equal(choice(&f, row, "optim.m.a")->out[0].kind, expected[i].m);
    }
    const sharding_row_t *tp = row_of(&made, "tp");
    assert_int_equal(choice(&f, tp, "x")->out[0].kind, IR_REPLICATE);
    const uint64_t weights = 2 * 512 * 2048 * 4;
    assert_true(row_of(&made, "dp")->price.state_bytes >= 3 * weights);
    assert_true(row_of(&made, "dp")->price.state_bytes < 3 * weights + 100);
    assert_true(row_of(&made, "zero1")->price.state_bytes < weights + 2 * weights / 4 + 100);
    assert_true(row_of(&made, "zero3")->price.state_bytes < 3 * weights / 4 + 100);
    assert_true(row_of(&made, "none")->price.link_us == 0);
    assert_true(row_of(&made, "dp")->price.compute_us < row_of(&made, "none")->price.compute_us);
    sharding_free(&made);
    close_fixture(&f);
}

/* In every candidate that is solved for, the free one too, whatever its form says; what is not
 * pinned is chosen. */
static void all_candidates_keep_to_pins(void **state) {
    (void)state;
    const struct {
        const char *pins;
        ir_placement_t a;
    } cases[] = {{"a=whole(data)", IR_PLACE_REPLICATE},
                 {"a=split(1,data)", IR_PLACE_SPLIT(1, 8192)}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture_t f;
        sharding_t free_one, made;
        const ir_mesh_t mesh = ir_mesh_of_ranks(8);
        uint32_t n_solved = 0;
        open_fixture(&f, mlp(256, 2048), 8);
        assert_int_equal(sharding_choose(&f.request, &free_one), ST_OK);
        f.request.pins = cases[i].pins;
        f.request.mesh = &mesh;
        assert_int_equal(sharding_choose(&f.request, &made), ST_OK);
        const ir_node_t a = ir_graph_find(f.graph, "a");
        for (uint32_t r = 0; r < made.n_rows; r++) {
            if (made.rows[r].form >= 0) continue; /* its choices are for another graph */
            n_solved++;
            assert_true(ir_placement_equal(made.rows[r].choices.nodes[a]->out[0], cases[i].a));
        }
        assert_true(n_solved >= 3);
        assert_true(made.rows[made.chosen].price.step_us >=
                    free_one.rows[free_one.chosen].price.step_us);
        sharding_free(&made);
        sharding_free(&free_one);
        close_fixture(&f);
    }
}

static void a_limit_of_memory_is_kept_where_anything_fits(void **state) {
    (void)state;
    fixture_t f;
    sharding_t free_one, tight;
    uint64_t least = UINT64_MAX;
    open_fixture(&f, mlp(256, 2048), 8);
    assert_int_equal(sharding_choose(&f.request, &free_one), ST_OK);
    for (uint32_t r = 0; r < free_one.n_rows; r++) {
        const sharding_price_t *p = &free_one.rows[r].price;
        if (p->state_bytes + p->live_bytes < least) least = p->state_bytes + p->live_bytes;
    }
    f.request.memory_limit = least;
    assert_int_equal(sharding_choose(&f.request, &tight), ST_OK);
    const sharding_price_t *p = &tight.rows[tight.chosen].price;
    assert_true(tight.rows[tight.chosen].fits && p->state_bytes + p->live_bytes <= least);
    assert_false(row_of(&tight, "none")->fits);
    sharding_free(&tight);
    /* nothing keeps within a mebibyte: the smallest is taken, and said not to fit */
    f.request.memory_limit = 1 << 20;
    assert_int_equal(sharding_choose(&f.request, &tight), ST_OK);
    p = &tight.rows[tight.chosen].price;
    assert_false(tight.rows[tight.chosen].fits);
    for (uint32_t r = 0; r < tight.n_rows; r++)
        assert_true(p->state_bytes + p->live_bytes <=
                    tight.rows[r].price.state_bytes + tight.rows[r].price.live_bytes);
    sharding_free(&tight);
    sharding_free(&free_one);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_start_when_made_and_are_waited_for_when_read),
        cmocka_unit_test(weights_in_parts_are_gathered_for_each_phase),
        cmocka_unit_test(no_uniform_plan_is_better_than_the_choice),
        cmocka_unit_test(mixed_graphs_gain_by_mixed_placements),
        cmocka_unit_test(uniform_plans_are_what_their_names_say),
        cmocka_unit_test(all_candidates_keep_to_pins),
        cmocka_unit_test(a_limit_of_memory_is_kept_where_anything_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
