/* Writing trace events, in the form that Perfetto and chrome://tracing read. */
#ifndef STATOR_EXEC_TRACE_JSON_H
#define STATOR_EXEC_TRACE_JSON_H

#include "base/file.h"

/* One file. Without a writer everything is counted and nothing written. The first failure stays and
 * is returned by trace_json_status; what follows it does nothing. */
typedef struct trace_json {
    st_writer_t *writer;
    uint64_t bytes;
    st_status_t status;
    bool any;   /* an event was written */
    bool inner; /* a value was written into the object that is open */
} trace_json_t;

/* printf without floats: their text depends on the locale. */
void trace_json_put(trace_json_t *json, const char *format, ...) ST_PRINTF(2, 3);
void trace_json_string(trace_json_t *json, const char *text); /* quoted */

/* Times in microseconds; written in whole nanoseconds, so that what touches does not overlap. */
typedef struct trace_json_event {
    const char *phase; /* "X", "i", "b", "e", "M" */
    const char *name, *category;
    uint32_t process, thread;
    double begin_us, end_us; /* end: of "X" */
    int64_t id;              /* of "b" and "e" */
} trace_json_event_t;
/* Opens an event and its arguments; arguments follow; then close. */
void trace_json_open(trace_json_t *json, const trace_json_event_t *event);
void trace_json_text(trace_json_t *json, const char *key, const char *value);
void trace_json_number(trace_json_t *json, const char *key, double value); /* not finite: null */
void trace_json_close(trace_json_t *json);

#endif
