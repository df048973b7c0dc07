/* Text that grows: st_text_t text = {0}; TRY(st_text_put(&text, "%d\n", 3)); …
 * ST_VEC_FREE(&text); */
#ifndef STATOR_BASE_TEXT_H
#define STATOR_BASE_TEXT_H

#include "base/status.h"
#include "base/vec.h"

/* `n` bytes and, once anything has been put, a zero behind them. */
typedef ST_VEC(char) st_text_t;

/* Appends, of any length; ST_NO_MEMORY leaves the text as it was. */
st_status_t st_text_put(st_text_t *text, const char *format, ...) ST_PRINTF(2, 3) ST_WARN_UNUSED;
st_status_t st_text_put_bytes(st_text_t *text, const char *bytes, size_t n) ST_WARN_UNUSED;

#endif
