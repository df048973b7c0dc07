/* Fusion under real targets: only what a kernel of the target runs is fused, and a nest costs the
 * same whoever asks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "compile/compile.h"
#include "compile/predict.h"
#include "fusion/fuse.h"
#include "ir/build.h"
#include "ir/text.h"

static plan_t *plan_of(const char *text, const compile_options_t *options) {
    ir_graph_t *graph;
    plan_t *plan;
    if (ir_graph_parse(text, strlen(text), &graph) != ST_OK) fail_msg("%s", st_last_error());
    if (compile_plan(graph, options, &plan) != ST_OK) fail_msg("%s", st_last_error());
    ir_graph_destroy(graph);
    return plan;
}

/* The description of the H200 with nests of single ops only, as a file. */
static void write_without_fused(const char *path) {
    const target_builtin_t *b = target_builtins;
    while (strcmp(b->name, "h200") != 0) b++;
    char *text = st_malloc(b->bytes + 1);
    assert_non_null(text);
    memcpy(text, b->text, b->bytes);
    text[b->bytes] = '\0';
    char *fused = strstr(text, "ops fused ");
    assert_non_null(fused);
    memcpy(fused, "ops exp   ", 10);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, b->bytes, file), b->bytes);
    assert_int_equal(fclose(file), 0);
    st_free(text);
}

/* A legal nest that no kernel of the target runs is not fused, and the target's reason is told.
 * Compiling ended with "no kernel on h200 for fused" where a softmax's rows met sums across
 * them. */
static void only_what_the_target_runs_is_fused(void **state) {
    (void)state;
    static const char text[] =
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[64,32,16]}\n"
        "  %1 = softmax(%0) {axis=2}\n"
        "  %2 = reduce_sum(%1) {axes=[1]}\n"
        "  output \"y\" = %2\n"
        "}\n";
    static const char *const targets[] = {"./single.target", "h200", "a100", "cpu"};
    write_without_fused(targets[0]);
    for (size_t i = 0; i < 4; i++) {
        compile_options_t options = {.target = targets[i], .explain = true};
        plan_t *plan = plan_of(text, &options);
        uint32_t n = 0;
        for (uint32_t b = 0; b < plan->fusion->n_boundaries; b++)
            n += strstr(plan->fusion->boundaries[b].reason, "no kernel on h200 for fused") != NULL;
        if (i == 0) assert_true(n == 1 && plan->fusion->n_rows == 0);
        plan_destroy(plan);
    }
    assert_int_equal(remove(targets[0]), 0);
}

/* On a processor batch norm's gradient has loops that nests do not reach (bench/NOTES.md): the sums
 * that it hands on are not worth giving them up. */
static void composites_keep_their_kernels_on_cpu(void **state) {
    (void)state;
    static const char text[] =
        "graph \"g\" {\n"
        "  %x x = input {dtype=f32, shape=[64,16,28,28]}\n"
        "  %dy dy = input {dtype=f32, shape=[64,16,28,28]}\n"
        "  %mean mean = parameter {dtype=f32, shape=[16]}\n"
        "  %rstd rstd = parameter {dtype=f32, shape=[16]}\n"
        "  %k k = parameter {dtype=f32, shape=[16]}\n"
        "  %db, %dk = batch_norm_grad_sums(%dy, %x, %mean, %rstd)\n"
        "  %dx = batch_norm_grad_apply(%dy, %x, %mean, %rstd, %k, %db, %dk) {count=50176}\n"
        "  output \"dx\" = %dx\n"
        "}\n";
    compile_options_t options = {0};
    plan_t *plan = plan_of(text, &options);
    const ir_graph_t *graph = plan->programs[0].graph;
    uint32_t n_own = 0;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        ir_op_t op = ir_node(graph, n)->op;
        n_own += op == IR_OP_BATCH_NORM_GRAD_SUMS || op == IR_OP_BATCH_NORM_GRAD_APPLY;
    }
    assert_int_equal(n_own, 2);
    plan_destroy(plan);
}

/* A report costs time, and is made only when asked for; what is fused is the same. */
static void explains_when_asked(void **state) {
    (void)state;
    static const char text[] =
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[64,32]}\n"
        "  %1 = relu(%0)\n"
        "  %2 = exp(%1)\n"
        "  output \"y\" = %2\n"
        "}\n";
    char *texts[2];
    for (int i = 0; i < 2; i++) {
        compile_options_t options = {.target = "h200", .explain = i == 1};
        plan_t *plan = plan_of(text, &options);
        assert_int_equal(plan->fusion != NULL, i == 1);
        assert_int_equal(plan_print(plan, &texts[i]), ST_OK);
        plan_destroy(plan);
    }
    assert_string_equal(texts[0], texts[1]);
    for (int i = 0; i < 2; i++) st_free(texts[i]);
}

/* The one fused node of the plan's program. */
static ir_node_t fused_node(const plan_t *plan) {
    const ir_graph_t *graph = plan->programs[0].graph;
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (ir_node(graph, n)->op == IR_OP_FUSED) return n;
    fail_msg("nothing is fused");
    return IR_NONE;
}

/* Rows that no cache of a core holds are read once for their largest element and the sum of
 * exponentials together, and once for the quotients; what was decided by is what is reported. */
static void passes_count_for_all(void **state) {
    (void)state;
    static const char text[] =
        "graph \"g\" {\n"
        "  %0 x = input {dtype=f32, shape=[64,1048576]}\n"
        "  %1 = relu(%0)\n"
        "  %2 = softmax(%1) {axis=1}\n"
        "  output \"y\" = %2\n"
        "}\n";
    compile_options_t options = {.target = "h200", .explain = true};
    plan_t *plan = plan_of(text, &options);
    target_t *target;
    ir_target_t ask = {0};
    ir_cost_t cost, steps[8];
    ir_node_t n = fused_node(plan);
    assert_int_equal(predict_target(plan, &target), ST_OK);
    target_fill(target, &ask);
    assert_int_equal(ir_target_cost(&ask, plan->programs[0].graph, n, &cost), ST_OK);
    assert_true(plan->programs[0].graph->nodes.n <= 8);
    assert_int_equal(predict_steps(plan, target, 0, steps), ST_OK);
    double bytes = 64.0 * 1048576 * 4;
    assert_true(cost.bytes_read == 2 * bytes && steps[n].bytes_read == cost.bytes_read);
    assert_true(cost.bytes_written == bytes);
    assert_int_equal(plan->fusion->n_rows, 1);
    assert_true(fabs(plan->fusion->rows[0].us - cost.us) < 1e-9 * cost.us);
    /* Rows that exceed a block: one launch goes through them for the largest element, one for the
     * sum, one for the quotients, so that more is read than was judged. Launches and parts take 30
     * us at most. */
    assert_true(steps[n].us > 4 * bytes / 4.2e6 && steps[n].us < 4 * bytes / 3.5e6 + 30);
    assert_true(steps[n].us > cost.us);
    target_destroy(target);
    plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_the_target_runs_is_fused),
        cmocka_unit_test(composites_keep_their_kernels_on_cpu),
        cmocka_unit_test(explains_when_asked),
        cmocka_unit_test(passes_count_for_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
