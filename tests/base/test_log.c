/* Messages: their levels, one line each, from several threads one at a time, and the error record
 * is left. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"

typedef struct heard {
    int n, inside;
    st_log_level_t level;
    char text[2000];
} heard_t;

static void hear(void *context, st_log_level_t level, const char *message) {
    heard_t *heard = context;
    assert_int_equal(heard->inside++, 0);
    heard->n++;
    heard->level = level;
    strncpy(heard->text, message, sizeof heard->text - 1);
    heard->inside--;
}

static void messages_are_formatted_lines(void **state) {
    (void)state;
    heard_t heard = {0};
    char longer[3000];
    st_log(ST_LOG_ERROR, "to no one");
    st_log_set(hear, &heard, ST_LOG_WARNING);
    st_log(ST_LOG_WARNING, "two\nlines of %d", 7);
    assert_string_equal(heard.text, "two lines of 7");
    assert_int_equal(heard.level, ST_LOG_WARNING);
    st_log(ST_LOG_INFO, "too much");
    assert_int_equal(heard.n, 1);
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    st_log(ST_LOG_ERROR, "%s", longer);
    assert_int_equal(strlen(heard.text), 1023);
    assert_true(FAIL(ST_INVALID, "kept") == ST_INVALID);
    st_log(ST_LOG_ERROR, "another");
    assert_string_equal(st_last_error(), "kept");
    st_log_set(NULL, NULL, ST_LOG_INFO);
    st_log(ST_LOG_ERROR, "to no one");
    assert_int_equal(heard.n, 3);
}

enum { THREADS = 8, EACH = 500 };

static void *talk(void *argument) {
    for (int i = 0; i < EACH; i++) st_log(ST_LOG_INFO, "thread %d", *(int *)argument);
    return NULL;
}

static void threads_talk_one_at_a_time(void **state) {
    (void)state;
    heard_t heard = {0};
    pthread_t threads[THREADS];
    int numbers[THREADS];
    st_log_set(hear, &heard, ST_LOG_INFO);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, talk, &numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    st_log_set(NULL, NULL, ST_LOG_INFO);
    assert_int_equal(heard.n, THREADS * EACH);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_formatted_lines),
        cmocka_unit_test(threads_talk_one_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
