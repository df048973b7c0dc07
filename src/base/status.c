#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_BYTES = 2048 };

static _Thread_local char last_message[MESSAGE_BYTES];
static void (*sink)(const char *message);

const char *st_status_text(st_status_t status) {
    switch (status) {
#define STATUS(name, value, text) \
    case ST_##name:               \
        return text;
#include "base/status.def"
#undef STATUS
    }
    return "unknown status";
}

const char *st_status_name(st_status_t status) {
    switch (status) {
#define STATUS(name, value, text) \
    case ST_##name:               \
        return #name;
#include "base/status.def"
#undef STATUS
    }
    return "UNKNOWN";
}

void st_error_forward(void (*to)(const char *message)) {
    sink = to;
}

static void forward(void) {
    if (sink) sink(last_message);
}

const char *st_last_error(void) {
    return last_message;
}

void st_clear_error(void) {
    last_message[0] = '\0';
}

st_status_t st_error_set(st_status_t status, const char *file, int line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last_message, sizeof last_message, format, args);
    va_end(args);
    if (status == ST_INTERNAL) { /* only our own faults need the source place */
        size_t used = strlen(last_message);
        snprintf(last_message + used, sizeof last_message - used, " (%s:%d)", file, line);
    }
    forward();
    return status;
}

st_status_t st_error_context(st_status_t status, const char *format, ...) {
    char previous[MESSAGE_BYTES];
    memcpy(previous, last_message, sizeof previous);
    va_list args;
    va_start(args, format);
    int used = vsnprintf(last_message, sizeof last_message, format, args);
    va_end(args);
    if (used < 0) used = 0;
    size_t offset = (size_t)used < sizeof last_message ? (size_t)used : sizeof last_message - 1;
    snprintf(last_message + offset, sizeof last_message - offset, ": %s", previous);
    forward();
    return status;
}

st_status_t st_error_adopt(st_status_t status, const char *message) {
    snprintf(last_message, sizeof last_message, "%s", message);
    forward();
    return status;
}

void st_assert_fail(const char *expression, const char *file, int line) {
    fprintf(stderr, "stator: internal error: %s does not hold at %s:%d\n", expression, file, line);
    abort();
}
