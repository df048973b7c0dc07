/* Memory packing: no two pieces that live at one time overlap, and the total is near its bound. */
#include "schedule/pack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ALIGNMENT = 64, MAX_PIECES = 400 };

static void check(uint32_t n, const sched_piece_t *pieces, uint64_t total, uint64_t bound) {
    uint64_t most = 0, end = 0;
    for (uint32_t i = 0; i < n; i++) {
        const sched_piece_t *a = &pieces[i];
        uint64_t alive = 0;
        assert_int_equal(a->offset % ALIGNMENT, 0);
        assert_true(a->offset + a->bytes <= total);
        if (a->offset + a->bytes > end) end = a->offset + a->bytes;
        for (uint32_t j = 0; j < n; j++) {
            const sched_piece_t *b = &pieces[j];
            if (b->begin <= a->begin && a->begin <= b->end)
                alive += (b->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
            if (i == j || !a->bytes || !b->bytes || a->end < b->begin || b->end < a->begin)
                continue;
            assert_true(a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset);
        }
        if (alive > most) most = alive;
    }
    assert_int_equal(bound, most); /* some piece is born at the fullest moment */
    assert_true(total >= bound);
    assert_true(total < end + ALIGNMENT);
}

static void random_pieces_do_not_overlap(void **state) {
    (void)state;
    sched_piece_t pieces[MAX_PIECES];
    unsigned seed = 7;
    uint64_t sum_total = 0, sum_bound = 0;
    for (int round = 0; round < 60; round++) {
        uint32_t n = 1 + (uint32_t)rand_r(&seed) % MAX_PIECES;
        for (uint32_t i = 0; i < n; i++) {
            int64_t begin = rand_r(&seed) % 300 - 1;
            int64_t length = rand_r(&seed) % 5 ? rand_r(&seed) % 6 : rand_r(&seed) % 200;
            pieces[i] = (sched_piece_t){begin, begin + length, (uint64_t)(rand_r(&seed) % 5000), 0};
        }
        uint64_t total, bound;
        assert_int_equal(sched_pack(n, pieces, ALIGNMENT, &total, &bound), ST_OK);
        check(n, pieces, total, bound);
        sum_total += total;
        sum_bound += bound;
    }
    /* random lifetimes are harder than a graph's; what is seen here is 4 % */
    assert_true((double)sum_total < 1.08 * (double)sum_bound);
}

static void dead_memory_is_used_again(void **state) {
    (void)state;
    sched_piece_t pieces[] = {{0, 1, 1000, 0}, {2, 3, 900, 0}, {1, 2, 64, 0}, {4, 9, 1024, 0}};
    uint64_t total, bound;
    assert_int_equal(sched_pack(4, pieces, ALIGNMENT, &total, &bound), ST_OK);
    check(4, pieces, total, bound);
    assert_int_equal(total, 1024 + 64);
}

static void nothing_needs_nothing(void **state) {
    (void)state;
    uint64_t total = 1, bound = 1;
    sched_piece_t piece = {0, 5, 0, 17};
    assert_int_equal(sched_pack(0, NULL, ALIGNMENT, &total, &bound), ST_OK);
    assert_int_equal(total + bound, 0);
    assert_int_equal(sched_pack(1, &piece, ALIGNMENT, &total, &bound), ST_OK);
    assert_int_equal(total + bound + piece.offset, 0);
}

static void absurd_sizes_are_an_error(void **state) {
    (void)state;
    sched_piece_t pieces[] = {{0, 1, UINT64_MAX / 4, 0}, {0, 1, UINT64_MAX / 4, 0}, {0, 1, 1, 0}};
    uint64_t total, bound;
    assert_int_equal(sched_pack(3, pieces, ALIGNMENT, &total, &bound), ST_DOES_NOT_FIT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_pieces_do_not_overlap),
        cmocka_unit_test(dead_memory_is_used_again),
        cmocka_unit_test(nothing_needs_nothing),
        cmocka_unit_test(absurd_sizes_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
