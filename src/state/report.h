/* Lists of names for messages: the first ten and the count. */
#ifndef STATOR_STATE_REPORT_H
#define STATOR_STATE_REPORT_H

#include <stddef.h>

#include "base/status.h"

enum { STATE_REPORT_NAMES = 10 };

/* Zero-initialized is empty. Nothing is allocated; text that does not fit is cut. */
typedef struct state_report {
    size_t n;
    size_t used;
    char text[900];
} state_report_t;

void state_report_add(state_report_t *report, const char *format, ...) ST_PRINTF(2, 3);
/* "3 missing: a, b, c" for label "missing"; ends with "…" when there are more than ten. Writes at
 * most `capacity` bytes including the NUL and returns `buffer`; "" when the report is empty. */
char *state_report_text(const state_report_t *report, const char *label, char *buffer,
                        size_t capacity);

#endif
