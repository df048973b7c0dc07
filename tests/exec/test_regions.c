/* repeat and cond in plans: the same numbers as their bodies written out, for training steps on any
 * number of ranks, in float64; plans come back from bytes; what breaks a body's plan is refused. */
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
#include "exec/models.h"
#include "exec/written_out.h"
#include "ir/text.h"
#include "ir/verify.h"

#define IN(dims) "input {dtype=f32, shape=[" dims "], batch_axis=-1}\n"

/* A recurrent layer over 5 steps of a batch of 6: tanh(x w + h u + b), all states stacked, the last
 * one too, with dropout that differs by step. */
static const char recurrent[] =
    "graph {\n"
    "  %x x = input {dtype=f32, shape=[5,6,3], batch_axis=1}\n"
    "  %w w = parameter {dtype=f32, shape=[3,4]}\n"
    "  %u u = parameter {dtype=f32, shape=[4,4]}\n"
    "  %b b = parameter {dtype=f32, shape=[4]}\n"
    "  %h0 = constant {dtype=f32, shape=[6,4], data=0}\n"
    "  %i = iota {dtype=i64, shape=[5], axis=0}\n"
    "  %seed = constant {dtype=i64, shape=[], data=7}\n"
    "  %h, %all = repeat(%h0, %x, %i, %w, %u, %b, %seed) {trip=5, carried=1, scanned=2, REVERSE"
    "body=graph {\n"
    "    %h h = " IN("6,4") "%x x = " IN("6,3")
    "    %i i = input {dtype=i64, shape=[], batch_axis=-1}\n"
    "    %w w = " IN("3,4") "%u u = " IN("4,4") "%b b = " IN("4")
    "    %s s = input {dtype=i64, shape=[], batch_axis=-1}\n"
    "    %xw = matmul(%x, %w)\n    %hu = matmul(%h, %u)\n    %p = add(%xw, %hu)\n"
    "    %q = add(%p, %b)\n    %t = tanh(%q)\n"
    "    %d = dropout(%t, %s, %s, %i) {p=0.25, id=3}\n"
    "    output h = %d\n    output all = %d\n  }}\n"
    "  %sq = square(%all)\n  %m = reduce_mean(%sq) {axes=[0,1,2]}\n"
    "  %hm = reduce_mean(%h) {axes=[0,1]}\n  %l = add(%m, %hm)\n"
    "  output \"loss\" = %l\n}\n";

/* A loop in a loop, whose inner one sees slices of the outer one; carries that change places. */
static const char nested[] =
    "graph {\n"
    "  %x x = input {dtype=f32, shape=[3,2,6,4], batch_axis=2}\n"
    "  %w w = parameter {dtype=f32, shape=[4]}\n"
    "  %v v = parameter {dtype=f32, shape=[4]}\n"
    "  %a0 = constant {dtype=f32, shape=[6,4], data=0.5}\n"
    "  %b0 = constant {dtype=f32, shape=[6,4], data=0.25}\n"
    "  %a, %b, %y = repeat(%a0, %b0, %x, %w, %v) {trip=3, carried=2, scanned=1, REVERSE"
    "body=graph {\n"
    "    %a a = " IN("6,4") "%b b = " IN("6,4") "%x x = " IN("2,6,4") "%w w = " IN("4") "%v v = "
    IN("4")
    "    %c, %z = repeat(%a, %x, %w) {trip=2, carried=1, scanned=1, body=graph {\n"
    "      %a a = " IN("6,4") "%x x = " IN("6,4") "%w w = " IN("4")
    "      %p = mul(%a, %w)\n      %s = add(%p, %x)\n      %t = sigmoid(%s)\n"
    "      output a = %t\n      output old = %a\n    }}\n"
    "    %m = mul(%b, %v)\n"
    "    output a = %m\n    output b = %c\n    output z = %z\n  }}\n"
    "  %s1 = reduce_sum(%a) {axes=[0,1]}\n  %s2 = reduce_sum(%b) {axes=[0,1]}\n"
    "  %y2 = square(%y)\n  %s3 = reduce_sum(%y2) {axes=[0,1,2,3]}\n  %s4 = add(%s1, %s2)\n  %l = add(%s4, %s3)\n"
    "  output \"loss\" = %l\n}\n";

