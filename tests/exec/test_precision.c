/* Mixed precision from graph to session: gradients against float64, the same training on any number
 * of ranks, steps that overflow and are skipped exactly, the scale's growth. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/train_graph.h"
#include "base/hash.h"
#include "base/memory.h"
#include "exec/models.h"
#include "ir/build.h"
#include "ir/convert.h"
#include "ir/text.h"

enum { BATCH = 6, MOST_STATES = 64 };

static void ok(st_status_t status) {
    if (status != ST_OK) fail_msg("%s: %s", st_status_name(status), st_last_error());
}

/* ---- gradients ---- */

typedef struct tensor {
    ir_type_t type;
    double *v;
} tensor_t;

/* Outputs of one step of the gradient graph, in the plan's order. */
static size_t gradients(const ir_graph_t *graph, ir_dtype_t dtype, uint32_t n_ranks,
                        tensor_t out[32]) {
    compile_options_t options = {.n_ranks = n_ranks, .dtype = dtype};
    plan_t *plan = compile_ok(graph, &options);
    double *values;
    size_t n = run_plan(plan, 1, &values), at = n, n_out = plan->n_outputs;
    for (uint32_t o = plan->n_outputs; o-- > 0;) {
        const ir_type_t type = plan->outputs[o].type;
        const size_t elements = (size_t)ir_type_elements(&type);
        at -= elements;
        out[o] = (tensor_t){type, st_malloc(elements * sizeof(double))};
        memcpy(out[o].v, values + at, elements * sizeof(double));
    }
    st_free(values);
    plan_destroy(plan);
    return n_out;
}

/* Largest difference relative to the tensor's largest element, over all outputs. */
static double compare(size_t n, const tensor_t *given, const tensor_t *wanted) {
    double worst = 0;
    for (size_t o = 0; o < n; o++) {
        double largest = 1e-3, most = 0;
        const int64_t elements = ir_type_elements(&wanted[o].type);
        for (int64_t i = 0; i < elements; i++) {
            const double difference = fabs(given[o].v[i] - wanted[o].v[i]);
            largest = fmax(largest, fabs(wanted[o].v[i]));
            most = difference <= most ? most : difference; /* a NaN stays */
        }
        worst = most / largest <= worst ? worst : most / largest;
    }
    return worst;
}

static void release(size_t n, tensor_t *tensors) {
    for (size_t o = 0; o < n; o++) st_free(tensors[o].v);
}

/* Every value is rounded once, by half a unit: 2^-9 of bf16, 2^-12 of f16. Errors of about 16 of
 * them add up on the way to a gradient; batch norm's differences may lose two bits more. */
static void gradients_are_near_float64(void **state) {
    (void)state;
    static const struct {
        ir_dtype_t dtype;
        double mlp, conv;
    } rows[] = {{IR_BF16, 0x1p-5, 0x1p-3}, {IR_F16, 0x1p-8, 0x1p-6}};
    for (int m = 0; m < 2; m++) {
        ir_graph_t *forward = m ? model_conv(BATCH) : model_mlp(BATCH), *graph;
        tensor_t wanted[32], given[32];
        ok(ad_gradient_graph(forward, "loss", 0, &graph));
        size_t n = gradients(graph, IR_F64, 1, wanted);
        assert_true(n > 4);
        for (size_t r = 0; r < 2; r++)
            for (uint32_t n_ranks = 1; n_ranks <= 3; n_ranks++) {
                assert_int_equal(gradients(graph, rows[r].dtype, n_ranks, given), n);
                const double worst = compare(n, given, wanted);
                const double limit = m ? rows[r].conv : rows[r].mlp;
                if (!(worst <= limit) || worst == 0)
                    fail_msg("%s in %s on %u ranks: off by %g, at most %g and more than 0 expected",
                             forward->name, ir_dtype_text(rows[r].dtype), n_ranks, worst, limit);
                release(n, given);
            }
        release(n, wanted);
        ir_graph_destroy(graph);
        ir_graph_destroy(forward);
    }
}

