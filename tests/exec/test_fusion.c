/* Fused and unfused plans compute the same, on any number of ranks; what fusion leaves of the
 * launches; updates that stay in place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "exec/models.h"
#include "fusion/fuse.h"
#include "ir/text.h"

static uint32_t n_kernels(const plan_t *plan) {
    uint32_t n = 0;
    for (ir_node_t i = 0; i < plan->programs[0].graph->nodes.n; i++)
        n += plan->programs[0].steps[i].kind == PLAN_STEP_KERNEL;
    return n;
}

static uint32_t n_copies(const plan_t *plan) {
    uint32_t n = 0;
    for (ir_node_t i = 0; i < plan->programs[0].graph->nodes.n; i++)
        n += plan->programs[0].steps[i].kind == PLAN_STEP_COPY;
    return n;
}

typedef struct counts {
    uint32_t fused, apart;               /* kernels */
    uint32_t copies_fused, copies_apart; /* updates that are not in place */
} counts_t;

/* Runs both; adds to the counts. */
static void compare(const ir_graph_t *graph, compile_options_t options, int n_steps,
                    double tolerance, const char *what, counts_t *out) {
    double *fused, *apart;
    options.explain = true;
    plan_t *with = compile_ok(graph, &options);
    options.no_fusion = true;
    plan_t *without = compile_ok(graph, &options);
    size_t n = run_plan(with, n_steps, &fused), m = run_plan(without, n_steps, &apart);
    assert_int_equal(n, m);
    assert_close(n, apart, fused, tolerance, what);
    assert_non_null(with->fusion);
    assert_null(without->fusion);
    out->copies_fused += n_copies(with);
    out->copies_apart += n_copies(without);
    out->fused += n_kernels(with);
    out->apart += n_kernels(without);
    st_free(fused);
    st_free(apart);
    plan_destroy(with);
    plan_destroy(without);
}

static void random_graphs_compute_the_same(void **state) {
    (void)state;
    counts_t counts = {0};
    for (unsigned seed = 500; seed < 620; seed++) {
        char what[64];
        ir_graph_t *graph = model_random(seed, 3 + seed % 4, 5 + (int)(seed % 60));
        compile_options_t options = {
            .n_ranks = 1 + seed % 4, .n_threads = 1 + seed % 2, .dtype = IR_F64};
        snprintf(what, sizeof what, "random graph %u", seed);
        compare(graph, options, 2, 1e-10, what, &counts);
        ir_graph_destroy(graph);
    }
    print_message("%u kernels fused, %u apart; %u copies, %u apart\n", counts.fused, counts.apart,
                  counts.copies_fused, counts.copies_apart);
    assert_true(counts.fused < counts.apart);
    assert_true(counts.copies_fused * 10 <= counts.copies_apart * 11);
}

/* A processor whose launches take long, so that all that can be fused is. */
static const char slow_launches[] =
    "target slow\ndevice cpu\ncores 2\nclock_ghz 2\nmemory 0\ncaches 32KiB 1MiB 0\n"
    "memory_gbps 20\nlaunch_us 50\nlink_us 5\nlink_gbps 10\nbandwidth 1MiB 50\n"
    "passes f32 10\nproducts f32 50\n";

/* n is stored in a first phase, a after the sum, for which relu(x) is computed again: n must not
 * have taken the memory of x. */
static void phases_keep_their_operands(void **state) {
    (void)state;
    static const char text[] =
        "graph \"phases\" {\n"
        "  %0 u = input {dtype=f32, shape=[40,8], batch_axis=-1}\n"
        "  %1 v = input {dtype=f32, shape=[8,25], batch_axis=-1}\n"
        "  %2 y = input {dtype=f32, shape=[777], batch_axis=-1}\n"
        "  %3 = matmul(%0, %1)\n"
        "  %4 = relu(%3)\n"
        "  %5 = exp(%4)\n"
        "  %6 = reduce_sum(%2) {axes=[0]}\n"
        "  %7 = mul(%4, %6)\n"
        "  output \"n\" = %5\n"
        "  output \"a\" = %7\n"
        "}\n";
    ir_graph_t *graph = NULL;
    counts_t counts = {0};
    if (ir_graph_parse(text, strlen(text), &graph) != ST_OK) fail_msg("%s", st_last_error());
    static const char target[] = "./slow_launches.target";
    FILE *file = fopen(target, "w");
    assert_non_null(file);
    assert_true(fputs(slow_launches, file) >= 0);
    assert_int_equal(fclose(file), 0);
    for (int f64 = 0; f64 < 2; f64++) {
        compile_options_t options = {
            .target = target, .n_ranks = 1, .dtype = f64 ? IR_F64 : IR_DTYPE_NONE};
        compare(graph, options, 1, f64 ? 1e-12 : 1e-5, "phases", &counts);
    }
    assert_int_equal(remove(target), 0);
    assert_int_equal(counts.fused, 2 * 2); /* the product, and all else */
    ir_graph_destroy(graph);
}