/* A condition, and one in a loop that chooses by the iteration. */
static const char choices[] =
    "graph {\n"
    "  %x x = input {dtype=f32, shape=[6,4], batch_axis=0}\n"
    "  %w w = parameter {dtype=f32, shape=[4]}\n"
    "  %f = constant {dtype=bool, shape=[4], data=[true,false,false,true]}\n"
    "  %h = repeat(%x, %f, %w) {trip=4, carried=1, scanned=1, REVERSEbody=graph {\n"
    "    %h h = " IN("6,4") "%f f = input {dtype=bool, shape=[], batch_axis=-1}\n    %w w = " IN("4")
    "    %r = cond(%f, %h, %w) {then=graph {\n"
    "      %h h = " IN("6,4") "%w w = " IN("4")
    "      %y = mul(%h, %w)\n      %z = tanh(%y)\n      output r = %z\n    }, else=graph {\n"
    "      %h h = " IN("6,4") "%w w = " IN("4")
    "      %y = add(%h, %w)\n      output r = %y\n    }}\n"
    "    output r = %r\n  }}\n"
    "  %q = square(%h)\n  %l = reduce_mean(%q) {axes=[0,1]}\n"
    "  output \"loss\" = %l\n}\n";

static const char *const texts[] = {recurrent, nested, choices};

