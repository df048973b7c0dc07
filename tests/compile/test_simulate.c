/* Simulated steps: courses worked out by hand, random ones against a relaxation of the equations,
 * plans. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/train_graph.h"
#include "base/memory.h"
#include "compile/compile.h"
#include "compile/predict.h"
#include "compile/report.h"
#include "compile/simulate.h"
#include "ir/build.h"

#define RUN(us_) \
    { .kind = SIMULATE_COMPUTE, .us = (us_) }
#define START(us_) \
    { .kind = SIMULATE_START, .us = (us_) }
#define START_IN(set_, us_) \
    { .kind = SIMULATE_START, .us = (us_), .set = (set_) }
#define WAIT(start_) \
    { .kind = SIMULATE_WAIT, .start = (start_) }
#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

static const simulate_set_t everyone = {0};

static simulation_t *simulate(const simulate_input_t *input) {
    simulation_t *made;
    if (simulate_moves(input, &made) != ST_OK) fail_msg("%s", st_last_error());
    return made;
}

static void assert_rank(const simulate_rank_t *r, double step, double compute, double link,
                        double exposed, double peers) {
    assert_true(r->step_us == step && r->compute_us == compute && r->link_us == link);
    assert_true(r->exposed_us == exposed && r->peers_us == peers);
}

/*   compute  0--10 10-------30 30--33(wait) 33--38
 *   link           10============33                */
static void test_what_is_not_hidden_is_exposed(void **state) {
    (void)state;
    const simulate_move_t moves[] = {RUN(10), START(23), RUN(20), WAIT(1), RUN(5)};
    const simulate_program_t program = {COUNT(moves), moves};
    const uint32_t program_of[2] = {0, 0};
    simulation_t *s = simulate(&(simulate_input_t){2, 1, 1, &program, program_of, &everyone, 1});
    assert_rank(&s->ranks[0], 38, 35, 23, 3, 0);
    assert_rank(&s->ranks[1], 38, 35, 23, 3, 0);
    assert_true(s->n_lanes == 1 && s->step_us == 38 && s->slowest == 0);
    assert_true(s->transfers[0][0].begin_us == 10 && s->transfers[0][0].end_us == 33);
    simulate_destroy(s);
}

/* The second rank comes at 40. The first has been at its wait since 12, so 28 of its wait are the
 * other's, 8 the transfer's. */
static void test_waiting_for_a_late_rank_is_told_apart(void **state) {
    (void)state;
    const simulate_move_t early[] = {RUN(10), START(8), RUN(2), WAIT(1), RUN(1)};
    const simulate_move_t late[] = {RUN(40), START(8), WAIT(1), RUN(1)};
    const simulate_program_t programs[] = {{COUNT(early), early}, {COUNT(late), late}};
    const uint32_t program_of[3] = {0, 1, 0};
    simulation_t *s = simulate(&(simulate_input_t){3, 2, 1, programs, program_of, &everyone, 1});
    assert_rank(&s->ranks[0], 49, 13, 8, 36, 28);
    assert_rank(&s->ranks[1], 49, 41, 8, 8, 0);
    assert_rank(&s->ranks[2], 49, 13, 8, 36, 28);
    simulate_destroy(s);
}

/* Two collectives one behind the other on one link: 5-25, then 25-35 though it was started at 6. */
static void test_collectives_queue_on_the_link(void **state) {
    (void)state;
    const simulate_move_t moves[] = {RUN(5),  START(20), RUN(1), START(10),
                                     WAIT(3), WAIT(1),   RUN(4)};
    const simulate_program_t program = {COUNT(moves), moves};
    const uint32_t program_of[2] = {0, 0};
    simulation_t *s = simulate(&(simulate_input_t){2, 1, 1, &program, program_of, &everyone, 1});
    assert_true(s->transfers[0][1].begin_us == 25 && s->transfers[0][1].end_us == 35);
    assert_rank(&s->ranks[1], 39, 10, 30, 29, 0);
    simulate_destroy(s);
}