/* Gradients below f16's smallest number: 2^-24 at most, of a loss times 2^-30. */
static void small_gradients_survive_with_a_scale(void **state) {
    (void)state;
    static const char text[] =
        "graph \"small\" {\n"
        "  %0 x = input {dtype=f32, shape=[6,8]}\n"
        "  %1 w = parameter {dtype=f32, shape=[8,4]}\n"
        "  %2 v = parameter {dtype=f32, shape=[4,3]}\n"
        "  %3 = matmul(%0, %1)\n"
        "  %4 = relu(%3)\n"
        "  %5 = matmul(%4, %2)\n"
        "  %6 = square(%5)\n"
        "  %7 = reduce_mean(%6) {axes=[0,1]}\n"
        "  %8 = constant {dtype=f32, shape=[], data=0x1p-22}\n"
        "  %9 = mul(%7, %8)\n"
        "  output \"loss\" = %9\n"
        "}\n";
    ir_graph_t *forward, *graph;
    tensor_t wanted[32], given[32];
    ok(ir_graph_parse(text, strlen(text), &forward));
    ok(ad_gradient_graph(forward, "loss", 0, &graph));
    const size_t n = gradients(graph, IR_F64, 1, wanted);
    assert_int_equal(n, 3); /* the loss, and two gradients */
    ir_graph_destroy(graph);
    for (int scaled = 0; scaled < 3;
         scaled++) { /* none; one that f16 holds; one that it does not */
        double zeros = 0;
        ok(ad_gradient_graph(forward, "loss", scaled == 2 ? 65536 : scaled ? 4096 : 0, &graph));
        assert_int_equal(gradients(graph, IR_F16, 2, given), n);
        for (size_t o = 1; o < n; o++) {
            double largest = 0;
            const int64_t elements = ir_type_elements(&wanted[o].type);
            for (int64_t i = 0; i < elements; i++) largest = fmax(largest, fabs(wanted[o].v[i]));
            assert_true(largest > 0 && largest < 0x1p-24);
            for (int64_t i = 0; i < elements; i++) {
                zeros += given[o].v[i] == 0 && wanted[o].v[i] != 0;
                if (scaled && !(fabs(given[o].v[i] - wanted[o].v[i]) <= 0x1p-7 * largest))
                    fail_msg("scale %d: element %d of gradient %zu is %g, %g in float64", scaled,
                             (int)i, o, given[o].v[i], wanted[o].v[i]);
            }
        }
        assert_int_equal(zeros > 0, !scaled);
        release(n, given);
        ir_graph_destroy(graph);
    }
    release(n, wanted);
    ir_graph_destroy(forward);
}

/* ---- sessions ---- */

typedef struct trainer {
    ir_graph_t *forward, *graph;
    plan_t *plan;
    exec_session_t *session;
    size_t n_states;
    const char *names[MOST_STATES];
    ir_type_t types[MOST_STATES];
    double loss;
    int64_t skipped;
} trainer_t;

typedef struct variant {
    bool conv;
    const char *optimizer;
    ir_dtype_t dtype;
    int64_t accumulate;
    ad_scaling_t scaling;
} variant_t;

static void put(trainer_t *t, const char *name, ir_dtype_t dtype, double value) {
    const ir_type_t type = ir_type_scalar(dtype);
    uint64_t data = 0;
    ir_element_store(dtype, &data, 0, value);
    ok(exec_state_write(t->session, name, &type, &data));
}
static double get(trainer_t *t, const char *name, ir_dtype_t dtype) {
    const ir_type_t type = ir_type_scalar(dtype);
    uint64_t data = 0;
    ok(exec_state_read(t->session, name, &type, &data));
    return ir_element_load(dtype, &data, 0);
}

