/* Status codes and the thread-local error record.
 *
 * A function that can fail returns st_status_t. On failure it has described what went wrong with
 * FAIL(...) (or received a failing status from a callee and passes it on). Callers add context with
 * st_error_context(). Nothing here allocates. */
#ifndef STATOR_BASE_STATUS_H
#define STATOR_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

typedef enum st_status {
#define STATUS(name, value, text) ST_##name = (value),
#include "base/status.def"
#undef STATUS
} st_status_t;

#define ST_WARN_UNUSED __attribute__((warn_unused_result))
#define ST_PRINTF(fmt_index, first_arg) __attribute__((format(printf, fmt_index, first_arg)))

/* "ok", "malformed input", …; never NULL. */
const char *st_status_text(st_status_t status);
/* "OK", "PARSE", …; never NULL. */
const char *st_status_name(st_status_t status);

/* Message of the last failure on this thread, "" if none. Valid until the next failure here. */
const char *st_last_error(void);
/* Clears the record. */
void st_clear_error(void);

/* Records a failure on this thread and returns `status`. Use through FAIL. */
st_status_t st_error_set(st_status_t status, const char *file, int line, const char *format, ...)
    ST_PRINTF(4, 5);
/* Prefixes the recorded message: "<context>: <message>". Returns `status` for chaining. */
st_status_t st_error_context(st_status_t status, const char *format, ...) ST_PRINTF(2, 3);
/* Copies a record from another thread (its st_last_error text) into this thread's. */
st_status_t st_error_adopt(st_status_t status, const char *message);

/* A module with its own copy of this file hands every record on to its host's thread record. Set
 * once, before any other call; NULL: keep records here. */
void st_error_forward(void (*to)(const char *message));

#define FAIL(status, ...) st_error_set((status), __FILE__, __LINE__, __VA_ARGS__)

/* Returns from the enclosing function on failure. Only while the function holds nothing. */
#define TRY(expr)                                     \
    do {                                              \
        st_status_t try_status_ = (expr);             \
        if (try_status_ != ST_OK) return try_status_; \
    } while (0)

/* Sets `status` (a local of that name) and jumps to `label` on failure. */
#define TRY_GOTO(expr, label)            \
    do {                                 \
        status = (expr);                 \
        if (status != ST_OK) goto label; \
    } while (0)

/* Our own invariants only, never user input. Prints the expression and aborts. */
void st_assert_fail(const char *expression, const char *file, int line)
    __attribute__((noreturn, cold));
#define ASSERT(expr) ((expr) ? (void)0 : st_assert_fail(#expr, __FILE__, __LINE__))

#endif
