/* Attention of random shapes, order, window and offset, its sequence in parts: a step of
 * training comes to what one rank comes to, in float64, with keys gathered or going round. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/memory.h"
#include "exec/models.h"
#include "ir/build.h"

enum { CASES = 40 };

static int64_t draw(uint64_t *state, int64_t n) {
    *state = st_hash64(state, sizeof *state, 1);
    return (int64_t)(*state % (uint64_t)n);
}

/* Few rows and many ranks: parts are uneven, and some empty. */
static ir_graph_t *attending(uint64_t *state, char *text, size_t capacity) {
    static const int64_t some_rows[] = {2, 3, 5, 8, 13};
    const int64_t b = 1 + draw(state, 2), g = 1 + draw(state, 2), h = g * (1 + draw(state, 3));
    const int64_t rows = some_rows[draw(state, 5)];
    const int64_t keys = draw(state, 2) ? rows : some_rows[draw(state, 5)];
    const int64_t d = 1 + draw(state, 5), e = 1 + draw(state, 5);
    const bool first = draw(state, 2), causal = draw(state, 5) < 3;
    const int64_t window = draw(state, 2) ? 1 + draw(state, 6) : 0;
    const int64_t offset = draw(state, 5) < 2 ? draw(state, 16) - 6 : 0;
    const int64_t dims[3][4] = {{b, first ? rows : h, first ? h : rows, d},
                                {b, first ? keys : g, first ? g : keys, d},
                                {b, first ? keys : g, first ? g : keys, e}};
    static const char *const names[3] = {"q", "k", "v"};
    ir_graph_t *graph, *step;
    snprintf(
        text, capacity,
        "%d heads over %d, %d queries, %d keys, causal %d, window %d, offset %d, rows first %d",
        (int)h, (int)g, (int)rows, (int)keys, causal, (int)window, (int)offset, first);
    assert_int_equal(ir_graph_create("attending", &graph), ST_OK);
    ir_build_t build = {.graph = graph};
    ir_value_t in[3];
    for (int j = 0; j < 3; j++)
        in[j] = ir_b_parameter(&build, names[j], ir_type_make(IR_F64, 4, dims[j]));
    ir_value_t o =
        ir_b_node(&build, IR_OP_ATTENTION, 3, in, 4,
                  (ir_arg_t[]){IR_ARG_BOOL("causal", causal), IR_ARG_INT("window", window),
                               IR_ARG_INT("offset", offset), IR_ARG_BOOL("rows_first", first)});
    o = ir_b_unary(&build, IR_OP_SQUARE, o);
    ir_b_output(&build, "loss", ir_b_reduce(&build, IR_OP_REDUCE_SUM, o, 0, NULL, false));
    assert_int_equal(build.status, ST_OK);
    step = model_train(graph, "sgd", 0);
    ir_graph_destroy(graph);
    return step;
}

static size_t run_on(const ir_graph_t *step, const char *mesh, shard_context_t how,
                     double **out_values) {
    compile_options_t options = {.context_attention = how, .n_threads = 1};
    assert_int_equal(ir_mesh_parse(mesh, &options.mesh), ST_OK);
    plan_t *plan = compile_ok(step, &options);
    const size_t n = run_plan(plan, 2, out_values);
    plan_destroy(plan);
    return n;
}

static void parts_come_to_what_the_whole_comes_to(void **state_) {
    static const int ranks[] = {2, 3, 4, 5, 7};
    uint64_t state = 1;
    (void)state_;
    for (int i = 0; i < CASES; i++) {
        char text[160], what[224], mesh[16];
        double *one, *many;
        ir_graph_t *step = attending(&state, text, sizeof text);
        const size_t n = run_on(step, "data=1", SHARD_CONTEXT_GATHER, &one);
        for (int k = 0; k < 10; k++) {
            const shard_context_t how = k % 2 ? SHARD_CONTEXT_RING : SHARD_CONTEXT_GATHER;
            snprintf(mesh, sizeof mesh, "context=%d", ranks[k / 2]);
            snprintf(what, sizeof what, "%s, %s, on %s", text, k % 2 ? "ring" : "gather", mesh);
            assert_int_equal(run_on(step, mesh, how, &many), n);
            assert_close(n, one, many, 1e-12, what);
            st_free(many);
        }
        st_free(one);
        ir_graph_destroy(step);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_come_to_what_the_whole_comes_to)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
