/* The nest kernel of `fused` on composites and what training steps fuse, against the reference of
 * the same body in f64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "bodies.h"
#include "ir/nest.h"
#include "kernels/nest/plan.h"

/* A text with %T as the element type and %W as the wide one. */
static void check(const char *text, int64_t limit, double terms, const char *label) {
    static const char *const types[4] = {"f64", "f32", "bf16", "f16"};
    for (int t = 0; t < 4; t++) {
        char made[8192], name[128];
        size_t n = 0;
        for (const char *c = text; *c; c++) {
            if (c[0] == '$' && (c[1] == 'T' || c[1] == 'W')) {
                const char *type = c[1] == 'W' && t > 0 ? "f32" : types[t];
                n += (size_t)snprintf(made + n, sizeof made - n, "%s", type);
                c++;
            } else {
                made[n++] = *c;
            }
        }
        made[n] = 0;
        snprintf(name, sizeof name, "%s in %s", label, types[t]);
        body_t body = body_parse(made, limit, 1);
        body_check(&body, terms, name);
        body_free(&body);
    }
}

#define BODY(text) "graph \"body\" {\n" text "}\n"

static void test_row_norms(void **state) {
    (void)state;
    check(BODY("%0 x = input {dtype=$T, shape=[5,7,33], batch_axis=-1}\n"
               "%1 w = input {dtype=$T, shape=[33], batch_axis=-1}\n"
               "%2, %3 = rms_norm(%0, %1)\n"
               "output \"y\" = %2\n"
               "output \"r\" = %3\n"),
          1, 33, "rms_norm");
    check(BODY("%0 dy = input {dtype=$T, shape=[300,33], batch_axis=-1}\n"
               "%1 x = input {dtype=$T, shape=[300,33], batch_axis=-1}\n"
               "%2 r = input {dtype=$W, shape=[300], batch_axis=-1}\n"
               "%3 w = input {dtype=$T, shape=[33], batch_axis=-1}\n"
               "%4, %5 = rms_norm_grad(%0, %1, %2, %3)\n"
               "output \"dx\" = %4\n"
               "output \"dw\" = %5\n"),
          1, 1000, "rms_norm_grad");
    check(BODY("%0 x = input {dtype=$T, shape=[9,5,12], batch_axis=-1}\n"
               "%1 w = input {dtype=$T, shape=[5,12], batch_axis=-1}\n"
               "%2 b = input {dtype=$T, shape=[5,12], batch_axis=-1}\n"
               "%3, %4, %5 = layer_norm(%0, %1, %2)\n"
               "output \"y\" = %3\n"
               "output \"m\" = %4\n"
               "output \"r\" = %5\n"),
          1, 60, "layer_norm");
    check(BODY("%0 dy = input {dtype=$T, shape=[70,130], batch_axis=-1}\n"
               "%1 x = input {dtype=$T, shape=[70,130], batch_axis=-1}\n"
               "%2 m = input {dtype=$W, shape=[70], batch_axis=-1}\n"
               "%3 r = input {dtype=$W, shape=[70], batch_axis=-1}\n"
               "%4 w = input {dtype=$T, shape=[130], batch_axis=-1}\n"
               "%5, %6, %7 = layer_norm_grad(%0, %1, %2, %3, %4)\n"
               "output \"dx\" = %5\n"
               "output \"dw\" = %6\n"
               "output \"db\" = %7\n"),
          1, 1000, "layer_norm_grad");
    check(BODY("%0 x = input {dtype=$T, shape=[3,9000], batch_axis=-1}\n"
               "%1 w = input {dtype=$T, shape=[9000], batch_axis=-1}\n"
               "%2, %3 = rms_norm(%0, %1)\n"
               "%4 = silu(%2)\n"
               "output \"y\" = %4\n"
               "output \"r\" = %3\n"),
          1, 9000, "rms_norm of long rows with silu");
}