/* Nothing beside kernels: the sum of all. Half: 10 of 20 from 5 to 15, hidden to 11; 10 more at the
 * wait. */
static void test_a_link_without_an_engine_hides_nothing(void **state) {
    (void)state;
    const simulate_move_t moves[] = {RUN(5), START(20), RUN(6), WAIT(1), RUN(4)};
    const simulate_program_t program = {COUNT(moves), moves};
    const uint32_t program_of[2] = {0, 0};
    simulate_input_t input = {2, 1, 1, &program, program_of, &everyone, 0};
    simulation_t *s = simulate(&input);
    assert_rank(&s->ranks[0], 35, 15, 20, 20, 0);
    simulate_destroy(s);
    input.link_overlap = 0.5;
    s = simulate(&input);
    assert_rank(&s->ranks[0], 29, 15, 20, 14, 0);
    simulate_destroy(s);
    input.link_overlap = 1.5;
    assert_int_equal(simulate_moves(&input, &s), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "link_overlap is 1.5"));
    assert_null(s);
}

/* Pairs 0-1 and 2-3, then 0-2 and 1-3: rank 3's lateness reaches rank 0 only through rank 2 or
 * 1. */
static void test_groups(void **state) {
    (void)state;
    const simulate_move_t quick[] = {START_IN(0, 3), WAIT(0), START_IN(1, 4), WAIT(2)};
    const simulate_move_t slow[] = {RUN(50), START_IN(0, 3), WAIT(1), START_IN(1, 4), WAIT(3)};
    const simulate_program_t programs[] = {{COUNT(quick), quick}, {COUNT(slow), slow}};
    const uint32_t program_of[4] = {0, 0, 0, 1}, rows[4] = {0, 0, 1, 1}, columns[4] = {0, 1, 0, 1};
    const simulate_set_t sets[2] = {{.group_of = rows}, {.group_of = columns}};
    simulation_t *s = simulate(&(simulate_input_t){4, 2, 2, programs, program_of, sets, 1});
    const simulate_span_t *of0 = s->transfers[s->lane_of[0]], *of2 = s->transfers[s->lane_of[2]];
    assert_true(of0[0].begin_us == 0 && of0[0].end_us == 3);
    assert_true(of2[0].begin_us == 50 && of2[0].end_us == 53);
    for (int r = 0; r < 4; r++) assert_true(s->ranks[r].step_us == 57);
    assert_true(s->ranks[0].peers_us == 50 && s->ranks[3].peers_us == 0);
    simulate_destroy(s);
}

static void test_what_can_never_end_names_both_ranks(void **state) {
    (void)state;
    const simulate_move_t two[] = {START(1), WAIT(0), START(1), WAIT(2)};
    const simulate_program_t programs[] = {{4, two}, {2, two}};
    const uint32_t program_of[2] = {0, 1};
    simulation_t *s;
    simulate_input_t input = {2, 2, 1, programs, program_of, &everyone, 1};
    assert_int_equal(simulate_moves(&input, &s), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "rank 0 stands at its collective 1"));
    assert_non_null(strstr(st_last_error(), "rank 1 does not start"));
    assert_null(s);
    const simulate_move_t bad[] = {RUN(1), WAIT(0)};
    const simulate_program_t wrong = {2, bad};
    input = (simulate_input_t){2, 1, 1, &wrong, (uint32_t[]){0, 0}, &everyone, 1};
    assert_int_equal(simulate_moves(&input, &s), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "waits for move 0, which starts nothing"));
}

/* ---- random courses ---- */

enum { MOST_RANKS = 7, MOST_COLLECTIVES = 24, MOST_MOVES = 3 * MOST_COLLECTIVES + 2 };