static trainer_t open_trainer(const variant_t *v, uint32_t n_ranks) {
    trainer_t t = {.forward = v->conv ? model_conv(BATCH) : model_mlp(BATCH)};
    ad_train_options_t o;
    ok(ad_train_defaults(v->optimizer, &o));
    o.lr = 0.05;
    o.momentum = strcmp(v->optimizer, "sgd") == 0 ? 0.9 : 0;
    o.clip_norm = 1;
    o.ema_decay = 0.9;
    o.accumulate = v->accumulate;
    o.scaling = v->scaling;
    ok(ad_train_graph(t.forward, &o, &t.graph));
    compile_options_t options = {.n_ranks = n_ranks, .dtype = v->dtype};
    exec_options_t session = {.poison = true, .timeout_ms = 30000};
    t.plan = compile_ok(t.graph, &options);
    ok(exec_session_create_with(t.plan, NULL, &session, &t.session));
    fill_states(t.session, t.plan);
    for (ir_node_t i = 0; i < t.graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(t.graph, i);
        if (node->op != IR_OP_PARAMETER && node->op != IR_OP_BUFFER) continue;
        assert_true(t.n_states < MOST_STATES);
        t.names[t.n_states] = node->name;
        t.types[t.n_states++] = *ir_value_type(t.graph, node->first_output);
    }
    if (v->scaling.skip) put(&t, "optim.skipped", IR_I64, 0);
    if (v->scaling.dynamic) {
        put(&t, "optim.loss_scale", IR_F32, 256);
        put(&t, "optim.loss_scale_clean", IR_I64, 0);
    }
    return t;
}

static void close_trainer(trainer_t *t) {
    exec_session_destroy(t->session);
    plan_destroy(t->plan);
    ir_graph_destroy(t->graph);
    ir_graph_destroy(t->forward);
}

/* A step on the data of `seed`; with `overflow` the last element of x is infinite. */
static void step(trainer_t *t, uint64_t seed, bool overflow) {
    exec_feed_t feeds[8];
    float loss = 0;
    exec_fetch_t fetches[2] = {{"loss", &loss, sizeof loss},
                               {"skipped", &t->skipped, sizeof t->skipped}};
    const bool skips = ir_graph_find_output(t->graph, "skipped") != IR_NONE;
    for (uint32_t i = 0; i < t->plan->n_inputs; i++) {
        const plan_port_t *port = &t->plan->inputs[i];
        void *data = st_malloc(ir_type_bytes(&port->type));
        fill_random(&port->type, data, st_hash_string(port->name) + seed, 5);
        if (overflow && port->type.dtype == IR_F32)
            ((float *)data)[ir_type_elements(&port->type) - 1] = INFINITY;
        feeds[i] = (exec_feed_t){port->name, port->type, data};
    }
    ok(exec_session_step(t->session, t->plan->n_inputs, feeds, skips ? 2 : 1, fetches));
    for (uint32_t i = 0; i < t->plan->n_inputs; i++) st_free((void *)(uintptr_t)feeds[i].data);
    t->loss = (double)loss;
}

static unsigned char *read_states(trainer_t *t, size_t *out_bytes) {
    size_t bytes = 0, at = 0;
    for (size_t i = 0; i < t->n_states; i++) bytes += ir_type_bytes(&t->types[i]);
    unsigned char *all = st_malloc(bytes);
    for (size_t i = 0; i < t->n_states; i++) {
        ok(exec_state_read(t->session, t->names[i], &t->types[i], all + at));
        at += ir_type_bytes(&t->types[i]);
    }
    *out_bytes = bytes;
    return all;
}

/* Bits of all states but those that count skips. */
static void assert_same_states(const trainer_t *t, const unsigned char *a, const unsigned char *b,
                               const char *what) {
    size_t at = 0;
    for (size_t i = 0; i < t->n_states; i++) {
        const size_t bytes = ir_type_bytes(&t->types[i]);
        const bool own = strncmp(t->names[i], "optim.loss_scale", 16) == 0 ||
                         strcmp(t->names[i], "optim.skipped") == 0;
        if (!own && memcmp(a + at, b + at, bytes) != 0)
            fail_msg("%s, %s: state '%s' differs", t->graph->name, what, t->names[i]);
        at += bytes;
    }
}