static void test_softmaxes(void **state) {
    (void)state;
    check(BODY("%0 x = input {dtype=$T, shape=[6,5,37], batch_axis=-1}\n"
               "%1 = softmax(%0) {axis=2}\n"
               "%2 = log_softmax(%0) {axis=2}\n"
               "output \"y\" = %1\n"
               "output \"l\" = %2\n"),
          1, 37, "softmax and log_softmax");
    check(BODY("%0 x = input {dtype=$T, shape=[6,37,20], batch_axis=-1}\n"
               "%1 = softmax(%0) {axis=1}\n"
               "output \"y\" = %1\n"),
          1, 37, "softmax of a middle axis");
    check(BODY("%0 x = input {dtype=$T, shape=[4,20000], batch_axis=-1}\n"
               "%1 = softmax(%0) {axis=1}\n"
               "output \"y\" = %1\n"),
          1, 20000, "softmax of long rows");
    check(BODY("%0 x = input {dtype=$T, shape=[100000], batch_axis=-1}\n"
               "%1 = log_softmax(%0) {axis=0}\n"
               "output \"y\" = %1\n"),
          1, 100000, "log_softmax of everything");
    check(BODY("%0 dy = input {dtype=$T, shape=[11,130], batch_axis=-1}\n"
               "%1 x = input {dtype=$T, shape=[11,130], batch_axis=-1}\n"
               "%2 = softmax(%1) {axis=1}\n"
               "%3 = softmax_grad(%0, %2) {axis=1}\n"
               "%4 = log_softmax(%1) {axis=1}\n"
               "%5 = log_softmax_grad(%0, %4) {axis=1}\n"
               "output \"a\" = %3\n"
               "output \"b\" = %5\n"),
          1, 130, "gradients of softmaxes");
}

static void test_cross_entropy(void **state) {
    (void)state;
    check(BODY("%0 x = input {dtype=$T, shape=[40,11], batch_axis=-1}\n"
               "%1 l = input {dtype=i32, shape=[40], batch_axis=-1}\n"
               "%2 w = input {dtype=$T, shape=[11], batch_axis=-1}\n"
               "%3, %4, %5 = cross_entropy_rows(%0, %1, %2) {ignore_index=3, smoothing=0.1}\n"
               "output \"loss\" = %3\n"
               "output \"weight\" = %4\n"
               "output \"lse\" = %5\n"),
          11, 40, "cross_entropy_rows weighted and smoothed");
    check(BODY("%0 x = input {dtype=$T, shape=[40,11], batch_axis=-1}\n"
               "%1 l = input {dtype=i64, shape=[40], batch_axis=-1}\n"
               "%2, %3, %4 = cross_entropy_rows(%0, %1) {ignore_index=0}\n"
               "%5 = reduce_sum(%2) {axes=[0]}\n"
               "%6 = reduce_sum(%3) {axes=[0]}\n"
               "%7 = div(%5, %6)\n"
               "output \"loss\" = %7\n"
               "output \"lse\" = %4\n"),
          11, 40, "mean cross entropy");
    check(BODY("%0 d = input {dtype=$W, shape=[], batch_axis=-1}\n"
               "%1 x = input {dtype=$T, shape=[40,11], batch_axis=-1}\n"
               "%2 l = input {dtype=i32, shape=[40], batch_axis=-1}\n"
               "%3 lse = input {dtype=$W, shape=[40], batch_axis=-1}\n"
               "%4 w = input {dtype=$T, shape=[11], batch_axis=-1}\n"
               "%5 = cross_entropy_grad(%0, %1, %2, %3, %4) {ignore_index=3, smoothing=0.1}\n"
               "output \"dx\" = %5\n"),
          11, 40, "cross_entropy_grad weighted and smoothed");
    check(BODY("%0 d = input {dtype=$W, shape=[40], batch_axis=-1}\n"
               "%1 x = input {dtype=$T, shape=[40,11], batch_axis=-1}\n"
               "%2 l = input {dtype=i64, shape=[40], batch_axis=-1}\n"
               "%3 lse = input {dtype=$W, shape=[40], batch_axis=-1}\n"
               "%4 = cross_entropy_grad(%0, %1, %2, %3)\n"
               "output \"dx\" = %4\n"),
          11, 40, "cross_entropy_grad by row");
}

