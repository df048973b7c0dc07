/* Whole-number expressions of target descriptions (target.h), evaluated while they are read:
 * precedence climbing, O(length). They are short and asked for once a node, so that no tree is kept. */
#include <ctype.h>
#include <string.h>

#include "compile/target.h"

enum { DEEPEST = 64 };

typedef struct reader {
    const char *at;
    const target_names_t *names;
    const char *error;
    int depth;
} reader_t;

static int64_t expression(reader_t *r, int least);

static int64_t fail(reader_t *r, const char *error) {
    if (!r->error) r->error = error;
    return 0;
}
static void skip_blanks(reader_t *r) {
    while (*r->at == ' ' || *r->at == '\t') r->at++;
}
static bool take(reader_t *r, const char *token) {
    skip_blanks(r);
    size_t n = strlen(token);
    if (strncmp(r->at, token, n) != 0) return false;
    r->at += n;
    return true;
}

/* Saturating. */
static int64_t add(int64_t a, int64_t b) {
    int64_t out;
    if (!__builtin_add_overflow(a, b, &out)) return out;
    return a > 0 ? INT64_MAX : INT64_MIN;
}
static int64_t subtract(int64_t a, int64_t b) {
    int64_t out;
    if (!__builtin_sub_overflow(a, b, &out)) return out;
    return a > 0 ? INT64_MAX : INT64_MIN;
}
static int64_t multiply(int64_t a, int64_t b) {
    int64_t out;
    if (!__builtin_mul_overflow(a, b, &out)) return out;
    return (a > 0) == (b > 0) ? INT64_MAX : INT64_MIN;
}
static int64_t divide(int64_t a, int64_t b) {
    return b == 0 || b == -1 ? (b ? subtract(0, a) : 0) : a / b;
}
static int64_t remainder_of(int64_t a, int64_t b) {
    return b == 0 || b == -1 ? 0 : a % b;
}

static int64_t name_value(reader_t *r, const char *name, size_t n) {
    static const struct {
        const char *name;
        int64_t value;
    } units[] = {{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strlen(units[i].name) == n && memcmp(units[i].name, name, n) == 0)
            return units[i].value;
    if (n == 5 && memcmp(name, "width", 5) == 0)
        return (int64_t)ir_dtype_bytes(r->names->work->dtype);
    if (n == 8 && memcmp(name, "in_bytes", 8) == 0) return r->names->in_bytes;
    if (n == 9 && memcmp(name, "out_bytes", 9) == 0) return r->names->out_bytes;
    work_dims_t dims = r->names->work->dims;
    const int64_t *dim = work_dim_of(&dims, name, n);
    return dim ? *dim : fail(r, "a name that is no size");
}

/* min(a, b) and max(a, b) */
static int64_t call(reader_t *r, bool larger) {
    if (!take(r, "(")) return fail(r, "'(' is missing");
    int64_t a = expression(r, 0);
    if (!take(r, ",")) return fail(r, "',' is missing");
    int64_t b = expression(r, 0);
    if (!take(r, ")")) return fail(r, "')' is missing");
    return (a > b) == larger ? a : b;
}

static int64_t primary(reader_t *r) {
    skip_blanks(r);
    if (++r->depth > DEEPEST) return fail(r, "too many parentheses");
    int64_t value = 0;
    if (take(r, "(")) {
        value = expression(r, 0);
        if (!take(r, ")")) fail(r, "')' is missing");
    } else if (take(r, "!")) {
        value = !primary(r);
    } else if (take(r, "-")) {
        value = subtract(0, primary(r));
    } else if (isdigit((unsigned char)*r->at)) {
        for (; isdigit((unsigned char)*r->at); r->at++)
            value = add(multiply(value, 10), *r->at - '0');
    } else {
        size_t n = 0;
        while (isalnum((unsigned char)r->at[n]) || r->at[n] == '_') n++;
        const char *name = r->at;
        r->at += n;
        if (!n)
            fail(r, "a number or a name is missing");
        else if (n == 3 && (memcmp(name, "min", 3) == 0 || memcmp(name, "max", 3) == 0))
            value = call(r, name[1] == 'a');
        else
            value = name_value(r, name, n);
    }
    r->depth--;
    return value;
}

typedef enum operation {
    OR,
    AND,
    EQUAL,
    UNEQUAL,
    AT_MOST,
    AT_LEAST,
    LESS,
    MORE,
    ADD,
    SUBTRACT,
    MULTIPLY,
    DIVIDE,
    REMAINDER,
    N_OPERATIONS
} operation_t;

static int64_t apply(operation_t operation, int64_t a, int64_t b) {
    switch (operation) {
        case OR:
            return a || b;
        case AND:
            return a && b;
        case EQUAL:
            return a == b;
        case UNEQUAL:
            return a != b;
        case AT_MOST:
            return a <= b;
        case AT_LEAST:
            return a >= b;
        case LESS:
            return a < b;
        case MORE:
            return a > b;
        case ADD:
            return add(a, b);
        case SUBTRACT:
            return subtract(a, b);
        case MULTIPLY:
            return multiply(a, b);
        case DIVIDE:
            return divide(a, b);
        case REMAINDER:
            return remainder_of(a, b);
        case N_OPERATIONS:
            break;
    }
    return 0;
}

/* Everything from here on that binds at least as tightly as `least`. */
static int64_t expression(reader_t *r, int least) {
    static const struct {
        const char *token;
        int binds;
    } operations[N_OPERATIONS] = {{"||", 1}, {"&&", 2}, {"==", 3}, {"!=", 3}, {"<=", 4},
                                  {">=", 4}, {"<", 4},  {">", 4},  {"+", 5},  {"-", 5},
                                  {"*", 6},  {"/", 6},  {"%", 6}};
    int64_t value = primary(r);
    while (!r->error) {
        skip_blanks(r);
        int o = 0;
        while (o < N_OPERATIONS &&
               (operations[o].binds < least ||
                strncmp(r->at, operations[o].token, strlen(operations[o].token)) != 0))
            o++;
        if (o == N_OPERATIONS) break;
        r->at += strlen(operations[o].token);
        value = apply((operation_t)o, value, expression(r, operations[o].binds + 1));
    }
    return value;
}

bool target_eval(const char *text, const target_names_t *names, int64_t *out_value,
                 const char **out_error) {
    reader_t r = {.at = text, .names = names};
    *out_value = expression(&r, 0);
    skip_blanks(&r);
    if (!r.error && *r.at) r.error = "something follows the expression";
    *out_error = r.error ? r.error : "";
    return !r.error;
}
