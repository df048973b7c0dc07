/* Small training graphs, and running a graph on any number of ranks. */
#include "exec/models.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/train_graph.h"
#include "base/hash.h"
#include "base/memory.h"
#include "ir/build.h"
#include "ir/convert.h"

static void expect_ok(st_status_t status) {
    if (status != ST_OK) print_error("%s: %s\n", st_status_text(status), st_last_error());
    assert_int_equal(status, ST_OK);
}

static ir_type_t f32(int32_t rank, int64_t a, int64_t b, int64_t c, int64_t d) {
    return ir_type_make(IR_F32, rank, (int64_t[]){a, b, c, d});
}

/* ---- models ---- */

static ir_value_t labels_loss(ir_build_t *b, ir_value_t logits, int64_t batch) {
    ir_value_t y = ir_b_input(b, "y", ir_type_make(IR_I64, 1, &batch), 0);
    return ir_b_node(b, IR_OP_CROSS_ENTROPY, 2, (ir_value_t[]){logits, y}, 0, NULL);
}

ir_graph_t *model_mlp(int64_t batch) {
    ir_graph_t *graph = NULL;
    expect_ok(ir_graph_create("mlp", &graph));
    ir_build_t b = {.graph = graph};
    ir_value_t x = ir_b_input(&b, "x", f32(2, batch, 10, 0, 0), 0);
    ir_value_t w0 = ir_b_parameter(&b, "fc0.weight", f32(2, 16, 10, 0, 0));
    ir_value_t b0 = ir_b_parameter(&b, "fc0.bias", f32(1, 16, 0, 0, 0));
    ir_value_t g = ir_b_parameter(&b, "norm.weight", f32(1, 16, 0, 0, 0));
    ir_value_t w1 = ir_b_parameter(&b, "fc1.weight", f32(2, 5, 16, 0, 0));
    ir_value_t h = ir_b_binary(&b, IR_OP_ADD, ir_b_matmul(&b, x, w0, false, true), b0);
    h = ir_b_unary(&b, IR_OP_SILU, h);
    h = ir_b_node(&b, IR_OP_RMS_NORM, 2, (ir_value_t[]){h, g}, 0, NULL);
    ir_value_t logits = ir_b_matmul(&b, h, w1, false, true);
    ir_b_output(&b, "logits", logits);
    ir_b_output(&b, "loss", labels_loss(&b, logits, batch));
    expect_ok(b.status);
    return graph;
}

static ir_value_t conv3(ir_build_t *b, ir_value_t x, ir_value_t w) {
    static const int64_t one[] = {1, 1};
    return ir_b_node(
        b, IR_OP_CONV, 2, (ir_value_t[]){x, w}, 4,
        (ir_arg_t[]){IR_ARG_INTS("strides", one, 2), IR_ARG_INTS("pads_low", one, 2),
                     IR_ARG_INTS("pads_high", one, 2), IR_ARG_INTS("dilations", one, 2)});
}

static ir_value_t batch_norm(ir_build_t *b, ir_value_t x, const char *name, int64_t channels) {
    static const char *const parts[] = {"weight", "bias", "running_mean", "running_var"};
    ir_value_t in[5] = {x};
    for (int i = 0; i < 4; i++) {
        char full[64];
        snprintf(full, sizeof full, "%s.%s", name, parts[i]);
        in[1 + i] = i < 2 ? ir_b_parameter(b, full, f32(1, channels, 0, 0, 0))
                          : ir_b_buffer(b, full, f32(1, channels, 0, 0, 0));
    }
    ir_value_t y = ir_b_node(b, IR_OP_BATCH_NORM, 5, in, 0, NULL);
    if (y != IR_NONE) ir_b_update(b, in[3], y + 3);
    if (y != IR_NONE) ir_b_update(b, in[4], y + 4);
    return y;
}

