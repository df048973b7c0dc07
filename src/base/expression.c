/* Arithmetic in text (expression.h): recursive descent, one function a level of precedence. */
#include "base/expression.h"

#include <math.h>
#include <string.h>

#include "base/number.h"

enum { MAX_DEPTH = 64, MAX_NUMBER = 64 };

typedef struct reader {
    const char *text, *at;
    st_expression_name_t lookup;
    void *context;
    int depth;
} reader_t;

static st_status_t sum(reader_t *r, st_number_t *out);

static st_number_t whole(int64_t i) {
    return (st_number_t){true, i, (double)i};
}
static st_number_t fraction(double f) {
    return (st_number_t){false, 0, f};
}

static void skip(reader_t *r) {
    while (*r->at == ' ') r->at++;
}

static st_status_t unexpected(const reader_t *r, const char *wanted) {
    return FAIL(ST_PARSE, "'%.100s': %s expected at byte %zu", r->text, wanted,
                (size_t)(r->at - r->text));
}

static st_status_t overflow(const reader_t *r) {
    return FAIL(ST_DOES_NOT_FIT, "'%.100s' overflows 63 bits", r->text);
}

static bool take(reader_t *r, const char *mark) {
    skip(r);
    size_t n = strlen(mark);
    if (strncmp(r->at, mark, n) != 0) return false;
    r->at += n;
    return true;
}

/* ---- operations ---- */

static int64_t floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

static st_status_t apply(const reader_t *r, char op, st_number_t a, st_number_t b,
                         st_number_t *out) {
    int64_t i = 0;
    bool both = a.whole && b.whole, over = false;
    if (strchr("/f%", op) && (b.whole ? b.i == 0 : b.f == 0))
        return FAIL(ST_INVALID, "'%.100s' divides by zero", r->text);
    if (strchr("f%", op) && !both)
        return FAIL(ST_INVALID, "'%.100s' needs whole numbers for // and %%", r->text);
    if (both && strchr("/f%", op) && a.i == INT64_MIN) return overflow(r);
    switch (op) {
        case '+':
            over = __builtin_add_overflow(a.i, b.i, &i);
            *out = both ? whole(i) : fraction(a.f + b.f);
            break;
        case '-':
            over = __builtin_sub_overflow(a.i, b.i, &i);
            *out = both ? whole(i) : fraction(a.f - b.f);
            break;
        case '*':
            over = __builtin_mul_overflow(a.i, b.i, &i);
            *out = both ? whole(i) : fraction(a.f * b.f);
            break;
        case '/':
            *out = both && a.i % b.i == 0 ? whole(a.i / b.i) : fraction(a.f / b.f);
            break;
        case 'f':
            *out = whole(floor_div(a.i, b.i));
            break;
        case '%':
            *out = whole(a.i - b.i * floor_div(a.i, b.i));
            break;
        case '>':
            *out = (both ? a.i > b.i : a.f > b.f) ? a : b;
            break;
        default: /* '<' */
            *out = (both ? a.i < b.i : a.f < b.f) ? a : b;
            break;
    }
    return both && over ? overflow(r) : ST_OK;
}

static st_status_t power(const reader_t *r, st_number_t base, st_number_t exponent,
                         st_number_t *out) {
    if (!exponent.whole || exponent.i < -64 || exponent.i > 64)
        return FAIL(ST_INVALID, "'%.100s': exponents are whole numbers from -64 to 64", r->text);
    *out = whole(1);
    for (int64_t k = 0; k < (exponent.i < 0 ? -exponent.i : exponent.i); k++)
        TRY(apply(r, '*', *out, base, out));
    return exponent.i < 0 ? apply(r, '/', whole(1), *out, out) : ST_OK;
}

/* ---- grammar ---- */

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* "Max(a, b)" behind its name. */
static st_status_t call(reader_t *r, char op, st_number_t *out) {
    st_number_t b;
    if (!take(r, "(")) return unexpected(r, "'('");
    TRY(sum(r, out));
    bool several = false;
    while (take(r, ",")) {
        TRY(sum(r, &b));
        TRY(apply(r, op, *out, b, out));
        several = true;
    }
    if (!several) return unexpected(r, "','");
    return take(r, ")") ? ST_OK : unexpected(r, "')'");
}

