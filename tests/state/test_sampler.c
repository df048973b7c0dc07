/* Order of samples: each once an epoch, other orders in other epochs, resumable anywhere. */
#include "state/sampler.h"

#include "support/scratch.h"

static void each_sample_once_an_epoch(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 100, 1023, 1024, 1025, 60000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int64_t n = sizes[i];
        uint8_t *seen = malloc((size_t)n);
        sampler_t sampler;
        assert_ok(sampler_init(&sampler, n, 1, 7, true));
        for (int epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, (size_t)n);
            for (int64_t j = 0; j < n; j++) {
                int64_t sample;
                sampler_next(&sampler, &sample);
                assert_true(sample >= 0 && sample < n);
                assert_int_equal(seen[sample]++, 0);
            }
            assert_int_equal(sampler.epoch, epoch);
        }
        free(seen);
    }
}

static int64_t fixed_points(const sampler_t *a, int64_t epoch_a, const sampler_t *b,
                            int64_t epoch_b) {
    int64_t equal = 0;
    for (int64_t i = 0; i < a->n_samples; i++) {
        equal += sampler_at(a, epoch_a, i) == sampler_at(b, epoch_b, i);
    }
    return equal;
}

static void epochs_and_seeds_differ(void **state) {
    (void)state;
    sampler_t a, b;
    assert_ok(sampler_init(&a, 5000, 10, 1, true));
    assert_ok(sampler_init(&b, 5000, 10, 2, true));
    /* Two random orders agree in one place on average: twelve is out of reach. */
    assert_true(fixed_points(&a, 0, &a, 1) < 12);
    assert_true(fixed_points(&a, 0, &b, 0) < 12);
    assert_int_equal(fixed_points(&a, 3, &a, 3), 5000);
    sampler_t plain;
    assert_ok(sampler_init(&plain, 5000, 10, 1, false));
    assert_true(fixed_points(&a, 0, &plain, 0) < 12);
    assert_int_equal(sampler_at(&plain, 5, 4321), 4321);
}

/* Mean distance of neighbours in a random order of n is n / 3, within a few per cent. */
static void order_looks_random(void **state) {
    (void)state;
    sampler_t sampler;
    assert_ok(sampler_init(&sampler, 30000, 1, 99, true));
    double distance = 0, position = 0;
    for (int64_t i = 1; i < 30000; i++) {
        distance += (double)llabs(sampler_at(&sampler, 0, i) - sampler_at(&sampler, 0, i - 1));
    }
    for (int64_t i = 0; i < 15000; i++) position += (double)sampler_at(&sampler, 0, i);
    assert_true(distance / 29999 > 9700 && distance / 29999 < 10300);
    assert_true(position / 15000 > 14700 && position / 15000 < 15300);
}

static void the_last_partial_batch_is_dropped(void **state) {
    (void)state;
    sampler_t sampler;
    assert_ok(sampler_init(&sampler, 10, 4, 3, true));
    assert_int_equal(sampler_batches(&sampler), 2);
    int64_t batch[4];
    sampler_next(&sampler, batch);
    sampler_next(&sampler, batch);
    assert_true(sampler.epoch == 0 && sampler.index == 8);
    sampler_next(&sampler, batch);
    assert_true(sampler.epoch == 1 && sampler.index == 4);
    assert_int_equal(batch[0], sampler_at(&sampler, 1, 0));
    assert_fails(sampler_init(&sampler, 3, 4, 3, true), ST_INVALID, "3 samples");
    assert_fails(sampler_init(&sampler, 3, 0, 3, true), ST_INVALID, "batch of 0");
}

static void resumes_at_any_position(void **state) {
    (void)state;
    sampler_t whole, part;
    assert_ok(sampler_init(&whole, 37, 5, 11, true));
    for (int step = 0; step < 40; step++) {
        assert_ok(sampler_init(&part, 37, 5, 11, true));
        assert_ok(sampler_seek(&part, whole.epoch, whole.index));
        int64_t a[5], b[5];
        sampler_next(&whole, a);
        sampler_next(&part, b);
        assert_memory_equal(a, b, sizeof a);
        assert_true(whole.epoch == part.epoch && whole.index == part.index);
    }
    assert_fails(sampler_seek(&part, 0, 38), ST_INVALID, "sample 38");
    assert_fails(sampler_seek(&part, -1, 0), ST_INVALID, "epoch -1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sample_once_an_epoch),
        cmocka_unit_test(epochs_and_seeds_differ),
        cmocka_unit_test(order_looks_random),
        cmocka_unit_test(the_last_partial_batch_is_dropped),
        cmocka_unit_test(resumes_at_any_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