static void test_batch_norm(void **state) {
    (void)state;
    check(BODY("%0 x = input {dtype=$T, shape=[8,6,9,9], batch_axis=-1}\n"
               "%1 m = input {dtype=$W, shape=[6], batch_axis=-1}\n"
               "%2 s = input {dtype=$W, shape=[6], batch_axis=-1}\n"
               "%3 w = input {dtype=$T, shape=[6], batch_axis=-1}\n"
               "%4 b = input {dtype=$T, shape=[6], batch_axis=-1}\n"
               "%5 = batch_norm_apply(%0, %1, %2, %3, %4)\n"
               "%6 = relu(%5)\n"
               "output \"y\" = %6\n"),
          1, 600, "batch_norm_apply with relu");
    check(BODY("%0 x = input {dtype=$T, shape=[8,6,9,9], batch_axis=-1}\n"
               "%1 = channel_sum(%0)\n"
               "%2 = constant {dtype=$W, shape=[], data=0.001}\n"
               "%3 = mul(%1, %2)\n"
               "%4 = channel_centered_squares(%0, %3)\n"
               "output \"s\" = %1\n"
               "output \"q\" = %4\n"),
          1, 1000, "batch norm statistics");
    check(BODY("%0 dy = input {dtype=$T, shape=[8,6,9,9], batch_axis=-1}\n"
               "%1 x = input {dtype=$T, shape=[8,6,9,9], batch_axis=-1}\n"
               "%2 m = input {dtype=$W, shape=[6], batch_axis=-1}\n"
               "%3 s = input {dtype=$W, shape=[6], batch_axis=-1}\n"
               "%4 w = input {dtype=$T, shape=[6], batch_axis=-1}\n"
               "%5, %6 = batch_norm_grad_sums(%0, %1, %2, %3)\n"
               "%7 = batch_norm_grad_apply(%0, %1, %2, %3, %4, %5, %6) {count=648}\n"
               "output \"dx\" = %7\n"
               "output \"db\" = %5\n"
               "output \"dw\" = %6\n"),
          1, 2000, "batch norm backward");
    check(BODY("%0 dy = input {dtype=$T, shape=[16,40,100], batch_axis=-1}\n"
               "%1 x = input {dtype=$T, shape=[16,40,100], batch_axis=-1}\n"
               "%2 m = input {dtype=$W, shape=[40], batch_axis=-1}\n"
               "%3 s = input {dtype=$W, shape=[40], batch_axis=-1}\n"
               "%4 w = input {dtype=$T, shape=[40], batch_axis=-1}\n"
               "%5, %6 = batch_norm_grad_sums(%0, %1, %2, %3)\n"
               "%7 = batch_norm_grad_apply(%0, %1, %2, %3, %4, %5, %6) {count=1600}\n"
               "output \"dx\" = %7\n"
               "output \"db\" = %5\n"
               "output \"dw\" = %6\n"),
          1, 4000, "batch norm backward of more");
}

static void test_sums(void **state) {
    (void)state;
    check(BODY("%0 x = input {dtype=$T, shape=[3000,70], batch_axis=-1}\n"
               "%1 = reduce_sum(%0) {axes=[0]}\n"
               "%2 = gelu(%0)\n"
               "output \"db\" = %1\n"
               "output \"y\" = %2\n"),
          1, 3000, "a bias gradient beside gelu");
    check(BODY("%0 x = input {dtype=$W, shape=[200000], batch_axis=-1}\n"
               "%1 = square(%0)\n"
               "%2 = reduce_sum(%1) {axes=[0]}\n"
               "%3 = sqrt(%2)\n"
               "%4 = div(%0, %3)\n"
               "output \"n\" = %3\n"
               "output \"y\" = %4\n"),
          1, 200000, "a norm and what it divides");
    check(BODY("%0 x = input {dtype=$T, shape=[4,6,8,10], batch_axis=-1}\n"
               "%1 = cast(%0) {dtype=$W}\n"
               "%2 = reduce_max(%1) {axes=[0,2]}\n"
               "%3 = reduce_min(%1) {axes=[3]}\n"
               "%4 = reduce_sum(%1) {axes=[1,3]}\n"
               "%5 = reduce_mean(%1) {axes=[0,1,2,3]}\n"
               "output \"a\" = %2\n"
               "output \"b\" = %3\n"
               "output \"c\" = %4\n"
               "output \"d\" = %5\n"),
          1, 500, "reductions over several sets of axes");
    check(BODY("%0 a = input {dtype=$T, shape=[50,3], batch_axis=-1}\n"
               "%1 b = input {dtype=$T, shape=[7], batch_axis=-1}\n"
               "%2 c = input {dtype=$T, shape=[], batch_axis=-1}\n"
               "%3 d = input {dtype=$T, shape=[9,8,7], batch_axis=-1}\n"
               "%4 = sum_squares(%0, %1, %2, %3)\n"
               "output \"s\" = %4\n"),
          1, 800, "sum_squares of several tensors");
}

