/* Option objects: the table, values of each kind, the environment, hints, patterns. */
#include "base/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/memory.h"

/* Every row has help, a command, and a default that its own kind accepts. */
static void table_is_sound(void **state) {
    (void)state;
    st_options_t *options = NULL;
    assert_int_equal(st_options_create(&options), ST_OK);
    size_t n = 0;
    for (const st_option_row_t *row = st_option_rows(); row->key; row++, n++) {
        assert_true(strlen(row->help) > 0 && strlen(row->commands) > 0);
        assert_int_equal(strspn(row->commands, "mincrtegpbBkx"), strlen(row->commands));
        assert_int_equal(strspn(row->key, "abcdefghijklmnopqrstuvwxyz-"), strlen(row->key));
        assert_false(st_options_given(options, row->key));
        assert_string_equal(st_options_string(options, row->key), row->fallback);
        if (st_options_set(options, row->key, row->fallback) != ST_OK) {
            fail_msg("default of '%s': %s", row->key, st_last_error());
        }
        assert_true(st_options_given(options, row->key));
        for (const st_option_row_t *other = st_option_rows(); other < row; other++) {
            assert_string_not_equal(other->key, row->key);
        }
    }
    assert_true(n > 10);
    st_options_destroy(options);
    st_options_destroy(NULL);
}

static void values_are_read_by_kind(void **state) {
    (void)state;
    st_options_t *options = NULL;
    assert_int_equal(st_options_create(&options), ST_OK);
    double betas[2] = {0};
    assert_int_equal(st_options_floats(options, "betas", betas, 2), 2);
    assert_true(betas[0] == 0.9 && betas[1] == 0.999);
    assert_int_equal(st_options_size(options, "bucket-size"), 0);

    assert_int_equal(st_options_set(options, "ranks", "3"), ST_OK);
    assert_int_equal(st_options_int(options, "ranks"), 3);
    assert_int_equal(st_options_set(options, "lr", "2.5e-4"), ST_OK);
    assert_true(st_options_float(options, "lr") == 2.5e-4);
    assert_int_equal(st_options_set(options, "nesterov", "yes"), ST_OK);
    assert_true(st_options_bool(options, "nesterov"));
    assert_int_equal(st_options_set(options, "bucket-size", "1.5KiB"), ST_OK);
    assert_int_equal(st_options_size(options, "bucket-size"), 1536);
    assert_int_equal(st_options_set(options, "betas", "0.5,0.25,0.125"), ST_OK);
    assert_int_equal(st_options_floats(options, "betas", betas, 2), 3);
    assert_true(betas[0] == 0.5 && betas[1] == 0.25);
    assert_int_equal(st_options_set(options, "optimizer", "sgd"), ST_OK);
    assert_string_equal(st_options_string(options, "optimizer"), "sgd");
    static const char *const types[][2] = {{"float32", "f32"},
                                           {"fp32", "f32"},
                                           {"double", "f64"},
                                           {"bfloat16", "bf16"},
                                           {"half", "f16"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        assert_int_equal(st_options_set(options, "dtype", types[i][0]), ST_OK);
        assert_string_equal(st_options_string(options, "dtype"), types[i][1]);
    }
    assert_int_equal(st_options_set(options, "optimizer", "half"), ST_INVALID);
    st_options_destroy(options);
}

/* An option of the process is what any object set last, else what the environment says; objects
 * that only begin with the environment's value change nothing. */
static void process_options_are_shared(void **state) {
    (void)state;
    char text[16], small[4];
    st_options_t *a = NULL, *b = NULL;
    assert_int_equal(st_process_option("cuda-path", text, sizeof text), ST_OK);
    assert_string_equal(text, "");
    assert_int_equal(setenv("STATOR_CUDA_PATH", "/env", 1), 0);
    assert_int_equal(st_options_create(&a), ST_OK);
    assert_string_equal(st_options_string(a, "cuda-path"), "/env");
    assert_int_equal(st_process_option("cuda-path", text, sizeof text), ST_OK);
    assert_string_equal(text, "/env");
    assert_int_equal(st_options_set(a, "cuda-path", "/set"), ST_OK);
    assert_int_equal(st_options_create(&b), ST_OK);
    assert_int_equal(st_process_option("cuda-path", text, sizeof text), ST_OK);
    assert_string_equal(text, "/set");
    st_options_destroy(a);
    assert_int_equal(st_process_option("cuda-path", text, sizeof text), ST_OK);
    assert_string_equal(text, "/set");
    assert_int_equal(st_process_option("cuda-path", small, sizeof small), ST_DOES_NOT_FIT);
    assert_non_null(strstr(st_last_error(), "option 'cuda-path' has 4 bytes"));
    assert_int_equal(st_options_set(b, "cuda-path", ""), ST_OK);
    assert_int_equal(st_process_option("cuda-path", text, sizeof text), ST_OK);
    assert_string_equal(text, "/env");
    st_options_destroy(b);
    assert_int_equal(unsetenv("STATOR_CUDA_PATH"), 0);
}

/* A bad value is refused with the option, the value and what was expected; the old one stays. */
static void bad_values_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *key, *value, *expected;
    } rows[] = {
        {"ranks", "two", "whole number"},
        {"ranks", "", "whole number"},
        {"ranks", "99999999999999999999", "whole number"},
        {"lr", "0.1x", "number"},
        {"lr", "nan", "number"},
        {"nesterov", "maybe", "true or false"},
        {"bucket-size", "4MB", "size"},
        {"bucket-size", "-1", "size"},
        {"betas", "0.9;0.99", "commas"},
        {"optimizer", "lion", "sgd|adam|adamw"},
        {"optimizer", "adam|adamw", "sgd|adam|adamw"},
        {"optimizer", "", "sgd|adam|adamw"},
    };
    st_options_t *options = NULL;
    assert_int_equal(st_options_create(&options), ST_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char before[100];
        snprintf(before, sizeof before, "%s", st_options_string(options, rows[i].key));
        assert_int_equal(st_options_set(options, rows[i].key, rows[i].value), ST_INVALID);
        assert_non_null(strstr(st_last_error(), rows[i].key));
        assert_non_null(strstr(st_last_error(), rows[i].value));
        assert_non_null(strstr(st_last_error(), rows[i].expected));
        assert_string_equal(st_options_string(options, rows[i].key), before);
    }
    st_options_destroy(options);
}