ir_graph_t *model_conv(int64_t batch) {
    ir_graph_t *graph = NULL;
    expect_ok(ir_graph_create("conv", &graph));
    ir_build_t b = {.graph = graph};
    ir_value_t x = ir_b_input(&b, "x", f32(4, batch, 2, 8, 8), 0);
    ir_value_t w0 = ir_b_parameter(&b, "conv0.weight", f32(4, 4, 2, 3, 3));
    ir_value_t w1 = ir_b_parameter(&b, "conv1.weight", f32(4, 4, 4, 3, 3));
    ir_value_t wf = ir_b_parameter(&b, "fc.weight", f32(2, 5, 64, 0, 0));
    ir_value_t step = ir_b_buffer(&b, "optim.step", ir_type_scalar(IR_I64));
    ir_value_t seed = ir_b_input(&b, "seed", ir_type_scalar(IR_I64), -1);
    ir_value_t h = ir_b_unary(&b, IR_OP_RELU, batch_norm(&b, conv3(&b, x, w0), "bn0", 4));
    h = ir_b_binary(&b, IR_OP_ADD, h, batch_norm(&b, conv3(&b, h, w1), "bn1", 4));
    static const int64_t two[] = {2, 2}, zero[] = {0, 0}, one[] = {1, 1};
    h = ir_b_node(&b, IR_OP_MAX_POOL, 1, &h, 5,
                  (ir_arg_t[]){IR_ARG_INTS("kernel", two, 2), IR_ARG_INTS("strides", two, 2),
                               IR_ARG_INTS("pads_low", zero, 2), IR_ARG_INTS("pads_high", zero, 2),
                               IR_ARG_INTS("dilations", one, 2)});
    h = ir_b_reshape(&b, h, 2, (int64_t[]){batch, 64});
    h = ir_b_node(&b, IR_OP_DROPOUT, 3, (ir_value_t[]){h, seed, step}, 2,
                  (ir_arg_t[]){IR_ARG_FLOAT("p", 0.25), IR_ARG_INT("id", 3)});
    ir_b_output(&b, "loss", labels_loss(&b, ir_b_matmul(&b, h, wf, false, true), batch));
    expect_ok(b.status);
    return graph;
}

ir_graph_t *model_train_with(const ir_graph_t *forward, const char *optimizer, double clip,
                             int64_t accumulate, double ema) {
    ad_train_options_t options;
    ir_graph_t *graph = NULL;
    expect_ok(ad_train_defaults(optimizer, &options));
    options.lr = 0.05;
    options.clip_norm = clip;
    options.momentum = strcmp(optimizer, "sgd") == 0 ? 0.9 : 0;
    options.accumulate = accumulate;
    options.ema_decay = ema;
    expect_ok(ad_train_graph(forward, &options, &graph));
    return graph;
}

ir_graph_t *model_train(const ir_graph_t *forward, const char *optimizer, double clip) {
    return model_train_with(forward, optimizer, clip, 1, 0);
}

/* ---- random graphs ---- */

enum { POOL = 64, WIDTH = 6 };

/* A value [batch or other, WIDTH] of the pool. */
static ir_value_t pick(const ir_value_t *pool, int n, unsigned *seed) {
    return pool[rand_r(seed) % n];
}

static ir_value_t random_node(ir_build_t *b, const ir_value_t *rows, int n_rows,
                              const ir_value_t *square, int n_square, int64_t batch,
                              unsigned *seed) {
    static const ir_op_t unary[] = {IR_OP_TANH, IR_OP_SIN, IR_OP_SIGMOID, IR_OP_NEG, IR_OP_RELU};
    static const ir_op_t binary[] = {IR_OP_ADD, IR_OP_SUB, IR_OP_MUL, IR_OP_MAXIMUM};
    ir_value_t x = pick(rows, n_rows, seed), y = pick(rows, n_rows, seed);
    switch (rand_r(seed) % 9) {
        case 0:
        case 1:
            return ir_b_unary(b, unary[rand_r(seed) % 5], x);
        case 2:
        case 3:
            return ir_b_binary(b, binary[rand_r(seed) % 4], x, y);
        case 4: /* contraction of the width */
            return ir_b_scale(b, ir_b_matmul(b, x, pick(square, n_square, seed), false, false),
                              0.3);
        case 5: { /* a view and back */
            ir_value_t flat = ir_b_reshape(b, x, 1, (int64_t[]){batch * WIDTH});
            flat = ir_b_unary(b, IR_OP_TANH, flat);
            return ir_b_reshape(b, flat, 2, (int64_t[]){batch, WIDTH});
        }
        case 6: { /* sum over the batch, spread over it again */
            int64_t axis = 0;
            ir_value_t sum = ir_b_reduce(b, IR_OP_REDUCE_SUM, x, 1, &axis, true);
            return ir_b_binary(b, IR_OP_ADD, y, ir_b_scale(b, sum, 0.1));
        }
        case 7: { /* something no split survives: a cumulative sum over the batch */
            ir_value_t sum =
                ir_b_node(b, IR_OP_CUMSUM, 1, &x, 1, (ir_arg_t[]){IR_ARG_INT("axis", 0)});
            return ir_b_scale(b, sum, 0.2);
        }
        default: { /* products over the batch: [W, B] × [B, W] */
            ir_value_t w = ir_b_scale(b, ir_b_matmul(b, x, y, true, false), 0.1);
            return ir_b_matmul(b, ir_b_unary(b, IR_OP_TANH, x), w, false, false);
        }
    }
}