static void test_updates(void **state) {
    (void)state;
    check(BODY("%0 p = input {dtype=$W, shape=[60,50], batch_axis=-1}\n"
               "%1 g = input {dtype=$T, shape=[60,50], batch_axis=-1}\n"
               "%2 m = input {dtype=$W, shape=[60,50], batch_axis=-1}\n"
               "%3 v = input {dtype=$W, shape=[60,50], batch_axis=-1}\n"
               "%4 lr = input {dtype=f64, shape=[], batch_axis=-1}\n"
               "%5 step = input {dtype=i64, shape=[], batch_axis=-1}\n"
               "%6 scale = input {dtype=$W, shape=[], batch_axis=-1}\n"
               "%7 q = input {dtype=$W, shape=[13], batch_axis=-1}\n"
               "%8 h = input {dtype=$T, shape=[13], batch_axis=-1}\n"
               "%9 n = input {dtype=$W, shape=[13], batch_axis=-1}\n"
               "%10 u = input {dtype=$W, shape=[13], batch_axis=-1}\n"
               "%11 ok = input {dtype=bool, shape=[], batch_axis=-1}\n"
               "%12 = abs(%3)\n"
               "%13 = abs(%10)\n"
               "%20 = constant {dtype=i64, shape=[], data=1}\n"
               "%21 = add(%5, %20)\n"
               "%14, %15, %16 = adamw(%0, %1, %2, %12, %4, %21, %6)\n"
               "%17, %18, %19 = adamw(%7, %8, %9, %13, %4, %21, %6, %11)\n"
               "output \"p\" = %14\n"
               "output \"m\" = %15\n"
               "output \"v\" = %16\n"
               "output \"q\" = %17\n"
               "output \"n\" = %18\n"
               "output \"u\" = %19\n"),
          5, 400, "adamw of two parameters");
    check(BODY("%0 p = input {dtype=$W, shape=[60,5], batch_axis=-1}\n"
               "%1 g = input {dtype=$T, shape=[60,5], batch_axis=-1}\n"
               "%2 m = input {dtype=$W, shape=[60,5], batch_axis=-1}\n"
               "%3 lr = input {dtype=f64, shape=[], batch_axis=-1}\n"
               "%4 scale = input {dtype=$W, shape=[], batch_axis=-1}\n"
               "%5 ok = input {dtype=bool, shape=[], batch_axis=-1}\n"
               "%6, %7 = sgd(%0, %1, %3, %4, %2) {momentum=0.9, nesterov=true, weight_decay=0.01}\n"
               "%8, %9 = sgd(%0, %1, %3, %4, %5) {weight_decay=0.1}\n"
               "output \"p\" = %6\n"
               "output \"m\" = %7\n"
               "output \"q\" = %8\n"
               "output \"z\" = %9\n"),
          5, 50, "sgd");
}

static void test_elementwise(void **state) {
    (void)state;
    check(BODY("%0 g = input {dtype=$T, shape=[33,65], batch_axis=-1}\n"
               "%1 u = input {dtype=$T, shape=[33,65], batch_axis=-1}\n"
               "%2 dy = input {dtype=$T, shape=[33,65], batch_axis=-1}\n"
               "%3 = silu(%0)\n"
               "%4 = mul(%3, %1)\n"
               "%5 = mul(%2, %1)\n"
               "%6 = silu_grad(%5, %0)\n"
               "%7 = mul(%2, %3)\n"
               "output \"y\" = %4\n"
               "output \"dg\" = %6\n"
               "output \"du\" = %7\n"),
          1, 4, "swiglu forward and backward");
    check(BODY("%0 x = input {dtype=$T, shape=[31,17], batch_axis=-1}\n"
               "%1 seed = input {dtype=i64, shape=[], batch_axis=-1}\n"
               "%2 step = input {dtype=i64, shape=[], batch_axis=-1}\n"
               "%3 r = input {dtype=$T, shape=[31,17], batch_axis=-1}\n"
               "%4 = dropout(%0, %1, %2) {p=0.25, id=7, begin=[2,0], global=[40,17]}\n"
               "%5 = add(%4, %3)\n"
               "output \"y\" = %5\n"),
          100, 4, "dropout of a part with a residual");
    check(BODY("%0 e = input {dtype=$T, shape=[11,33], batch_axis=-1}\n"
               "%1 i = input {dtype=i32, shape=[4,9], batch_axis=-1}\n"
               "%2 = gather(%0, %1) {axis=0}\n"
               "%3 = transpose(%2) {perm=[1,0,2]}\n"
               "output \"y\" = %3\n"),
          11, 4, "rows of an embedding, transposed");
    check(BODY("%0 x = input {dtype=$T, shape=[64,96], batch_axis=-1}\n"
               "%1 = transpose(%0) {perm=[1,0]}\n"
               "output \"y\" = %1\n"),
          11, 4, "a transpose");
    check(BODY("%0 q = input {dtype=$T, shape=[2,9,4,32], batch_axis=-1}\n"
               "%1 = iota {dtype=i32, shape=[9,9], axis=0}\n"
               "%2 = iota {dtype=i32, shape=[9,9], axis=1}\n"
               "%3 = ge(%1, %2)\n"
               "%4 s = input {dtype=$T, shape=[2,4,9,9], batch_axis=-1}\n"
               "%5 = constant {dtype=$T, shape=[], data=-30000}\n"
               "%6 = select(%3, %4, %5)\n"
               "%7 = softmax(%6) {axis=3}\n"
               "output \"p\" = %7\n"),
          11, 9, "causal softmax");
    check(BODY("%0 x = input {dtype=$T, shape=[], batch_axis=-1}\n"
               "%1 y = input {dtype=$T, shape=[], batch_axis=-1}\n"
               "%2 = mul(%0, %1)\n"
               "%3 = exp(%2)\n"
               "output \"y\" = %3\n"),
          11, 4, "scalars");
    check(BODY("%0 x = input {dtype=$T, shape=[0,5], batch_axis=-1}\n"
               "%1 w = input {dtype=$T, shape=[5], batch_axis=-1}\n"
               "%2 = mul(%0, %1)\n"
               "%3 = reduce_sum(%2) {axes=[0]}\n"
               "%4 = reduce_sum(%2) {axes=[1]}\n"
               "%5 = silu(%1)\n"
               "output \"y\" = %2\n"
               "output \"a\" = %3\n"
               "output \"b\" = %4\n"
               "output \"c\" = %5\n"),
          11, 4, "zero rows");
}

