#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

st_status_t st_text_put_bytes(st_text_t *text, const char *bytes, size_t n) {
    TRY(ST_VEC_RESERVE(text, st_size_add(text->n, st_size_add(n, 1))));
    memcpy(text->data + text->n, bytes, n);
    text->n += n;
    text->data[text->n] = '\0';
    return ST_OK;
}

/* Most pieces are short: only longer ones are formatted a second time, in place. */
st_status_t st_text_put(st_text_t *text, const char *format, ...) {
    char piece[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    ASSERT(n >= 0);
    if ((size_t)n < sizeof piece) return st_text_put_bytes(text, piece, (size_t)n);
    TRY(ST_VEC_RESERVE(text, st_size_add(text->n, (size_t)n + 1)));
    va_start(args, format);
    vsnprintf(text->data + text->n, (size_t)n + 1, format, args);
    va_end(args);
    text->n += (size_t)n;
    return ST_OK;
}
