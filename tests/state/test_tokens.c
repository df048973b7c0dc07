/* Token shards: round trips, windows over several shards, damage. */
#include "state/tokens.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "support/scratch.h"

static void write_range(const char *path, uint32_t first, size_t n, uint32_t vocab) {
    uint32_t *tokens = malloc((n + 1) * sizeof *tokens);
    for (size_t i = 0; i < n; i++) tokens[i] = first + (uint32_t)i;
    assert_ok(tokens_write(path, tokens, n, vocab));
    free(tokens);
}

static void windows_do_not_cross_shards(void **state) {
    (void)state;
    write_range(scratch("a"), 0, 11, 1000);   /* windows of 5: 0…5, 5…10 */
    write_range(scratch("b"), 100, 0, 1000);  /* none */
    write_range(scratch("c"), 200, 10, 1000); /* 200…205, and nine tokens do not make two */
    const char *paths[] = {scratch("a"), scratch("b"), scratch("c")};
    tokens_t *tokens;
    assert_ok(tokens_open(paths, 3, &tokens));
    assert_int_equal(tokens_count(tokens), 21);
    assert_int_equal(tokens_vocab(tokens), 1000);
    assert_int_equal(tokens_samples(tokens, 5), 3);
    assert_int_equal(tokens_samples(tokens, 9), 2);
    assert_int_equal(tokens_samples(tokens, 100), 0);
    const int64_t samples[] = {2, 1};
    int64_t x[10], y[10];
    assert_ok(tokens_fill(tokens, 5, samples, 2, IR_I64, x, y));
    for (int i = 0; i < 5; i++) {
        assert_int_equal(x[i], 200 + i);
        assert_int_equal(y[i], 201 + i);
        assert_int_equal(x[5 + i], 5 + i);
        assert_int_equal(y[5 + i], 6 + i);
    }
    int32_t x32[10];
    assert_ok(tokens_fill(tokens, 5, samples, 2, IR_I32, x32, NULL));
    assert_int_equal(x32[9], 9);
    const int64_t outside = 3;
    assert_fails(tokens_fill(tokens, 5, &outside, 1, IR_I64, x, y), ST_INVALID, "outside the 3");
    assert_fails(tokens_fill(tokens, 5, samples, 1, IR_F32, x, y), ST_INVALID, "f32");
    tokens_close(tokens);
}

static void large_vocabularies_take_four_bytes(void **state) {
    (void)state;
    write_range(scratch("wide"), 70000, 5, 70005);
    const char *path = scratch("wide");
    tokens_t *tokens;
    assert_ok(tokens_open(&path, 1, &tokens));
    const int64_t sample = 0;
    int32_t x[4], y[4];
    assert_ok(tokens_fill(tokens, 4, &sample, 1, IR_I32, x, y));
    assert_int_equal(y[3], 70004);
    tokens_close(tokens);
    const uint32_t bad[] = {1, 2};
    assert_fails(tokens_write(scratch("bad"), bad, 2, 2), ST_INVALID, "token 1 is 2");
    const char *two[] = {scratch("wide"), scratch("narrow")};
    write_range(two[1], 0, 5, 10);
    assert_fails(tokens_open(two, 2, &tokens), ST_INVALID, "vocabulary of 10");
    assert_fails(tokens_open(two, 0, &tokens), ST_INVALID, "no token shard");
}

static void damage_is_refused(void **state) {
    (void)state;
    const char *path = scratch("whole"), *damaged = scratch("damaged");
    write_range(path, 3, 9, 100);
    size_t bytes;
    uint8_t *data = slurp(path, &bytes);
    assert_int_equal(bytes, 64 + 18);
    tokens_t *tokens;
    for (size_t n = 0; n < bytes; n++) {
        spill(damaged, data, n);
        assert_int_equal(tokens_open((const char *[]){damaged}, 1, &tokens), ST_PARSE);
        assert_non_null(strstr(st_last_error(), damaged));
    }
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        spill(damaged, data, bytes);
        assert_int_not_equal(tokens_open((const char *[]){damaged}, 1, &tokens), ST_OK);
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    /* A token past the vocabulary under right checksums is refused where it is read. */
    data[64 + 4] = 100;
    uint64_t hash = st_hash64(data + 64, 18, 0);
    memcpy(data + 48, &hash, 8);
    hash = st_hash64(data, 56, 0);
    memcpy(data + 56, &hash, 8);
    spill(damaged, data, bytes);
    assert_ok(tokens_open((const char *[]){damaged}, 1, &tokens));
    const int64_t sample = 0;
    int32_t x[4];
    assert_fails(tokens_fill(tokens, 4, &sample, 1, IR_I32, x, NULL), ST_PARSE, "token 2 is 100");
    tokens_close(tokens);
    free(data);
}

/* Cut, overwritten in place, replaced and removed shards; another shard of the set still reads. */
static void changed_shards_are_refused(void **state) {
    (void)state;
    const char *paths[] = {scratch("steady"), scratch("moving")};
    write_range(paths[0], 0, 6, 100);
    const struct timespec later[2] = {{.tv_sec = 1000, .tv_nsec = 1},
                                      {.tv_sec = 1000, .tv_nsec = 1}};
    for (int change = 0; change < 4; change++) {
        write_range(paths[1], 10, 6, 100);
        tokens_t *tokens;
        assert_ok(tokens_open(paths, 2, &tokens));
        const int64_t samples[] = {0, 1};
        int64_t x[10];
        assert_ok(tokens_fill(tokens, 5, samples, 2, IR_I64, x, NULL));
        if (change == 0) assert_int_equal(truncate(paths[1], 0), 0);
        if (change == 1) assert_int_equal(utimensat(AT_FDCWD, paths[1], later, 0), 0);
        if (change == 2) write_range(paths[1], 20, 6, 100);
        if (change == 3) assert_int_equal(unlink(paths[1]), 0);
        assert_ok(tokens_fill(tokens, 5, samples, 1, IR_I64, x, NULL));
        assert_fails(tokens_fill(tokens, 5, samples, 2, IR_I64, x, NULL), ST_IO,
                     "moving' changed while it was being read");
        tokens_close(tokens);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_do_not_cross_shards),
        cmocka_unit_test(large_vocabularies_take_four_bytes),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(changed_shards_are_refused),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
