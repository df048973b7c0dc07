/* Zip reader: what it reads, and that anything damaged is refused without a crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "import/zip.h"
#include "pt2_make.h"

static uint8_t *sample(bool zip64, bool deflate, size_t *bytes) {
    zip_maker_t zip = {.zip64 = zip64};
    zip_add(&zip, "model/a", "hello", 5);
    zip.deflate = deflate;
    char zeros[3000] = {0};
    zip_add(&zip, "model/data/zeros", zeros, sizeof zeros);
    zip_add(&zip, "model/empty", "", 0);
    return zip_finish(&zip, bytes);
}

static void test_reads(void **state) {
    (void)state;
    for (int form = 0; form < 4; form++) {
        size_t bytes, n;
        uint8_t *file = sample(form & 1, form & 2, &bytes);
        zip_archive_t zip;
        st_arena_t arena = {0};
        const uint8_t *data;
        assert_true(zip_probe(file, bytes));
        assert_int_equal(zip_open(file, bytes, "sample", &zip), ST_OK);
        assert_int_equal(zip.n_entries, 3);
        assert_string_equal(zip.root, "model/");
        assert_int_equal(zip_read(&zip, zip_find(&zip, "a"), &arena, &data, &n), ST_OK);
        assert_int_equal(n, 5);
        assert_memory_equal(data, "hello", 5);
        assert_true(data > file && data < file + bytes);
        assert_int_equal(zip_read(&zip, zip_find(&zip, "data/zeros"), &arena, &data, &n), ST_OK);
        assert_int_equal(n, 3000);
        for (size_t i = 0; i < n; i++) assert_int_equal(data[i], 0);
        assert_int_equal(zip_read(&zip, zip_find(&zip, "empty"), &arena, &data, &n), ST_OK);
        assert_int_equal(n, 0);
        assert_null(zip_find(&zip, "b"));
        assert_null(zip_find(&zip, "model/a"));
        zip_close(&zip);
        st_arena_clear(&arena);
        free(file);
    }
}

static void expect_error(const uint8_t *file, size_t bytes, st_status_t code, const char *text) {
    zip_archive_t zip;
    st_arena_t arena = {0};
    st_status_t status = zip_open(file, bytes, "sample", &zip);
    if (status == ST_OK) {
        const uint8_t *data;
        size_t n;
        for (size_t i = 0; i < zip.n_entries && status == ST_OK; i++)
            status = zip_read(&zip, &zip.entries[i], &arena, &data, &n);
        zip_close(&zip);
    }
    st_arena_clear(&arena);
    if (status != code || !strstr(st_last_error(), text))
        fail_msg("got %s '%s', expected '%s'", st_status_name(status), st_last_error(), text);
}

static void test_root(void **state) {
    (void)state;
    zip_maker_t maker = {0};
    zip_add(&maker, "model/a", "x", 1);
    zip_add(&maker, "other", "y", 1);
    size_t bytes;
    uint8_t *file = zip_finish(&maker, &bytes);
    zip_archive_t zip;
    assert_int_equal(zip_open(file, bytes, "sample", &zip), ST_OK);
    assert_string_equal(zip.root, "");
    assert_non_null(zip_find(&zip, "model/a"));
    zip_close(&zip);
    free(file);
}

static void test_refuses(void **state) {
    (void)state;
    size_t bytes;
    uint8_t *file = sample(false, true, &bytes);
    expect_error(file, 0, ST_PARSE, "truncated");
    for (size_t n = 0; n < bytes; n++) { /* any truncation */
        uint8_t *cut = malloc(n ? n : 1);
        memcpy(cut, file, n);
        expect_error(cut, n, ST_PARSE, "");
        free(cut);
    }
#ifndef STATOR_FUZZ
    file[37]++; /* "hello" */
    expect_error(file, bytes, ST_PARSE, "checksum");
    file[37]--;
#endif
    size_t end = bytes - 22;
    file[end + 10] = 200, file[end + 8] = 200;
    expect_error(file, bytes, ST_PARSE, "claims 200 entries");
    file[end + 10] = 3, file[end + 8] = 3;
    file[6] = 1; /* encrypted, in the local header only: the directory decides */
    size_t directory = (size_t)file[end + 16] | (size_t)file[end + 17] << 8;
    file[directory + 8] = 1;
    expect_error(file, bytes, ST_UNSUPPORTED, "encrypted");
    file[directory + 8] = 0;
    file[directory + 10] = 12;
    expect_error(file, bytes, ST_UNSUPPORTED, "compression method 12");
    file[directory + 10] = 0;
    file[30] = 'n'; /* the local name */
    expect_error(file, bytes, ST_PARSE, "no matching header");
    free(file);

    zip_maker_t maker = {0};
    zip_add(&maker, "a", "x", 1);
    zip_add(&maker, "a", "y", 1);
    file = zip_finish(&maker, &bytes);
    expect_error(file, bytes, ST_PARSE, "appears twice");
    free(file);
}

/* A small deflated entry that claims to be large is refused before memory is taken. */
static void test_bomb(void **state) {
    (void)state;
    zip_maker_t maker = {.deflate = true};
    size_t big = 4 << 20, bytes;
    char *zeros = calloc(1, big);
    zip_add(&maker, "bomb", zeros, big);
    free(zeros);
    uint8_t *file = zip_finish(&maker, &bytes);
    expect_error(file, bytes, ST_PARSE, "more than 200 : 1");
    free(file);
}

/* Every single-bit change is read or refused, never a crash. */
static void test_bit_flips(void **state) {
    (void)state;
    for (int form = 0; form < 4; form++) {
        size_t bytes;
        uint8_t *file = sample(form & 1, form & 2, &bytes);
        for (size_t bit = 0; bit < 8 * bytes; bit++) {
            if (bit / 8 > 60 && bit / 8 < bytes - 500) continue; /* the zeros */
            file[bit / 8] ^= (uint8_t)(1u << bit % 8);
            zip_archive_t zip;
            st_arena_t arena = {0};
            if (zip_open(file, bytes, "sample", &zip) == ST_OK) {
                const uint8_t *data;
                size_t n;
                for (size_t i = 0; i < zip.n_entries; i++)
                    if (zip_read(&zip, &zip.entries[i], &arena, &data, &n) == ST_OK && n > 0)
                        assert_true(data[0] + data[n - 1] >= 0);
                zip_close(&zip);
            }
            st_arena_clear(&arena);
            file[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        free(file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),     cmocka_unit_test(test_root),
        cmocka_unit_test(test_refuses),   cmocka_unit_test(test_bomb),
        cmocka_unit_test(test_bit_flips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