/* A result may stand in an operand's memory where nest_may_reuse says so: expected[k * n_in +
 * j]. */
static void check_in_place(const char *text, uint32_t n_in, uint32_t n_out, const bool *expected) {
    body_t body = body_parse(text, 5, 3);
    nest_t *nest = NULL;
    const char *reason;
    assert_int_equal(body.problem.n_in, n_in);
    assert_int_equal(body.problem.n_out, n_out);
    assert_int_equal(nest_build(body.graph, &nest, &reason), ST_OK);
    assert_non_null(nest);
    for (uint32_t k = 0; k < n_out; k++)
        for (uint32_t j = 0; j < n_in; j++)
            if (nest_may_reuse(nest, k, j) != expected[k * n_in + j])
                fail_msg("result %u in operand %u", k, j);
    nest_destroy(nest);
    (void)body_check_in_place(&body, text);
    body_free(&body);
}

static void test_in_place(void **state) {
    (void)state;
    check_in_place(BODY("%0 p = input {dtype=f32, shape=[60,50], batch_axis=-1}\n"
                        "%1 g = input {dtype=f32, shape=[60,50], batch_axis=-1}\n"
                        "%2 m = input {dtype=f32, shape=[60,50], batch_axis=-1}\n"
                        "%3 lr = input {dtype=f64, shape=[], batch_axis=-1}\n"
                        "%4 scale = input {dtype=f32, shape=[], batch_axis=-1}\n"
                        "%5, %6 = sgd(%0, %1, %3, %4, %2) {momentum=0.9}\n"
                        "%7 = exp(%0)\n"
                        "output \"m\" = %6\noutput \"p\" = %5\noutput \"e\" = %7\n"),
                   5, 3,
                   (const bool[]){false, true, true, 0, 0,    /* m */
                                  false, true, true, 0, 0,    /* p */
                                  true, false, false, 0, 0}); /* e */
}

/* An operand that is a result too is stored from its memory at any time, however early it is read:
 * no other result may stand there. */
static void test_in_place_beside_an_operand(void **state) {
    (void)state;
    check_in_place(BODY("%0 x = input {dtype=f32, shape=[60,50], batch_axis=-1}\n"
                        "%1 y = input {dtype=f32, shape=[60,50], batch_axis=-1}\n"
                        "%2 = add(%0, %1)\n"
                        "output \"sum\" = %2\noutput \"x\" = %0\n"),
                   2, 2, (const bool[]){false, true, false, false});
}

/* Runs a body of one result. */
static st_status_t run_status(const body_t *body, const char *impl) {
    kern_problem_t problem = body->problem;
    problem.attrs = &body->attr;
    problem.in = body->in;
    problem.out = body->out;
    void *out = malloc(ir_type_bytes(&body->out[0]));
    st_status_t status =
        kern_run_impl(kern_find(impl), &problem, 2, (const void *const *)body->data, &out);
    free(out);
    return status;
}

