/* The tuning record on disk: what is read back, and what counts as absent. */
#include "kernels/record.h"

#include "base/file.h"
#include "base/memory.h"
#include "support/scratch.h"

/* A path where nothing is. */
static const char *fresh(void) {
    const char *path = scratch("record");
    assert_ok(st_remove_file(path));
    return path;
}

static record_entry_t entry_of(uint64_t key, uint8_t first) {
    record_entry_t e = {.key = key, .n_ways = 7, .us = 12.5, .first_us = 20};
    for (int i = 0; i < RECORD_CHOICE_BYTES; i++) e.choice.bytes[i] = (uint8_t)(first + i * 3);
    return e;
}

static record_t *open_at(const char *path, const char *identity) {
    record_t *record;
    assert_int_equal(record_open(path, identity, &record), ST_OK);
    return record;
}

static void what_was_added_is_read_again(void **state) {
    (void)state;
    const char *path = fresh();
    record_t *record = open_at(path, "card A");
    record_entry_t a = entry_of(0xfedcba9876543210u, 0), b = entry_of(1, 200);
    assert_null(record_find(record, a.key));
    assert_int_equal(record_add(record, &a), ST_OK);
    assert_int_equal(record_add(record, &b), ST_OK);
    record_close(record);
    record = open_at(path, "card A");
    assert_int_equal(record_count(record), 2);
    const record_entry_t *found = record_find(record, a.key);
    assert_non_null(found);
    assert_memory_equal(found->choice.bytes, a.choice.bytes, RECORD_CHOICE_BYTES);
    assert_int_equal(found->n_ways, 7);
    assert_true(found->us == 12.5 && found->first_us == 20);
    assert_memory_equal(record_find(record, 1)->choice.bytes, b.choice.bytes, RECORD_CHOICE_BYTES);
    record_close(record);
}

static void the_first_choice_of_a_key_holds(void **state) {
    (void)state;
    const char *path = fresh();
    record_t *mine = open_at(path, "card A"), *other = open_at(path, "card A");
    record_entry_t a = entry_of(5, 0), b = entry_of(5, 100);
    assert_int_equal(record_add(mine, &a), ST_OK);
    assert_int_equal(record_add(mine, &b), ST_OK);
    assert_int_equal(record_find(mine, 5)->choice.bytes[0], 0);
    assert_int_equal(record_add(other, &b), ST_OK); /* it has not seen the first's line */
    record_close(mine);
    record_close(other);
    mine = open_at(path, "card A");
    assert_int_equal(record_count(mine), 1);
    assert_int_equal(record_find(mine, 5)->choice.bytes[0], 0);
    record_close(mine);
}

static void another_ranks_choices_hold_here(void **state) {
    (void)state;
    char *text = NULL;
    record_t *theirs = open_at(fresh(), "card A");
    record_entry_t a = entry_of(5, 0), b = entry_of(6, 40), own = entry_of(5, 100);
    assert_ok(record_add(theirs, &a));
    assert_ok(record_add(theirs, &b));
    assert_ok(record_text(theirs, &text));
    record_close(theirs);
    record_t *mine = open_at(fresh(), "card A"), *other = open_at(scratch("other"), "card B");
    assert_ok(record_add(mine, &own));
    assert_ok(record_take(mine, text));
    assert_int_equal(record_count(mine), 2);
    assert_int_equal(record_find(mine, 5)->choice.bytes[0], 0);
    assert_int_equal(record_find(mine, 6)->choice.bytes[0], 40);
    assert_fails(record_take(other, text), ST_RANKS_DISAGREE, "another kind of device");
    assert_ok(record_take(other, ""));
    st_free(text);
    record_close(mine);
    record_close(other);
}

static void lines_of_another_device_count_as_absent(void **state) {
    (void)state;
    const char *path = fresh();
    record_t *record = open_at(path, "card A");
    record_entry_t a = entry_of(5, 0);
    assert_int_equal(record_add(record, &a), ST_OK);
    record_close(record);
    record = open_at(path, "card B");
    assert_int_equal(record_count(record), 0);
    record_close(record);
}

/* Any byte of the line changed, or the file cut anywhere: no entry, and a new one finds its
 * place. */
static void damaged_and_torn_lines_count_as_absent(void **state) {
    (void)state;
    const char *path = fresh();
    record_t *record = open_at(path, "card A");
    record_entry_t a = entry_of(5, 0), b = entry_of(6, 9);
    assert_int_equal(record_add(record, &a), ST_OK);
    record_close(record);
    size_t bytes;
    char *whole = (char *)slurp(path, &bytes);
    assert_true(bytes > 150);
    for (size_t i = 1; i + 1 < bytes; i++) { /* between its line breaks */
        char *text = malloc(bytes);
        memcpy(text, whole, bytes);
        text[i] = text[i] == '7' ? '8' : '7';
        spill(path, text, bytes);
        record = open_at(path, "card A");
        if (record_count(record)) fail_msg("byte %zu was changed and the line is taken", i);
        record_close(record);
        free(text);
    }
    for (size_t cut = 0; cut + 1 < bytes; cut++) {
        spill(path, whole, cut);
        record = open_at(path, "card A");
        assert_int_equal(record_count(record), 0);
        assert_int_equal(record_add(record, &b), ST_OK);
        record_close(record);
        record = open_at(path, "card A");
        assert_int_equal(record_count(record), 1);
        assert_non_null(record_find(record, 6));
        record_close(record);
    }
    free(whole);
}

static void a_record_that_cannot_be_written_says_so(void **state) {
    (void)state;
    const char *path = scratch("none/record");
    record_t *record = open_at(path, "card A");
    record_entry_t a = entry_of(5, 0);
    assert_fails(record_add(record, &a), ST_IO, path);
    assert_int_equal(record_count(record), 0); /* what is not kept does not hold */
    record_close(record);
}

static void the_option_is_on_off_or_seconds(void **state) {
    (void)state;
    double seconds;
    assert_int_equal(record_budget("on", &seconds), ST_OK);
    assert_true(seconds > 0);
    assert_int_equal(record_budget("off", &seconds), ST_OK);
    assert_true(seconds < 0);
    assert_int_equal(record_budget("2.5", &seconds), ST_OK);
    assert_true(seconds == 2.5);
    static const char *const bad[] = {"", "-1", "often", "nan", "inf", "3s"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(record_budget(bad[i], &seconds), ST_INVALID);
        assert_non_null(strstr(st_last_error(), "option 'tune'"));
    }
}

static void the_hash_is_that_of_a_set(void **state) {
    (void)state;
    record_entry_t a = entry_of(5, 0), b = entry_of(6, 0), c = entry_of(6, 1);
    uint64_t ab = record_hash_add(record_hash_add(0, a.key, &a.choice), b.key, &b.choice);
    uint64_t ba = record_hash_add(record_hash_add(0, b.key, &b.choice), a.key, &a.choice);
    uint64_t ac = record_hash_add(record_hash_add(0, a.key, &a.choice), c.key, &c.choice);
    assert_true(ab == ba);
    assert_true(ab != ac);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_added_is_read_again),
        cmocka_unit_test(the_first_choice_of_a_key_holds),
        cmocka_unit_test(another_ranks_choices_hold_here),
        cmocka_unit_test(lines_of_another_device_count_as_absent),
        cmocka_unit_test(damaged_and_torn_lines_count_as_absent),
        cmocka_unit_test(a_record_that_cannot_be_written_says_so),
        cmocka_unit_test(the_option_is_on_off_or_seconds),
        cmocka_unit_test(the_hash_is_that_of_a_set),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