static const variant_t variants[] = {
    {false, "adamw", IR_F16, 1, {.dynamic = true, .skip = true}},
    {false, "adamw", IR_F16, 2, {.dynamic = true, .skip = true}},
    {true, "sgd", IR_F16, 1, {.dynamic = true, .skip = true}},
    {false, "adamw", IR_BF16, 1, {.skip = true}},
    {true, "sgd", IR_BF16, 1, {.skip = true}},
    {true, "adamw", IR_DTYPE_NONE, 1, {.skip = true}},
    {false, "sgd", IR_DTYPE_NONE, 3, {.skip = true, .fixed = 1024}},
};

static void an_overflow_changes_nothing(void **state) {
    (void)state;
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
        for (uint32_t n_ranks = 1; n_ranks <= 3; n_ranks++) {
            const variant_t *row = &variants[v];
            trainer_t t = open_trainer(row, n_ranks), clean = open_trainer(row, n_ranks);
            size_t bytes;
            for (uint64_t s = 0; s < 2; s++) {
                step(&t, s, false);
                assert_int_equal(t.skipped, 0);
                step(&clean, s, false);
            }
            unsigned char *before = read_states(&t, &bytes);
            const double steps = get(&t, "optim.step", IR_I64);
            step(&t, 2, true);
            unsigned char *after = read_states(&t, &bytes);
            assert_int_equal(t.skipped, 1);
            assert_same_states(&t, before, after, "after the overflow");
            assert_true(get(&t, "optim.skipped", IR_I64) == 1);
            assert_true(get(&t, "optim.step", IR_I64) == steps);
            if (row->scaling.dynamic) {
                assert_true(get(&t, "optim.loss_scale", IR_F32) == 128);
                assert_true(get(&t, "optim.loss_scale_clean", IR_I64) == 0);
                put(&t, "optim.loss_scale", IR_F32, 256);
            }
            step(&t, 3, false); /* goes on as if that step had not been */
            step(&clean, 3, false);
            assert_int_equal(t.skipped, 0);
            unsigned char *on = read_states(&t, &bytes), *wanted = read_states(&clean, &bytes);
            assert_true(memcmp(on, after, bytes) != 0);
            assert_same_states(&t, on, wanted, "a step later");
            st_free(before);
            st_free(after);
            st_free(on);
            st_free(wanted);
            close_trainer(&t);
            close_trainer(&clean);
        }
}

static void the_scale_grows_and_starts(void **state) {
    (void)state;
    trainer_t t = open_trainer(&variants[0], 2);
    put(&t, "optim.loss_scale_clean", IR_I64, AD_SCALE_STEPS - 2);
    step(&t, 0, false);
    assert_true(get(&t, "optim.loss_scale", IR_F32) == 256);
    assert_true(get(&t, "optim.loss_scale_clean", IR_I64) == AD_SCALE_STEPS - 1);
    step(&t, 1, false);
    assert_true(get(&t, "optim.loss_scale", IR_F32) == 512);
    assert_true(get(&t, "optim.loss_scale_clean", IR_I64) == 0);
    put(&t, "optim.loss_scale", IR_F32, 0); /* as state begins */
    step(&t, 2, true);
    assert_true(get(&t, "optim.loss_scale", IR_F32) == AD_SCALE_FIRST / 2);
    put(&t, "optim.loss_scale", IR_F32, 0x1p-24);
    step(&t, 3, true);
    assert_true(get(&t, "optim.loss_scale", IR_F32) == 0x1p-24);
    assert_true(get(&t, "optim.skipped", IR_I64) == 2);
    close_trainer(&t);
}

/* Micro-batches take gradients of a sum, which is as many times their mean as it has items: what
 * 65536 times a mean is that scale divided by them. With 65536 itself the first steps overflow. */
