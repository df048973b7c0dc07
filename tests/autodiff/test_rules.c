/* The rules of the contraction, composite and state ops against the reference kernels:
 *   gradient    equals central differences in float64
 *   partition   for each strategy that a rule lists, ranks that run on their parts give the parts
 *               of the whole */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/gradient.h"
#include "autodiff/run.h"
#include "ir/build.h"
#include "ir/expand.h"
#include "ir/large_samples.h"

#define OK(call) run_ok((call), #call, __LINE__)

/* ---- gradients ---- */

/* Graph of the sample with L = sum of c * output 0 as output "loss"; float inputs are parameters.
 */
static ir_graph_t *loss_graph(const large_sample_t *sample, ir_value_t *inputs) {
    ir_graph_t *graph, *expanded;
    OK(ir_graph_create("sample", &graph));
    ir_build_t b = {.graph = graph};
    for (uint32_t j = 0; j < sample->n_inputs; j++) {
        char name[16];
        snprintf(name, sizeof name, "in%u", j);
        inputs[j] = sample->gradients >> j & 1 ? ir_b_parameter(&b, name, sample->in[j])
                                               : ir_b_buffer(&b, name, sample->in[j]);
    }
    b.name = "sample";
    ir_value_t y =
        ir_b_node(&b, sample->op, sample->n_inputs, inputs, sample->n_args, sample->args);
    const ir_type_t type = *ir_b_type(&b, y);
    int64_t n = ir_type_elements(&type);
    double *weights = calloc((size_t)n + 1, sizeof *weights);
    for (int64_t i = 0; i < n; i++) weights[i] = sin(1.0 + 2.0 * (double)i);
    ir_value_t c = ir_b_constant(&b, type, weights, (size_t)n * sizeof *weights);
    ir_value_t loss =
        ir_b_reduce(&b, IR_OP_REDUCE_SUM, ir_b_binary(&b, IR_OP_MUL, y, c), 0, NULL, false);
    ir_b_output(&b, "loss", loss);
    OK(b.status);
    free(weights);
    OK(ir_expand_composites(graph, ir_expand_for_gradient, &expanded));
    ir_graph_destroy(graph);
    for (uint32_t j = 0; j < sample->n_inputs; j++) {
        char name[16];
        snprintf(name, sizeof name, "in%u", j);
        inputs[j] = ir_node(expanded, ir_graph_find(expanded, name))->first_output;
    }
    return expanded;
}

static void feed(const large_sample_t *sample, run_t *run, const ir_value_t *inputs) {
    for (uint32_t j = 0; j < sample->n_inputs; j++) large_fill(sample, j, run->data[inputs[j]]);
}

static double loss_of(run_t *run, ir_node_t n_forward, ir_value_t loss) {
    run_nodes(run, 0, n_forward);
    return *(double *)run->data[loss];
}

static void check_gradient(const large_sample_t *sample) {
    const double step = 1e-5;
    if (!sample->gradients) return;
    ir_value_t inputs[7], wrt[7], grads[7];
    size_t n_wrt = 0;
    ir_graph_t *graph = loss_graph(sample, inputs);
    const ir_value_t loss = ir_graph_find_output(graph, "loss");
    const ir_node_t n_forward = (ir_node_t)graph->nodes.n;
    for (uint32_t j = 0; j < sample->n_inputs; j++)
        if (sample->gradients >> j & 1) wrt[n_wrt++] = inputs[j];
    OK(ad_gradient(graph, loss, n_wrt, wrt, grads));
    run_t run;
    run_open(&run, graph);
    feed(sample, &run, inputs);
    run_nodes(&run, 0, (ir_node_t)graph->nodes.n);
    for (size_t w = 0; w < n_wrt; w++) {
        const int64_t n = ir_type_elements(ir_value_type(graph, wrt[w]));
        assert_true(ir_type_equal(ir_value_type(graph, wrt[w]), ir_value_type(graph, grads[w])));
        double *x = run.data[wrt[w]], *dx = run.data[grads[w]];
        for (int64_t i = 0; i < n; i++) {
            const double kept = x[i], given = dx[i];
            x[i] = kept + step;
            double above = loss_of(&run, n_forward, loss);
            x[i] = kept - step;
            double below = loss_of(&run, n_forward, loss);
            x[i] = kept;
            double expected = (above - below) / (2 * step);
            /* central differences: error of order step^2 and rounding / step, both below 1e-8 */
            if (!(fabs(given - expected) <= 1e-7 * (1 + fabs(expected))))
                fail_msg("%s, input %zu, element %lld: gradient %.12g, differences %.12g",
                         ir_op_def(sample->op)->name, w, (long long)i, given, expected);
        }
    }
    run_close(&run);
    ir_graph_destroy(graph);
}

