/* Routed experts against a loop over tokens: choices, capacity, what is dropped, on any parts of a
 * batch; choices in mixed precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/train_graph.h"
#include "exec/models.h"
#include "import/model_experts.h"

enum { BATCH = 5, LENGTH = 7, HIDDEN = 6, INNER = 4, EXPERTS = 3 };

static double x[BATCH * LENGTH * HIDDEN], y[BATCH * LENGTH * HIDDEN],
    wanted[BATCH * LENGTH * HIDDEN];
static double router[EXPERTS * HIDDEN], gate[EXPERTS * INNER * HIDDEN],
    up[EXPERTS * INNER * HIDDEN];
static double down[EXPERTS * HIDDEN * INNER];

static ir_type_t f64(int32_t rank, int64_t a, int64_t b, int64_t c) {
    return ir_type_make(IR_F64, rank, (int64_t[]){a, b, c});
}

static plan_t *make_plan(ir_dtype_t dtype, ir_dtype_t compute, int64_t routed, double factor,
                         uint32_t n_ranks) {
    ir_graph_t *graph;
    assert_int_equal(ir_graph_create("experts", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    ir_value_t in =
        ir_b_input(&b, "x", ir_type_make(dtype, 3, (int64_t[]){BATCH, LENGTH, HIDDEN}), 0);
    const model_experts_t experts = {
        .router =
            ir_b_parameter(&b, "router", ir_type_make(dtype, 2, (int64_t[]){EXPERTS, HIDDEN, 0})),
        .gate =
            ir_b_parameter(&b, "gate", ir_type_make(dtype, 3, (int64_t[]){EXPERTS, INNER, HIDDEN})),
        .up = ir_b_parameter(&b, "up", ir_type_make(dtype, 3, (int64_t[]){EXPERTS, INNER, HIDDEN})),
        .down =
            ir_b_parameter(&b, "down", ir_type_make(dtype, 3, (int64_t[]){EXPERTS, HIDDEN, INNER})),
        .routed = routed,
        .capacity_factor = factor};
    ir_b_output(&b, "y", model_route(&b, &experts, in, NULL));
    if (b.status != ST_OK) fail_msg("%s", st_last_error());
    compile_options_t options = {.n_ranks = n_ranks, .dtype = compute};
    plan_t *plan = compile_ok(graph, &options);
    ir_graph_destroy(graph);
    return plan;
}

static double dot(const double *a, const double *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* out += share · expert(in) */
static void add_answer(int e, const double *in, double share, double *out) {
    double h[INNER];
    for (int f = 0; f < INNER; f++) {
        const double g = dot(gate + (e * INNER + f) * HIDDEN, in, HIDDEN);
        h[f] = g / (1 + exp(-g)) * dot(up + (e * INNER + f) * HIDDEN, in, HIDDEN);
    }
    for (int i = 0; i < HIDDEN; i++)
        out[i] += share * dot(down + (e * HIDDEN + i) * INNER, h, INNER);
}

/* Tokens one by one; returns how many choices found no room. */
static int route(int64_t routed, int64_t capacity) {
    int dropped = 0;
    memset(wanted, 0, sizeof wanted);
    for (int b = 0; b < BATCH; b++) {
        double shares[LENGTH][EXPERTS], all[LENGTH] = {0}, chosen[LENGTH][EXPERTS];
        int choice[EXPERTS][LENGTH], in_expert[EXPERTS] = {0};
        for (int s = 0; s < LENGTH; s++) {
            double sum = 0;
            for (int e = 0; e < EXPERTS; e++) {
                shares[s][e] = exp(dot(router + e * HIDDEN, x + (b * LENGTH + s) * HIDDEN, HIDDEN));
                sum += shares[s][e];
            }
            for (int e = 0; e < EXPERTS; e++) chosen[s][e] = shares[s][e] /= sum;
        }
        for (int64_t j = 0; j < routed; j++)
            for (int s = 0; s < LENGTH; s++) {
                int best = 0;
                for (int e = 1; e < EXPERTS; e++)
                    if (chosen[s][e] > chosen[s][best]) best = e;
                chosen[s][best] = -1;
                choice[j][s] = best;
                all[s] += shares[s][best];
            }
        for (int64_t j = 0; j < routed; j++)
            for (int s = 0; s < LENGTH; s++) {
                const int e = choice[j][s], at = (b * LENGTH + s) * HIDDEN;
                if (in_expert[e]++ < capacity)
                    add_answer(e, x + at, shares[s][e] / all[s], wanted + at);
                else
                    dropped++;
            }
    }
    return dropped;
}

