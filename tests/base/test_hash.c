/* Hashes and the random generator against the published answers of their authors. */
#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Sample text of xxHash's own sanity check: each byte the top one of a squared counter. */
enum { SAMPLE_BYTES = 101 };
static const uint32_t sample_prime = 2654435761u;

static void sample_fill(unsigned char sample[SAMPLE_BYTES]) {
    uint32_t word = sample_prime;
    for (size_t i = 0; i < SAMPLE_BYTES; i++) {
        sample[i] = (unsigned char)(word >> 24);
        word *= word;
    }
}

/* XXH64 rows of the sanity check in xxHash's command-line tool (release 0.6.5): lengths below 4,
 * below 32 and above it, so each of the algorithm's tails is entered. */
static void hash64_gives_published_values(void **state) {
    (void)state;
    static const struct {
        size_t bytes;
        uint64_t seed, hash;
    } rows[] = {
        {0, 0, 0xEF46DB3751D8E999},
        {0, 2654435761u, 0xAC75FDA2929B17EF},
        {1, 0, 0x4FCE394CC88952D8},
        {1, 2654435761u, 0x739840CB819FA723},
        {14, 0, 0xCFFA8DB881BC3A3D},
        {14, 2654435761u, 0x5B9611585EFCC9CB},
        {SAMPLE_BYTES, 0, 0x0EAB543384F878AD},
        {SAMPLE_BYTES, 2654435761u, 0xCAA65939306F1E21},
    };
    unsigned char sample[SAMPLE_BYTES];
    sample_fill(sample);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(st_hash64(sample, rows[i].bytes, rows[i].seed), rows[i].hash);
    }
    assert_int_equal(st_hash64(NULL, 0, 0), 0xEF46DB3751D8E999);
}

static void hash_string_is_hash64_of_its_bytes(void **state) {
    (void)state;
    assert_int_equal(st_hash_string(""), 0xEF46DB3751D8E999);
    assert_int_equal(st_hash_string("a"), 0xD24EC4F1A98C6E5B);
    assert_int_equal(st_hash_string("abc"), 0x44BC2CF5AD770999);
}

/* The answer must not depend on where the bytes lie: files are mapped, headers are not aligned. */
static void hash64_ignores_alignment(void **state) {
    (void)state;
    unsigned char sample[SAMPLE_BYTES], shifted[SAMPLE_BYTES + 8];
    sample_fill(sample);
    for (size_t shift = 0; shift < 8; shift++) {
        memcpy(shifted + shift, sample, SAMPLE_BYTES);
        assert_int_equal(st_hash64(shifted + shift, SAMPLE_BYTES, 0), 0x0EAB543384F878AD);
    }
}

static void hash_of_pieces_is_that_of_the_whole(void **state) {
    (void)state;
    unsigned char sample[SAMPLE_BYTES];
    sample_fill(sample);
    for (size_t bytes = 0; bytes <= SAMPLE_BYTES; bytes++) {
        for (size_t piece = 1; piece <= 70; piece++) {
            st_hasher_t hasher;
            st_hasher_begin(&hasher, sample_prime);
            for (size_t at = 0; at < bytes; at += piece)
                st_hasher_add(&hasher, sample + at, bytes - at < piece ? bytes - at : piece);
            assert_int_equal(st_hasher_end(&hasher), st_hash64(sample, bytes, sample_prime));
        }
    }
}

static void hash64_sees_every_bit(void **state) {
    (void)state;
    unsigned char sample[SAMPLE_BYTES];
    sample_fill(sample);
    uint64_t before = st_hash64(sample, SAMPLE_BYTES, 0);
    for (size_t bit = 0; bit < SAMPLE_BYTES * 8; bit++) {
        sample[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(st_hash64(sample, SAMPLE_BYTES, 0), before);
        sample[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

/* philox4x32, 10 rounds, from the known-answer file of the Random123 distribution. */
static void philox_gives_published_values(void **state) {
    (void)state;
    static const struct {
        uint64_t key, low, high;
        uint32_t out[4];
    } rows[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {~0ull, ~0ull, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         0x85a308d3243f6a88,
         0x0370734413198a2e,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t out[4];
        st_philox(rows[i].key, rows[i].low, rows[i].high, out);
        assert_memory_equal(out, rows[i].out, sizeof out);
    }
}

static void uniform_stays_below_one(void **state) {
    (void)state;
    assert_true(st_uniform24(0) == 0.0f);
    assert_true(st_uniform24(0xFFFFFFFFu) == 1.0f - 0x1p-24f);
    assert_true(st_uniform24(0x80000000u) == 0.5f);
    /* Mean and variance of 2^16 draws: standard errors are 1.1e-3 and 2.9e-4; five of each. */
    double sum = 0, sum_squares = 0;
    enum { N = 1 << 16 };
    for (uint64_t i = 0; i < N / 4; i++) {
        uint32_t out[4];
        st_philox(7, i, 0, out);
        for (int k = 0; k < 4; k++) {
            double u = st_uniform24(out[k]);
            assert_true(u >= 0 && u < 1);
            sum += u;
            sum_squares += u * u;
        }
    }
    double mean = sum / N, variance = sum_squares / N - mean * mean;
    assert_true(mean > 0.5 - 5.7e-3 && mean < 0.5 + 5.7e-3);
    assert_true(variance > 1.0 / 12 - 1.5e-3 && variance < 1.0 / 12 + 1.5e-3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash64_gives_published_values),
        cmocka_unit_test(hash_string_is_hash64_of_its_bytes),
        cmocka_unit_test(hash64_ignores_alignment),
        cmocka_unit_test(hash_of_pieces_is_that_of_the_whole),
        cmocka_unit_test(hash64_sees_every_bit),
        cmocka_unit_test(philox_gives_published_values),
        cmocka_unit_test(uniform_stays_below_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