static ir_graph_t *parse(const char *text, bool reverse) {
    char buffer[8192];
    const char *at = strstr(text, "REVERSE");
    ir_graph_t *graph;
    snprintf(buffer, sizeof buffer, "%.*s%s%s", (int)(at - text), text,
             reverse ? "reverse=true, " : "", at + strlen("REVERSE"));
    if (ir_graph_parse(buffer, strlen(buffer), &graph) != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}

/* ---- tests ---- */

static size_t count_regions(const plan_program_t *program) {
    size_t n = 0;
    for (size_t i = 0; i < program->graph->nodes.n; i++)
        n += program->steps[i].kind == PLAN_STEP_REGION;
    return n;
}

static plan_t *through_bytes(plan_t *plan) {
    uint8_t *data, *again;
    size_t bytes, n_again;
    plan_t *back;
    assert_int_equal(plan_encode(plan, &data, &bytes), ST_OK);
    if (plan_decode(data, bytes, &back) != ST_OK) fail_msg("%s", st_last_error());
    assert_int_equal(plan_encode(back, &again, &n_again), ST_OK);
    assert_int_equal(bytes, n_again);
    assert_memory_equal(data, again, bytes);
    st_free(data);
    st_free(again);
    plan_destroy(plan);
    return back;
}

static void training_equals_the_written_out_graph(void **state) {
    (void)state;
    for (int t = 0; t < 6; t++) {
        ir_graph_t *forward = parse(texts[t / 2], t % 2), *flat = written_out(forward);
        ir_graph_t *step = model_train(forward, "sgd", 0), *plain = model_train(flat, "sgd", 0);
        compile_options_t options = {.dtype = IR_F64};
        plan_t *plan = compile_ok(plain, &options);
        double *expected, *got;
        assert_int_equal(count_regions(&plan->programs[0]), 0);
        size_t n = run_plan(plan, 3, &expected);
        plan_destroy(plan);
        for (uint32_t ranks = 1; ranks <= 3; ranks++)
            for (int reference = 0; reference < 2; reference++) {
                options = (compile_options_t){
                    .dtype = IR_F64, .n_ranks = ranks, .reference_kernels = reference == 1};
                plan = through_bytes(compile_ok(step, &options));
                assert_true(count_regions(&plan->programs[0]) >= 2); /* forward and backward */
                assert_int_equal(run_plan(plan, 3, &got), n);
                assert_close(n, expected, got, 1e-12, texts[t / 2]);
                st_free(got);
                plan_destroy(plan);
            }
        st_free(expected);
        ir_graph_destroy(forward);
        ir_graph_destroy(flat);
        ir_graph_destroy(step);
        ir_graph_destroy(plain);
    }
}

/* No value of a body, at any depth, has the whole batch. */
static void assert_in_parts(const ir_graph_t *body, const char *what) {
    for (size_t v = 0; v < body->values.n; v++) {
        const ir_type_t *type = &body->values.data[v].type;
        for (int32_t d = 0; d < type->rank; d++)
            if (type->dims[d] == 6)
                fail_msg("value %zu of a body has the whole batch: %s", v, what);
    }
    for (size_t i = 0; i < body->nodes.n; i++) {
        const ir_op_def_t *def = ir_op_def(body->nodes.data[i].op);
        for (uint32_t a = 0; a < ir_op_n_attrs(def); a++)
            if (def->attrs[a].kind == IR_ATTR_GRAPH)
                assert_in_parts(body->nodes.data[i].attrs[a].graph, what);
    }
}

/* On two ranks each runs the loops, forward and backward, on its half of the batch; sums of
 * gradients meet after them. */
static void loops_run_in_parts(void **state) {
    (void)state;
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        ir_graph_t *forward = parse(texts[t], false), *step = model_train(forward, "sgd", 0);
        plan_t *plan = compile_ok(step, &(compile_options_t){.n_ranks = 2});
        const ir_graph_t *graph = plan->programs[0].graph;
        size_t n_reduces = 0, n_regions = 0;
        for (size_t i = 0; i < graph->nodes.n; i++) {
            const ir_node_info_t *node = &graph->nodes.data[i];
            assert_int_not_equal(node->op, IR_OP_ALL_GATHER_START);
            n_reduces += node->op == IR_OP_ALL_REDUCE_START;
            if (plan->programs[0].steps[i].kind != PLAN_STEP_REGION) continue;
            n_regions++;
            assert_in_parts(node->attrs[0].graph, texts[t]);
        }
        assert_true(n_regions >= 2 && n_reduces >= 1);
        plan_destroy(plan);
        ir_graph_destroy(step);
        ir_graph_destroy(forward);
    }
}

/* ---- micro-batches ---- */

/* The step over `k` micro-batches of a forward graph. */
static ir_graph_t *accumulated(ir_graph_t *forward, const char *optimizer, int64_t k) {
    ad_train_options_t o;
    ir_graph_t *step = NULL;
    assert_int_equal(ad_train_defaults(optimizer, &o), ST_OK);
    o.lr = 0.05, o.clip_norm = 1, o.accumulate = k, o.micro_batch_norm = true;
    /* the last output, which is all that micro-batches leave */
    forward->outputs.data[0] = forward->outputs.data[forward->outputs.n - 1];
    forward->outputs.n = 1;
    if (ad_train_graph(forward, &o, &step) != ST_OK) fail_msg("%s", st_last_error());
    ir_graph_destroy(forward);
    return step;
}

/* Two plans' states and outputs after two steps. */
static void assert_same_steps(const ir_graph_t *a, const ir_graph_t *b, compile_options_t options,
                              double tolerance, const char *what) {
    double *expected, *got;
    plan_t *plan = compile_ok(a, &(compile_options_t){.dtype = IR_F64});
    size_t n = run_plan(plan, 2, &expected);
    plan_destroy(plan);
    plan = compile_ok(b, &options);
    assert_int_equal(run_plan(plan, 2, &got), n);
    assert_close(n, expected, got, tolerance, what);
    plan_destroy(plan);
    st_free(expected);
    st_free(got);
}

