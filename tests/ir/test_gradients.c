/* Gradient rules of the elementwise, shape and reduction ops against central differences of what
 * the ops mean, on the graph that the rules append. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/eval.h"
#include "ir/samples.h"

/* sum(weight * y), the weights being those of the output's gradient. */
static double weighted(const sampled_t *s, const double *weight) {
    double *y = eval_op(&s->ctx, (const double *const *)s->data), sum = 0;
    for (int64_t i = 0; i < ir_type_elements(&s->out); i++) sum += weight[i] * y[i];
    free(y);
    return sum;
}

/* Appends the gradient for inputs in `want`; din[j] are the values it gives. */
static void differentiate(sampled_t *s, const bool *want, ir_value_t *dout, ir_value_t *din) {
    const ir_op_def_t *def = ir_op_def(s->ctx.op);
    ir_build_t b = {.graph = s->graph};
    *dout = ir_b_parameter(&b, "dout", s->out);
    assert_int_equal(b.status, ST_OK);
    if (def->gradient(s->graph, s->node, dout, want, din) != ST_OK) fail_msg("%s", st_last_error());
    s->info = ir_node(s->graph, s->node);
}

static void check_input(const sampled_t *s, uint32_t j, const double *gradient,
                        const double *weight) {
    const double h = 1e-5;
    for (int64_t i = 0; i < ir_type_elements(&s->in[j]); i++) {
        double x = s->data[j][i];
        s->data[j][i] = x + h;
        double above = weighted(s, weight);
        s->data[j][i] = x - h;
        double below = weighted(s, weight);
        s->data[j][i] = x;
        double expected = (above - below) / (2 * h);
        bool close = fabs(gradient[i] - expected) <= 1e-6 * (1 + fabs(expected));
        if (!close)
            fail_msg("%s: input %u, element %lld: %.12g, %.12g expected",
                     ir_op_def(s->ctx.op)->name, j, (long long)i, gradient[i], expected);
    }
}

typedef struct tally {
    size_t n[IR_OP_END];
} tally_t;

static void visit(const sample_t *sample, void *user) {
    tally_t *tally = user;
    const ir_op_def_t *def = ir_op_def(sample->op);
    assert_true(!def->gradient != !def->no_gradient); /* one of them, never both */
    if (!def->gradient) return;
    sampled_t s;
    sampled_make(sample, &s);
    if (!ir_dtype_is_float(s.out.dtype)) {
        sampled_free(&s);
        return;
    }
    bool want[SAMPLE_INPUTS];
    ir_value_t dout, din[SAMPLE_INPUTS] = {IR_NONE, IR_NONE, IR_NONE};
    for (uint32_t j = 0; j < s.ctx.n_inputs; j++) want[j] = ir_dtype_is_float(s.in[j].dtype);
    differentiate(&s, want, &dout, din);

    int64_t n_out = ir_type_elements(&s.out);
    double *weight = calloc((size_t)n_out + 1, sizeof *weight);
    for (int64_t i = 0; i < n_out; i++) weight[i] = 0.3 + 0.1 * (double)(i % 7);
    const double **feeds = calloc(s.graph->values.n, sizeof *feeds);
    for (uint32_t j = 0; j < s.ctx.n_inputs; j++) feeds[s.info->inputs[j]] = s.data[j];
    feeds[dout] = weight;
    double **values = eval_graph(s.graph, feeds);
    for (uint32_t j = 0; j < s.ctx.n_inputs; j++) {
        if (!want[j]) {
            assert_int_equal(din[j], IR_NONE);
            continue;
        }
        assert_int_not_equal(din[j], IR_NONE);
        assert_true(ir_type_equal(ir_value_type(s.graph, din[j]), &s.in[j]));
        if (sample->op != IR_OP_CAST) check_input(&s, j, values[din[j]], weight);
        tally->n[sample->op]++;
    }
    eval_graph_free(s.graph, values);
    free(feeds);
    free(weight);
    sampled_free(&s);
}

static void rules_agree_with_differences(void **state) {
    (void)state;
    static tally_t tally;
    samples_each(visit, &tally);
    for (int op = IR_OP_NEG; op <= IR_OP_SUM_SQUARES; op++) {
        const ir_op_def_t *def = ir_op_def((ir_op_t)op);
        if (def && def->gradient && !tally.n[op]) fail_msg("%s was not differentiated", def->name);
    }
}

/* ---- where differences say nothing ---- */

