/* The training graph: optimizer arithmetic against PyTorch's formulas written out in plain C,
 * clipping, schedules, groups, averages, micro-batches against the whole batch, and what is
 * refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/run.h"
#include "autodiff/train_graph.h"
#include "ir/op.h"
#include "ir/text.h"
#include "ir/verify.h"

#define OK(call) run_ok((call), #call, __LINE__)
#define FAILS(call, status, part) run_fails((call), (status), (part), __LINE__)

static ir_graph_t *parse(const char *text) {
    ir_graph_t *graph;
    OK(ir_graph_parse(text, strlen(text), &graph));
    return graph;
}

static ad_train_options_t defaults(const char *optimizer) {
    ad_train_options_t options;
    OK(ad_train_defaults(optimizer, &options));
    return options;
}

static ir_graph_t *train(const ir_graph_t *forward, const ad_train_options_t *options) {
    ir_graph_t *graph;
    OK(ad_train_graph(forward, options, &graph));
    OK(ir_graph_verify(graph));
    return graph;
}

static void near(double given, double expected, double tolerance, const char *what) {
    if (!(fabs(given - expected) <= tolerance * (1 + fabs(expected))))
        fail_msg("%s: %.17g, expected %.17g", what, given, expected);
}

static void step(run_t *run) {
    run_nodes(run, 0, (ir_node_t)run->graph->nodes.n);
    run_updates(run);
}

/* Two parameters, a weight and a bias, under cross entropy with an ignored label. */
static const char *const classifier =
    "graph \"classifier\" {\n"
    "  %0 x = input {dtype=f64, shape=[6,3]}\n"
    "  %1 y = input {dtype=i64, shape=[6]}\n"
    "  %2 \"fc.weight\" = parameter {dtype=f64, shape=[4,3]}\n"
    "  %3 \"fc.bias\" = parameter {dtype=f64, shape=[4]}\n"
    "  %4 = matmul(%0, %2) {transpose_b=true}\n"
    "  %5 = add(%4, %3)\n"
    "  %6, %7 ce = cross_entropy(%5, %1) {smoothing=0.1}\n"
    "  output \"loss\" = %6\n"
    "  output \"logits\" = %5\n"
    "}\n";
static const int64_t labels[6] = {0, 3, -100, 1, -100, 2};

static void fill(double *data, int n, double seed) {
    for (int i = 0; i < n; i++) data[i] = sin(seed + 1.7 * i);
}

static void feed_classifier(run_t *run) {
    fill(run_state(run, "x"), 18, 1);
    memcpy(run_state(run, "y"), labels, sizeof labels);
    fill(run_state(run, "fc.weight"), 12, 2);
    fill(run_state(run, "fc.bias"), 4, 3);
}

/* ---- optimizers ---- */

enum { N_W = 12, N_B = 4, N_ALL = N_W + N_B, STEPS = 5 };

/* Copies a pair of tensors, the weight's and the bias's, one after the other. */
static void gather_pair(run_t *run, bool outputs, const char *prefix, double *to) {
    char name[64];
    snprintf(name, sizeof name, "%sfc.weight", prefix);
    memcpy(to, outputs ? run_output(run, name) : run_state(run, name), N_W * sizeof *to);
    snprintf(name, sizeof name, "%sfc.bias", prefix);
    memcpy(to + N_W, outputs ? run_output(run, name) : run_state(run, name), N_B * sizeof *to);
}