static void training_steps_compute_the_same(void **state) {
    (void)state;
    ir_graph_t *forward[] = {model_mlp(12), model_conv(8)};
    for (int m = 0; m < 2; m++) {
        static const char *const optimizers[] = {"adamw", "sgd"};
        for (int o = 0; o < 2; o++) {
            ir_graph_t *step = model_train(forward[m], optimizers[o], o ? 0 : 0.5);
            for (uint32_t n_ranks = 1; n_ranks <= 3; n_ranks++) {
                char what[64];
                counts_t counts = {0};
                compile_options_t options = {.n_ranks = n_ranks, .dtype = IR_F64};
                snprintf(what, sizeof what, "model %d, %s, %u ranks, f64", m, optimizers[o],
                         n_ranks);
                compare(step, options, 3, 1e-9, what, &counts);
                assert_true(counts.fused * 4 < counts.apart * 3);
                options.dtype = IR_DTYPE_NONE;
                snprintf(what, sizeof what, "model %d, %s, %u ranks, f32", m, optimizers[o],
                         n_ranks);
                compare(step, options, 3, 2e-3, what, &counts);
                options.reference_kernels = true; /* bodies node by node, in place too */
                compare(step, options, 3, 2e-3, what, &counts);
                assert_true(counts.copies_fused <= counts.copies_apart);
            }
            ir_graph_destroy(step);
        }
        ir_graph_destroy(forward[m]);
    }
}

/* ---- definitions ---- */

static void compare_primitives(const ir_graph_t *graph, uint32_t n_ranks, const char *what) {
    double *kernels, *primitives;
    compile_options_t options = {.n_ranks = n_ranks, .dtype = IR_F64, .no_fusion = true};
    plan_t *plan = compile_ok(graph, &options);
    size_t n = run_plan(plan, 2, &kernels);
    uint32_t n_composite = n_kernels(plan);
    plan_destroy(plan);
    options.primitives = true;
    plan = compile_ok(graph, &options);
    assert_int_equal(run_plan(plan, 2, &primitives), n);
    assert_true(n_kernels(plan) > n_composite);
    assert_close(n, kernels, primitives, 1e-9, what);
    plan_destroy(plan);
    st_free(kernels);
    st_free(primitives);
}

static void training_steps_are_the_same_in_primitives(void **state) {
    (void)state;
    ir_graph_t *forward[] = {model_mlp(12), model_conv(8)};
    for (int m = 0; m < 2; m++) {
        ir_graph_t *step = model_train(forward[m], m ? "sgd" : "adamw", 0.5);
        for (uint32_t n_ranks = 1; n_ranks <= 3; n_ranks++)
            compare_primitives(step, n_ranks, m ? "conv in primitives" : "mlp in primitives");
        ir_graph_destroy(step);
        ir_graph_destroy(forward[m]);
    }
}

/* Some ranks have more of the batch than others, some nothing. */
static void empty_parts_are_the_same_in_primitives(void **state) {
    (void)state;
    ir_graph_t *forward[] = {model_mlp(4), model_conv(3)};
    for (int m = 0; m < 2; m++) {
        ir_graph_t *step = model_train(forward[m], "adamw", 0.5);
        compare_primitives(step, 8, m ? "conv on 8 ranks" : "mlp on 8 ranks");
        ir_graph_destroy(step);
        ir_graph_destroy(forward[m]);
    }
}