static void write(exec_session_t *session, const char *name, ir_type_t type, double *data,
                  uint64_t seed) {
    fill_random(&type, data, seed, 2);
    assert_int_equal(exec_state_write(session, name, &type, data), ST_OK);
}

static void compare(int64_t routed, double factor, uint32_t n_ranks, bool drops) {
    plan_t *plan = make_plan(IR_F64, IR_F64, routed, factor, n_ranks);
    exec_session_t *session;
    const exec_feed_t feed = {"x", f64(3, BATCH, LENGTH, HIDDEN), x};
    const exec_fetch_t fetch = {"y", y, sizeof y};
    assert_int_equal(exec_session_create(plan, NULL, &session), ST_OK);
    write(session, "router", f64(2, EXPERTS, HIDDEN, 0), router, 1);
    write(session, "gate", f64(3, EXPERTS, INNER, HIDDEN), gate, 2);
    write(session, "up", f64(3, EXPERTS, INNER, HIDDEN), up, 3);
    write(session, "down", f64(3, EXPERTS, HIDDEN, INNER), down, 4);
    fill_random(&feed.type, x, 5, 2);
    assert_int_equal(exec_session_step(session, 1, &feed, 1, &fetch), ST_OK);
    const int dropped = route(routed, model_capacity(LENGTH, EXPERTS, routed, factor));
    assert_true((dropped > 0) == drops);
    assert_close(BATCH * LENGTH * HIDDEN, wanted, y, 1e-12, "experts");
    exec_session_destroy(session);
    plan_destroy(plan);
}

static void tokens_go_where_a_loop_sends_them(void **state) {
    (void)state;
    for (uint32_t n_ranks = 1; n_ranks <= 3; n_ranks += 2) {
        compare(1, 10, n_ranks, false);
        compare(2, 10, n_ranks, false);
        compare(3, 1, n_ranks, false); /* every expert has every token */
    }
}

static void what_is_over_capacity_is_dropped_in_order(void **state) {
    (void)state;
    for (uint32_t n_ranks = 1; n_ranks <= 3; n_ranks += 2) {
        compare(1, 1, n_ranks, true);
        compare(2, 1, n_ranks, true);
        compare(2, 0.1, n_ranks, true);
    }
}

/* ---- balance ---- */

/* The shares of token t's experts; `chosen` gets how often each was among the first `routed`. */
static void like(int t, int64_t routed, double *shares, double *chosen) {
    double sum = 0, left[EXPERTS];
    for (int e = 0; e < EXPERTS; e++)
        sum += shares[e] = exp(dot(router + e * HIDDEN, x + t * HIDDEN, HIDDEN));
    for (int e = 0; e < EXPERTS; e++) left[e] = shares[e] /= sum;
    for (int64_t j = 0; j < routed; j++) {
        int best = 0;
        for (int e = 1; e < EXPERTS; e++)
            if (left[e] > left[best]) best = e;
        left[best] = -1;
        chosen[best]++;
    }
}

/* experts · sum of chosen · liked over all tokens of both "layers", which here have the same; and
 * its gradient by the router: of a share s that is s (δ − s') by the logits. */