/* Three micro-batches in a loop: the numbers of the whole batch, on ranks that each run the loop on
 * their part of every micro-batch; fused and not. */
static void micro_batches_run_in_a_loop(void **state) {
    (void)state;
    ir_graph_t *whole = accumulated(model_mlp(24), "adamw", 1);
    ir_graph_t *parts = accumulated(model_mlp(8), "adamw", 3);
    for (uint32_t ranks = 1; ranks <= 8; ranks += ranks < 3 ? 1 : 5) {
        for (int fused = 0; fused < 2; fused++)
            assert_same_steps(
                whole, parts,
                (compile_options_t){.dtype = IR_F64, .n_ranks = ranks, .no_fusion = !fused}, 1e-10,
                "micro-batches");
        plan_t *plan = compile_ok(parts, &(compile_options_t){.n_ranks = ranks});
        const ir_graph_t *graph = plan->programs[0].graph;
        assert_int_equal(count_regions(&plan->programs[0]), 1);
        for (size_t i = 0; i < graph->nodes.n; i++)
            assert_int_not_equal(graph->nodes.data[i].op, IR_OP_ALL_GATHER_START);
        plan_destroy(plan);
    }
    ir_graph_destroy(whole);
    ir_graph_destroy(parts);
}

/* Dropout inside a recurrent layer's loop: a mask for each item and turn, however the batch is
 * cut. */
static const char dropped[] =
    "graph {\n"
    "  %%x x = input {dtype=f32, shape=[%d,5,3], batch_axis=0}\n"
    "  %%w w = parameter {dtype=f32, shape=[3,4]}\n"
    "  %%u u = parameter {dtype=f32, shape=[4,4]}\n"
    "  %%h0 = constant {dtype=f32, shape=[%d,4], data=0}\n"
    "  %%i = iota {dtype=i64, shape=[5], axis=0}\n"
    "  %%seed = constant {dtype=i64, shape=[], data=7}\n"
    "  %%t = transpose(%%x) {perm=[1,0,2]}\n"
    "  %%h, %%all = repeat(%%h0, %%t, %%i, %%w, %%u, %%seed) {trip=5, carried=1, scanned=2, "
    "body=graph {\n"
    "    %%h \"0\" = input {dtype=f32, shape=[%d,4], batch_axis=-1}\n"
    "    %%x \"6\" = input {dtype=f32, shape=[%d,3], batch_axis=-1}\n"
    "    %%i i = input {dtype=i64, shape=[], batch_axis=-1}\n"
    "    %%w w = input {dtype=f32, shape=[3,4], batch_axis=-1}\n"
    "    %%xw = matmul(%%x, %%w)\n"
    "    %%u u = input {dtype=f32, shape=[4,4], batch_axis=-1}\n"
    "    %%s s = input {dtype=i64, shape=[], batch_axis=-1}\n"
    "    %%hu = matmul(%%h, %%u)\n    %%p = add(%%xw, %%hu)\n    %%q = tanh(%%p)\n"
    "    %%d = dropout(%%q, %%s, %%s, %%i) {p=0.25, id=3}\n"
    "    output h = %%d\n    output all = %%d\n  }}\n"
    "  %%y = dropout(%%all, %%seed, %%seed) {p=0.5, id=4}\n"
    "  %%z = transpose(%%y) {perm=[1,0,2]}\n  %%sq = square(%%z)\n"
    "  %%l = reduce_mean(%%sq) {axes=[0,1,2]}\n"
    "  output \"loss\" = %%l\n}\n";