/* Gradient of op(x, [y]) for one row of elements each, dout being ones. */
static void gradient_of(ir_op_t op, size_t n_args, const ir_arg_t *args, uint32_t n_inputs,
                        const double *x, const double *y, int64_t n, double *dx, double *dy) {
    sample_t sample = {.op = op, .n_inputs = n_inputs, .n_args = n_args};
    for (size_t a = 0; a < n_args; a++) sample.args[a] = args[a];
    for (uint32_t j = 0; j < n_inputs; j++) sample.in[j] = ir_type_make(IR_F64, 1, &n);
    sampled_t s;
    sampled_make(&sample, &s);
    ir_value_t dout, din[SAMPLE_INPUTS] = {IR_NONE, IR_NONE, IR_NONE};
    differentiate(&s, (bool[]){true, true, true}, &dout, din);
    const double **feeds = calloc(s.graph->values.n, sizeof *feeds);
    double *ones = calloc((size_t)n, sizeof *ones);
    for (int64_t i = 0; i < n; i++) ones[i] = 1;
    feeds[s.info->inputs[0]] = x;
    if (n_inputs > 1) feeds[s.info->inputs[1]] = y;
    feeds[dout] = ones;
    double **values = eval_graph(s.graph, feeds);
    memcpy(dx, values[din[0]], (size_t)n * sizeof *dx);
    if (n_inputs > 1) memcpy(dy, values[din[1]], (size_t)n * sizeof *dy);
    eval_graph_free(s.graph, values);
    free(feeds);
    free(ones);
    sampled_free(&s);
}

static void assert_row(const double *given, const double *expected, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(given[i] - expected[i]) <= 1e-12))
            fail_msg("element %lld is %g, %g expected", (long long)i, given[i], expected[i]);
}

static void ties_share_the_gradient(void **state) {
    (void)state;
    double dx[4], dy[4];
    const double x[] = {1, 2, 3, 3}, y[] = {1, 1, 4, 3};
    gradient_of(IR_OP_MAXIMUM, 0, NULL, 2, x, y, 4, dx, dy);
    assert_row(dx, (double[]){0.5, 1, 0, 0.5}, 4);
    assert_row(dy, (double[]){0.5, 0, 1, 0.5}, 4);
    gradient_of(IR_OP_MINIMUM, 0, NULL, 2, x, y, 4, dx, dy);
    assert_row(dx, (double[]){0.5, 0, 1, 0.5}, 4);
    assert_row(dy, (double[]){0.5, 1, 0, 0.5}, 4);
    const int64_t axis = 0;
    const ir_arg_t axes = IR_ARG_INTS("axes", &axis, 1);
    gradient_of(IR_OP_REDUCE_MAX, 1, &axes, 1, x, NULL, 4, dx, NULL);
    assert_row(dx, (double[]){0, 0, 0.5, 0.5}, 4);
    gradient_of(IR_OP_REDUCE_MIN, 1, &axes, 1, x, NULL, 4, dx, NULL);
    assert_row(dx, (double[]){1, 0, 0, 0}, 4);
}

static void zeros_do_not_give_nan(void **state) {
    (void)state;
    double dx[3], dy[3];
    gradient_of(IR_OP_POW, 0, NULL, 2, (double[]){0, 0, 2}, (double[]){0, 2, 0}, 3, dx, dy);
    assert_row(dx, (double[]){0, 0, 0}, 3);
    assert_row(dy, (double[]){0, 0, log(2)}, 3);
    const int64_t axis = 0;
    const ir_arg_t axes = IR_ARG_INTS("axes", &axis, 1);
    gradient_of(IR_OP_REDUCE_PROD, 1, &axes, 1, (double[]){2, 3, 5}, NULL, 3, dx, NULL);
    assert_row(dx, (double[]){15, 10, 6}, 3);
    gradient_of(IR_OP_REDUCE_PROD, 1, &axes, 1, (double[]){2, 0, 5}, NULL, 3, dx, NULL);
    assert_row(dx, (double[]){0, 10, 0}, 3);
    gradient_of(IR_OP_REDUCE_PROD, 1, &axes, 1, (double[]){0, 0, 5}, NULL, 3, dx, NULL);
    assert_row(dx, (double[]){0, 0, 0}, 3);
    gradient_of(IR_OP_ABS, 0, NULL, 1, (double[]){0, -2, 2}, NULL, 3, dx, NULL);
    assert_row(dx, (double[]){0, -1, 1}, 3);
    gradient_of(IR_OP_RELU, 0, NULL, 1, (double[]){0, -2, 2}, NULL, 3, dx, NULL);
    assert_row(dx, (double[]){0, 0, 1}, 3);
}