static void micro_batches_begin_with_a_scale_for_their_sum(void **state) {
    (void)state;
    static const variant_t mean = {false, "adamw", IR_F16, 1, {.dynamic = true, .skip = true}};
    static const variant_t sum = {false, "adamw", IR_F16, 3, {.dynamic = true, .skip = true}};
    trainer_t t = open_trainer(&mean, 2);
    put(&t, "optim.loss_scale", IR_F32, 0);
    step(&t, 1, false);
    assert_int_equal(t.skipped, 0);
    assert_true(get(&t, "optim.loss_scale", IR_F32) == AD_SCALE_FIRST);
    close_trainer(&t);
    t = open_trainer(&sum, 2);
    put(&t, "optim.loss_scale", IR_F32, 0);
    step(&t, 1, false);
    assert_int_equal(t.skipped, 0);
    assert_true(get(&t, "optim.loss_scale", IR_F32) == AD_SCALE_FIRST / 8); /* of 6 labels */
    close_trainer(&t);
    assert_true(ad_loss_scale_first(1) == AD_SCALE_FIRST);
    assert_true(ad_loss_scale_first(4096) == 16);
    assert_true(ad_loss_scale_first(4097) == 8);
}

/* ---- sums over ranks ---- */

/* What plain SGD with a rate of 1 makes of a weight of 0 whose gradient is the sum of x over the
 * batch: the first rank's 256, and 1 of each of the seven others. */
static double summed(shard_form_t form, bool wide) {
    enum { RANKS = 8, IN = 2, OUT = 3 };
    ir_graph_t *forward, *graph;
    ad_train_options_t o;
    float x[RANKS * IN], w[OUT * IN] = {0};
    const ir_type_t rows = ir_type_make(IR_F32, 2, (int64_t[]){RANKS, IN});
    const ir_type_t weight = ir_type_make(IR_F32, 2, (int64_t[]){OUT, IN});
    ok(ir_graph_create("sum", &forward));
    ir_build_t b = {.graph = forward};
    ir_value_t in = ir_b_input(&b, "x", rows, 0), by = ir_b_parameter(&b, "w", weight);
    ir_b_output(
        &b, "loss",
        ir_b_reduce(&b, IR_OP_REDUCE_SUM, ir_b_matmul(&b, in, by, false, true), 0, NULL, false));
    ok(b.status);
    ok(ad_train_defaults("sgd", &o));
    o.lr = 1;
    ok(ad_train_graph(forward, &o, &graph));
    const compile_options_t options = {
        .n_ranks = RANKS, .dtype = IR_BF16, .form = form, .wide_gradients = wide};
    plan_t *plan = compile_ok(graph, &options);
    exec_session_t *session;
    for (int i = 0; i < RANKS * IN; i++) x[i] = i < IN ? 256 : 1;
    ok(exec_session_create(plan, NULL, &session));
    ok(exec_state_write(session, "w", &weight, w));
    ok(exec_state_write(session, "optim.step", &(ir_type_t){.dtype = IR_I64}, &(int64_t){0}));
    ok(exec_session_step(session, 1, &(exec_feed_t){"x", rows, x}, 0, NULL));
    ok(exec_state_read(session, "w", &weight, w));
    for (int i = 1; i < OUT * IN; i++) assert_true(w[i] == w[0]);
    exec_session_destroy(session);
    plan_destroy(plan);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
    return (double)w[0];
}

/* bf16 has 8 bits: between 256 and 512 it has even numbers only. */
static void sums_over_ranks_in_float32_keep_small_addends(void **state) {
    (void)state;
    static const shard_form_t forms[] = {SHARD_FORM_DP, SHARD_FORM_ZERO1, SHARD_FORM_ZERO2,
                                         SHARD_FORM_ZERO3};
    for (int f = 0; f < 4; f++) {
        assert_true(summed(forms[f], true) == -263);
        assert_true(summed(forms[f], false) == -264);
    }
}

