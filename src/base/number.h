/* Numbers as text, whatever locale the calling program has set: '.' is the decimal point. */
#ifndef STATOR_BASE_NUMBER_H
#define STATOR_BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ST_NUMBER_BYTES = 32 };

/* Value with `digits` significant digits (1 … 17) as "%.*g" has it in the C locale; "inf", "-inf",
 * "nan". `buffer` has ST_NUMBER_BYTES. Returns `buffer`. */
char *st_double_text(double value, int digits, char *buffer);
/* Shortest text that st_double_parse turns into the same value (NaN: "nan"). Returns `buffer`. */
char *st_double_shortest(double value, char *buffer);
/* Whole of text[0 … bytes) as a decimal or hexadecimal float, "inf" or "nan", with sign; false if
 * it is none or longer than 256 bytes. Beyond the range gives infinity or zero, as strtod does. */
bool st_double_parse(const char *text, size_t bytes, double *out_value);
/* Whole of text as a decimal integer with optional sign; false if it is none or does not fit. */
bool st_int_parse(const char *text, size_t bytes, int64_t *out_value);
/* Whole of text as a number of bytes ≥ 0 with unit B, KiB, MiB, GiB, TiB or none ("4MiB", "1.5
 * GiB"); false if it is none or reaches 2^63. */
bool st_size_parse(const char *text, uint64_t *out_bytes);
/* Whole of text as a time above 0 with unit us, ms, s or none ("2ms"), in seconds. */
bool st_duration_parse(const char *text, double *out_seconds);
/* Whole of text as bytes a second above 0: "200MB/s" (10^6), "1GiB/s" (2^30), "5e7" ("/s" may be
 * left out). */
bool st_rate_parse(const char *text, double *out_bytes_per_second);
/* "1.50 GiB", "512 B": in the largest unit of which it is at least one. `buffer` has
 * ST_NUMBER_BYTES. Returns `buffer`. */
char *st_size_text(uint64_t bytes, char *buffer);

#endif