/* A label that is no class is an error that names it and its row, whatever runs the body. */
static void test_bad_labels(void **state) {
    static const char *const texts[] = {
        BODY("%0 x = input {dtype=f32, shape=[60,3], batch_axis=-1}\n"
             "%1 l = input {dtype=i64, shape=[60], batch_axis=-1}\n"
             "%2, %3, %4 = cross_entropy_rows(%0, %1) {ignore_index=-1}\n"
             "output \"loss\" = %2\n"),
        BODY("%0 x = input {dtype=f32, shape=[60,3], batch_axis=-1}\n"
             "%1 l = input {dtype=i64, shape=[6,10], batch_axis=-1}\n"
             "%2 d = input {dtype=f32, shape=[60], batch_axis=-1}\n"
             "%3 e = input {dtype=f32, shape=[60], batch_axis=-1}\n"
             "%4 = reshape(%1) {shape=[60]}\n"
             "%5 = exp(%2)\n"
             "%6 = cross_entropy_grad(%5, %0, %4, %3) {ignore_index=-1}\n"
             "output \"dx\" = %6\n")};
    static const char *const impls[] = {"cpu.fused.nest", "cpu.fused.reference"};
    (void)state;
    for (int i = 0; i < 8; i++) {
        const char *impl = impls[i & 1], *text = texts[i >> 1 & 1];
        const int64_t label = i >> 2 ? 3 : -4;
        char words[32];
        body_t body = body_parse(text, 3, 4);
        ((int64_t *)body.data[1])[3] = -1; /* ignored */
        assert_int_equal(run_status(&body, impl), ST_OK);
        ((int64_t *)body.data[1])[7] = label;
        assert_int_equal(run_status(&body, impl), ST_INVALID);
        snprintf(words, sizeof words, "label %d of row 7", (int)label);
        if (!strstr(st_last_error(), words) || !strstr(st_last_error(), "3 classes") ||
            !strstr(st_last_error(), "cross_entropy"))
            fail_msg("%s: %s", impl, st_last_error());
        body_free(&body);
    }
}

/* Labels that the body makes could not be checked before it runs. */
static void test_labels_of_the_body(void **state) {
    static const char text[] = BODY(
        "%0 x = input {dtype=f32, shape=[60,3], batch_axis=-1}\n"
        "%1 l = input {dtype=i64, shape=[60], batch_axis=-1}\n"
        "%2 = abs(%1)\n"
        "%3, %4, %5 = cross_entropy_rows(%0, %2)\n"
        "output \"loss\" = %3\n");
    (void)state;
    body_t body = body_parse(text, 3, 4);
    nest_t *nest;
    const char *reason;
    assert_int_equal(nest_build(body.graph, &nest, &reason), ST_OK);
    assert_null(nest);
    assert_string_equal(reason, "labels are computed inside the nest");
    body_free(&body);
}

/* A sum over other axes parts what reads x: n is stored before the sum is there, a after it. With
 * the sum both are, as are moments and parameters under one norm. */
static void test_in_place_across_phases(void **state) {
    (void)state;
    check_in_place(BODY("%0 x = input {dtype=f32, shape=[1000], batch_axis=-1}\n"
                        "%1 y = input {dtype=f32, shape=[777], batch_axis=-1}\n"
                        "%2 = relu(%0)\n"
                        "%3 = exp(%2)\n"
                        "%4 = reduce_sum(%1) {axes=[0]}\n"
                        "%5 = mul(%2, %4)\n"
                        "output \"n\" = %3\noutput \"a\" = %5\n"),
                   2, 2, (const bool[]){0, 0, 0, 0});
    check_in_place(BODY("%0 x = input {dtype=f32, shape=[1000], batch_axis=-1}\n"
                        "%1 y = input {dtype=f32, shape=[777], batch_axis=-1}\n"
                        "%2 = relu(%0)\n"
                        "%3 = reduce_sum(%1) {axes=[0]}\n"
                        "%4 = add(%2, %3)\n"
                        "%5 = mul(%2, %3)\n"
                        "output \"n\" = %4\noutput \"a\" = %5\n"),
                   2, 2, (const bool[]){1, 0, 1, 0});
    check_in_place(BODY("%0 x = input {dtype=f32, shape=[1000], batch_axis=-1}\n"
                        "%1 y = input {dtype=f32, shape=[777], batch_axis=-1}\n"
                        "%2 z = input {dtype=f32, shape=[555], batch_axis=-1}\n"
                        "%3 = relu(%0)\n"
                        "%4 = reduce_sum(%1) {axes=[0]}\n"
                        "%5 = mul(%2, %4)\n"
                        "%6 = reduce_sum(%5) {axes=[0]}\n"
                        "%7 = add(%3, %4)\n"
                        "%8 = add(%3, %6)\n"
                        "output \"one sum\" = %7\noutput \"two\" = %8\n"),
                   3, 2, (const bool[]){0, 0, 0, 0, 0, 0});
}

/* Rows of y + x come again and again to x, which exp(x) must not have replaced. */
static void test_in_place_under_a_broadcast(void **state) {
    (void)state;
    check_in_place(BODY("%0 x = input {dtype=f32, shape=[1000], batch_axis=-1}\n"
                        "%1 y = input {dtype=f32, shape=[7,1000], batch_axis=-1}\n"
                        "%2 = broadcast(%0) {shape=[7,1000]}\n"
                        "%3 = add(%1, %2)\n"
                        "%4 = exp(%0)\n"
                        "output \"n\" = %4\noutput \"a\" = %3\n"),
                   2, 2, (const bool[]){0, 0, 0, 1});
}

