/* Numbers as text. See number.h for the contract.
 *
 * The C library's conversions follow the locale, so both directions switch to the "C" locale
 * object, which glibc keeps statically: asking for it allocates nothing. */
#include "base/number.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static locale_t c_locale(void) {
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

char *st_double_text(double value, int digits, char *buffer) {
    if (value != value) {
        memcpy(buffer, "nan", 4);
        return buffer;
    }
    locale_t locale = c_locale();
    locale_t outer = locale ? uselocale(locale) : (locale_t)0;
    snprintf(buffer, ST_NUMBER_BYTES, "%.*g", digits, value);
    if (locale) {
        uselocale(outer);
        freelocale(locale);
    }
    return buffer;
}

char *st_double_shortest(double value, char *buffer) {
    for (int digits = 1; digits <= 17; digits++) {
        double back;
        st_double_text(value, digits, buffer);
        if (!st_double_parse(buffer, strlen(buffer), &back)) continue;
        if (back == value || value != value) break;
    }
    return buffer;
}

enum { LONGEST_NUMBER = 256 };

bool st_double_parse(const char *text, size_t bytes, double *out_value) {
    char copy[LONGEST_NUMBER + 1];
    /* strtod skips leading space and stops at a NUL: neither is part of a number */
    if (bytes == 0 || bytes > LONGEST_NUMBER || memchr(text, '\0', bytes)) return false;
    if (!strchr("+-.0123456789in", text[0])) return false;
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    locale_t locale = c_locale();
    if (!locale) return false;
    char *end = NULL;
    *out_value = strtod_l(copy, &end, locale);
    freelocale(locale);
    return end == copy + bytes;
}

bool st_int_parse(const char *text, size_t bytes, int64_t *out_value) {
    size_t i = bytes > 0 && (text[0] == '-' || text[0] == '+');
    bool negative = i && text[0] == '-';
    if (i == bytes) return false;
    int64_t value = 0; /* kept negative: INT64_MIN has no positive twin */
    for (; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        if (!st_mul_i64(value, 10, &value) || !st_add_i64(value, -(text[i] - '0'), &value))
            return false;
    }
    if (!negative && value == INT64_MIN) return false;
    *out_value = negative ? value : -value;
    return true;
}

bool st_size_parse(const char *text, uint64_t *out_bytes) {
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"", 1},         {"B", 1},        {"KiB", 0x1p10},
                 {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    size_t digits = strspn(text, "+-.0123456789eE");
    double number;
    if (!st_double_parse(text, digits, &number) || !isfinite(number) || number < 0) return false;
    const char *end = text + digits;
    while (*end == ' ') end++;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(end, units[i].unit) == 0 && number * units[i].factor < 0x1p63)
            return *out_bytes = (uint64_t)(number * units[i].factor), true;
    return false;
}

char *st_size_text(uint64_t bytes, char *buffer) {
    static const char units[] = "KMGTPE";
    if (bytes < 1024) {
        snprintf(buffer, ST_NUMBER_BYTES, "%u B", (unsigned)bytes);
        return buffer;
    }
    int unit = 0;
    double value = (double)bytes / 1024;
    while (value >= 1023.995 && units[unit + 1]) value /= 1024, unit++; /* as it is rounded */
    uint64_t hundredths = (uint64_t)(value * 100 + 0.5); /* no locale's decimal point */
    snprintf(buffer, ST_NUMBER_BYTES, "%u.%02u %ciB", (unsigned)(hundredths / 100),
             (unsigned)(hundredths % 100), units[unit]);
    return buffer;
}

/* ---- numbers with units ---- */

typedef struct unit {
    const char *text;
    double factor;
} unit_t;

/* A number above 0 and one of the units, which end with one of text "" and factor 1. */
static bool parse_unit(const char *text, size_t bytes, const unit_t *units, double *out) {
    for (const unit_t *unit = units;; unit++) {
        size_t n = strlen(unit->text);
        if (n > bytes || memcmp(text + bytes - n, unit->text, n) != 0) continue;
        size_t left = bytes - n;
        while (left && text[left - 1] == ' ') left--;
        double value;
        if (left && st_double_parse(text, left, &value) && value > 0 &&
            value * unit->factor < 1e300) {
            *out = value * unit->factor;
            return true;
        }
        if (!n) return false;
    }
}

bool st_duration_parse(const char *text, double *out_seconds) {
    static const unit_t units[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"", 1}};
    return parse_unit(text, strlen(text), units, out_seconds);
}

bool st_rate_parse(const char *text, double *out_bytes_per_second) {
    static const unit_t units[] = {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
                                   {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},
                                   {"GB", 1e9},     {"B", 1},        {"", 1}};
    size_t bytes = strlen(text);
    if (bytes > 2 && strcmp(text + bytes - 2, "/s") == 0) bytes -= 2;
    return parse_unit(text, bytes, units, out_bytes_per_second);
}