static void unknown_key_hints_at_the_nearest(void **state) {
    (void)state;
    st_options_t *options = NULL;
    assert_int_equal(st_options_create(&options), ST_OK);
    assert_int_equal(st_options_set(options, "wieght-decay", "0.1"), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "'wieght-decay'"));
    assert_non_null(strstr(st_last_error(), "did you mean 'weight-decay'"));
    assert_int_equal(st_options_set(options, "xylophone-quartet", "1"), ST_INVALID);
    assert_null(strstr(st_last_error(), "did you mean"));
    st_options_destroy(options);
}

static void environment_overrides_defaults(void **state) {
    (void)state;
    st_options_t *options = NULL;
    setenv("STATOR_BUCKET_SIZE", "2MiB", 1);
    setenv("STATOR_SEED", "", 1); /* empty counts as unset */
    assert_int_equal(st_options_create(&options), ST_OK);
    assert_true(st_options_given(options, "bucket-size"));
    assert_int_equal(st_options_size(options, "bucket-size"), 2 << 20);
    assert_false(st_options_given(options, "seed"));
    assert_int_equal(st_options_set(options, "bucket-size", "1MiB"), ST_OK);
    assert_int_equal(st_options_size(options, "bucket-size"), 1 << 20);
    st_options_destroy(options);

    setenv("STATOR_BUCKET_SIZE", "large", 1);
    assert_int_equal(st_options_create(&options), ST_INVALID);
    assert_null(options);
    assert_non_null(strstr(st_last_error(), "STATOR_BUCKET_SIZE"));
    assert_non_null(strstr(st_last_error(), "large"));
    unsetenv("STATOR_BUCKET_SIZE");
    unsetenv("STATOR_SEED");
}

static void keep_message(void *context, st_log_level_t level, const char *message) {
    char *all = context;
    assert_int_equal(level, ST_LOG_WARNING);
    snprintf(all + strlen(all), 1024 - strlen(all), "%s\n", message);
}

/* A variable that looks like an option and is none is told, with the nearest one. */
static void unknown_variables_are_told(void **state) {
    (void)state;
    char all[1024] = "";
    st_options_t *options = NULL;
    setenv("STATOR_BUKET_SIZE", "2MiB", 1);
    setenv("STATOR_BUCKET_SIZE", "2MiB", 1);
    setenv("STATOR_PROFILE", "1", 1); /* no option, but read */
    setenv("STATORY", "1", 1);
    st_log_set(keep_message, all, ST_LOG_INFO);
    assert_int_equal(st_options_create(&options), ST_OK);
    st_log_set(NULL, NULL, ST_LOG_ERROR);
    assert_string_equal(all,
                        "environment variable STATOR_BUKET_SIZE is no option and changes nothing; "
                        "did you mean STATOR_BUCKET_SIZE?\n");
    assert_int_equal(st_options_size(options, "bucket-size"), 2 << 20);
    st_options_destroy(options);
    unsetenv("STATOR_BUKET_SIZE");
    unsetenv("STATOR_BUCKET_SIZE");
    unsetenv("STATOR_PROFILE");
    unsetenv("STATORY");
}

static void out_of_memory_is_reported(void **state) {
    (void)state;
    setenv("STATOR_SEED", "5", 1);
    st_options_t *options = NULL;
    int64_t countdown = 0;
    for (; countdown < 10; countdown++) {
        st_memory_fail_after(countdown, false);
        st_status_t status = st_options_create(&options);
        st_memory_fail_after(-1, false);
        if (status == ST_OK) break;
        assert_int_equal(status, ST_NO_MEMORY);
        assert_null(options);
    }
    assert_int_equal(countdown, 2); /* the object and the value from the environment */
    st_memory_fail_after(0, false);
    assert_int_equal(st_options_set(options, "seed", "6"), ST_NO_MEMORY);
    st_memory_fail_after(-1, false);
    assert_int_equal(st_options_int(options, "seed"), 5);
    st_options_destroy(options);
    unsetenv("STATOR_SEED");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_sound),
        cmocka_unit_test(values_are_read_by_kind),
        cmocka_unit_test(process_options_are_shared),
        cmocka_unit_test(bad_values_are_refused),
        cmocka_unit_test(unknown_key_hints_at_the_nearest),
        cmocka_unit_test(environment_overrides_defaults),
        cmocka_unit_test(unknown_variables_are_told),
        cmocka_unit_test(out_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