/* Grouped heads, all kinds of masks, and rows that see no key. */
static void attention_and_rope_are_the_same_in_primitives(void **state) {
    (void)state;
    static const struct {
        const char *mask, *operand, *attrs;
    } cases[] = {
        {"", "", "causal=true"},
        {"", "", "window=2, scale=0.3"},
        {"", "", "causal=true, window=3"},
        {"%6 mask = input {dtype=f32, shape=[3,1,5,6]}\n", ", %6", "causal=true"},
        /* keys 1 and 4 are hidden, and row 2 sees none */
        {"%6 mask = constant {dtype=bool, shape=[5,6], "
         "data=[true,false,true,true,false,true,true,false,true,true,false,true,false,false,false,"
         "false,false,false,true,false,true,true,false,true,true,false,true,true,false,true]}\n",
         ", %6", "scale=2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[2048];
        snprintf(text, sizeof text,
                 "graph \"attention\" {\n"
                 "  %%0 q = input {dtype=f32, shape=[3,4,5,8]}\n"
                 "  %%1 k = input {dtype=f32, shape=[3,2,6,8]}\n"
                 "  %%2 v = input {dtype=f32, shape=[3,2,6,4]}\n"
                 "  %%3 dy = input {dtype=f32, shape=[3,4,5,4]}\n"
                 "  %%4 cos = input {dtype=f32, shape=[5,4], batch_axis=-1}\n"
                 "  %%5 sin = input {dtype=f32, shape=[5,4], batch_axis=-1}\n"
                 "  %s%s"
                 "  %%7 = rope(%%0, %%4, %%5) {interleaved=%s}\n"
                 "  %%8, %%9 = attention(%%7, %%1, %%2%s) {%s}\n"
                 "  %%10, %%11, %%12 = attention_grad(%%3, %%7, %%1, %%2, %%8, %%9%s) {%s}\n"
                 "  %%13 = rope(%%10, %%4, %%5) {interleaved=%s, inverse=true}\n"
                 "  output \"o\" = %%8\n"
                 "  output \"dq\" = %%13\n"
                 "  output \"dk\" = %%11\n"
                 "  output \"dv\" = %%12\n"
                 "}\n",
                 cases[i].mask[0] ? "" : "%6 none = constant {dtype=f32, shape=[], data=0}\n",
                 cases[i].mask, i % 2 ? "true" : "false", cases[i].operand, cases[i].attrs,
                 cases[i].operand, cases[i].attrs, i % 2 ? "true" : "false");
        ir_graph_t *graph = NULL;
        if (ir_graph_parse(text, strlen(text), &graph) != ST_OK) fail_msg("%s", st_last_error());
        for (uint32_t n_ranks = 1; n_ranks <= 2; n_ranks++)
            compare_primitives(graph, n_ranks, cases[i].attrs);
        ir_graph_destroy(graph);
    }
}

/* Parameters and moments are written where they stand. */
static void optimizer_updates_stay_in_place(void **state) {
    (void)state;
    ir_graph_t *forward = model_mlp(12);
    ir_graph_t *step = model_train(forward, "adamw", 1.0);
    compile_options_t options = {.n_ranks = 1};
    plan_t *plan = compile_ok(step, &options);
    const plan_program_t *program = &plan->programs[0];
    uint32_t n_updates = 0;
    for (ir_node_t n = 0; n < program->graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(program->graph, n);
        if (node->op != IR_OP_UPDATE) continue;
        n_updates++;
        assert_int_equal(program->steps[n].kind, PLAN_STEP_NOTHING);
        assert_int_equal(program->places[node->inputs[0]].storage,
                         program->places[node->inputs[1]].storage);
    }
    assert_int_equal(n_updates, 3 * 4 + 1);
    plan_destroy(plan);
    ir_graph_destroy(step);
    ir_graph_destroy(forward);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_compute_the_same),
        cmocka_unit_test(phases_keep_their_operands),
        cmocka_unit_test(training_steps_compute_the_same),
        cmocka_unit_test(training_steps_are_the_same_in_primitives),
        cmocka_unit_test(empty_parts_are_the_same_in_primitives),
        cmocka_unit_test(attention_and_rope_are_the_same_in_primitives),
        cmocka_unit_test(optimizer_updates_stay_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