/* Micro-batches as a loop: its gradients have the errors of 16 bits, above those of float32. */
static void accumulating_loops_compute_in_16_bits(void **state) {
    (void)state;
    static const struct {
        ir_dtype_t dtype;
        double least, most;
    } rows[] = {{IR_BF16, 0x1p-13, 0x1p-5}, {IR_F16, 0x1p-16, 0x1p-8}};
    ir_graph_t *forward = model_mlp(BATCH), *graph;
    tensor_t wanted[32], given[32];
    ad_train_options_t o;
    ok(ad_train_defaults("sgd", &o));
    o.accumulate = 3;
    o.gradient_outputs = true;
    ok(ad_train_graph(forward, &o, &graph));
    size_t n = gradients(graph, IR_F64, 1, wanted);
    assert_true(n > 4);
    for (size_t r = 0; r < 2; r++)
        for (uint32_t n_ranks = 1; n_ranks <= 3; n_ranks += 2) {
            assert_int_equal(gradients(graph, rows[r].dtype, n_ranks, given), n);
            const double worst = compare(n, given, wanted);
            if (!(worst >= rows[r].least && worst <= rows[r].most))
                fail_msg("%s on %u ranks: off by %g, %g to %g expected",
                         ir_dtype_text(rows[r].dtype), n_ranks, worst, rows[r].least, rows[r].most);
            release(n, given);
        }
    release(n, wanted);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

/* A power of two as the scale changes no bit of an f32 run: it is divided out again. */
static void a_fixed_scale_is_divided_out(void **state) {
    (void)state;
    const variant_t plain = {false, "adamw", IR_F64, 1, {.skip = false}};
    const variant_t scaled = {false, "adamw", IR_F64, 1, {.fixed = 4096}};
    trainer_t a = open_trainer(&plain, 2), b = open_trainer(&scaled, 2);
    assert_int_equal(a.n_states, b.n_states);
    close_trainer(&a);
    close_trainer(&b);
    double *x, *y;
    compile_options_t options = {.n_ranks = 2, .dtype = IR_F64};
    ir_graph_t *forward = model_mlp(BATCH), *graphs[2];
    for (int i = 0; i < 2; i++) {
        ad_train_options_t o;
        ok(ad_train_defaults("adamw", &o));
        o.clip_norm = 0.01;
        o.gradient_outputs = true;
        o.scaling = i ? scaled.scaling : plain.scaling;
        ok(ad_train_graph(forward, &o, &graphs[i]));
    }
    plan_t *one = compile_ok(graphs[0], &options), *two = compile_ok(graphs[1], &options);
    size_t n = run_plan(one, 3, &x);
    assert_int_equal(run_plan(two, 3, &y), n);
    assert_close(n, x, y, 1e-13, "a fixed loss scale");
    st_free(x);
    st_free(y);
    plan_destroy(one);
    plan_destroy(two);
    for (int i = 0; i < 2; i++) ir_graph_destroy(graphs[i]);
    ir_graph_destroy(forward);
}

/* 40 steps on one batch: the loss falls as that of float32 does. */
static void training_follows_float32(void **state) {
    (void)state;
    static const variant_t rows[] = {{false, "adamw", IR_DTYPE_NONE, 1, {.skip = false}},
                                     {false, "adamw", IR_BF16, 1, {.skip = false}},
                                     {false, "adamw", IR_F16, 1, {.dynamic = true, .skip = true}}};
    double first = 0, wanted = 0;
    for (size_t r = 0; r < 3; r++)
        for (uint32_t n_ranks = 1; n_ranks <= 3; n_ranks += 2) {
            trainer_t t = open_trainer(&rows[r], n_ranks);
            for (int s = 0; s < 40; s++) {
                step(&t, 7, false);
                if (s == 0 && r == 0) first = t.loss;
            }
            if (r == 0) wanted = t.loss;
            if (r == 0) assert_true(wanted < 0.5 * first);
            if (!(fabs(t.loss - wanted) <= 0.02 * first))
                fail_msg("%s on %u ranks: loss %g, %g in f32, from %g",
                         ir_dtype_text(rows[r].dtype), n_ranks, t.loss, wanted, first);
            close_trainer(&t);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_near_float64),
        cmocka_unit_test(small_gradients_survive_with_a_scale),
        cmocka_unit_test(an_overflow_changes_nothing),
        cmocka_unit_test(the_scale_grows_and_starts),
        cmocka_unit_test(micro_batches_begin_with_a_scale_for_their_sum),
        cmocka_unit_test(sums_over_ranks_in_float32_keep_small_addends),
        cmocka_unit_test(accumulating_loops_compute_in_16_bits),
        cmocka_unit_test(a_fixed_scale_is_divided_out),
        cmocka_unit_test(training_follows_float32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
