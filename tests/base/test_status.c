/* Status codes and the thread-local error record. */
#include "base/status.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Every row has a name, a text of its own and a value that is 0, positive (in progress) or
 * negative (error) as the table's comment says. */
static void every_code_has_its_own_name_and_text(void **state) {
    (void)state;
    static const struct {
        st_status_t status;
        const char *name;
    } rows[] = {
#define STATUS(name, value, text) {ST_##name, #name},
#include "base/status.def"
#undef STATUS
    };
    const size_t n = sizeof rows / sizeof *rows;
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(st_status_name(rows[i].status), rows[i].name);
        assert_true(strlen(st_status_text(rows[i].status)) > 0);
        for (size_t k = 0; k < i; k++) {
            assert_int_not_equal(rows[i].status, rows[k].status);
            assert_string_not_equal(st_status_text(rows[i].status), st_status_text(rows[k].status));
        }
    }
    assert_string_equal(st_status_text(ST_OK), "ok");
    assert_string_equal(st_status_text(ST_PARSE), "malformed input");
    assert_string_equal(st_status_text((st_status_t)-1000), "unknown status");
    assert_string_equal(st_status_name((st_status_t)-1000), "UNKNOWN");
}

/* Values are part of the ABI. */
static void values_do_not_move(void **state) {
    (void)state;
    assert_int_equal(ST_OK, 0);
    assert_int_equal(ST_IN_PROGRESS, 1);
    assert_int_equal(ST_INVALID, -1);
    assert_int_equal(ST_PARSE, -2);
    assert_int_equal(ST_NOT_FOUND, -3);
    assert_int_equal(ST_UNSUPPORTED, -4);
    assert_int_equal(ST_NO_MEMORY, -5);
    assert_int_equal(ST_IO, -6);
    assert_int_equal(ST_DOES_NOT_FIT, -7);
    assert_int_equal(ST_PEER_LOST, -8);
    assert_int_equal(ST_RANKS_DISAGREE, -9);
    assert_int_equal(ST_INTERRUPTED, -10);
    assert_int_equal(ST_INTERNAL, -11);
}

static void message_is_formatted_and_prefixed(void **state) {
    (void)state;
    assert_int_equal(FAIL(ST_PARSE, "line %d: unknown op '%s'", 3, "foo"), ST_PARSE);
    assert_string_equal(st_last_error(), "line 3: unknown op 'foo'");
    assert_int_equal(st_error_context(ST_PARSE, "%s", "g.stator"), ST_PARSE);
    assert_string_equal(st_last_error(), "g.stator: line 3: unknown op 'foo'");
    st_clear_error();
    assert_string_equal(st_last_error(), "");
}

static void only_own_faults_name_the_source(void **state) {
    (void)state;
    FAIL(ST_INTERNAL, "table is empty");
    assert_non_null(strstr(st_last_error(), "test_status.c:"));
    FAIL(ST_INVALID, "batch is 0");
    assert_null(strstr(st_last_error(), "test_status.c"));
    st_clear_error();
}

static void long_messages_are_cut(void **state) {
    (void)state;
    static char text[10000];
    memset(text, 'x', sizeof text - 1);
    FAIL(ST_INVALID, "%s", text);
    size_t length = strlen(st_last_error());
    assert_true(length > 1000 && length < sizeof text - 1);
    st_error_context(ST_INVALID, "%s", text);
    assert_int_equal(strlen(st_last_error()), length);
    FAIL(ST_INTERNAL, "%s", text);
    assert_int_equal(strlen(st_last_error()), length);
    st_error_context(ST_INVALID, "short");
    assert_int_equal(strncmp(st_last_error(), "short: xxx", 10), 0);
    st_clear_error();
}

static void *fail_elsewhere(void *copy) {
    FAIL(ST_IO, "rank 1: disk full");
    snprintf(copy, 64, "%s", st_last_error());
    return NULL;
}

static void threads_have_records_of_their_own(void **state) {
    (void)state;
    char copy[64];
    pthread_t thread;
    FAIL(ST_INVALID, "mine");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, copy), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(st_last_error(), "mine");
    assert_string_equal(copy, "rank 1: disk full");
    assert_int_equal(st_error_adopt(ST_IO, copy), ST_IO);
    assert_string_equal(st_last_error(), "rank 1: disk full");
    st_clear_error();
}

static st_status_t two_steps(int fail_at, int *n_run) {
    TRY(fail_at == 0 ? FAIL(ST_IO, "first") : (++*n_run, ST_OK));
    TRY(fail_at == 1 ? FAIL(ST_PARSE, "second") : (++*n_run, ST_OK));
    return ST_OK;
}

static st_status_t with_label(st_status_t inner, int *n_released) {
    st_status_t status = ST_OK;
    TRY_GOTO(inner, fail);
fail:
    ++*n_released;
    return status;
}

static void macros_leave_at_the_first_failure(void **state) {
    (void)state;
    int n_run = 0, n_released = 0;
    assert_int_equal(two_steps(0, &n_run), ST_IO);
    assert_int_equal(n_run, 0);
    assert_int_equal(two_steps(1, &n_run), ST_PARSE);
    assert_int_equal(n_run, 1);
    assert_int_equal(two_steps(2, &n_run), ST_OK);
    assert_int_equal(n_run, 3);
    assert_int_equal(with_label(ST_OK, &n_released), ST_OK);
    assert_int_equal(with_label(ST_NO_MEMORY, &n_released), ST_NO_MEMORY);
    assert_int_equal(n_released, 2);
    st_clear_error();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_its_own_name_and_text),
        cmocka_unit_test(values_do_not_move),
        cmocka_unit_test(message_is_formatted_and_prefixed),
        cmocka_unit_test(only_own_faults_name_the_source),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(threads_have_records_of_their_own),
        cmocka_unit_test(macros_leave_at_the_first_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