static void test_gradients(void **state) {
    (void)state;
    large_samples_each(check_gradient);
}

/* ---- partition ---- */

/* A node on its own: input and output arrays. */
typedef struct single {
    ir_op_ctx_t ctx;
    ir_type_t in[7], out[5];
    void *in_data[7], *out_data[5];
} single_t;

static void single_run(single_t *s) {
    kern_problem_t problem = {
        s->ctx.op, s->ctx.n_inputs, s->ctx.n_outputs, s->in, s->out, s->ctx.attrs, ""};
    const void *in[7];
    OK(ir_op_def(s->ctx.op)->shape(&s->ctx, s->out));
    for (uint32_t j = 0; j < s->ctx.n_inputs; j++) in[j] = s->in_data[j];
    for (uint32_t k = 0; k < s->ctx.n_outputs; k++)
        s->out_data[k] = calloc(1, ir_type_bytes(&s->out[k]) + 1);
    OK(run_reference(&problem, in, s->out_data));
}

static void single_free(single_t *s) {
    for (uint32_t j = 0; j < s->ctx.n_inputs; j++) free(s->in_data[j]);
    for (uint32_t k = 0; k < s->ctx.n_outputs; k++) free(s->out_data[k]);
}

/* Copies elements [begin, begin + extent) of one dim out of (or, back = true, into) the whole. */
static void copy_part(const ir_type_t *whole, void *whole_data, int32_t dim, int64_t begin,
                      int64_t extent, void *part_data, bool back) {
    size_t outer = 1, inner = ir_dtype_bytes(whole->dtype);
    for (int32_t i = 0; i < dim; i++) outer *= (size_t)whole->dims[i];
    for (int32_t i = dim + 1; i < whole->rank; i++) inner *= (size_t)whole->dims[i];
    for (size_t o = 0; o < outer; o++) {
        char *w = (char *)whole_data + (o * (size_t)whole->dims[dim] + (size_t)begin) * inner;
        char *p = (char *)part_data + o * (size_t)extent * inner;
        memcpy(back ? w : p, back ? p : w, (size_t)extent * inner);
    }
}

static ir_part_t part_of(const ir_type_t *type, ir_placement_t placement, int rank, int n_ranks) {
    ir_part_t part = {.placement = placement};
    if (placement.kind == IR_SPLIT)
        ir_split_range(type->dims[placement.dim], placement.granules, rank, n_ranks, &part.begin,
                       &part.extent);
    return part;
}

/* The rank's part of an input: a range, or a share of the sum (shares add up to 1), or all. */
static void localize_input(const single_t *whole, uint32_t j, ir_part_t part, int rank,
                           single_t *local) {
    static const double share[3] = {0.5, 0.75, -0.25};
    local->in[j] = whole->in[j];
    if (part.placement.kind == IR_SPLIT) local->in[j].dims[part.placement.dim] = part.extent;
    const size_t bytes = ir_type_bytes(&local->in[j]);
    local->in_data[j] = calloc(1, bytes + 1);
    if (part.placement.kind == IR_SPLIT) {
        copy_part(&whole->in[j], whole->in_data[j], part.placement.dim, part.begin, part.extent,
                  local->in_data[j], false);
        return;
    }
    memcpy(local->in_data[j], whole->in_data[j], bytes);
    if (part.placement.kind == IR_PARTIAL) {
        assert_int_equal(whole->in[j].dtype, IR_F64);
        for (size_t i = 0; i < bytes / sizeof(double); i++)
            ((double *)local->in_data[j])[i] *= share[rank];
    }
}

static void check_output(const single_t *whole, uint32_t k, const void *made, const char *what) {
    const int64_t n = ir_type_elements(&whole->out[k]);
    for (int64_t i = 0; i < n; i++) {
        double expected = ir_element_load(whole->out[k].dtype, whole->out_data[k], (size_t)i);
        double given = ir_element_load(whole->out[k].dtype, made, (size_t)i);
        if (!(fabs(given - expected) <= 1e-12 * (1 + fabs(expected))))
            fail_msg("%s, %s, output %u, element %lld: %.15g on ranks, %.15g on one",
                     ir_op_def(whole->ctx.op)->name, what, k, (long long)i, given, expected);
    }
}