static double balance(int64_t routed, double *gradient) {
    enum { TOKENS = BATCH * LENGTH };
    double chosen[EXPERTS] = {0}, liked[EXPERTS] = {0}, shares[TOKENS][EXPERTS], sum = 0;
    for (int t = 0; t < TOKENS; t++) {
        like(t, routed, shares[t], chosen);
        for (int e = 0; e < EXPERTS; e++) liked[e] += shares[t][e];
    }
    for (int e = 0; e < EXPERTS; e++) sum += chosen[e] / TOKENS * liked[e] / TOKENS;
    memset(gradient, 0, EXPERTS * HIDDEN * sizeof *gradient);
    for (int t = 0; t < TOKENS; t++)
        for (int e = 0; e < EXPERTS; e++)
            for (int l = 0; l < EXPERTS; l++)
                for (int i = 0; i < HIDDEN; i++)
                    gradient[l * HIDDEN + i] += EXPERTS * chosen[e] / TOKENS / TOKENS *
                                                shares[t][e] * ((e == l) - shares[t][l]) *
                                                x[t * HIDDEN + i];
    return EXPERTS * sum;
}

/* Of two routers with the same tokens and weights: means over both are those of one. */
static plan_t *plan_balance(int64_t routed, uint32_t n_ranks) {
    ir_graph_t *graph, *step;
    assert_int_equal(ir_graph_create("balance", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    ir_value_t in = ir_b_input(&b, "x", f64(3, BATCH, LENGTH, HIDDEN), 0), y = IR_NONE;
    model_experts_t experts = {.router = ir_b_parameter(&b, "router", f64(2, EXPERTS, HIDDEN, 0)),
                               .gate = ir_b_parameter(&b, "gate", f64(3, EXPERTS, INNER, HIDDEN)),
                               .up = ir_b_parameter(&b, "up", f64(3, EXPERTS, INNER, HIDDEN)),
                               .down = ir_b_parameter(&b, "down", f64(3, EXPERTS, HIDDEN, INNER)),
                               .routed = routed,
                               .capacity_factor = 1}; /* what is dropped was chosen, too */
    model_balance_t routers[2];
    for (int i = 0; i < 2; i++) y = model_route(&b, &experts, in, &routers[i]);
    ir_b_output(&b, "loss", model_balance_loss(&b, 2, routers));
    ir_b_output(&b, "y", y);
    if (b.status != ST_OK) fail_msg("%s", st_last_error());
    assert_int_equal(ad_gradient_graph(graph, "loss", 0, &step), ST_OK);
    compile_options_t options = {.n_ranks = n_ranks, .dtype = IR_F64};
    plan_t *plan = compile_ok(step, &options);
    ir_graph_destroy(step);
    ir_graph_destroy(graph);
    return plan;
}

static void balance_and_its_gradient_are_those_of_all_tokens(void **state) {
    (void)state;
    static const uint32_t ranks[] = {1, 2, 3, 8};
    double wanted_gradient[EXPERTS * HIDDEN], gradient[EXPERTS * HIDDEN], loss;
    for (int i = 0; i < 8; i++) {
        const int64_t routed = 1 + i / 4;
        plan_t *plan = plan_balance(routed, ranks[i % 4]);
        exec_session_t *session;
        const exec_feed_t feed = {"x", f64(3, BATCH, LENGTH, HIDDEN), x};
        const exec_fetch_t fetches[] = {{"loss", &loss, sizeof loss},
                                        {"grad.router", gradient, sizeof gradient}};
        assert_int_equal(exec_session_create(plan, NULL, &session), ST_OK);
        write(session, "router", f64(2, EXPERTS, HIDDEN, 0), router, 1);
        fill_random(&feed.type, x, 5, 2);
        for (int k = 0; k < BATCH * LENGTH * HIDDEN; k++) x[k] += k % HIDDEN == 0; /* uneven */
        assert_int_equal(exec_session_step(session, 1, &feed, 2, fetches), ST_OK);
        const double wanted_loss = balance(routed, wanted_gradient);
        assert_true(wanted_loss > 1.001 * (double)routed); /* the least is where all are even */
        assert_close(1, &wanted_loss, &loss, 1e-12, "balance");
        assert_close(EXPERTS * HIDDEN, wanted_gradient, gradient, 1e-12, "its gradient");
        exec_session_destroy(session);
        plan_destroy(plan);
    }
}

/* ---- mixed precision ---- */

enum { MOST_VALUES = BATCH * LENGTH * HIDDEN };

static void write_f32(exec_session_t *session, const char *name, int32_t rank,
                      const int64_t dims[3], const double *data) {
    const ir_type_t type = ir_type_make(IR_F32, rank, dims);
    float narrow[MOST_VALUES];
    for (int64_t i = 0; i < ir_type_elements(&type); i++) narrow[i] = (float)data[i];
    assert_int_equal(exec_state_write(session, name, &type, narrow), ST_OK);
}

/* Logits that bf16 holds, 0, x / 1024 and -x / 1024 where |x| is 1, and whose shares are the same
 * in its 8 bits. */
static void choices_are_made_on_shares_of_float32(void **state) {
    (void)state;
    const ir_type_t type = ir_type_make(IR_F32, 3, (int64_t[]){BATCH, LENGTH, HIDDEN});
    const ir_type_t weights = f64(3, EXPERTS, INNER, HIDDEN);
    fill_random(&weights, gate, 2, 2);
    fill_random(&weights, up, 3, 2);
    fill_random(&weights, down, 4, 2);
    memset(router, 0, sizeof router);
    router[1 * HIDDEN] = 0x1p-10;
    router[2 * HIDDEN] = -0x1p-10;
    const ir_type_t tokens = f64(3, BATCH, LENGTH, HIDDEN);
    fill_random(&tokens, x, 5, 2);
    for (int i = 0; i < BATCH * LENGTH; i++) x[i * HIDDEN] = i % 3 ? 1 : -1;
    for (int64_t routed = 1; routed <= 2; routed++) {
        plan_t *plan = make_plan(IR_F32, IR_BF16, routed, 10, 1);
        exec_session_t *session;
        float in[MOST_VALUES], out[MOST_VALUES];
        for (int i = 0; i < MOST_VALUES; i++) in[i] = (float)x[i];
        assert_int_equal(exec_session_create(plan, NULL, &session), ST_OK);
        write_f32(session, "router", 2, (int64_t[]){EXPERTS, HIDDEN, 0}, router);
        write_f32(session, "gate", 3, (int64_t[]){EXPERTS, INNER, HIDDEN}, gate);
        write_f32(session, "up", 3, (int64_t[]){EXPERTS, INNER, HIDDEN}, up);
        write_f32(session, "down", 3, (int64_t[]){EXPERTS, HIDDEN, INNER}, down);
        assert_int_equal(exec_session_step(session, 1, &(exec_feed_t){"x", type, in}, 1,
                                           &(exec_fetch_t){"y", out, sizeof out}),
                         ST_OK);
        assert_int_equal(route(routed, LENGTH), 0);
        for (int i = 0; i < MOST_VALUES; i++) y[i] = (double)out[i];
        assert_close(MOST_VALUES, wanted, y, 0x1p-8, "experts in bf16");
        exec_session_destroy(session);
        plan_destroy(plan);
    }
}

static void capacity_is_a_share_of_the_sequence(void **state) {
    (void)state;
    assert_int_equal(model_capacity(8, 4, 2, 1), 4);
    assert_int_equal(model_capacity(8, 4, 2, 1.25), 5);
    assert_int_equal(model_capacity(7, 3, 1, 1), 3);
    assert_int_equal(model_capacity(7, 3, 1, 1e-3), 1);
    assert_int_equal(model_capacity(7, 3, 3, 2), 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_go_where_a_loop_sends_them),
        cmocka_unit_test(what_is_over_capacity_is_dropped_in_order),
        cmocka_unit_test(balance_and_its_gradient_are_those_of_all_tokens),
        cmocka_unit_test(choices_are_made_on_shares_of_float32),
        cmocka_unit_test(capacity_is_a_share_of_the_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
