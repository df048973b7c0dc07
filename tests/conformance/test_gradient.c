/* The gradient of every op that has one, against central differences in float64: for each case the
 * graph is op → sum of random weights times output 0, differentiated by ad_gradient and evaluated
 * node by node. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/gradient.h"
#include "autodiff/region.h"
#include "cases.h"
#include "ir/build.h"
#include "ir/expand.h"

/* Ops whose gradient no case of its own tests, and why. */
static const struct {
    ir_op_t op;
    const char *why;
} elsewhere[] = {
    {IR_OP_BATCH_NORM_APPLY, "its rule is that of batch_norm as a whole: tested there"},
};

/* Elements that are differentiated of each input: all of small ones, evenly spread ones of large.
 */
enum { PROBES = 12, MAX_ELEMENTS = 3000 };

typedef struct values {
    void **data; /* a value each */
    size_t n;
} values_t;

static void values_free(values_t *values) {
    for (size_t i = 0; i < values->n; i++) free(values->data[i]);
    free(values->data);
    *values = (values_t){NULL, 0};
}

static uint64_t weight_state;
static double weight(void) {
    weight_state = weight_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(weight_state >> 33) / (double)(1u << 30) - 1;
}

/* Evaluates all nodes; inputs named "x<j>" come from the case, "weights" from `weights`. */
static void evaluate(const conf_built_t *built, const ir_graph_t *graph, const double *weights,
                     values_t *out) {
    out->n = graph->values.n;
    out->data = calloc(out->n ? out->n : 1, sizeof *out->data);
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        ir_type_t in[64], types[16];
        const void *from[64];
        void *to[16];
        assert_true(node->n_inputs <= 64 && node->n_outputs <= 16);
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            ir_value_t v = node->first_output + k;
            types[k] = *ir_value_type(graph, v);
            size_t bytes = ir_type_bytes(&types[k]);
            to[k] = out->data[v] = bytes ? aligned_alloc(64, (bytes + 63) & ~(size_t)63) : NULL;
        }
        if (node->op == IR_OP_INPUT) {
            size_t bytes = ir_type_bytes(&types[0]);
            const void *data = strcmp(node->name, "weights") == 0
                                   ? (const void *)weights
                                   : built->in_data[strtol(node->name + 1, NULL, 10)];
            if (bytes) memcpy(to[0], data, bytes);
            continue;
        }
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            in[j] = *ir_value_type(graph, node->inputs[j]);
            from[j] = out->data[node->inputs[j]];
        }
        kern_problem_t problem = {node->op, node->n_inputs, node->n_outputs, in,
                                  types,    node->attrs,    node->name};
        if (kern_run_once(&problem, from, to) != ST_OK)
            fail_msg("%s: %s: %s", built->name, ir_node_label(graph, i), st_last_error());
    }
}