static void check_strategy(const single_t *whole, const ir_strategy_t *strategy, const char *what) {
    enum { N_RANKS = 3 };
    const ir_op_def_t *def = ir_op_def(whole->ctx.op);
    const uint32_t n_attrs = ir_op_n_attrs(def);
    void *made[5];
    for (uint32_t k = 0; k < whole->ctx.n_outputs; k++)
        made[k] = calloc(1, ir_type_bytes(&whole->out[k]) + 1);
    for (int rank = 0; rank < N_RANKS; rank++) {
        st_arena_t arena = {0};
        single_t local = {.ctx = whole->ctx};
        ir_part_t in[7], out[5];
        ir_attr_t *attrs = st_arena_copy(&arena, whole->ctx.attrs, n_attrs * sizeof *attrs);
        for (uint32_t j = 0; j < whole->ctx.n_inputs; j++) {
            in[j] = part_of(&whole->in[j], strategy->in[j], rank, N_RANKS);
            localize_input(whole, j, in[j], rank, &local);
        }
        for (uint32_t k = 0; k < whole->ctx.n_outputs; k++)
            out[k] = part_of(&whole->out[k], strategy->out[k], rank, N_RANKS);
        if (def->localize) OK(def->localize(&whole->ctx, in, out, &arena, attrs));
        local.ctx.in = local.in;
        local.ctx.attrs = attrs;
        single_run(&local);
        for (uint32_t k = 0; k < whole->ctx.n_outputs; k++) {
            ir_type_t expected = whole->out[k];
            if (out[k].placement.kind == IR_SPLIT)
                expected.dims[out[k].placement.dim] = out[k].extent;
            assert_true(ir_type_equal(&local.out[k], &expected));
            if (out[k].placement.kind == IR_SPLIT) {
                copy_part(&whole->out[k], made[k], out[k].placement.dim, out[k].begin,
                          out[k].extent, local.out_data[k], true);
            } else if (out[k].placement.kind == IR_PARTIAL) {
                assert_int_equal(expected.dtype, IR_F64);
                for (int64_t i = 0; i < ir_type_elements(&expected); i++)
                    ((double *)made[k])[i] += ((double *)local.out_data[k])[i];
            } else {
                memcpy(made[k], local.out_data[k], ir_type_bytes(&expected));
            }
        }
        single_free(&local);
        st_arena_clear(&arena);
    }
    for (uint32_t k = 0; k < whole->ctx.n_outputs; k++) {
        check_output(whole, k, made[k], what);
        free(made[k]);
    }
}

/* Asks the rule with one input placed, the others replicated; returns how many strategies were
 * listed. */
static uint32_t check_have(const single_t *whole, uint32_t j, ir_placement_t placed) {
    ir_placement_t have[7] = {0};
    char what[64];
    ir_strategy_list_t list = {.have = have};
    have[j] = placed;
    if (placed.kind == IR_SPLIT)
        snprintf(what, sizeof what, "input %u split on dim %d", j, (int)placed.dim);
    else
        snprintf(what, sizeof what, "input %u partial", j);
    ir_op_def(whole->ctx.op)->strategies(&whole->ctx, &list);
    for (uint32_t i = 0; i < list.n; i++) check_strategy(whole, &list.items[i], what);
    return list.n;
}

static void check_partition(const large_sample_t *sample) {
    const ir_op_def_t *def = ir_op_def(sample->op);
    if (def->expand || def->n_outputs == 0) return; /* never run as one node on ranks */
    ir_graph_t *graph;
    OK(ir_graph_create("sample", &graph));
    ir_build_t b = {.graph = graph};
    ir_value_t inputs[7];
    for (uint32_t j = 0; j < sample->n_inputs; j++) {
        char name[16];
        snprintf(name, sizeof name, "in%u", j);
        inputs[j] = ir_b_buffer(&b, name, sample->in[j]);
    }
    (void)ir_b_node(&b, sample->op, sample->n_inputs, inputs, sample->n_args, sample->args);
    OK(b.status);
    const ir_node_info_t *node = ir_node(graph, (ir_node_t)(graph->nodes.n - 1));
    single_t whole = {.ctx = {sample->op, node->n_inputs, node->n_outputs, NULL, node->attrs, ""}};
    for (uint32_t j = 0; j < sample->n_inputs; j++) {
        whole.in[j] = sample->in[j];
        whole.in_data[j] = calloc(1, ir_type_bytes(&sample->in[j]) + 1);
        large_fill(sample, j, whole.in_data[j]);
    }
    whole.ctx.in = whole.in;
    single_run(&whole);
    uint32_t listed = 0;
    for (uint32_t j = 0; j < sample->n_inputs; j++) {
        for (int32_t d = 0; d < sample->in[j].rank; d++)
            if (sample->in[j].dims[d])
                listed += check_have(&whole, j, IR_PLACE_SPLIT(d, sample->in[j].dims[d]));
        if (sample->in[j].dtype == IR_F64) listed += check_have(&whole, j, IR_PLACE_PARTIAL);
    }
    if (listed == 0 && def->strategies != ir_strategies_none)
        fail_msg("%s lists no strategy for any split of its inputs", def->name);
    single_free(&whole);
    ir_graph_destroy(graph);
}

static void test_partition(void **state) {
    (void)state;
    large_samples_each(check_partition);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_partition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