/* An index is read like any operand. */
static void test_in_place_over_an_index(void **state) {
    (void)state;
    check_in_place(BODY("%0 i = input {dtype=i32, shape=[700], batch_axis=-1}\n"
                        "%1 t = input {dtype=f32, shape=[9], batch_axis=-1}\n"
                        "%2 r = input {dtype=i32, shape=[700], batch_axis=-1}\n"
                        "%3 = add(%0, %2)\n"
                        "%4 = gather(%1, %0) {axis=0}\n"
                        "%5 = exp(%4)\n"
                        "output \"s\" = %3\noutput \"e\" = %5\n"),
                   3, 2, (const bool[]){0, 0, 1, 1, 0, 0});
}

/* A count of steps is replaced although parameters are computed from it, for what they need of it
 * is computed once; not if they take it from its memory. */
static void test_in_place_of_one_element(void **state) {
    (void)state;
    check_in_place(BODY("%0 t = input {dtype=f32, shape=[], batch_axis=-1}\n"
                        "%1 p = input {dtype=f32, shape=[1000], batch_axis=-1}\n"
                        "%2 y = input {dtype=f32, shape=[777], batch_axis=-1}\n"
                        "%3 = constant {dtype=f32, shape=[], data=1}\n"
                        "%4 = add(%0, %3)\n"
                        "%5 = reduce_sum(%2) {axes=[0]}\n"
                        "%6 = mul(%4, %5)\n"
                        "%7 = mul(%1, %6)\n"
                        "output \"t\" = %4\noutput \"p\" = %7\n"),
                   3, 2, (const bool[]){1, 0, 0, 0, 1, 0});
    check_in_place(BODY("%0 t = input {dtype=f32, shape=[], batch_axis=-1}\n"
                        "%1 p = input {dtype=f32, shape=[1000], batch_axis=-1}\n"
                        "%2 y = input {dtype=f32, shape=[777], batch_axis=-1}\n"
                        "%3 = constant {dtype=f32, shape=[], data=1}\n"
                        "%4 = mul(%1, %0)\n"
                        "%5 = reduce_sum(%2) {axes=[0]}\n"
                        "%6 = mul(%0, %5)\n"
                        "%7 = add(%0, %3)\n"
                        "output \"t\" = %7\noutput \"p\" = %4\noutput \"s\" = %6\n"),
                   3, 3, (const bool[]){0, 0, 0, 0, 1, 0, 0, 0, 0});
}

/* Constants with more than one element, as they are, sliced and gathered from. */
static void test_constants(void **state) {
    (void)state;
    check(BODY("%0 i = input {dtype=i32, shape=[40], batch_axis=-1}\n"
               "%1 = constant {dtype=$T, shape=[3,2], data=[1,2,3,4,5,6]}\n"
               "%2 = gather(%1, %0) {axis=0}\n"
               "%3 = exp(%2)\n"
               "%4 = slice(%1) {begin=[1,0], end=[3,2], step=[1,1]}\n"
               "%5 = exp(%4)\n"
               "%6 = exp(%1)\n"
               "output \"g\" = %3\noutput \"s\" = %5\noutput \"c\" = %6\n"),
          3, 4, "constants");
}

/* Without memory planning fails and says so, wherever that is: here among views of sums that are
 * read across their rows, of which there are more than a vector begins with. */
static void test_lack_of_memory(void **state) {
    static const char text[] = BODY(
        "%0 x = input {dtype=f32, shape=[70,130], batch_axis=-1}\n"
        "%1 m = input {dtype=f32, shape=[130,70], batch_axis=-1}\n"
        "%2 = softmax(%0) {axis=1}\n%3 = softmax(%0) {axis=0}\n"
        "%4 = transpose(%1) {perm=[1,0]}\n%5 = mul(%2, %4)\n%6 = add(%5, %3)\n"
        "%7 = reduce_sum(%6) {axes=[0]}\n%8 = reduce_sum(%6) {axes=[1]}\n"
        "output \"y\" = %6\noutput \"c\" = %7\noutput \"r\" = %8\n");
    (void)state;
    body_t body = body_parse(text, 1, 1);
    st_status_t status = ST_NO_MEMORY;
    for (int64_t at = 0; status != ST_OK; at++) {
        const char *reason;
        nest_t *nest;
        nx_plan_t *plan;
        assert_int_equal(nest_build(body.graph, &nest, &reason), ST_OK);
        st_memory_fail_after(at, false);
        status = nx_plan_create(nest, &plan);
        st_memory_fail_after(-1, false);
        assert_true(status == ST_OK || status == ST_NO_MEMORY);
        if (status == ST_OK) assert_true(at > 20);
        nx_plan_destroy(plan);
    }
    body_free(&body);
}