static double norm_of(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

static void compare_pair(run_t *run, const char *prefix, const double *expected) {
    double given[N_ALL];
    gather_pair(run, false, prefix, given);
    for (int i = 0; i < N_ALL; i++)
        near(given[i], expected[i], 1e-13, prefix[0] ? prefix : "parameter");
}

static void test_sgd(void **state) {
    (void)state;
    ir_graph_t *forward = parse(classifier);
    ad_train_options_t o = defaults("sgd");
    const ad_group_t groups[] = {{"fc.*", NAN, 0.05, false, false},
                                 {"*.bias", 0.5, 0, false, false}};
    o.lr = 0.3, o.momentum = 0.9, o.nesterov = true, o.weight_decay = 0.7, o.clip_norm = 0.25;
    o.n_groups = 2, o.groups = groups, o.gradient_outputs = true;
    o.schedule = "linear", o.warmup = 2, o.total = 6, o.min_lr = 0.03;
    ir_graph_t *graph = train(forward, &o);
    run_t run;
    run_open(&run, graph);
    feed_classifier(&run);
    double p[N_ALL], momentum[N_ALL] = {0};
    gather_pair(&run, false, "", p);
    /* warm-up 1/2, 2/2, then (step - 3) / 4 of the way from 0.3 to 0.03 */
    const double rates[STEPS] = {0.15, 0.3, 0.3, 0.2325, 0.165};
    for (int s = 0; s < STEPS; s++) {
        double g[N_ALL];
        step(&run);
        gather_pair(&run, true, "grad.", g);
        const double norm = norm_of(g, N_ALL);
        const double coefficient = fmin(1, 0.25 / (norm + 1e-6));
        assert_true(coefficient < 1); /* or the case tests nothing */
        near(*(double *)run_output(&run, "grad_norm"), norm, 1e-14, "grad_norm");
        near(*(double *)run_output(&run, "lr"), rates[s], 1e-15, "lr");
        for (int i = 0; i < N_ALL; i++) {
            const double decay = i < N_W ? 0.05 : 0, rate = rates[s] * (i < N_W ? 1 : 0.5);
            const double d = coefficient * g[i] + decay * p[i];
            momentum[i] = 0.9 * momentum[i] + d;
            p[i] -= rate * (d + 0.9 * momentum[i]);
        }
        compare_pair(&run, "", p);
        compare_pair(&run, "optim.momentum.", momentum);
        assert_int_equal(*(int64_t *)run_state(&run, "optim.step"), s + 1);
    }
    run_close(&run);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

static void check_adam(bool decoupled) {
    ir_graph_t *forward = parse(classifier);
    ad_train_options_t o = defaults(decoupled ? "adamw" : "adam");
    o.lr = 0.02, o.beta1 = 0.8, o.beta2 = 0.95, o.eps = 1e-3, o.weight_decay = 0.3;
    o.ema_decay = 0.75, o.gradient_outputs = true;
    ir_graph_t *graph = train(forward, &o);
    run_t run;
    run_open(&run, graph);
    feed_classifier(&run);
    double p[N_ALL], m[N_ALL] = {0}, v[N_ALL] = {0}, average[N_ALL];
    gather_pair(&run, false, "", p);
    for (int s = 1; s <= STEPS; s++) {
        double g[N_ALL];
        step(&run);
        gather_pair(&run, true, "grad.", g);
        for (int i = 0; i < N_ALL; i++) {
            if (decoupled)
                p[i] *= 1 - 0.02 * 0.3;
            else
                g[i] += 0.3 * p[i];
            m[i] = 0.8 * m[i] + 0.2 * g[i];
            v[i] = 0.95 * v[i] + 0.05 * g[i] * g[i];
            const double denominator = sqrt(v[i]) / sqrt(1 - pow(0.95, s)) + 1e-3;
            p[i] -= 0.02 / (1 - pow(0.8, s)) * m[i] / denominator;
            average[i] = s == 1 ? p[i] : 0.75 * average[i] + 0.25 * p[i];
        }
        compare_pair(&run, "", p);
        compare_pair(&run, "optim.m.", m);
        compare_pair(&run, "optim.v.", v);
        compare_pair(&run, "ema.", average);
    }
    run_close(&run);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

static void test_adamw(void **state) {
    (void)state;
    check_adam(true);
}
static void test_adam(void **state) {
    (void)state;
    check_adam(false);
}

/* Adam's eps comes after the bias correction: with g = 1e-8 the first step is lr / 2 = 5.0e-4
 * (3.065e-5 were eps added before it, 1.0e-7 inside the root). */
static void test_adam_epsilon(void **state) {
    (void)state;
    ir_graph_t *forward = parse(
        "graph \"tiny\" {\n"
        "  %0 w = parameter {dtype=f64, shape=[]}\n"
        "  %1 = constant {dtype=f64, shape=[], data=1e-8}\n"
        "  %2 = mul(%0, %1)\n"
        "  output \"loss\" = %2\n"
        "}\n");
    ad_train_options_t o = defaults("adamw");
    o.weight_decay = 0;
    ir_graph_t *graph = train(forward, &o);
    run_t run;
    run_open(&run, graph);
    step(&run);
    near(*(double *)run_state(&run, "w"), -5.0e-4, 1e-9, "first step");
    run_close(&run);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

/* The norm goes over all parameters: [3,4] and [0,12] give 13, and clipping to 1 scales by
 * 0.0769231. */
static void test_clip_norm(void **state) {
    (void)state;
    ir_graph_t *forward = parse(
        "graph \"clip\" {\n"
        "  %0 a = parameter {dtype=f64, shape=[2]}\n"
        "  %1 b = parameter {dtype=f64, shape=[2]}\n"
        "  %2 = constant {dtype=f64, shape=[2], data=[3,4]}\n"
        "  %3 = constant {dtype=f64, shape=[2], data=[0,12]}\n"
        "  %4 = mul(%0, %2)\n"
        "  %5 = mul(%1, %3)\n"
        "  %6 = add(%4, %5)\n"
        "  %7 = reduce_sum(%6) {axes=[0]}\n"
        "  output \"loss\" = %7\n"
        "}\n");
    ad_train_options_t o = defaults("sgd");
    o.lr = 1, o.clip_norm = 1;
    ir_graph_t *graph = train(forward, &o);
    run_t run;
    run_open(&run, graph);
    step(&run);
    near(*(double *)run_output(&run, "grad_norm"), 13, 1e-15, "norm");
    near(((double *)run_state(&run, "b"))[1], -12 / (13 + 1e-6), 1e-15, "clipped");
    near(((double *)run_state(&run, "a"))[0], -3 / (13 + 1e-6), 1e-15, "clipped");
    run_close(&run);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

/* ---- structure ---- */

static size_t count_updates(const ir_graph_t *graph, const char *state) {
    size_t n = 0;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = &graph->nodes.data[i];
        if (node->op != IR_OP_UPDATE) continue;
        n += strcmp(ir_value_producer(graph, node->inputs[0])->name, state) == 0;
    }
    return n;
}

/* A frozen parameter keeps no state and no update; what the loss does not see trains with zero
 * gradients. */
static void test_frozen_and_groups(void **state) {
    (void)state;
    ir_graph_t *forward = parse(classifier), *graph;
    ad_train_options_t o = defaults("adamw");
    const ad_group_t frozen = {"*.weight", NAN, NAN, true, false};
    o.n_groups = 1, o.groups = &frozen, o.gradient_outputs = true, o.ema_decay = 0.5;
    graph = train(forward, &o);
    assert_int_equal(count_updates(graph, "fc.weight"), 0);
    assert_int_equal(count_updates(graph, "fc.bias"), 1);
    assert_int_equal(count_updates(graph, "optim.step"), 1);
    assert_int_equal(ir_graph_find(graph, "optim.m.fc.weight"), IR_NONE);
    assert_int_equal(ir_graph_find(graph, "ema.fc.weight"), IR_NONE);
    assert_int_not_equal(ir_graph_find(graph, "optim.m.fc.bias"), IR_NONE);
    assert_int_equal(ir_graph_find_output(graph, "grad.fc.weight"), IR_NONE);
    assert_int_not_equal(ir_graph_find_output(graph, "logits"), IR_NONE);
    ir_graph_destroy(graph);
    ad_group_t group = AD_GROUP("conv*");
    o.groups = &group;
    FAILS(ad_train_graph(forward, &o, &graph), ST_INVALID,
          "'conv*' matches none of the 2 parameters");
    group = (ad_group_t){"*", NAN, NAN, true, false};
    FAILS(ad_train_graph(forward, &o, &graph), ST_INVALID, "no parameter to train");
    assert_null(graph);
    ir_graph_destroy(forward);
}

static void test_no_decay_groups(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph \"names\" {\n"
        "  %0 \"blocks[0].norm*\" = parameter {dtype=f32, shape=[3]}\n"
        "  %1 \"blocks[0].norm2\" = parameter {dtype=f32, shape=[3,2]}\n"
        "  %2 scale = parameter {dtype=f32, shape=[]}\n"
        "  %3 buffer = buffer {dtype=f32, shape=[3]}\n"
        "  output \"loss\" = %2\n"
        "}\n");
    st_arena_t arena = {0};
    ad_train_options_t o = defaults("adamw");
    OK(ad_no_decay_groups(graph, &arena, &o.n_groups, &o.groups));
    assert_int_equal(o.n_groups, 2);
    ir_graph_t *step_graph = train(graph, &o);
    for (size_t i = 0; i < step_graph->nodes.n; i++) {
        const ir_node_info_t *node = &step_graph->nodes.data[i];
        if (node->op != IR_OP_ADAMW) continue;
        bool matrix = ir_value_type(step_graph, node->inputs[0])->rank == 2;
        assert_true(ir_attr_float(node, "weight_decay") == (matrix ? 0.01 : 0));
    }
    ir_graph_destroy(step_graph);
    ir_graph_destroy(graph);
    st_arena_clear(&arena);
}

static void test_gradient_graph(void **state) {
    (void)state;
    ir_graph_t *forward = parse(classifier), *graph;
    OK(ad_gradient_graph(forward, NULL, 0, &graph));
    OK(ir_graph_verify(graph));
    assert_int_equal(graph->outputs.n, 4);
    assert_int_not_equal(ir_graph_find_output(graph, "grad.fc.bias"), IR_NONE);
    assert_int_equal(ir_graph_find(graph, "optim.step"), IR_NONE);
    ir_graph_destroy(graph);
    FAILS(ad_gradient_graph(forward, "los", 0, &graph), ST_NOT_FOUND,
          "loss f64[], logits f64[6,4]");
    FAILS(ad_gradient_graph(forward, "logits", 0, &graph), ST_INVALID,
          "output 'logits' is f64[6,4]");
    ir_graph_destroy(forward);
}

static void test_bad_options(void **state) {
    (void)state;
    ir_graph_t *forward = parse(classifier), *graph;
    ad_train_options_t o;
    FAILS(ad_train_defaults("lion", &o), ST_INVALID, "optimizer 'lion' is not known");
    o = defaults("sgd");
    o.clip_norm = NAN;
    FAILS(ad_train_graph(forward, &o, &graph), ST_INVALID, "clip_norm");
    o = defaults("sgd");
    o.accumulate = 0;
    FAILS(ad_train_graph(forward, &o, &graph), ST_INVALID, "accumulate is 0");
    o = defaults("adamw");
    o.beta1 = 1;
    FAILS(ad_train_graph(forward, &o, &graph), ST_INVALID, "betas are 1");
    o = defaults("adamw");
    o.schedule = "cosine";
    FAILS(ad_train_graph(forward, &o, &graph), ST_INVALID, "more steps in total");
    ir_graph_destroy(forward);
    forward = parse(
        "graph \"taken\" {\n"
        "  %0 w = parameter {dtype=f32, shape=[]}\n"
        "  %1 \"optim.m.w\" = buffer {dtype=f32, shape=[]}\n"
        "  output \"a\" = %0\n"
        "  output \"b\" = %1\n"
        "}\n");
    o = defaults("adamw");
    FAILS(ad_train_graph(forward, &o, &graph), ST_NOT_FOUND, "2 are float scalars: name the loss");
    o.loss = "a";
    FAILS(ad_train_graph(forward, &o, &graph), ST_INVALID, "named 'optim.m.w'");
    ir_graph_destroy(forward);
}

/* ---- micro-batches ---- */

/* With dropout, whose mask must not depend on how the batch is cut; the step counter is the
 * training's. */
static const char *const noisy =
    "graph \"noisy\" {\n"
    "  %%0 x = input {dtype=f64, shape=[%d,3]}\n"
    "  %%1 y = input {dtype=i64, shape=[%d]}\n"
    "  %%2 \"fc.weight\" = parameter {dtype=f64, shape=[4,3]}\n"
    "  %%3 \"fc.bias\" = parameter {dtype=f64, shape=[4]}\n"
    "  %%4 \"optim.step\" = buffer {dtype=i64, shape=[]}\n"
    "  %%5 seed = constant {dtype=i64, shape=[], data=11}\n"
    "  %%6 = dropout(%%0, %%5, %%4) {p=0.3, id=1}\n"
    "  %%7 = matmul(%%6, %%2) {transpose_b=true}\n"
    "  %%8 = add(%%7, %%3)\n"
    "  %%9, %%10 ce = cross_entropy(%%8, %%1)\n"
    "  output \"loss\" = %%9\n"
    "  output \"logits\" = %%8\n"
    "}\n";

/* Six rows at once, and as 2 or 3 or 6 micro-batches whose counts of valid labels differ: the same
 * steps. */
static void test_micro_batches(void **state) {
    (void)state;
    double expected[N_ALL], loss[2], norm[2];
    for (int64_t k = 1; k <= 6; k += k < 3 ? 1 : 3) {
        char text[1200];
        snprintf(text, sizeof text, noisy, (int)(6 / k), (int)(6 / k));
        ir_graph_t *forward = parse(text);
        ad_train_options_t o = defaults("adamw");
        o.lr = 0.05, o.clip_norm = 0.1, o.accumulate = k, o.gradient_outputs = true;
        ir_graph_t *graph = train(forward, &o);
        const ir_node_info_t *x = ir_node(graph, ir_graph_find(graph, "x"));
        assert_int_equal(ir_attr_int(x, "batch_axis"), k > 1);
        assert_int_equal(ir_value_type(graph, x->first_output)->rank, k > 1 ? 3 : 2);
        run_t run;
        run_open(&run, graph);
        feed_classifier(&run);
        for (int s = 0; s < 2; s++) {
            step(&run);
            if (k == 1) {
                loss[s] = *(double *)run_output(&run, "loss");
                norm[s] = *(double *)run_output(&run, "grad_norm");
            }
            near(*(double *)run_output(&run, "loss"), loss[s], 1e-13, "loss");
            near(*(double *)run_output(&run, "grad_norm"), norm[s], 1e-13, "grad_norm");
            double g[N_ALL];
            gather_pair(&run, true, "grad.", g);
            near(norm_of(g, N_ALL), norm[s], 1e-13, "gradients");
        }
        if (k == 1)
            gather_pair(&run, false, "", expected);
        else
            compare_pair(&run, "", expected);
        assert_int_equal(*(int64_t *)run_state(&run, "optim.step"), 2);
        run_close(&run);
        ir_graph_destroy(graph);
        ir_graph_destroy(forward);
    }
}

/* The graph has the steps of one micro-batch, however many there are. */
static void test_micro_batches_are_stored_once(void **state) {
    (void)state;
    size_t n_nodes = 0, n_body = 0;
    for (int64_t k = 2; k <= 20000; k *= 10) {
        char text[1200];
        snprintf(text, sizeof text, noisy, 2, 2);
        ir_graph_t *forward = parse(text);
        ad_train_options_t o = defaults("adamw");
        o.accumulate = k;
        ir_graph_t *graph = train(forward, &o);
        size_t n_loops = 0, nodes = graph->nodes.n, body = 0;
        for (size_t i = 0; i < graph->nodes.n; i++) {
            const ir_node_info_t *node = &graph->nodes.data[i];
            if (node->op != IR_OP_REPEAT) continue;
            n_loops++;
            body = node->attrs[0].graph->nodes.n;
            assert_int_equal(ir_attr_int(node, "trip"), k);
        }
        assert_int_equal(n_loops, 1);
        if (k == 2) n_nodes = nodes, n_body = body;
        assert_int_equal(nodes, n_nodes);
        assert_int_equal(body, n_body);
        ir_graph_destroy(graph);
        ir_graph_destroy(forward);
    }
}

/* Losses over six rows [%d rows each]: factors, signs, and sums divided by what data says. */
#define SPELLED(loss)                                                                         \
    "graph \"spelled\" {\n"                                                                   \
    "  %%x x = input {dtype=f64, shape=[%d,3]}\n"                                             \
    "  %%m m = input {dtype=f64, shape=[%d]}\n"                                               \
    "  %%w \"fc.weight\" = parameter {dtype=f64, shape=[3]}\n"                                \
    "  %%xw = mul(%%x, %%w)\n  %%r = reduce_sum(%%xw) {axes=[1]}\n  %%q = square(%%r)\n" loss \
    "  output \"loss\" = %%l\n}\n"
static const char *const spellings[] = {
    SPELLED(
        "  %%h = constant {dtype=f64, shape=[], data=-0.5}\n  %%a = reduce_mean(%%q) {axes=[0]}\n"
        "  %%b = mul(%%h, %%a)\n  %%l = neg(%%b)\n"),
    SPELLED("  %%f = constant {dtype=f64, shape=[], data=7}\n  %%a = reduce_sum(%%q) {axes=[0]}\n"
            "  %%l = div(%%a, %%f)\n"),
    SPELLED("  %%a = mul(%%q, %%m)\n  %%s = reduce_sum(%%a) {axes=[0]}\n"
            "  %%n = reduce_sum(%%m) {axes=[0]}\n  %%l = div(%%s, %%n)\n"),
    SPELLED("  %%a = mul(%%q, %%m)\n  %%s = reduce_sum(%%a) {axes=[0]}\n  %%c = neg(%%s)\n"
            "  %%n = reduce_sum(%%m) {axes=[0]}\n  %%t = constant {dtype=f64, shape=[], data=2.5}\n"
            "  %%k = maximum(%%n, %%t)\n  %%d = add(%%k, %%t)\n  %%l = div(%%c, %%d)\n"),
};

static void test_micro_batches_of_spelled_losses(void **state) {
    (void)state;
    for (size_t t = 0; t < sizeof spellings / sizeof *spellings; t++) {
        double loss = 0, w[3] = {0};
        for (int k = 1; k <= 3; k++) {
            char text[1600];
            snprintf(text, sizeof text, spellings[t], 6 / k, 6 / k);
            ir_graph_t *forward = parse(text);
            ad_train_options_t o = defaults("sgd");
            o.lr = 0.1, o.accumulate = k;
            ir_graph_t *graph = train(forward, &o);
            run_t run;
            run_open(&run, graph);
            fill(run_state(&run, "x"), 18, 3);
            fill(run_state(&run, "fc.weight"), 3, 2);
            for (int i = 0; i < 6; i++) ((double *)run_state(&run, "m"))[i] = i % 4 ? 0.25 * i : 0;
            step(&run);
            if (k == 1) loss = *(double *)run_output(&run, "loss");
            assert_true(loss != 0);
            near(*(double *)run_output(&run, "loss"), loss, 1e-13, "loss");
            for (int i = 0; i < 3; i++) {
                double got = ((double *)run_state(&run, "fc.weight"))[i];
                if (k == 1) w[i] = got;
                near(got, w[i], 1e-13, "weight");
            }
            run_close(&run);
            ir_graph_destroy(graph);
            ir_graph_destroy(forward);
        }
    }
}

/* What would give other numbers than the whole batch is refused, with the node. */
static void test_micro_batches_that_mix_items(void **state) {
    (void)state;
    static const struct {
        const char *body, *part;
    } rows[] = {
        /* similarities between the items */
        {"  %t = transpose(%x) {perm=[1,0]}\n  %s similar = matmul(%xw, %t)\n"
         "  %l = reduce_mean(%s) {axes=[0,1]}\n",
         "(matmul 'similar') mixes the items of the batch"},
        /* a square of a sum over the batch */
        {"  %s = reduce_sum(%xw) {axes=[0,1]}\n  %q odd = square(%s)\n"
         "  %l = reduce_sum(%q) {axes=[]}\n",
         "(square 'odd') mixes"},
        /* distances to the batch's mean */
        {"  %m mean = reduce_mean(%xw) {axes=[0]}\n  %d = sub(%xw, %m)\n  %q = square(%d)\n"
         "  %l = reduce_mean(%q) {axes=[0,1]}\n",
         "(reduce_mean 'mean') mixes"},
        /* a running sum over the batch */
        {"  %c along = cumsum(%xw) {axis=0}\n  %l = reduce_mean(%c) {axes=[0,1]}\n",
         "(cumsum 'along') mixes"},
        /* no part of it comes from the batch */
        {"  %q = square(%w)\n  %l decay = reduce_sum(%q) {axes=[0]}\n",
         "(reduce_sum 'decay') is no sum over the items of the batch"},
        /* divided by what the parameters say */
        {"  %s = reduce_sum(%xw) {axes=[0,1]}\n  %q = square(%w)\n"
         "  %n = reduce_sum(%q) {axes=[0]}\n  %l over = div(%s, %n)\n",
         "this one comes from node"},
        /* by what is no function of sums */
        {"  %s = reduce_sum(%xw) {axes=[0,1]}\n  %n most = reduce_max(%x) {axes=[0,1]}\n"
         "  %l = div(%s, %n)\n",
         "the divisor comes from node 4 (reduce_max 'most')"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[1600];
        ir_graph_t *graph;
        snprintf(text, sizeof text,
                 "graph \"mixed\" {\n"
                 "  %%x x = input {dtype=f64, shape=[4,3]}\n"
                 "  %%w w = parameter {dtype=f64, shape=[3]}\n"
                 "  %%xw = mul(%%x, %%w)\n%s  output \"loss\" = %%l\n}\n",
                 rows[i].body);
        ir_graph_t *forward = parse(text);
        ad_train_options_t o = defaults("sgd");
        ir_graph_destroy(train(forward, &o)); /* as one batch it is fine */
        o.accumulate = 2;
        FAILS(ad_train_graph(forward, &o, &graph), ST_UNSUPPORTED, rows[i].part);
        ir_graph_destroy(forward);
    }
}

/* One micro-batch without any valid label adds zero; all of them: loss 0 and finite everything. */
static void test_micro_batches_without_labels(void **state) {
    (void)state;
    char text[1200];
    snprintf(text, sizeof text, noisy, 2, 2);
    ir_graph_t *forward = parse(text);
    ad_train_options_t o = defaults("sgd");
    o.accumulate = 3;
    ir_graph_t *graph = train(forward, &o);
    run_t run;
    run_open(&run, graph);
    feed_classifier(&run);
    for (int i = 0; i < 6; i++) ((int64_t *)run_state(&run, "y"))[i] = -100;
    step(&run);
    assert_true(*(double *)run_output(&run, "loss") == 0);
    assert_true(*(double *)run_output(&run, "grad_norm") == 0);
    for (int i = 0; i < N_W; i++)
        near(((double *)run_state(&run, "fc.weight"))[i], sin(2 + 1.7 * i), 1e-15, "weight");
    run_close(&run);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

static const char *const normed =
    "graph \"normed\" {\n"
    "  %0 x = input {dtype=f64, shape=[3,2]}\n"
    "  %1 w = parameter {dtype=f64, shape=[2]}\n"
    "  %2 b = parameter {dtype=f64, shape=[2]}\n"
    "  %3 rm = buffer {dtype=f64, shape=[2]}\n"
    "  %4 rv = buffer {dtype=f64, shape=[2]}\n"
    "  %5, %6, %7, %8, %9 norm = batch_norm(%0, %1, %2, %3, %4) {momentum=0.25}\n"
    "  update(%3, %8)\n"
    "  update(%4, %9)\n"
    "  %10 = square(%5)\n"
    "  %11 mse = reduce_mean(%10) {axes=[0,1]}\n"
    "  output \"loss\" = %11\n"
    "}\n";

/* Running statistics chain through the micro-batches: m' = m + (mean_k - m) / 4, one after the
 * other. */
static void test_micro_batch_norm(void **state) {
    (void)state;
    ir_graph_t *forward = parse(normed), *graph;
    ad_train_options_t o = defaults("sgd");
    o.accumulate = 2;
    FAILS(ad_train_graph(forward, &o, &graph), ST_UNSUPPORTED,
          "(batch_norm 'norm') takes its statistics");
    o.micro_batch_norm = true;
    graph = train(forward, &o);
    run_t run;
    run_open(&run, graph);
    double *x = run_state(&run, "x"), mean = 0, running = 0.5;
    fill(x, 12, 5);
    ((double *)run_state(&run, "rm"))[0] = running;
    step(&run);
    for (int k = 0; k < 2; k++) {
        mean = (x[6 * k] + x[6 * k + 2] + x[6 * k + 4]) / 3;
        running += (mean - running) / 4;
    }
    near(((double *)run_state(&run, "rm"))[0], running, 1e-14, "running mean");
    assert_int_equal(count_updates(graph, "rm"), 1);
    run_close(&run);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

static void test_micro_batches_need_a_mean(void **state) {
    (void)state;
    ir_graph_t *forward = parse(
                   "graph \"odd\" {\n"
                   "  %0 x = input {dtype=f64, shape=[3]}\n"
                   "  %1 w = parameter {dtype=f64, shape=[]}\n"
                   "  %2 = mul(%0, %1)\n"
                   "  %3 = reduce_sum(%2) {axes=[0]}\n"
                   "  %4 odd_loss = exp(%3)\n"
                   "  output \"loss\" = %4\n"
                   "}\n"),
               *graph;
    ad_train_options_t o = defaults("sgd");
    o.accumulate = 2;
    FAILS(ad_train_graph(forward, &o, &graph), ST_UNSUPPORTED,
          "this one comes from node 4 (exp 'odd_loss')");
    ir_graph_destroy(forward);
}

/* Any allocation may fail: an error comes back, nothing leaks or crashes (leaks show under the
 * sanitizer). */
static void test_out_of_memory(void **state) {
    (void)state;
    char text[1200];
    snprintf(text, sizeof text, noisy, 2, 2);
    ir_graph_t *forward = parse(text), *graph = NULL;
    ad_train_options_t o = defaults("adamw");
    o.accumulate = 2, o.ema_decay = 0.5, o.clip_norm = 1;
    st_status_t status = ST_NO_MEMORY;
    int64_t at = 0;
    for (; status != ST_OK; at++) {
        st_memory_fail_after(at, false);
        status = ad_train_graph(forward, &o, &graph);
        st_memory_fail_after(-1, false);
        if (status == ST_OK) break;
        assert_int_equal(status, ST_NO_MEMORY);
        assert_null(graph);
    }
    assert_true(at > 10);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

/* ---- phases ---- */

/* Nodes of the source graph are forward; everything between them and the gradients is backward;
 * what reads whole gradients is the optimizer's. */
static void check_phases(const ir_graph_t *graph, bool optimizer) {
    size_t n[IR_PHASE_END] = {0};
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        const ir_op_def_t *def = ir_op_def(node->op);
        n[node->phase]++;
        if ((def->flags & IR_BACKWARD) && node->op != IR_OP_SUM_SQUARES)
            assert_int_equal(node->phase, IR_PHASE_BACKWARD);
        if (node->op == IR_OP_ADAMW || node->op == IR_OP_SUM_SQUARES || node->op == IR_OP_UPDATE ||
            node->op == IR_OP_LR_SCHEDULE)
            assert_int_equal(node->phase, IR_PHASE_OPTIMIZER);
        if (node->op == IR_OP_DROPOUT || node->op == IR_OP_CROSS_ENTROPY ||
            node->op == IR_OP_PARAMETER)
            assert_int_equal(node->phase, IR_PHASE_FORWARD);
        for (uint32_t j = 0; j < node->n_inputs; j++)
            assert_true(ir_value_producer(graph, node->inputs[j])->phase <= node->phase);
    }
    assert_true(n[IR_PHASE_BACKWARD] >= 5);
    assert_int_equal(n[IR_PHASE_OPTIMIZER] > 0, optimizer);
    assert_int_equal(graph->phase, IR_PHASE_FORWARD);
}

static void test_phases(void **state) {
    (void)state;
    char text[1024];
    ir_graph_t *forward, *graph;
    ad_train_options_t o = defaults("adamw");
    snprintf(text, sizeof text, noisy, 6, 6);
    forward = parse(text);
    OK(ad_gradient_graph(forward, NULL, 0, &graph));
    for (ir_node_t i = 1; i < graph->nodes.n; i++) /* forward as a whole comes first */
        assert_true(ir_node(graph, i - 1)->phase <= ir_node(graph, i)->phase);
    check_phases(graph, false);
    ir_graph_destroy(graph);
    o.clip_norm = 1;
    o.ema_decay = 0.9;
    graph = train(forward, &o);
    check_phases(graph, true);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
    snprintf(text, sizeof text, noisy, 3, 3);
    forward = parse(text);
    o.accumulate = 2;
    graph = train(forward, &o);
    check_phases(graph, true);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_adam),
        cmocka_unit_test(test_adam_epsilon),
        cmocka_unit_test(test_clip_norm),
        cmocka_unit_test(test_frozen_and_groups),
        cmocka_unit_test(test_no_decay_groups),
        cmocka_unit_test(test_gradient_graph),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_micro_batches_are_stored_once),
        cmocka_unit_test(test_micro_batches_of_spelled_losses),
        cmocka_unit_test(test_micro_batches_that_mix_items),
        cmocka_unit_test(test_micro_batches_without_labels),
        cmocka_unit_test(test_micro_batch_norm),
        cmocka_unit_test(test_micro_batches_need_a_mean),
        cmocka_unit_test(test_phases),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
