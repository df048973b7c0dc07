/* Recomputation changes no bit: losses, gradients' effect on parameters and moments, running
 * statistics and dropout masks are those of the plan that keeps everything, on any number of ranks;
 * and a limit of memory is kept. Freed memory is poisoned, so that what is read too late shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "compile/recompute.h"
#include "compile/target.h"
#include "exec/models.h"
#include "ir/body.h"
#include "ir/build.h"
#include "ir/text.h"
#include "ir/verify.h"

enum { N_STEPS = 2 };

static void same_bits(const ir_graph_t *graph, compile_options_t options, uint32_t least_nodes) {
    double *expected;
    options.no_fusion = true; /* whose groups, and so whose rounding, depend on what is kept */
    options.recompute = COMPILE_RECOMPUTE_OFF;
    plan_t *plan = compile_ok(graph, &options);
    assert_int_equal(plan->recompute.n_nodes, 0);
    size_t n = run_plan(plan, N_STEPS, &expected);
    plan_destroy(plan);
    for (int policy = COMPILE_RECOMPUTE_FUSED; policy <= COMPILE_RECOMPUTE_FULL; policy++) {
        double *values;
        options.recompute = (compile_recompute_t)policy;
        plan = compile_ok(graph, &options);
        assert_true(plan->recompute.n_nodes >= least_nodes);
        assert_int_equal(plan->recompute.n_products > 0, policy == COMPILE_RECOMPUTE_FULL);
        assert_int_equal(run_plan(plan, N_STEPS, &values), n);
        if (memcmp(values, expected, n * sizeof *values) != 0) {
            size_t i = 0;
            while (memcmp(&values[i], &expected[i], sizeof *values) == 0) i++;
            fail_msg("%s, policy %d, %u ranks: value %zu is %.17g, not %.17g", graph->name, policy,
                     options.n_ranks, i, values[i], expected[i]);
        }
        st_free(values);
        plan_destroy(plan);
    }
    st_free(expected);
}