/* An index out of range is an error that names it. */
static void test_bad_index(void **state) {
    static const char text[] = BODY(
        "%0 e = input {dtype=f32, shape=[11,33], batch_axis=-1}\n"
        "%1 i = input {dtype=i32, shape=[900], batch_axis=-1}\n"
        "%2 = gather(%0, %1) {axis=0}\n%3 = exp(%2)\noutput \"y\" = %3\n");
    (void)state;
    body_t body = body_parse(text, 11, 4);
    ((int32_t *)body.data[1])[700] = -12;
    assert_int_equal(run_status(&body, "cpu.fused.nest"), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "-12"));
    assert_non_null(strstr(st_last_error(), "11"));
    body_free(&body);
}

/* Instructions of many sources over more columns than a strip has; sources of all, of a row, of a
 * column, as rows are made for and as not. */
static void test_strips(void **state) {
    (void)state;
    static const char *const shapes[][3] = {{"[3,1300]", "[3,1]", "[1300]"},
                                            {"[1,1100]", "[1,1]", "[1100]"},
                                            {"[600,900]", "[600,1]", "[900]"}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char text[4096];
        snprintf(text, sizeof text,
                 BODY("%%0 a = input {dtype=$T, shape=%s, batch_axis=-1}\n"
                      "%%1 b = input {dtype=$T, shape=%s, batch_axis=-1}\n"
                      "%%2 r = input {dtype=$T, shape=%s, batch_axis=-1}\n"
                      "%%3 c = input {dtype=$T, shape=%s, batch_axis=-1}\n"
                      "%%4 = mul(%%0, %%2)\n%%5 = mul(%%2, %%1)\n%%6 = add(%%4, %%5)\n"
                      "%%7 = mul(%%6, %%3)\n%%8 = mul(%%0, %%1)\n%%9 = sub(%%7, %%8)\n"
                      "%%10 = sub(%%9, %%2)\n%%11 = exp(%%10)\n%%12 = exp(%%10)\n"
                      "%%13 = sub(%%0, %%3)\n%%14 = tanh(%%13)\n%%15 = sub(%%14, %%2)\n"
                      "%%16 = exp(%%15)\n%%17 = sub(%%16, %%1)\n%%18 = mul(%%17, %%2)\n"
                      "%%19 = sub(%%18, %%3)\n%%20 = mul(%%1, %%3)\n%%21 = sub(%%19, %%20)\n"
                      "%%22 = mul(%%21, %%2)\n%%23 = abs(%%22)\n%%24 = sqrt(%%23)\n"
                      "%%25 = mul(%%24, %%2)\n%%26 = add(%%25, %%3)\n%%27 = silu(%%26)\n"
                      "%%28 = mul(%%27, %%0)\n%%29 = mul(%%28, %%1)\n%%30 = mul(%%29, %%3)\n"
                      "%%31 = mul(%%0, %%3)\n%%32 = add(%%31, %%30)\n%%33 = abs(%%32)\n"
                      "%%34 = add(%%33, %%2)\n%%35 = abs(%%34)\n%%36 = sqrt(%%35)\n"
                      "%%37 = exp(%%36)\n%%38 = mul(%%32, %%2)\n%%39 = div(%%38, %%37)\n"
                      "%%40 = mul(%%1, %%2)\n%%41 = sub(%%40, %%39)\n%%42 = sub(%%1, %%3)\n"
                      "%%43 = mul(%%42, %%2)\n%%44 = add(%%43, %%41)\n%%45 = mul(%%44, %%2)\n"
                      "%%46 = mul(%%45, %%3)\n%%47 = add(%%46, %%0)\n%%48 = tanh(%%12)\n"
                      "%%49 = reduce_sum(%%47) {axes=[1]}\n"
                      "output \"x\" = %%47\noutput \"y\" = %%48\noutput \"z\" = %%32\n"
                      "output \"s\" = %%49\n"),
                 shapes[i][0], shapes[i][0], shapes[i][1], shapes[i][2]);
        check(text, 1, 30000, shapes[i][0]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_row_norms),
        cmocka_unit_test(test_softmaxes),
        cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_batch_norm),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_updates),
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_in_place_beside_an_operand),
        cmocka_unit_test(test_in_place_across_phases),
        cmocka_unit_test(test_in_place_under_a_broadcast),
        cmocka_unit_test(test_in_place_over_an_index),
        cmocka_unit_test(test_in_place_of_one_element),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_lack_of_memory),
        cmocka_unit_test(test_bad_index),
        cmocka_unit_test(test_bad_labels),
        cmocka_unit_test(test_labels_of_the_body),
        cmocka_unit_test(test_strips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