ir_graph_t *model_random(unsigned seed, int64_t batch, int n_nodes) {
    ir_graph_t *graph = NULL;
    expect_ok(ir_graph_create("random", &graph));
    ir_build_t b = {.graph = graph};
    ir_value_t rows[POOL], square[3], buffers[2];
    int n_rows = 0;
    ir_type_t type = f32(2, batch, WIDTH, 0, 0), weight = f32(2, WIDTH, WIDTH, 0, 0);
    rows[n_rows++] = ir_b_input(&b, "x", type, 0);
    rows[n_rows++] = ir_b_input(&b, "whole", type, -1);
    rows[n_rows++] = ir_b_splat(&b, type, 0.25);
    rows[n_rows++] = ir_b_iota(&b, type, 0, -1, 0.125);
    rows[n_rows++] = buffers[0] = ir_b_buffer(&b, "a", type);
    rows[n_rows++] = buffers[1] = ir_b_buffer(&b, "b", type);
    square[0] = ir_b_parameter(&b, "w0", weight);
    square[1] = ir_b_parameter(&b, "w1", weight);
    square[2] = ir_b_input(&b, "w2", weight, -1);
    for (int i = 0; i < n_nodes && n_rows < POOL; i++) {
        rows[n_rows] = random_node(&b, rows, n_rows, square, 3, batch, &seed);
        n_rows++;
    }
    ir_b_output(&b, "last", rows[n_rows - 1]);
    ir_b_output(&b, "some", pick(rows, n_rows, &seed));
    ir_b_output(&b, "old", buffers[rand_r(&seed) % 2]);
    ir_b_output(&b, "sum",
                ir_b_reduce(&b, IR_OP_REDUCE_SUM, pick(rows, n_rows, &seed), 0, NULL, false));
    /* possibly a swap of the two */
    ir_b_update(&b, buffers[0], pick(rows, n_rows, &seed));
    ir_b_update(&b, buffers[1], rand_r(&seed) % 4 ? pick(rows, n_rows, &seed) : buffers[0]);
    ir_b_update(&b, square[0],
                ir_b_binary(&b, IR_OP_SUB, square[0], ir_b_scale(&b, square[1], 0.1)));
    expect_ok(b.status);
    return graph;
}

/* ---- running ---- */

plan_t *compile_ok(const ir_graph_t *graph, const compile_options_t *options) {
    plan_t *plan = NULL;
    expect_ok(compile_plan(graph, options, &plan));
    return plan;
}

void fill_random(const ir_type_t *type, void *data, uint64_t seed, int64_t n_classes) {
    for (int64_t i = 0; i < ir_type_elements(type); i++) {
        uint32_t words[4];
        st_philox(seed, (uint64_t)i, 0, words);
        if (ir_dtype_is_float(type->dtype))
            ir_element_store(type->dtype, data, (size_t)i, (double)st_uniform24(words[0]) - 0.5);
        else
            ir_element_store_i64(type->dtype, data, (size_t)i, words[0] % n_classes);
    }
}

/* Variances have to be positive; moments and counters start at zero. */
static void fill_by_name(const char *name, const ir_type_t *type, void *data) {
    fill_random(type, data, st_hash_string(name), 5);
    bool zero = strncmp(name, "optim.", 6) == 0;
    for (int64_t i = 0; i < ir_type_elements(type); i++) {
        double value = ir_element_load(type->dtype, data, (size_t)i);
        if (strstr(name, "running_var")) value = 1 + fabs(value);
        if (zero) value = 0;
        ir_element_store(type->dtype, data, (size_t)i, value);
    }
}

