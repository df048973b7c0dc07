/* Sessions that each run one rank of a communicator: bits are those of one session with all ranks,
 * and plans that differ are told. The ranks are threads here, each with a session as a process has
 * it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "exec/models.h"

enum { MAX_RANKS = 5 };

typedef struct rank_arg {
    comm_t *comm;
    const plan_t *plan;
    int n_steps;
    double *values;
    size_t n_values;
    st_status_t status;
    char message[1000];
} rank_arg_t;

static void run_ranks(int n, rank_arg_t *args, void *(*body)(void *)) {
    comm_t *comms[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    assert_int_equal(comm_local_create(n, 30000, comms), ST_OK);
    for (int r = 0; r < n; r++) {
        args[r].comm = comms[r];
        assert_int_equal(pthread_create(&threads[r], NULL, body, &args[r]), 0);
    }
    for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < n; r++) comm_destroy(comms[r]);
}

static void *run_body(void *argument) {
    rank_arg_t *arg = argument;
    arg->n_values = run_plan_on(arg->plan, arg->comm, arg->n_steps, &arg->values);
    return NULL;
}

static void same_bits(const ir_graph_t *graph, uint32_t n_ranks, int n_steps) {
    compile_options_t options = {.n_ranks = n_ranks, .dtype = IR_F64, .bucket_bytes = 700};
    plan_t *plan = compile_ok(graph, &options);
    double *want;
    size_t n = run_plan(plan, n_steps, &want);
    rank_arg_t args[MAX_RANKS] = {0};
    for (uint32_t r = 0; r < n_ranks; r++) args[r] = (rank_arg_t){.plan = plan, .n_steps = n_steps};
    run_ranks((int)n_ranks, args, run_body);
    assert_true(n > 0);
    for (uint32_t r = 0; r < n_ranks; r++) {
        assert_int_equal(args[r].n_values, n);
        for (size_t i = 0; i < n; i++)
            if (memcmp(&args[r].values[i], &want[i], sizeof want[i]) != 0)
                fail_msg("%s, rank %u of %u: value %zu is %.17g, not %.17g", graph->name, r,
                         n_ranks, i, args[r].values[i], want[i]);
        st_free(args[r].values);
    }
    st_free(want);
    plan_destroy(plan);
}

static void training_has_the_bits_of_one_process(void **state) {
    (void)state;
    ir_graph_t *forward = model_mlp(5);
    ir_graph_t *graph = model_train_with(forward, "adamw", 1.0, 3, 0.9);
    for (uint32_t n_ranks = 1; n_ranks <= 4; n_ranks++) same_bits(graph, n_ranks, 4);
    ir_graph_destroy(graph);
    ir_graph_destroy(forward);
}

/* Outputs of random graphs are often split over the ranks: every rank gets the whole. */
static void outputs_in_parts_are_whole_on_every_rank(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= 12; seed++) {
        ir_graph_t *graph = model_random(seed, 4 + seed % 3, 6 + (int)(seed % 40));
        same_bits(graph, 2 + seed % 4, 2);
        ir_graph_destroy(graph);
    }
}

static void *create_body(void *argument) {
    rank_arg_t *arg = argument;
    exec_session_t *session = NULL;
    arg->status = exec_session_create_on(arg->plan, NULL, arg->comm, &session);
    if (arg->status != ST_OK) snprintf(arg->message, sizeof arg->message, "%s", st_last_error());
    exec_session_destroy(session);
    return NULL;
}

static void plans_that_differ_are_named_before_the_first_step(void **state) {
    (void)state;
    ir_graph_t *forward = model_mlp(4);
    ir_graph_t *adam = model_train(forward, "adamw", 1.0), *sgd = model_train(forward, "sgd", 1.0);
    compile_options_t options = {.n_ranks = 3, .dtype = IR_F64};
    compile_options_t other = options;
    other.bucket_bytes = 700;
    plan_t *plans[] = {compile_ok(adam, &options), compile_ok(adam, &other),
                       compile_ok(sgd, &options)};
    static const char *const texts[] = {"ranks 0 and 2 disagree on bucket-size: 'auto' and '700'",
                                        "ranks 0 and 2 disagree on node "};
    for (int which = 1; which < 3; which++) {
        rank_arg_t args[3] = {{.plan = plans[0]}, {.plan = plans[0]}, {.plan = plans[which]}};
        run_ranks(3, args, create_body);
        for (int r = 0; r < 3; r++) {
            if (!strstr(args[r].message, texts[which - 1])) print_error("%s\n", args[r].message);
            assert_int_equal(args[r].status, ST_RANKS_DISAGREE);
            assert_non_null(strstr(args[r].message, texts[which - 1]));
        }
    }
    rank_arg_t args[2] = {{.plan = plans[0]}, {.plan = plans[0]}};
    run_ranks(2, args, create_body);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(args[r].status, ST_INVALID);
        assert_non_null(strstr(args[r].message, "the plan is for 3 ranks, 2 processes run it"));
    }
    for (int p = 0; p < 3; p++) plan_destroy(plans[p]);
    ir_graph_destroy(adam);
    ir_graph_destroy(sgd);
    ir_graph_destroy(forward);
}

static void *agree_body(void *argument) {
    rank_arg_t *arg = argument;
    exec_session_t *session = NULL;
    arg->status = exec_session_create_on(arg->plan, NULL, arg->comm, &session);
    if (arg->status == ST_OK) arg->status = exec_session_agree(session, ST_OK);
    if (arg->status == ST_OK)
        arg->status = exec_session_agree(
            session, exec_session_first(session) == 0 ? FAIL(ST_IO, "the disk is full") : ST_OK);
    if (arg->status != ST_OK) snprintf(arg->message, sizeof arg->message, "%s", st_last_error());
    exec_session_destroy(session);
    return NULL;
}

static void what_rank_0_could_not_do_fails_on_all(void **state) {
    (void)state;
    ir_graph_t *graph = model_mlp(4);
    compile_options_t options = {.n_ranks = 3};
    plan_t *plan = compile_ok(graph, &options);
    rank_arg_t args[3] = {{.plan = plan}, {.plan = plan}, {.plan = plan}};
    run_ranks(3, args, agree_body);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(args[r].status, ST_IO);
        assert_non_null(strstr(args[r].message, "the disk is full"));
    }
    plan_destroy(plan);
    ir_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_has_the_bits_of_one_process),
        cmocka_unit_test(outputs_in_parts_are_whole_on_every_rank),
        cmocka_unit_test(plans_that_differ_are_named_before_the_first_step),
        cmocka_unit_test(what_rank_0_could_not_do_fails_on_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