/* op → loss, with the op expanded where differentiation wants that. */
static ir_graph_t *make_graph(const conf_built_t *built) {
    ir_graph_t *graph = NULL, *expanded = NULL;
    assert_int_equal(ir_graph_create("case", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    ir_value_t in[CONF_MAX_OPERANDS], y = IR_NONE;
    const kern_problem_t *p = &built->problem;
    for (uint32_t j = 0; j < p->n_in; j++) {
        char name[16];
        snprintf(name, sizeof name, "x%u", j);
        in[j] = ir_b_input(&b, name, p->in[j], -1);
    }
    ir_arg_t args[CONF_MAX_ATTRS];
    const ir_op_def_t *def = ir_op_def(p->op);
    uint32_t n_args = ir_op_n_attrs(def);
    for (uint32_t a = 0; a < n_args; a++) args[a] = (ir_arg_t){def->attrs[a].key, p->attrs[a]};
    y = ir_b_node(&b, p->op, p->n_in, in, n_args, args);
    ir_value_t w = ir_b_input(&b, "weights", p->out[0], -1);
    ir_value_t product = ir_b_binary(&b, IR_OP_MUL, y, w);
    ir_value_t loss =
        p->out[0].rank ? ir_b_reduce(&b, IR_OP_REDUCE_SUM, product, 0, NULL, false) : product;
    ir_b_output(&b, "loss", loss);
    if (b.status != ST_OK) fail_msg("%s: %s", built->name, st_last_error());
    assert_int_equal(ir_expand_composites(graph, ir_expand_for_gradient, &expanded), ST_OK);
    ir_graph_destroy(graph);
    return expanded;
}

static double loss_of(const conf_built_t *built, const ir_graph_t *graph, const double *weights) {
    values_t values;
    evaluate(built, graph, weights, &values);
    double loss = *(double *)values.data[ir_graph_find_output(graph, "loss")];
    values_free(&values);
    return loss;
}

/* Fourth-order central differences: truncation h^4, rounding 1e-16 / h. Where the quotients over h
 * and 2h disagree there is a kink or a jump in between (max, mod): a smaller h then looks beside
 * it. */
static double differences(const conf_built_t *built, const ir_graph_t *graph, const double *weights,
                          double *x) {
    static const double shifts[4] = {1, -1, 2, -2};
    const double keep = *x;
    for (double h = 2e-4; h > 1e-7; h /= 16) {
        double at[4];
        for (int s = 0; s < 4; s++) {
            *x = keep + shifts[s] * h;
            at[s] = loss_of(built, graph, weights);
        }
        *x = keep;
        double near = (at[0] - at[1]) / (2 * h), far = (at[2] - at[3]) / (4 * h);
        if (fabs(near - far) <= 1e-4 * fmax(1, fabs(near))) return near + (near - far) / 3;
    }
    fail_msg("%s: no smooth neighbourhood: choose other data", built->name);
    return NAN;
}

static void check_case(const conf_case_t *row) {
    conf_built_t built;
    conf_build(row, IR_F64, &built);
    int64_t n_out = ir_type_elements(&built.out[0]), most = n_out;
    uint32_t wrt_input[CONF_MAX_OPERANDS];
    size_t n_wrt = 0;
    for (uint32_t j = 0; j < built.problem.n_in; j++) {
        if (!built.fixed[j]) wrt_input[n_wrt++] = j;
        if (ir_type_elements(&built.in[j]) > most) most = ir_type_elements(&built.in[j]);
    }
    /* differences of a result that is rounded to less than float64 say nothing */
    if (n_wrt == 0 || most > MAX_ELEMENTS || built.out[0].dtype != IR_F64) {
        conf_release(&built);
        return;
    }
    double *weights = aligned_alloc(64, ((size_t)n_out * sizeof(double) + 64 + 63) & ~(size_t)63);
    weight_state = 12345;
    for (int64_t i = 0; i < n_out; i++) weights[i] = weight();
    ir_graph_t *graph = make_graph(&built), *plain = NULL;
    assert_int_equal(ir_graph_copy(graph, &plain), ST_OK);
    ir_value_t wrt[CONF_MAX_OPERANDS], grads[CONF_MAX_OPERANDS];
    for (size_t i = 0; i < n_wrt; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%u", wrt_input[i]);
        wrt[i] = ir_node(graph, ir_graph_find(graph, name))->first_output;
    }
    if (ad_gradient(graph, ir_graph_find_output(graph, "loss"), n_wrt, wrt, grads) != ST_OK)
        fail_msg("%s: %s", built.name, st_last_error());
    values_t values;
    evaluate(&built, graph, weights, &values);
    for (size_t i = 0; i < n_wrt; i++) {
        const ir_type_t *type = &built.in[wrt_input[i]];
        if (!ir_type_equal(type, ir_value_type(graph, grads[i])))
            fail_msg("%s: the gradient of input %u has another type", built.name, wrt_input[i]);
        int64_t n = ir_type_elements(type), step = n / PROBES + 1;
        double *x = built.in_data[wrt_input[i]];
        for (int64_t e = 0; e < n; e += step) {
            double expected = differences(&built, plain, weights, &x[e]);
            double got = ((double *)values.data[grads[i]])[e];
            if (!(fabs(got - expected) <= 1e-6 * fmax(1, fabs(expected))))
                fail_msg("%s: gradient of input %u[%lld] is %.12g, differences give %.12g",
                         built.name, wrt_input[i], (long long)e, got, expected);
        }
    }
    values_free(&values);
    ir_graph_destroy(graph);
    ir_graph_destroy(plain);
    free(weights);
    conf_release(&built);
}

/* Has the op a gradient, of its own or through its expansion? */
static bool differentiable(const ir_op_def_t *def) {
    return def && (def->gradient || ad_region_rule(def->op) ||
                   (def->expand && ir_expand_for_gradient(def)));
}

static bool tested_elsewhere(ir_op_t op) {
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (elsewhere[i].op == op) return true;
    return false;
}

static void gradients_match_differences(void **state) {
    (void)state;
    static int cases[IR_OP_END];
    for (size_t c = 0; c < conf_n_cases; c++) {
        const conf_case_t *row = &conf_cases[c];
        if (!differentiable(ir_op_def(row->op)) || tested_elsewhere(row->op)) continue;
        if (!strchr(row->types, 'f')) continue;
        check_case(row);
        cases[row->op]++;
    }
    for (int op = 1; op < IR_OP_END; op++) {
        const ir_op_def_t *def = ir_op_def((ir_op_t)op);
        if (differentiable(def) && !tested_elsewhere((ir_op_t)op) && !cases[op])
            fail_msg("%s has a gradient but no case tests it", def->name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_match_differences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