static uint64_t seed = 1;
static uint32_t below(uint32_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

typedef struct course {
    simulate_move_t moves[MOST_RANKS][MOST_MOVES];
    uint32_t which[MOST_RANKS][MOST_MOVES]; /* starts: of all collectives of all ranks */
    uint32_t n_moves[MOST_RANKS], groups[2][MOST_RANKS], n_ranks, n_collectives;
} course_t;

/* Every rank has the collectives of its groups in one order common to all, each with a wait. */
static void make_course(course_t *c) {
    uint32_t open[MOST_RANKS][MOST_COLLECTIVES], n_open[MOST_RANKS] = {0};
    memset(c, 0, sizeof *c);
    c->n_ranks = 1 + below(MOST_RANKS);
    for (int s = 0; s < 2; s++)
        for (uint32_t r = 0; r < c->n_ranks; r++) c->groups[s][r] = below(s ? 3 : 2) % c->n_ranks;
    c->n_collectives = below(MOST_COLLECTIVES);
    for (uint32_t k = 0; k <= c->n_collectives; k++) {
        bool last = k == c->n_collectives;
        uint32_t set = below(2), group = c->groups[set][below(c->n_ranks)];
        for (uint32_t r = 0; r < c->n_ranks; r++) {
            uint32_t *n = &c->n_moves[r];
            c->moves[r][(*n)++] = (simulate_move_t)RUN(below(20));
            if (!last && c->groups[set][r] == group) {
                open[r][n_open[r]++] = *n;
                c->which[r][*n] = k;
                c->moves[r][(*n)++] = (simulate_move_t)START_IN(set, below(30));
            }
            while (n_open[r] && (last || below(3) == 0)) {
                uint32_t i = below(n_open[r]);
                c->moves[r][(*n)++] = (simulate_move_t)WAIT(open[r][i]);
                open[r][i] = open[r][--n_open[r]];
            }
        }
    }
}

/* The equations, each time the largest of what it needs, until none changes. */
static void relax(const course_t *c, double overlap, double *step, double *exposed) {
    static double after[MOST_RANKS][MOST_MOVES], begin[MOST_COLLECTIVES], us[MOST_COLLECTIVES];
    bool changed = true;
    memset(after, 0, sizeof after);
    memset(begin, 0, sizeof begin);
    memset(us, 0, sizeof us);
    for (uint32_t r = 0; r < c->n_ranks; r++)
        for (uint32_t i = 0; i < c->n_moves[r]; i++)
            if (c->moves[r][i].kind == SIMULATE_START && c->moves[r][i].us > us[c->which[r][i]])
                us[c->which[r][i]] = c->moves[r][i].us;
    while (changed) {
        changed = false;
        for (uint32_t r = 0; r < c->n_ranks; r++) {
            double now = 0, link = 0, computed = 0;
            for (uint32_t i = 0; i < c->n_moves[r]; i++) {
                const simulate_move_t *move = &c->moves[r][i];
                if (move->kind == SIMULATE_COMPUTE) {
                    now += move->us;
                    computed += move->us;
                } else if (move->kind == SIMULATE_START) {
                    double *at = &begin[c->which[r][i]];
                    double ready = fmax(now, link);
                    if (ready > *at) *at = ready, changed = true;
                    link = *at + us[c->which[r][i]] * overlap;
                } else {
                    uint32_t k = c->which[r][move->start];
                    now = fmax(now, begin[k] + us[k] * overlap) +
                          c->moves[r][move->start].us * (1 - overlap);
                }
                if (now > after[r][i]) after[r][i] = now, changed = true;
            }
            step[r] = fmax(now, link);
            exposed[r] = step[r] - computed;
        }
    }
}

static void test_random_courses(void **state) {
    (void)state;
    static course_t c;
    for (int round = 0; round < 3000; round++) {
        simulate_program_t programs[MOST_RANKS];
        uint32_t program_of[MOST_RANKS];
        double step[MOST_RANKS], exposed[MOST_RANKS], overlap = (double)below(5) / 4;
        make_course(&c);
        for (uint32_t r = 0; r < c.n_ranks; r++) {
            programs[r] = (simulate_program_t){c.n_moves[r], c.moves[r]};
            program_of[r] = r;
        }
        const simulate_set_t sets[2] = {{.group_of = c.groups[0]}, {.group_of = c.groups[1]}};
        relax(&c, overlap, step, exposed);
        simulation_t *s = simulate(
            &(simulate_input_t){c.n_ranks, c.n_ranks, 2, programs, program_of, sets, overlap});
        for (uint32_t r = 0; r < c.n_ranks; r++) {
            assert_true(fabs(s->ranks[r].step_us - step[r]) < 1e-9);
            assert_true(fabs(s->ranks[r].exposed_us - exposed[r]) < 1e-9);
            assert_true(s->ranks[r].step_us <= s->step_us);
        }
        assert_true(s->ranks[s->slowest].step_us == s->step_us);
        simulate_destroy(s);
    }
}

/* Ranks on a grid: programs by row, one column of one row apart. Lanes are few, and tell what the
 * equations of all ranks say. */
static void ranks_with_the_same_course_share_a_lane(void **state) {
    (void)state;
    static course_t c;
    for (int round = 0; round < 500; round++) {
        enum { COLUMNS = 3, ROWS = 2, N = COLUMNS * ROWS };
        simulate_program_t programs[ROWS + 1];
        uint32_t program_of[N], begun[N] = {0}, odd = below(2) ? below(N) : N;
        double step[N], exposed[N], overlap = (double)below(3) / 2;
        memset(&c, 0, sizeof c);
        c.n_ranks = N;
        uint32_t n = below(5), sets_of[8];
        double us[8], busy[ROWS + 1][8];
        for (uint32_t k = 0; k < n; k++) {
            sets_of[k] = below(2);
            us[k] = below(30);
            for (int p = 0; p <= ROWS; p++) busy[p][k] = below(20);
        }
        for (uint32_t r = 0; r < N; r++) {
            c.groups[0][r] = r / COLUMNS; /* along a row: one program, but for the odd rank */
            c.groups[1][r] = r % COLUMNS;
            program_of[r] = r == odd ? ROWS : r / COLUMNS;
        }
        for (uint32_t k = 0; k < n; k++)
            for (uint32_t r = 0; r < N; r++) {
                uint32_t *m = &c.n_moves[r];
                c.moves[r][(*m)++] = (simulate_move_t)RUN(busy[program_of[r]][k]);
                const uint32_t at = *m;
                c.which[r][at] = k * 3 + c.groups[sets_of[k]][r];
                c.moves[r][(*m)++] = (simulate_move_t)START_IN(sets_of[k], us[k]);
                if (k) c.moves[r][(*m)++] = (simulate_move_t)WAIT(begun[r]);
                begun[r] = at;
                if (k + 1 == n) c.moves[r][(*m)++] = (simulate_move_t)WAIT(at);
            }
        for (uint32_t p = 0; p <= ROWS; p++) {
            uint32_t r = p < ROWS ? p * COLUMNS : odd < N ? odd : 0;
            if (p < ROWS && r == odd) r++;
            programs[p] = (simulate_program_t){c.n_moves[r], c.moves[r]};
        }
        const simulate_set_t sets[2] = {{.group_of = c.groups[0]}, {.group_of = c.groups[1]}};
        relax(&c, overlap, step, exposed);
        simulation_t *s =
            simulate(&(simulate_input_t){N, ROWS + 1, 2, programs, program_of, sets, overlap});
        for (uint32_t r = 0; r < N; r++) {
            assert_true(fabs(s->ranks[r].step_us - step[r]) < 1e-9);
            assert_true(fabs(s->ranks[r].exposed_us - exposed[r]) < 1e-9);
        }
        /* the odd one, its row, its column, the rest; without it one a row */
        assert_int_equal(s->n_lanes, odd < N ? 4 : ROWS);
        simulate_destroy(s);
    }
}

/* ---- plans ---- */

/* `layers` products with relu, cross entropy, SGD. */
static ir_graph_t *training_graph(int layers, int64_t batch) {
    ir_build_t b = {0};
    ir_graph_t *step;
    char name[16];
    assert_int_equal(ir_graph_create("mlp", &b.graph), ST_OK);
    ir_value_t x = ir_b_input(&b, "x", ir_type_make(IR_F32, 2, (int64_t[]){batch, 256}), 0);
    ir_value_t y = ir_b_input(&b, "y", ir_type_make(IR_I64, 1, (int64_t[]){batch}), 0);
    for (int i = 0; i < layers; i++) {
        snprintf(name, sizeof name, "w%d", i);
        ir_value_t w = ir_b_parameter(&b, name, ir_type_make(IR_F32, 2, (int64_t[]){256, 256}));
        x = ir_b_unary(&b, IR_OP_RELU, ir_b_matmul(&b, x, w, false, false));
    }
    ir_value_t loss = ir_b_node(&b, IR_OP_CROSS_ENTROPY, 2, (ir_value_t[]){x, y}, 0, NULL);
    assert_int_equal(b.status, ST_OK);
    assert_int_equal(ir_graph_add_output(b.graph, "loss", loss), ST_OK);
    ad_train_options_t options;
    assert_int_equal(ad_train_defaults("sgd", &options), ST_OK);
    assert_int_equal(ad_train_graph(b.graph, &options, &step), ST_OK);
    ir_graph_destroy(b.graph);
    return step;
}

static void compile_for(const char *target_name, uint32_t n_ranks, int64_t batch, plan_t **out_plan,
                        target_t **out_target) {
    ir_graph_t *step = training_graph(6, batch);
    compile_options_t options = {
        .target = target_name, .n_ranks = n_ranks, .bucket_bytes = 256 * 256 * 4};
    if (compile_plan(step, &options, out_plan) != ST_OK) fail_msg("%s", st_last_error());
    assert_int_equal(predict_target(*out_plan, out_target), ST_OK);
    ir_graph_destroy(step);
}

/* Costs by themselves, in two sums: kernels, collectives. */
static void sum_costs(const plan_t *plan, const target_t *target, uint32_t p, ir_cost_t *costs,
                      double *out_kernels, double *out_link) {
    const plan_program_t *program = &plan->programs[p];
    *out_kernels = *out_link = 0;
    assert_int_equal(predict_steps(plan, target, p, costs), ST_OK);
    for (ir_node_t n = 0; n < program->graph->nodes.n; n++)
        *(program->steps[n].kind == PLAN_STEP_START ? out_link : out_kernels) += costs[n].us;
}

/* On one rank the step is the sum of its kernels. On more it lies between what hides everything and
 * what hides nothing; on the processor nothing is hidden; on the GPU something is. */
static void test_plans(void **state) {
    (void)state;
    static const struct {
        const char *target;
        uint32_t n_ranks;
    } rows[] = {{"cpu", 1}, {"h200", 1}, {"cpu", 4}, {"h200", 4}, {"h200", 3}};
    static ir_cost_t costs[4096];
    for (size_t i = 0; i < COUNT(rows); i++) {
        plan_t *plan;
        target_t *target;
        simulation_t *s;
        report_t *report;
        compile_for(rows[i].target, rows[i].n_ranks, 1024, &plan, &target);
        assert_int_equal(simulate_plan(plan, target, &s), ST_OK);
        assert_int_equal(s->n_lanes, plan->n_programs);
        for (uint32_t r = 0; r < plan->n_ranks; r++) {
            double kernels, link;
            sum_costs(plan, target, plan->program_of[r], costs, &kernels, &link);
            const simulate_rank_t *rank = &s->ranks[r];
            assert_true(fabs(rank->compute_us - kernels) < 1e-9 * kernels);
            assert_true(fabs(rank->step_us - rank->compute_us - rank->exposed_us) < 1e-6);
            assert_true(rank->step_us >= fmax(kernels, link) - 1e-6);
            if (plan->n_ranks == 1) assert_true(rank->exposed_us == 0);
            if (plan->n_programs == 1) assert_true(rank->step_us <= kernels + link + 1e-6);
            if (rows[i].n_ranks == 4 && i == 2) /* cpu */
                assert_true(fabs(rank->exposed_us - link) < 1e-6 * link);
            if (rows[i].n_ranks == 4 && i == 3)
                assert_true(rank->exposed_us < link && rank->exposed_us > 0);
            assert_int_equal(report_make(plan, target, r, &report), ST_OK);
            assert_true(report->us == rank->step_us && report->us_exposed == rank->exposed_us);
            double parts = report->us_forward + report->us_backward + report->us_optimizer;
            assert_true(fabs(parts + report->us_exposed - report->us) < 1e-6);
            report_destroy(report);
        }
        simulate_destroy(s);
        target_destroy(target);
        plan_destroy(plan);
    }
}

/* Events of a stream follow each other; the last one ends with the step; a transfer begins after
 * its start's place and a wait ends no earlier than its transfer. */
static void test_events(void **state) {
    (void)state;
    static ir_cost_t costs[4096];
    plan_t *plan;
    target_t *target;
    simulation_t *s;
    compile_for("h200", 4, 1022, &plan, &target); /* ranks of 255 and 256 rows */
    assert_int_equal(simulate_plan(plan, target, &s), ST_OK);
    for (uint32_t r = 0; r < 4; r++) {
        simulate_event_t *events;
        size_t n;
        double end[2] = {0}, busy = 0, kernels, link;
        sum_costs(plan, target, plan->program_of[r], costs, &kernels, &link);
        assert_int_equal(simulate_events(s, plan, r, costs, &n, &events), ST_OK);
        size_t transfers = 0;
        for (size_t i = 0; i < n; i++) {
            const simulate_event_t *e = &events[i];
            assert_true(e->begin_us >= end[e->stream] - 1e-9 && e->end_us >= e->begin_us);
            end[e->stream] = e->end_us;
            transfers += e->stream == SIMULATE_STREAM_LINK;
            if (plan->programs[plan->program_of[r]].steps[e->node].kind == PLAN_STEP_KERNEL)
                busy += e->end_us - e->begin_us;
        }
        assert_true(transfers > 2);
        assert_true(fabs(fmax(end[0], end[1]) - s->ranks[r].step_us) < 1e-6);
        assert_true(busy > 0 && busy < s->ranks[r].compute_us + 1e-6);
        st_free(events);
    }
    simulate_destroy(s);
    target_destroy(target);
    plan_destroy(plan);
}

/* A thousand ranks cost what their programs do. */
static void test_many_ranks(void **state) {
    (void)state;
    plan_t *plan;
    target_t *target;
    simulation_t *s;
    compile_for("h200", 1024, 1024, &plan, &target);
    assert_int_equal(simulate_plan(plan, target, &s), ST_OK);
    assert_true(s->n_ranks == 1024 && s->n_lanes == plan->n_programs && s->n_lanes < 4);
    assert_true(s->ranks[1023].step_us > 0);
    simulate_destroy(s);
    target_destroy(target);
    plan_destroy(plan);
}

/* Every allocation of a simulation may fail; where a cost can do without, it is not noticed. */
static void test_without_memory(void **state) {
    (void)state;
    plan_t *plan;
    target_t *target;
    simulation_t *s;
    compile_for("h200", 3, 1024, &plan, &target);
    uint64_t before = st_memory_allocations();
    assert_int_equal(simulate_plan(plan, target, &s), ST_OK);
    simulate_destroy(s);
    int64_t n = (int64_t)(st_memory_allocations() - before), failed = 0;
    for (int64_t at = 0; at < n; at++) {
        st_memory_fail_after(at, false);
        st_status_t status = simulate_plan(plan, target, &s);
        st_memory_fail_after(-1, false);
        assert_true(status == ST_NO_MEMORY || status == ST_OK);
        failed += status == ST_NO_MEMORY;
        assert_true((s == NULL) == (status != ST_OK));
        simulate_destroy(s);
    }
    assert_true(failed >= 6);
    target_destroy(target);
    plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_not_hidden_is_exposed),
        cmocka_unit_test(test_waiting_for_a_late_rank_is_told_apart),
        cmocka_unit_test(test_collectives_queue_on_the_link),
        cmocka_unit_test(test_a_link_without_an_engine_hides_nothing),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_what_can_never_end_names_both_ranks),
        cmocka_unit_test(test_random_courses),
        cmocka_unit_test(ranks_with_the_same_course_share_a_lane),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
