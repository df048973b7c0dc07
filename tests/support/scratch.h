/* What several tests share: a scratch folder, whole files, and the shared cases. */
#ifndef STATOR_TESTS_SUPPORT_SCRATCH_H
#define STATOR_TESTS_SUPPORT_SCRATCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"

/* Group setup and teardown: an empty folder in memory-backed storage where there is one. */
int scratch_setup(void **state);
int scratch_teardown(void **state);
/* "<scratch>/<name>"; 64 results are alive at a time. */
const char *scratch(const char *name);

/* Whole file from the heap (free it); NULL if it cannot be read. */
uint8_t *slurp(const char *path, size_t *out_bytes);
void spill(const char *path, const void *data, size_t bytes);
bool exists(const char *path);
/* Output of a shell command from the heap, NULL if it fails. */
char *capture(const char *command);

/* Path of a file of the shared folder, or NULL after printing why the test is skipped. */
const char *shared_file(const char *name);

#define assert_ok(expr)                                                              \
    do {                                                                             \
        st_status_t status_ = (expr);                                                \
        if (status_ != ST_OK) {                                                      \
            fail_msg("%s: %s: %s", #expr, st_status_name(status_), st_last_error()); \
        }                                                                            \
    } while (0)

/* The call fails with `code` and a message that contains `text`. */
#define assert_fails(expr, code, text)                                                         \
    do {                                                                                       \
        st_clear_error();                                                                      \
        st_status_t status_ = (expr);                                                          \
        if (status_ != (code) || strstr(st_last_error(), (text)) == NULL) {                    \
            fail_msg("%s: got %s '%s', expected %s with '%s'", #expr, st_status_name(status_), \
                     st_last_error(), st_status_name(code), (text));                           \
        }                                                                                      \
    } while (0)

#endif
