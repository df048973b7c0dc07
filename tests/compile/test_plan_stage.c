/* Room for collectives whose parts lie apart (plan_stage.h): there on GPUs only, in use until the
 * wait, and proved. */
#include "compile/plan_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "autodiff/train_graph.h"
#include "base/memory.h"
#include "compile/compile.h"
#include "ir/build.h"
#include "support/scratch.h"

enum { BATCH = 4, ROWS = 8, WIDTH = 64, INNER = 128 };

/* Two products whose inner dim tensor parallel splits: rows of [batch, rows, width] are gathered
 * along dim 1. */
static plan_t *plan_of(const char *target) {
    ir_graph_t *forward, *step;
    ad_train_options_t train;
    plan_t *plan = NULL;
    ir_build_t b;
    assert_ok(ir_graph_create("stages", &forward));
    b = (ir_build_t){.graph = forward};
    const int64_t dims[3] = {BATCH, ROWS, WIDTH}, up[2] = {WIDTH, INNER}, down[2] = {INNER, WIDTH};
    ir_value_t x = ir_b_input(&b, "x", ir_type_make(IR_F32, 3, dims), 0);
    for (int i = 0; i < 2; i++) {
        ir_value_t w1 = ir_b_parameter(&b, i ? "c" : "a", ir_type_make(IR_F32, 2, up));
        ir_value_t w2 = ir_b_parameter(&b, i ? "d" : "b", ir_type_make(IR_F32, 2, down));
        ir_value_t y = ir_b_unary(&b, IR_OP_RELU, ir_b_matmul(&b, x, w1, false, false));
        x = ir_b_binary(&b, IR_OP_ADD, x, ir_b_matmul(&b, y, w2, false, false));
    }
    x = ir_b_unary(&b, IR_OP_SQUARE, x);
    ir_b_output(&b, "loss", ir_b_reduce(&b, IR_OP_REDUCE_MEAN, x, 0, NULL, false));
    assert_ok(b.status);
    assert_ok(ad_train_defaults("sgd", &train));
    assert_ok(ad_train_graph(forward, &train, &step));
    compile_options_t options = {.target = target};
    assert_ok(ir_mesh_parse("tensor=2", &options.mesh));
    assert_ok(compile_plan(step, &options, &plan));
    ir_graph_destroy(forward);
    ir_graph_destroy(step);
    return plan;
}

/* The first start with a stage after which another node works before the wait; IR_NONE: there is
 * none. */
static ir_node_t staged_start(const plan_program_t *program, ir_node_t *out_between) {
    const ir_graph_t *graph = program->graph;
    ir_node_t *ends = st_calloc(graph->nodes.n, sizeof *ends), found = IR_NONE;
    assert_non_null(ends);
    plan_workspace_ends(graph, ends);
    for (ir_node_t n = 0; n < graph->nodes.n && found == IR_NONE; n++) {
        if (program->steps[n].kind != PLAN_STEP_START || !program->steps[n].workspace.bytes)
            continue;
        for (ir_node_t k = n + 1; k < ends[n] && found == IR_NONE; k++)
            if (program->steps[k].kind == PLAN_STEP_KERNEL &&
                program->places[ir_node(graph, k)->first_output].region == PLAN_WORK) {
                found = n;
                *out_between = k;
            }
    }
    st_free(ends);
    return found;
}

static void gpus_have_room_for_parts_that_lie_apart(void **state) {
    (void)state;
    plan_t *gpu = plan_of("h200"), *cpu = plan_of("cpu");
    uint32_t n_staged = 0;
    for (int on_gpu = 0; on_gpu < 2; on_gpu++) {
        const plan_program_t *program = (on_gpu ? gpu : cpu)->programs;
        for (ir_node_t n = 0; n < program->graph->nodes.n; n++) {
            if (program->steps[n].kind != PLAN_STEP_START) continue;
            const uint64_t bytes = plan_stage_bytes(program->graph, n);
            assert_int_equal(program->steps[n].workspace.bytes, on_gpu ? bytes : 0);
            if (!bytes || !on_gpu) continue;
            /* the whole [batch, rows, width], of all ranks */
            assert_true(bytes >= BATCH * ROWS * WIDTH * sizeof(float));
            n_staged++;
        }
    }
    assert_true(n_staged > 0);
    plan_destroy(gpu);
    plan_destroy(cpu);
}

static void nothing_may_write_there_until_the_wait(void **state) {
    (void)state;
    plan_t *plan = plan_of("h200");
    plan_program_t *program = plan->programs;
    ir_node_t between = IR_NONE, start = staged_start(program, &between);
    assert_ok(plan_check(plan));
    assert_true(start != IR_NONE);
    plan_place_t *out = &program->places[ir_node(program->graph, between)->first_output];
    const plan_place_t healthy = *out;
    out->offset = program->steps[start].workspace.offset;
    if (out->bytes <= program->steps[start].workspace.bytes)
        assert_fails(plan_check(plan), ST_INVALID, "which is in flight");
    else
        assert_int_not_equal(plan_check(plan), ST_OK);
    *out = healthy;
    assert_ok(plan_check(plan));
    plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_have_room_for_parts_that_lie_apart),
        cmocka_unit_test(nothing_may_write_there_until_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