static ir_graph_t *dropped_of(int batch, bool outer) {
    char text[4096], drop[64] = "";
    ir_graph_t *graph;
    snprintf(text, sizeof text, dropped, batch, batch, batch, batch);
    char *at = strstr(text, "%y = dropout(%all, %seed, %seed) {p=0.5, id=4}");
    snprintf(drop, sizeof drop, "%%y = abs(%%all)");
    if (!outer) {
        memset(at, ' ', strlen("%y = dropout(%all, %seed, %seed) {p=0.5, id=4}"));
        memcpy(at, drop, strlen(drop));
    }
    if (ir_graph_parse(text, strlen(text), &graph) != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}

static void masks_of_inner_loops_are_those_of_the_whole_batch(void **state) {
    (void)state;
    ir_graph_t *whole = accumulated(dropped_of(6, false), "sgd", 1);
    for (int64_t k = 2; k <= 3; k++) {
        ir_graph_t *parts = accumulated(dropped_of((int)(6 / k), false), "sgd", k);
        for (uint32_t ranks = 1; ranks <= 2; ranks++)
            assert_same_steps(whole, parts, (compile_options_t){.dtype = IR_F64, .n_ranks = ranks},
                              1e-12, "masks");
        assert_same_steps(
            whole, parts,
            (compile_options_t){.dtype = IR_F64, .n_ranks = 2, .form = SHARD_FORM_ZERO2}, 1e-12,
            "masks where gradients are scattered");
        ir_graph_destroy(parts);
    }
    ir_graph_destroy(whole);
}

/* Batch norm of each micro-batch: statistics go from one to the next. What the loop is written out
 * as is the oracle; ranks meet for the statistics, so that they write it out, too. */
static void statistics_of_micro_batches_go_round(void **state) {
    (void)state;
    ir_graph_t *step = accumulated(model_conv(4), "sgd", 3), *flat = written_out(step);
    for (uint32_t ranks = 1; ranks <= 4; ranks++) {
        plan_t *plan = compile_ok(step, &(compile_options_t){.n_ranks = ranks});
        const ir_graph_t *graph = plan->programs[0].graph;
        size_t n_reduces = 0;
        for (size_t i = 0; i < graph->nodes.n; i++) {
            n_reduces += graph->nodes.data[i].op == IR_OP_ALL_REDUCE_START;
            assert_int_not_equal(graph->nodes.data[i].op, IR_OP_ALL_GATHER_START);
        }
        assert_int_equal(count_regions(&plan->programs[0]), ranks == 1);
        assert_int_equal(n_reduces > 0, ranks > 1);
        plan_destroy(plan);
        assert_same_steps(flat, step, (compile_options_t){.dtype = IR_F64, .n_ranks = ranks}, 1e-10,
                          "running statistics");
    }
    assert_same_steps(flat, step,
                      (compile_options_t){.dtype = IR_F64, .n_ranks = 3, .form = SHARD_FORM_ZERO2},
                      1e-10, "running statistics where gradients are scattered");
    ir_graph_destroy(step);
    ir_graph_destroy(flat);
}

/* Nested ones, forward and backward: a body is planned once, however often it runs. */
static void loops_stay_loops_for_gpus(void **state) {
    (void)state;
    for (size_t t = 0; t < 2; t++) {
        ir_graph_t *forward = parse(texts[t], true), *step = model_train(forward, "sgd", 0);
        plan_t *gpu = compile_ok(
            step, &(compile_options_t){.target = "h200", .device = "null", .no_fusion = true});
        plan_t *cpu = compile_ok(step, &(compile_options_t){.no_fusion = true});
        assert_true(count_regions(&gpu->programs[0]) > 0);
        assert_int_equal(count_regions(&gpu->programs[0]), count_regions(&cpu->programs[0]));
        plan_destroy(gpu);
        plan_destroy(cpu);
        ir_graph_destroy(step);
        ir_graph_destroy(forward);
    }
}

/* Under bf16 what is around a loop is rounded, and the loop goes on in f32. */
static void small_floats_stop_at_loops(void **state) {
    (void)state;
    ir_graph_t *forward = parse(recurrent, false), *step = model_train(forward, "sgd", 0);
    double *full, *small;
    plan_t *plan = compile_ok(step, &(compile_options_t){0});
    size_t n = run_plan(plan, 2, &full);
    plan_destroy(plan);
    plan = compile_ok(step, &(compile_options_t){.dtype = IR_BF16, .n_ranks = 2});
    assert_int_equal(run_plan(plan, 2, &small), n);
    assert_close(n, full, small, 0.02, "bf16");
    st_free(full);
    st_free(small);
    plan_destroy(plan);
    ir_graph_destroy(step);
    ir_graph_destroy(forward);
}

static plan_step_t *first_region(plan_t *plan) {
    plan_program_t *program = &plan->programs[0];
    for (size_t i = 0; i < program->graph->nodes.n; i++)
        if (program->steps[i].kind == PLAN_STEP_REGION) return &program->steps[i];
    fail_msg("there is no region");
    return NULL;
}

static void broken_bodies_are_refused(void **state) {
    (void)state;
    ir_graph_t *forward = parse(recurrent, false), *other = parse(nested, false);
    plan_t *plan = compile_ok(forward, &(compile_options_t){.no_fusion = true});
    plan_t *wrong = compile_ok(other, &(compile_options_t){.no_fusion = true});
    plan_step_t *step = first_region(plan);
    plan_program_t *body = &step->bodies[0];
    assert_int_equal(plan_check(plan), ST_OK);
    /* the workspace is smaller than what the body works in */
    body->region_bytes[PLAN_WORK] += 64;
    assert_int_not_equal(plan_check(plan), ST_OK);
    body->region_bytes[PLAN_WORK] -= 64;
    /* two live values of the body on one place */
    ir_value_t made[2] = {IR_NONE, IR_NONE};
    for (ir_value_t v = 0, n = 0; v < body->graph->values.n && n < 2; v++)
        if (ir_value_producer(body->graph, v)->op == IR_OP_MATMUL) made[n++] = v;
    plan_place_t place = body->places[made[1]];
    body->places[made[1]] = body->places[made[0]];
    assert_int_not_equal(plan_check(plan), ST_OK);
    assert_non_null(strstr(st_last_error(), "body 0"));
    body->places[made[1]] = place;
    assert_int_equal(plan_check(plan), ST_OK);
    /* the program of another body */
    plan_program_t mine = *body;
    *body = first_region(wrong)->bodies[0];
    assert_int_not_equal(plan_check(plan), ST_OK);
    assert_non_null(strstr(st_last_error(), "does not compute the body"));
    *body = mine;
    /* no body at all */
    step->n_bodies = 0;
    assert_int_not_equal(plan_check(plan), ST_OK);
    step->n_bodies = 1;
    assert_int_equal(plan_check(plan), ST_OK);
    plan_destroy(plan);
    plan_destroy(wrong);
    ir_graph_destroy(forward);
    ir_graph_destroy(other);
}

static void text_shows_bodies(void **state) {
    (void)state;
    ir_graph_t *forward = parse(recurrent, false);
    plan_t *plan = compile_ok(forward, &(compile_options_t){0});
    char *text;
    assert_int_equal(plan_print(plan, &text), ST_OK);
    assert_non_null(strstr(text, "region repeat"));
    assert_non_null(strstr(text, "body 0: work "));
    assert_non_null(strstr(text, "dropout"));
    assert_non_null(strstr(text, "cpu.fused.")); /* bodies are fused too */
    st_free(text);
    plan_destroy(plan);
    ir_graph_destroy(forward);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_equals_the_written_out_graph),
        cmocka_unit_test(loops_run_in_parts),
        cmocka_unit_test(micro_batches_run_in_a_loop),
        cmocka_unit_test(masks_of_inner_loops_are_those_of_the_whole_batch),
        cmocka_unit_test(statistics_of_micro_batches_go_round),
        cmocka_unit_test(loops_stay_loops_for_gpus),
        cmocka_unit_test(small_floats_stop_at_loops),
        cmocka_unit_test(broken_bodies_are_refused),
        cmocka_unit_test(text_shows_bodies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