static st_status_t name(reader_t *r, st_number_t *out) {
    static const struct {
        const char *name;
        char op;
    } functions[] = {{"Max", '>'}, {"Min", '<'}, {"Mod", '%'}, {"FloorDiv", 'f'}};
    const char *begin = r->at;
    while (is_letter(*r->at) || is_digit(*r->at) || *r->at == '.') r->at++;
    size_t bytes = (size_t)(r->at - begin);
    int64_t value;
    if (r->lookup(r->context, begin, bytes, &value)) {
        *out = whole(value);
        return ST_OK;
    }
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strlen(functions[i].name) == bytes && memcmp(functions[i].name, begin, bytes) == 0)
            return call(r, functions[i].op, out);
    return FAIL(ST_NOT_FOUND, "'%.100s': there is no symbol '%.*s'", r->text,
                (int)(bytes < 64 ? bytes : 64), begin);
}

static st_status_t number(reader_t *r, st_number_t *out) {
    const char *begin = r->at;
    while (is_digit(*r->at) || *r->at == '.' ||
           ((*r->at == 'e' || *r->at == 'E') && (is_digit(r->at[1]) || r->at[1] == '-')) ||
           (*r->at == '-' && (r->at[-1] == 'e' || r->at[-1] == 'E')))
        r->at++;
    size_t bytes = (size_t)(r->at - begin);
    int64_t i;
    double f;
    if (bytes < MAX_NUMBER && st_int_parse(begin, bytes, &i))
        *out = whole(i);
    else if (bytes < MAX_NUMBER && st_double_parse(begin, bytes, &f) && isfinite(f))
        *out = fraction(f);
    else
        return unexpected(r, "a number of 63 bits");
    return ST_OK;
}

static st_status_t atom(reader_t *r, st_number_t *out) {
    skip(r);
    if (is_digit(*r->at)) return number(r, out);
    if (is_letter(*r->at)) return name(r, out);
    if (!take(r, "(")) return unexpected(r, "a number, a symbol or '('");
    TRY(sum(r, out));
    return take(r, ")") ? ST_OK : unexpected(r, "')'");
}

static st_status_t factor(reader_t *r, st_number_t *out) {
    if (++r->depth > MAX_DEPTH) return FAIL(ST_PARSE, "'%.100s' nests too deep", r->text);
    if (take(r, "-")) {
        st_number_t value;
        TRY(factor(r, &value));
        TRY(apply(r, '-', whole(0), value, out));
    } else {
        TRY(atom(r, out));
        st_number_t exponent;
        if (take(r, "**")) {
            TRY(factor(r, &exponent));
            TRY(power(r, *out, exponent, out));
        }
    }
    r->depth--;
    return ST_OK;
}

static st_status_t product(reader_t *r, st_number_t *out) {
    st_number_t b;
    TRY(factor(r, out));
    for (;;) {
        char op = take(r, "//")  ? 'f'
                  : take(r, "*") ? '*'
                  : take(r, "/") ? '/'
                  : take(r, "%") ? '%'
                                 : 0;
        if (!op) return ST_OK;
        TRY(factor(r, &b));
        TRY(apply(r, op, *out, b, out));
    }
}

static st_status_t sum(reader_t *r, st_number_t *out) {
    st_number_t b;
    TRY(product(r, out));
    for (;;) {
        char op = take(r, "+") ? '+' : take(r, "-") ? '-' : 0;
        if (!op) return ST_OK;
        TRY(product(r, &b));
        TRY(apply(r, op, *out, b, out));
    }
}

st_status_t st_expression_eval(const char *text, st_expression_name_t lookup, void *context,
                               st_number_t *out) {
    reader_t r = {text, text, lookup, context, 0};
    *out = whole(0);
    TRY(sum(&r, out));
    skip(&r);
    return *r.at ? unexpected(&r, "the end") : ST_OK;
}
