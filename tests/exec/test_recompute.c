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
#include "exec/recompute_checks.h"
#include "ir/build.h"
#include "ir/text.h"
#include "ir/verify.h"

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
        assert_int_equal(recompute_open(graph, &target, seed % 2, NULL, &path), ST_OK);
        assert_int_equal(recompute_open(graph, &target, seed % 2, NULL, &again), ST_OK);
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

static void limits_are_kept_and_lower_ones_take_no_less_time(void **state) {
    (void)state;
    keep_limits(model_deep(256, 5), 1, 0.25);
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
        cmocka_unit_test(deep_networks_train_to_the_same_bits),
        cmocka_unit_test(random_networks_train_to_the_same_bits),
        cmocka_unit_test(paths_go_down_in_memory_and_up_in_time),
        cmocka_unit_test(limits_are_kept_and_lower_ones_take_no_less_time),
        cmocka_unit_test(limits_that_are_met_change_nothing),
    };
    setenv("STATOR_POISON", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