static void same_bits_on_ranks(ir_graph_t *forward, const char *optimizer, int64_t accumulate,
                               uint32_t least_nodes) {
    ir_graph_t *graph = model_train_with(forward, optimizer, 1.0, accumulate, 0);
    for (uint32_t ranks = 1; ranks <= 3; ranks++)
        same_bits(graph,
                  (compile_options_t){.n_ranks = ranks,
                                      .n_threads = 1,
                                      .dtype = ranks == 2 ? IR_F64 : IR_DTYPE_NONE,
                                      .no_fusion = ranks == 3},
                  least_nodes);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

static void multilayer_perceptrons_train_to_the_same_bits(void **state) {
    (void)state;
    same_bits_on_ranks(model_mlp(6), "adamw", 1, 1);
}

/* With batch norm's running statistics, pooling and dropout. */
static void convolutions_train_to_the_same_bits(void **state) {
    (void)state;
    same_bits_on_ranks(model_conv(6), "sgd", 1, 2);
}

static void micro_batches_train_to_the_same_bits(void **state) {
    (void)state;
    same_bits_on_ranks(model_mlp(4), "sgd", 3, 2);
}

/* Norms, activations, dropout and residual sums, `n` layers of them. */
static ir_graph_t *model_deep(int64_t batch, int n) {
    ir_graph_t *graph = NULL;
    assert_int_equal(ir_graph_create("deep", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    const ir_type_t weight = ir_type_make(IR_F32, 2, (int64_t[]){32, 32});
    ir_value_t x = ir_b_input(&b, "x", ir_type_make(IR_F32, 2, (int64_t[]){batch, 32}), 0);
    ir_value_t step = ir_b_buffer(&b, "optim.step", ir_type_scalar(IR_I64));
    ir_value_t seed = ir_b_constant(&b, ir_type_scalar(IR_I64), &(int64_t){5}, sizeof(int64_t));
    for (int i = 0; i < n; i++) {
        char name[3][32];
        for (int k = 0; k < 3; k++) snprintf(name[k], sizeof name[k], "layer%d.w%d", i, k);
        ir_value_t scale = ir_b_parameter(&b, name[0], ir_type_make(IR_F32, 1, (int64_t[]){32}));
        ir_value_t h = ir_b_node(&b, IR_OP_RMS_NORM, 2, (ir_value_t[]){x, scale}, 0, NULL);
        h = ir_b_matmul(&b, h, ir_b_parameter(&b, name[1], weight), false, false);
        h = ir_b_unary(&b, IR_OP_SILU, h);
        h = ir_b_node(&b, IR_OP_DROPOUT, 3, (ir_value_t[]){h, seed, step}, 2,
                      (ir_arg_t[]){IR_ARG_FLOAT("p", 0.25), IR_ARG_INT("id", i)});
        h = ir_b_matmul(&b, h, ir_b_parameter(&b, name[2], weight), false, false);
        x = ir_b_binary(&b, IR_OP_ADD, x, h);
    }
    ir_b_output(
        &b, "loss",
        ir_b_reduce(&b, IR_OP_REDUCE_MEAN, ir_b_unary(&b, IR_OP_SQUARE, x), 0, NULL, false));
    assert_int_equal(b.status, ST_OK);
    return graph;
}

/* `n` recurrent layers over 8 steps. */
static ir_graph_t *model_recurrent(int64_t batch, int n) {
    ir_graph_t *graph = NULL;
    assert_int_equal(ir_graph_create("recurrent", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    enum { STEPS = 8, WIDTH_R = 16 };
    const ir_type_t weight = ir_type_make(IR_F32, 2, (int64_t[]){WIDTH_R, WIDTH_R});
    const ir_type_t item = ir_type_make(IR_F32, 2, (int64_t[]){batch, WIDTH_R});
    ir_value_t x = ir_b_input(&b, "x", ir_type_add_first(&item, STEPS), 1);
    for (int i = 0; i < n; i++) {
        char name[2][32];
        for (int k = 0; k < 2; k++) snprintf(name[k], sizeof name[k], "layer%d.w%d", i, k);
        ir_value_t w = ir_b_parameter(&b, name[0], weight), u = ir_b_parameter(&b, name[1], weight);
        ir_build_t in = {0};
        assert_int_equal(ir_graph_create("", &in.graph), ST_OK);
        ir_value_t h = ir_b_body_input(&in, &item), slice = ir_b_body_input(&in, &item);
        ir_value_t bw = ir_b_body_input(&in, &weight), bu = ir_b_body_input(&in, &weight);
        ir_value_t sum = ir_b_binary(&in, IR_OP_ADD, ir_b_matmul(&in, slice, bw, false, false),
                                     ir_b_matmul(&in, h, bu, false, false));
        ir_value_t next = ir_b_unary(&in, IR_OP_TANH, sum);
        ir_b_body_output(&in, next);
        ir_b_body_output(&in, next);
        assert_int_equal(in.status, ST_OK);
        ir_value_t operands[] = {ir_b_splat(&b, item, 0), x, w, u};
        ir_value_t first =
            ir_b_node(&b, IR_OP_REPEAT, 4, operands, 4,
                      (ir_arg_t[]){IR_ARG_GRAPH("body", in.graph), IR_ARG_INT("trip", STEPS),
                                   IR_ARG_INT("carried", 1), IR_ARG_INT("scanned", 1)});
        ir_graph_destroy(in.graph);
        x = ir_b_unary(&b, IR_OP_SIN, first + 1);
    }
    ir_b_output(
        &b, "loss",
        ir_b_reduce(&b, IR_OP_REDUCE_MEAN, ir_b_unary(&b, IR_OP_SQUARE, x), 0, NULL, false));
    assert_int_equal(b.status, ST_OK);
    return graph;
}

static void recurrent_layers_train_to_the_same_bits(void **state) {
    (void)state;
    same_bits_on_ranks(model_recurrent(6, 3), "adamw", 1, 1);
    same_bits_on_ranks(model_recurrent(6, 3), "adamw", 2, 1);
}

static void deep_networks_train_to_the_same_bits(void **state) {
    (void)state;
    same_bits_on_ranks(model_deep(5, 3), "adamw", 1, 9);
}

/* ---- random networks ---- */

static uint64_t random_state;

static uint32_t random_below(uint32_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

enum { POOL = 40, WIDTH = 16 };

/* One random op over the values so far, bounded so that nothing overflows. */
static ir_value_t random_op(ir_build_t *b, const ir_value_t *pool, uint32_t n, int id,
                            int64_t batch, ir_value_t seed, ir_value_t step) {
    static const ir_op_t unary[] = {IR_OP_TANH, IR_OP_SIGMOID, IR_OP_SILU, IR_OP_GELU,
                                    IR_OP_RELU, IR_OP_SIN,     IR_OP_ABS};
    const uint32_t near = n < 6 ? n : 6; /* long ways, and now and then a far reader */
    ir_value_t x = pool[random_below(5) ? n - 1 - random_below(near) : random_below(n)];
    ir_value_t y = pool[n - 1 - random_below(near)];
    char name[32];
    snprintf(name, sizeof name, "p%d", id);
    switch (random_below(9)) {
        case 0:
            return ir_b_binary(b, IR_OP_ADD, x, y);
        case 1:
            return ir_b_binary(b, IR_OP_MUL, ir_b_unary(b, IR_OP_TANH, x), y);
        case 2:
        case 3: {
            ir_type_t type = ir_type_make(IR_F32, 2, (int64_t[]){WIDTH, WIDTH});
            return ir_b_matmul(b, x, ir_b_parameter(b, name, type), false, random_below(2));
        }
        case 4: {
            ir_type_t type = ir_type_make(IR_F32, 1, (int64_t[]){WIDTH});
            return ir_b_node(b, IR_OP_RMS_NORM, 2, (ir_value_t[]){x, ir_b_parameter(b, name, type)},
                             0, NULL);
        }
        case 5:
            return ir_b_node(b, IR_OP_DROPOUT, 3, (ir_value_t[]){x, seed, step}, 2,
                             (ir_arg_t[]){IR_ARG_FLOAT("p", 0.25), IR_ARG_INT("id", id)});
        case 6:
            return ir_b_node(b, IR_OP_SOFTMAX, 1, &x, 1, (ir_arg_t[]){IR_ARG_INT("axis", 1)});
        case 7: {
            ir_value_t other = ir_b_reshape(b, x, 3, (int64_t[]){batch, 4, WIDTH / 4});
            other = ir_b_unary(b, IR_OP_TANH, ir_b_swap(b, other, 1, 2));
            return ir_b_reshape(b, other, 2, (int64_t[]){batch, WIDTH});
        }
        default:
            return ir_b_unary(b, unary[random_below(sizeof unary / sizeof unary[0])], x);
    }
}

static ir_graph_t *model_random_net(unsigned seed, int64_t batch) {
    ir_graph_t *graph = NULL;
    char name[32];
    ir_value_t pool[POOL];
    random_state = seed;
    snprintf(name, sizeof name, "random %u", seed);
    assert_int_equal(ir_graph_create(name, &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    ir_value_t step = ir_b_buffer(&b, "optim.step", ir_type_scalar(IR_I64));
    ir_value_t noise = ir_b_constant(&b, ir_type_scalar(IR_I64), &(int64_t){9}, sizeof(int64_t));
    pool[0] = ir_b_input(&b, "x", ir_type_make(IR_F32, 2, (int64_t[]){batch, WIDTH}), 0);
    pool[1] = ir_b_matmul(
        &b, pool[0], ir_b_parameter(&b, "w", ir_type_make(IR_F32, 2, (int64_t[]){WIDTH, WIDTH})),
        false, false);
    for (int i = 2; i < POOL; i++)
        pool[i] = random_op(&b, pool, (uint32_t)i, i, batch, noise, step);
    ir_value_t sum = pool[POOL - 1];
    for (int i = 2; i <= 4; i++) sum = ir_b_binary(&b, IR_OP_ADD, sum, pool[POOL - i]);
    ir_b_output(
        &b, "loss",
        ir_b_reduce(&b, IR_OP_REDUCE_MEAN, ir_b_unary(&b, IR_OP_SQUARE, sum), 0, NULL, false));
    assert_int_equal(b.status, ST_OK);
    return graph;
}

static void random_networks_train_to_the_same_bits(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= 6; seed++) {
        ir_graph_t *forward = model_random_net(seed, 5);
        ir_graph_t *graph = model_train(forward, "adamw", 1.0);
        compile_options_t options = {.n_ranks = 1 + seed % 3,
                                     .n_threads = 1,
                                     .dtype = seed % 2 ? IR_F64 : IR_DTYPE_NONE,
                                     .no_fusion = seed % 2};
        same_bits(graph, options, 0);
        ir_graph_destroy(graph);
        ir_graph_destroy(forward);
    }
}

/* Every place of a path is a graph that verifies; memory falls from one to the next and time rises;
 * and the graphs of equal paths are equal. */
static void paths_go_down_in_memory_and_up_in_time(void **state) {
    (void)state;
    uint32_t n_all = 0, n_fused = 0;
    for (unsigned seed = 1; seed <= 20; seed++) {
        ir_graph_t *forward = model_random_net(seed, 256);
        ir_graph_t *graph = model_train(forward, "sgd", 0), *first, *second;
        target_t *described;
        ir_target_t target = {.name = "h200"};
        recompute_t *path, *again;
        assert_int_equal(target_open("h200", &described), ST_OK);
        target_fill(described, &target);
        assert_int_equal(recompute_open(graph, &target, seed % 2, &path), ST_OK);
        assert_int_equal(recompute_open(graph, &target, seed % 2, &again), ST_OK);
        const uint32_t n = recompute_n_points(path);
        assert_int_equal(recompute_n_points(again), n);
        n_all += n - 1;
        n_fused += recompute_last_fused(path);
        const uint32_t free_place = recompute_within(path, 0);
        recompute_point_t last = recompute_point(path, free_place > 0);
        for (uint32_t place = 0; place < n; place++) {
            recompute_point_t point = recompute_point(path, place);
            char *text, *other;
            if (place > 1 || (place == 1 && !free_place)) {
                assert_true(point.extra_us >= last.extra_us);
                assert_true(point.kept_bytes <= last.kept_bytes);
            }
            last = point;
            assert_int_equal(recompute_apply(path, place, graph, &first), ST_OK);
            assert_int_equal(ir_graph_verify(first), ST_OK);
            assert_int_equal(recompute_apply(again, place, graph, &second), ST_OK);
            assert_int_equal(ir_graph_print(first, &text), ST_OK);
            assert_int_equal(ir_graph_print(second, &other), ST_OK);
            assert_string_equal(text, other);
            st_free(text);
            st_free(other);
            ir_graph_destroy(first);
            ir_graph_destroy(second);
        }
        recompute_destroy(path);
        recompute_destroy(again);
        target_destroy(described);
        ir_graph_destroy(graph);
        ir_graph_destroy(forward);
    }
    assert_true(n_fused > 20 && n_all > n_fused + 20);
}

/* ---- limits of memory ---- */

static uint64_t bytes_with(const ir_graph_t *graph, compile_options_t options, double *out_us) {
    plan_t *plan = compile_ok(graph, &options);
    uint64_t bytes = compile_rank_bytes(plan);
    if (out_us) *out_us = plan->recompute.extra_us;
    assert_int_equal(plan_check(plan), ST_OK);
    plan_destroy(plan);
    return bytes;
}

static void keep_limits(ir_graph_t *forward, int64_t accumulate, double saved) {
    enum { N_LIMITS = 6 };
    ir_graph_t *graph = model_train_with(forward, "sgd", 0, accumulate, 0);
    compile_options_t options = {.n_ranks = 1, .n_threads = 1, .no_fusion = true};
    uint64_t most = bytes_with(graph, options, NULL);
    options.recompute = COMPILE_RECOMPUTE_FULL;
    uint64_t least = bytes_with(graph, options, NULL);
    assert_true((double)least < (double)most * (1 - saved));
    options.recompute = COMPILE_RECOMPUTE_AUTO;
    double before = 0;
    for (int i = 0; i <= N_LIMITS; i++) {
        double us;
        options.memory_limit = most - (most - least) * (uint64_t)i / N_LIMITS;
        assert_true(bytes_with(graph, options, &us) <= options.memory_limit);
        assert_true(us >= before);
        assert_true(i != 1 || us > 0);
        before = us;
    }
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

static void limits_are_kept_and_lower_ones_take_no_less_time(void **state) {
    (void)state;
    keep_limits(model_deep(256, 5), 1, 0.25);
}

/* What is kept stands in the loop's body, and is made again there. */
static void limits_are_kept_in_loops_over_micro_batches(void **state) {
    (void)state;
    keep_limits(model_deep(256, 5), 4, 0.25);
}

static void limits_are_kept_over_recurrent_layers(void **state) {
    (void)state;
    keep_limits(model_recurrent(24, 3), 1, 0.03);
    keep_limits(model_recurrent(24, 3), 2, 0.03);
}

static int64_t accumulate_within = 1;

static st_status_t compile_within(int64_t batch, uint32_t n_ranks, uint64_t limit, bool advice,
                                  uint64_t *out_bytes) {
    ir_graph_t *forward = model_deep(batch, 2);
    ir_graph_t *graph = model_train_with(forward, "sgd", 0, accumulate_within, 0);
    compile_options_t options = {.n_ranks = n_ranks,
                                 .n_threads = 1,
                                 .no_fusion = true,
                                 .memory_limit = limit,
                                 .no_advice = !advice};
    plan_t *plan;
    st_status_t status = compile_plan(graph, &options, &plan);
    if (status == ST_OK) *out_bytes = compile_rank_bytes(plan);
    plan_destroy(plan);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
    return status;
}

/* What the error says would fit does, and one item more or one rank less does not. */
static void check_advice(int64_t accumulate) {
    accumulate_within = accumulate;
    uint64_t all, bytes;
    assert_int_equal(compile_within(200, 1, 0, true, &all), ST_OK);
    const uint64_t limit = all / 3;
    long long items = 0, now = 0;
    unsigned ranks = 0, ranks_now = 0;
    assert_int_equal(compile_within(200, 1, limit, true, &bytes), ST_DOES_NOT_FIT);
    assert_non_null(strstr(st_last_error(), "; the largest tensor at its peak is '"));
    assert_non_null(strstr(st_last_error(), "KiB; a batch of"));
    const char *batch = strstr(st_last_error(), "; a batch of");
    const char *more = strstr(st_last_error(), "each") ? strstr(batch + 1, "; ") : NULL;
    assert_non_null(batch);
    assert_non_null(more);
    assert_int_equal(sscanf(batch, "; a batch of %lld (now %lld) needs", &items, &now), 2);
    assert_int_equal(sscanf(more, "; %u ranks (now %u) need", &ranks, &ranks_now), 2);
    assert_true(now == 200 && ranks_now == 1 && items < 200 && ranks > 1);
    assert_int_equal(compile_within(items, 1, limit, false, &bytes), ST_OK);
    assert_true(bytes <= limit);
    assert_int_equal(compile_within(items + 1, 1, limit, false, &bytes), ST_DOES_NOT_FIT);
    assert_int_equal(compile_within(200, ranks, limit, false, &bytes), ST_OK);
    assert_true(bytes <= limit);
    if (ranks > 2)
        assert_int_equal(compile_within(200, ranks - 1, limit, false, &bytes), ST_DOES_NOT_FIT);
}

static void advice_is_true_and_tight(void **state) {
    (void)state;
    check_advice(1);
}

/* The batch is that of one of the micro-batches. */
static void advice_for_micro_batches_is_true_and_tight(void **state) {
    (void)state;
    check_advice(3);
}

/* A plan that fits as it is stays what it is. */
static void limits_that_are_met_change_nothing(void **state) {
    (void)state;
    ir_graph_t *forward = model_conv(8), *graph = model_train(forward, "adamw", 1.0);
    compile_options_t options = {.n_ranks = 2, .n_threads = 1};
    plan_t *plain = compile_ok(graph, &options);
    options.memory_limit = compile_rank_bytes(plain);
    plan_t *limited = compile_ok(graph, &options);
    for (uint32_t p = 0; p < plain->n_programs; p++) {
        const plan_program_t *a = &plain->programs[p], *b = &limited->programs[p];
        assert_int_equal(a->graph->values.n, b->graph->values.n);
        for (ir_value_t v = 0; v < a->graph->values.n; v++)
            assert_true(a->places[v].offset == b->places[v].offset);
    }
    plan_destroy(plain);
    plan_destroy(limited);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(multilayer_perceptrons_train_to_the_same_bits),
        cmocka_unit_test(convolutions_train_to_the_same_bits),
        cmocka_unit_test(micro_batches_train_to_the_same_bits),
        cmocka_unit_test(recurrent_layers_train_to_the_same_bits),
        cmocka_unit_test(deep_networks_train_to_the_same_bits),
        cmocka_unit_test(random_networks_train_to_the_same_bits),
        cmocka_unit_test(paths_go_down_in_memory_and_up_in_time),
        cmocka_unit_test(limits_are_kept_and_lower_ones_take_no_less_time),
        cmocka_unit_test(limits_are_kept_in_loops_over_micro_batches),
        cmocka_unit_test(limits_are_kept_over_recurrent_layers),
        cmocka_unit_test(advice_is_true_and_tight),
        cmocka_unit_test(advice_for_micro_batches_is_true_and_tight),
        cmocka_unit_test(limits_that_are_met_change_nothing),
    };
    setenv("STATOR_POISON", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
