/* Trace events as JSON text (trace_json.h). */
#include "exec/trace_json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

enum { DIGITS = 9 };

static void append(trace_json_t *json, const char *data, size_t bytes) {
    json->bytes += bytes;
    if (json->writer && json->status == ST_OK)
        json->status = st_writer_append(json->writer, data, bytes);
}

void trace_json_put(trace_json_t *json, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    ASSERT(n >= 0 && (size_t)n < sizeof text);
    append(json, text, (size_t)n);
}

/* Control characters, quotes and backslashes are escaped; the rest goes as it is. */
void trace_json_string(trace_json_t *json, const char *text) {
    append(json, "\"", 1);
    while (*text) {
        size_t n = 0;
        while ((unsigned char)text[n] >= 0x20 && text[n] != '"' && text[n] != '\\') n++;
        append(json, text, n);
        text += n;
        if (!*text) break;
        trace_json_put(json, "\\u%04x", (unsigned char)*text++);
    }
    append(json, "\"", 1);
}

static void put_us(trace_json_t *json, const char *key, long long ns) {
    trace_json_put(json, ",\"%s\":%s%lld.%03lld", key, ns < 0 ? "-" : "", llabs(ns) / 1000,
                   llabs(ns) % 1000);
}

void trace_json_open(trace_json_t *json, const trace_json_event_t *event) {
    long long begin = llround(event->begin_us * 1e3), end = llround(event->end_us * 1e3);
    trace_json_put(json,
                   "%s{\"ph\":\"%s\",\"pid\":%u,\"tid\":%u,\"name\":", json->any ? ",\n" : "\n",
                   event->phase, event->process, event->thread);
    trace_json_string(json, event->name);
    if (event->category) trace_json_put(json, ",\"cat\":\"%s\"", event->category);
    if (event->phase[0] != 'M') put_us(json, "ts", begin);
    if (event->phase[0] == 'X') put_us(json, "dur", end > begin ? end - begin : 0);
    if (event->phase[0] == 'i') trace_json_put(json, ",\"s\":\"t\"");
    if (event->phase[0] == 'b' || event->phase[0] == 'e')
        trace_json_put(json, ",\"id\":%lld", (long long)event->id);
    trace_json_put(json, ",\"args\":{");
    json->any = true;
    json->inner = false;
}

static void key_of(trace_json_t *json, const char *key) {
    trace_json_put(json, "%s\"%s\":", json->inner ? "," : "", key);
    json->inner = true;
}

void trace_json_text(trace_json_t *json, const char *key, const char *value) {
    key_of(json, key);
    trace_json_string(json, value);
}

void trace_json_number(trace_json_t *json, const char *key, double value) {
    char text[ST_NUMBER_BYTES];
    key_of(json, key);
    trace_json_put(json, "%s", isfinite(value) ? st_double_text(value, DIGITS, text) : "null");
}

void trace_json_close(trace_json_t *json) {
    trace_json_put(json, "}}");
}
