/* The thread team: every element once, chunks that do not depend on the number of threads, many
 * short loops in a row, and sleeping between them. */
#include "device/cpu/team.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"

enum { MAX_CHUNKS = 4096 };

typedef struct record {
    int64_t grain;
    int visits[MAX_CHUNKS];
    int64_t begin[MAX_CHUNKS], end[MAX_CHUNKS];
    int thread[MAX_CHUNKS];
} record_t;

static void note(void *arg, int64_t begin, int64_t end, int thread) {
    record_t *record = arg;
    int64_t chunk = begin / record->grain;
    record->visits[chunk]++;
    record->begin[chunk] = begin;
    record->end[chunk] = end;
    record->thread[chunk] = thread;
}

static void every_chunk_runs_once_and_in_contiguous_runs(void **state) {
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 7, 64, 1000, 1001, 4096};
    static const int64_t grains[] = {1, 3, 64, 5000};
    record_t *record = malloc(sizeof *record);
    assert_non_null(record);
    for (int n_threads = 1; n_threads <= 7; n_threads++) {
        dev_team_t *team;
        assert_int_equal(dev_team_create(n_threads, &team), ST_OK);
        assert_int_equal(dev_team_size(team), n_threads);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t g = 0; g < sizeof grains / sizeof *grains; g++) {
                int64_t n = sizes[s], grain = grains[g], chunks = (n + grain - 1) / grain;
                memset(record, 0, sizeof *record);
                record->grain = grain;
                dev_team_for(team, n, grain, note, record);
                for (int64_t c = 0; c < chunks; c++) {
                    assert_int_equal(record->visits[c], 1);
                    assert_int_equal(record->begin[c], c * grain);
                    assert_int_equal(record->end[c], (c + 1) * grain < n ? (c + 1) * grain : n);
                    assert_in_range(record->thread[c], 0, n_threads - 1);
                    if (c) assert_true(record->thread[c] >= record->thread[c - 1]);
                }
                for (int64_t c = chunks; c < MAX_CHUNKS; c++)
                    assert_int_equal(record->visits[c], 0);
                /* no thread has two chunks more than another */
                int most = 0, least = INT32_MAX, count[8] = {0};
                for (int64_t c = 0; c < chunks; c++) count[record->thread[c]]++;
                for (int t = 0; t < n_threads; t++) {
                    if (count[t] > most) most = count[t];
                    if (count[t] < least) least = count[t];
                }
                assert_true(most - least <= 1);
            }
        dev_team_destroy(team);
    }
    free(record);
}

typedef struct partial {
    const int64_t *in;
    int64_t sums[64];
} partial_t;

static void add_chunk(void *arg, int64_t begin, int64_t end, int thread) {
    partial_t *partial = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) partial->sums[begin / 16] += partial->in[i];
}

/* Each loop reads what the one before wrote: a missed wake-up hangs, a missing barrier shows in
 * sums. */
static void thousands_of_loops_see_each_other(void **state) {
    (void)state;
    int64_t in[1024];
    for (int i = 0; i < 1024; i++) in[i] = i;
    dev_team_t *team;
    assert_int_equal(dev_team_create(3, &team), ST_OK);
    for (int loop = 0; loop < 5000; loop++) {
        partial_t partial = {.in = in};
        dev_team_for(team, 1024, 16, add_chunk, &partial);
        int64_t sum = 0;
        for (int i = 0; i < 64; i++) sum += partial.sums[i];
        int64_t expected = 1023 * 1024 / 2 + (int64_t)loop;
        assert_int_equal(sum, expected);
        in[loop % 1024]++;
        if (loop % 1000 == 0) usleep(2000); /* long enough for the workers to sleep */
    }
    dev_team_destroy(team);
}

static void several_teams_work_side_by_side(void **state) {
    (void)state;
    dev_team_t *teams[4];
    int64_t in[1024];
    for (int i = 0; i < 1024; i++) in[i] = 1;
    for (int t = 0; t < 4; t++) assert_int_equal(dev_team_create(4, &teams[t]), ST_OK);
    for (int loop = 0; loop < 200; loop++)
        for (int t = 0; t < 4; t++) {
            partial_t partial = {.in = in};
            dev_team_for(teams[t], 1024, 16, add_chunk, &partial);
            for (int i = 0; i < 64; i++) assert_int_equal(partial.sums[i], 16);
        }
    for (int t = 0; t < 4; t++) dev_team_destroy(teams[t]);
    dev_team_destroy(NULL);
}

/* Teams that wait for work do not keep those at work from spinning. */
static void only_teams_in_use_count(void **state) {
    (void)state;
    int processors = (int)sysconf(_SC_NPROCESSORS_ONLN);
    dev_team_t *train, *idle;
    assert_int_equal(dev_team_create(processors, &train), ST_OK);
    assert_int_equal(dev_team_create(processors, &idle), ST_OK);
    assert_true(dev_team_spins() > 0);
    dev_team_enter(train);
    assert_true(dev_team_spins() > 0);
    dev_team_enter(idle);
    assert_int_equal(dev_team_spins(), 0);
    dev_team_leave(idle);
    assert_true(dev_team_spins() > 0);
    dev_team_leave(train);
    dev_team_destroy(idle);
    dev_team_destroy(train);
}

static void bad_sizes_and_no_memory_are_errors(void **state) {
    (void)state;
    dev_team_t *team;
    assert_int_equal(dev_team_create(0, &team), ST_INVALID);
    assert_null(team);
    assert_int_equal(dev_team_create(-3, &team), ST_INVALID);
    assert_int_equal(dev_team_create(1000000, &team), ST_INVALID);
    for (int64_t k = 0; k < 2; k++) {
        st_memory_fail_after(k, false);
        assert_int_equal(dev_team_create(2, &team), ST_NO_MEMORY);
        assert_null(team);
    }
    st_memory_fail_after(-1, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_chunk_runs_once_and_in_contiguous_runs),
        cmocka_unit_test(thousands_of_loops_see_each_other),
        cmocka_unit_test(several_teams_work_side_by_side),
        cmocka_unit_test(only_teams_in_use_count),
        cmocka_unit_test(bad_sizes_and_no_memory_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
