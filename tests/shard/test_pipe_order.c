/* Orders of a pipeline's passes: what they must hold to, and how long they take, counted apart from
 * the simulation that makes them. */
#include "shard/pipe_order.h"

#include <math.h>

#include "support/scratch.h"

typedef struct pass {
    uint32_t stage, micro;
    pipe_pass_t pass;
    bool real;
} pass_t;

enum { MOST = 4096 };

/* The passes of a rank in order; `apart`: W by itself. */
static uint32_t list_rank(const pipe_order_t *o, uint32_t rank, bool apart, bool trains,
                          pass_t *out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n_passes[rank]; i++) out[i].real = false;
    for (uint32_t s = rank; s < o->n_stages; s += o->n_ranks)
        for (uint32_t m = 0; m < o->n_micro; m++)
            for (int k = PIPE_F; k < (trains ? (apart ? PIPE_PASS_END : PIPE_W) : PIPE_B); k++) {
                uint32_t place = pipe_place(o, s, m, (pipe_pass_t)k);
                assert_true(place < o->n_passes[rank] && place < MOST && !out[place].real);
                out[place] = (pass_t){s, m, (pipe_pass_t)k, true};
                n++;
            }
    assert_int_equal(n, o->n_passes[rank]);
    return n;
}

/* Runs the lists as they stand: a rank waits for what its next pass needs. Returns when all is
 * done. */
static double run(const pipe_order_t *o, bool apart, bool trains) {
    static pass_t list[8][MOST];
    static double done[64][64][PIPE_PASS_END];
    uint32_t at[8] = {0};
    double free_at[8] = {0}, end = 0;
    bool any = true;
    for (uint32_t r = 0; r < o->n_ranks; r++) list_rank(o, r, apart, trains, list[r]);
    for (int s = 0; s < 64; s++)
        for (int m = 0; m < 64; m++)
            for (int k = 0; k < PIPE_PASS_END; k++) done[s][m][k] = INFINITY;
    while (any) {
        any = false;
        for (uint32_t r = 0; r < o->n_ranks; r++)
            while (at[r] < o->n_passes[r]) {
                const pass_t p = list[r][at[r]];
                double from = free_at[r];
                if (p.pass == PIPE_F && p.stage)
                    from = fmax(from, done[p.stage - 1][p.micro][PIPE_F]);
                if (p.pass == PIPE_B) from = fmax(from, done[p.stage][p.micro][PIPE_F]);
                if (p.pass == PIPE_B && p.stage + 1 < o->n_stages)
                    from = fmax(from, done[p.stage + 1][p.micro][PIPE_B]);
                if (p.pass == PIPE_W) from = fmax(from, done[p.stage][p.micro][PIPE_B]);
                if (from == INFINITY) break;
                free_at[r] = done[p.stage][p.micro][p.pass] =
                    from + (p.pass == PIPE_B && !apart ? 2 : 1);
                end = fmax(end, free_at[r]);
                at[r]++;
                any = true;
            }
    }
    for (uint32_t r = 0; r < o->n_ranks; r++) assert_int_equal(at[r], o->n_passes[r]);
    return end;
}

/* Micro-batches of which the forward pass has run, and the last of `until` has not, at most. */
static uint32_t most_held(const pipe_order_t *o, uint32_t rank, bool apart, pipe_pass_t until) {
    static pass_t list[MOST];
    uint32_t n = list_rank(o, rank, apart, true, list), held = 0, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (list[i].pass == PIPE_F && ++held > most) most = held;
        if (list[i].pass == until) held--;
    }
    return most;
}

static void one_f_one_b_holds_fewer_micro_batches_on_each_further_rank(void **state) {
    (void)state;
    for (uint32_t p = 1; p <= 8; p++)
        for (uint32_t m = 1; m <= 17; m += 4) {
            pipe_order_t o;
            assert_ok(pipe_order_make(p, 1, m, SHARD_1F1B, true, &o));
            for (uint32_t r = 0; r < p; r++) {
                assert_int_equal(most_held(&o, r, false, PIPE_B), p - r < m ? p - r : m);
                assert_int_equal(o.most_held[r], p - r < m ? p - r : m);
            }
            /* m micro-batches of 3 units, and the way in and out of p - 1 other ranks */
            assert_true(run(&o, false, true) == 3. * (m + p - 1));
            pipe_order_free(&o);
        }
}

/* Of 1F1B's bubble, 3 (p - 1) units, at best p - 1 are left (ZB-H1); here at most three more. */
static void weights_apart_fill_most_of_the_bubble(void **state) {
    (void)state;
    for (uint32_t p = 2; p <= 8; p++)
        for (uint32_t m = 2 * p; m <= 4 * p; m += p) {
            pipe_order_t o;
            assert_ok(pipe_order_make(p, 1, m, SHARD_ZERO_BUBBLE, true, &o));
            for (uint32_t r = 0; r < p; r++) assert_true(most_held(&o, r, true, PIPE_W) <= p);
            assert_true(run(&o, true, true) - 3. * m <= fmin(2 * (p - 1), p + 2));
            pipe_order_free(&o);
        }
}

/* A bubble of as many stages as there are ranks, each of them half as long. */
static void stages_far_apart_make_bubbles_shorter(void **state) {
    (void)state;
    for (uint32_t p = 2; p <= 8; p *= 2) {
        pipe_order_t one, two;
        const uint32_t m = 4 * p;
        assert_ok(pipe_order_make(p, 1, m, SHARD_1F1B, true, &one));
        assert_ok(pipe_order_make(p, 2, m, SHARD_1F1B, true, &two));
        const double long_ = run(&one, false, true), short_ = run(&two, false, true) / 2;
        assert_true(long_ - 3. * m == 3. * (p - 1));
        assert_true(short_ - 3. * m == 0.5 * 3. * (p - 1));
        pipe_order_free(&one);
        pipe_order_free(&two);
    }
}

static void every_pass_runs_once_whatever_the_numbers(void **state) {
    (void)state;
    for (uint32_t p = 1; p <= 5; p++)
        for (uint32_t v = 1; v <= 3; v++)
            for (uint32_t m = 1; m <= 7; m++)
                for (int k = 0; k < 3; k++) {
                    pipe_order_t o;
                    const bool apart = k == 1, trains = k < 2;
                    assert_ok(pipe_order_make(p, v, m, apart ? SHARD_ZERO_BUBBLE : SHARD_1F1B,
                                              trains, &o));
                    run(&o, apart, trains);
                    pipe_order_free(&o);
                }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_f_one_b_holds_fewer_micro_batches_on_each_further_rank),
        cmocka_unit_test(weights_apart_fill_most_of_the_bubble),
        cmocka_unit_test(stages_far_apart_make_bubbles_shorter),
        cmocka_unit_test(every_pass_runs_once_whatever_the_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
