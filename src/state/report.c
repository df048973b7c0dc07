/* Lists of names: see report.h. */
#include "state/report.h"

#include <stdarg.h>
#include <stdio.h>

void state_report_add(state_report_t *report, const char *format, ...) {
    if (report->n++ >= STATE_REPORT_NAMES || report->used + 3 >= sizeof report->text) return;
    if (report->n > 1) {
        report->text[report->used++] = ',';
        report->text[report->used++] = ' ';
    }
    size_t room = sizeof report->text - report->used;
    va_list args;
    va_start(args, format);
    int written = vsnprintf(report->text + report->used, room, format, args);
    va_end(args);
    if (written > 0) report->used += (size_t)written < room ? (size_t)written : room - 1;
}

char *state_report_text(const state_report_t *report, const char *label, char *buffer,
                        size_t capacity) {
    if (report->n == 0) {
        buffer[0] = '\0';
    } else {
        snprintf(buffer, capacity, "%zu %s: %.*s%s", report->n, label, (int)report->used,
                 report->text, report->n > STATE_REPORT_NAMES ? ", …" : "");
    }
    return buffer;
}