typedef struct name_row {
    const char *name;
    ir_type_t type;
} name_row_t;

static int by_name(const void *a, const void *b) {
    return strcmp(((const name_row_t *)a)->name, ((const name_row_t *)b)->name);
}

static size_t list_states(const plan_t *plan, name_row_t *rows) {
    const ir_graph_t *graph = plan->programs[0].graph;
    size_t n = 0;
    for (ir_node_t i = 0; i < graph->nodes.n; i++)
        if (ir_op_def(ir_node(graph, i)->op)->flags & IR_STATE)
            rows[n++] = (name_row_t){ir_node(graph, i)->name,
                                     *ir_value_type(graph, ir_node(graph, i)->first_output)};
    qsort(rows, n, sizeof *rows, by_name);
    return n;
}

void fill_states(exec_session_t *session, const plan_t *plan) {
    name_row_t rows[64];
    size_t n = list_states(plan, rows);
    for (size_t i = 0; i < n; i++) {
        void *data = st_malloc(ir_type_bytes(&rows[i].type));
        fill_by_name(rows[i].name, &rows[i].type, data);
        expect_ok(exec_state_write(session, rows[i].name, &rows[i].type, data));
        st_free(data);
    }
}

static double *append(double *values, size_t *n, const ir_type_t *type, const void *data) {
    size_t more = (size_t)ir_type_elements(type);
    values = st_realloc(values, (*n + more) * sizeof *values);
    for (size_t i = 0; i < more; i++) values[*n + i] = ir_element_load(type->dtype, data, i);
    *n += more;
    return values;
}

size_t run_plan(const plan_t *plan, int n_steps, double **out_values) {
    return run_plan_on(plan, NULL, n_steps, out_values);
}

size_t run_plan_on(const plan_t *plan, comm_t *comm, int n_steps, double **out_values) {
    exec_session_t *session = NULL;
    exec_options_t options = {.comm = comm, .poison = true, .timeout_ms = 30000};
    exec_feed_t feeds[8];
    exec_fetch_t fetches[16];
    expect_ok(exec_session_create_with(plan, NULL, &options, &session));
    fill_states(session, plan);
    for (uint32_t o = 0; o < plan->n_outputs; o++) {
        size_t bytes = ir_type_bytes(&plan->outputs[o].type);
        fetches[o] = (exec_fetch_t){plan->outputs[o].name, st_malloc(bytes), bytes};
        memset(fetches[o].data, 0xff, bytes);
    }
    for (int step = 0; step < n_steps; step++) {
        for (uint32_t i = 0; i < plan->n_inputs; i++) {
            const plan_port_t *port = &plan->inputs[i];
            void *data = st_malloc(ir_type_bytes(&port->type));
            fill_random(&port->type, data, st_hash_string(port->name) + (uint64_t)step, 5);
            feeds[i] = (exec_feed_t){port->name, port->type, data};
        }
        expect_ok(exec_session_step(session, plan->n_inputs, feeds, plan->n_outputs, fetches));
        for (uint32_t i = 0; i < plan->n_inputs; i++) st_free((void *)(uintptr_t)feeds[i].data);
    }
    size_t n = 0;
    double *values = NULL;
    name_row_t rows[64];
    size_t n_states = list_states(plan, rows);
    for (size_t i = 0; i < n_states; i++) {
        void *data = st_malloc(ir_type_bytes(&rows[i].type));
        expect_ok(exec_state_read(session, rows[i].name, &rows[i].type, data));
        values = append(values, &n, &rows[i].type, data);
        st_free(data);
    }
    for (uint32_t o = 0; o < plan->n_outputs; o++) {
        values = append(values, &n, &plan->outputs[o].type, fetches[o].data);
        st_free(fetches[o].data);
    }
    exec_session_destroy(session);
    *out_values = values;
    return n;
}

void assert_close(size_t n, const double *a, const double *b, double tolerance, const char *what) {
    for (size_t i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= tolerance * (1 + fabs(a[i]))))
            fail_msg("%s: element %zu is %.17g and %.17g", what, i, a[i], b[i]);
}