/* No gradient arrives or none is wanted: nothing is appended. */
static void visit_unwanted(const sample_t *sample, void *user) {
    (void)user;
    const ir_op_def_t *def = ir_op_def(sample->op);
    if (!def->gradient) return;
    sampled_t s;
    sampled_make(sample, &s);
    ir_build_t b = {.graph = s.graph};
    ir_value_t dout = ir_b_parameter(&b, "dout", s.out), none = IR_NONE;
    size_t n_nodes = s.graph->nodes.n;
    ir_value_t din[SAMPLE_INPUTS] = {IR_NONE, IR_NONE, IR_NONE};
    const bool wanted[SAMPLE_INPUTS] = {true, true, true}, unwanted[SAMPLE_INPUTS] = {0};
    assert_int_equal(def->gradient(s.graph, s.node, &none, wanted, din), ST_OK);
    assert_int_equal(def->gradient(s.graph, s.node, &dout, unwanted, din), ST_OK);
    assert_int_equal(s.graph->nodes.n, n_nodes);
    for (int j = 0; j < SAMPLE_INPUTS; j++) assert_int_equal(din[j], IR_NONE);
    sampled_free(&s);
}

static void nothing_wanted_appends_nothing(void **state) {
    (void)state;
    samples_each(visit_unwanted, NULL);
}

/* Every allocation of a rule fails in turn; arena chunks make them few, so the arena is filled
 * first. */
static void visit_without_memory(const sample_t *sample, void *user) {
    size_t *n_failed = user;
    const ir_op_def_t *def = ir_op_def(sample->op);
    if (!def->gradient) return;
    bool want[SAMPLE_INPUTS];
    for (uint32_t j = 0; j < sample->n_inputs; j++)
        want[j] = ir_dtype_is_float(sample->in[j].dtype);
    for (int64_t countdown = 0;; countdown++) {
        assert_true(countdown < 100);
        sampled_t s;
        sampled_make(sample, &s);
        ir_build_t b = {.graph = s.graph};
        ir_value_t dout = ir_b_parameter(&b, "dout", s.out);
        ir_value_t din[SAMPLE_INPUTS] = {IR_NONE, IR_NONE, IR_NONE};
        st_memory_fail_after(0, true); /* what is left of the chunk */
        while (st_arena_alloc(&s.graph->arena, 1)) continue;
        st_memory_fail_after(countdown, true);
        st_status_t status = def->gradient(s.graph, s.node, &dout, want, din);
        st_memory_fail_after(-1, false);
        sampled_free(&s);
        if (status == ST_OK) return;
        assert_int_equal(status, ST_NO_MEMORY);
        ++*n_failed;
    }
}

static void lack_of_memory_is_reported(void **state) {
    (void)state;
    size_t n_failed = 0;
    samples_each(visit_without_memory, &n_failed);
    assert_true(n_failed > 50);
}

/* The mean's definition in sums has the mean's value and type, in the small floats too. */
static void a_mean_expands_to_its_sum(void **state) {
    (void)state;
    const ir_dtype_t dtypes[] = {IR_F64, IR_F32, IR_BF16};
    for (size_t d = 0; d < 3; d++) {
        const int64_t dims[] = {4, 3}, axis = 1;
        sample_t sample = {IR_OP_REDUCE_MEAN,
                           1,
                           {ir_type_make(dtypes[d], 2, dims)},
                           1,
                           {IR_ARG_INTS("axes", &axis, 1)},
                           0};
        sampled_t s;
        sampled_make(&sample, &s);
        ir_value_t out = IR_NONE;
        assert_int_equal(
            ir_op_def(IR_OP_REDUCE_MEAN)->expand(s.graph, &s.ctx, s.info->inputs, &out), ST_OK);
        assert_true(ir_type_equal(ir_value_type(s.graph, out), &s.out));
        s.info = ir_node(s.graph, s.node);
        const double **feeds = calloc(s.graph->values.n, sizeof *feeds);
        feeds[s.info->inputs[0]] = s.data[0];
        double **values = eval_graph(s.graph, feeds);
        for (int i = 0; i < 4; i++)
            assert_true(fabs(values[out][i] - values[s.info->first_output][i]) < 1e-12);
        eval_graph_free(s.graph, values);
        free(feeds);
        sampled_free(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_agree_with_differences),
        cmocka_unit_test(ties_share_the_gradient),
        cmocka_unit_test(zeros_do_not_give_nan),
        cmocka_unit_test(nothing_wanted_appends_nothing),
        cmocka_unit_test(lack_of_memory_is_reported),
        cmocka_unit_test(a_mean_expands_to_its_sum),
    };
    return cmocka_run_group_tests_name("gradients", tests, NULL, NULL);
}
