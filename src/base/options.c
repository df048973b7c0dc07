/* Option objects (options.h): values as texts, checked when they are set. */
#include "base/options.h"

#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/words.h"

#define STRING "STRING"
#define INT "INT"
#define COUNT "COUNT"
#define FLOAT "FLOAT"
#define RATE "RATE"
#define BOOL "BOOL"
#define FLOATS "FLOATS"
#define SIZE "SIZE"
#define PROCESS "PROCESS"
static const st_option_row_t rows[] = {
#define OPTION(key, kind, fallback, commands, help) {key, kind, fallback, commands, help},
#include "base/options.def"
#undef OPTION
    {NULL, NULL, NULL, NULL, NULL}};
enum { N_OPTIONS = sizeof rows / sizeof rows[0] - 1 };
#define VARIABLE "STATOR_" /* what the environment's options begin with */

struct st_options {
    char *value[N_OPTIONS]; /* NULL: the default */
};

const st_option_row_t *st_option_rows(void) {
    return rows;
}

static int row_index(const char *key) {
    for (int i = 0; i < N_OPTIONS; i++)
        if (strcmp(rows[i].key, key) == 0) return i;
    return -1;
}

/* ---- values ---- */

static bool parse_int(const char *text, int64_t *out) {
    return st_int_parse(text, strlen(text), out);
}
static bool parse_float(const char *text, size_t bytes, double *out) {
    return st_double_parse(text, bytes, out) && isfinite(*out);
}
static bool parse_bool(const char *text, bool *out) {
    static const char *const yes[] = {"true", "1", "yes", "on"}, *const no[] = {"false", "0", "no",
                                                                                "off"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(text, yes[i]) == 0) return *out = true, true;
        if (strcmp(text, no[i]) == 0) return *out = false, true;
    }
    return false;
}
static size_t parse_floats(const char *text, double *out, size_t capacity, bool *ok) {
    size_t n = 0;
    *ok = true;
    while (*text) {
        while (*text == ' ') text++;
        size_t bytes = strcspn(text, ",");
        double value;
        if (!parse_float(text, bytes, &value)) return *ok = false, n;
        if (n < capacity) out[n] = value;
        n++;
        text += bytes + (text[bytes] == ',');
    }
    return n;
}
static bool is_choice(const char *kind, const char *value) {
    size_t length = strlen(value);
    for (const char *p = kind; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL)
        if (length && strcspn(p, "|") == length && strncmp(p, value, length) == 0) return true;
    return false;
}

/* What other systems call a choice, by the name that it has here; else `value` itself. */
static const char *usual_name(const st_option_row_t *row, const char *value) {
    static const char *const names[][2] = {
        {"float32", "f32"}, {"fp32", "f32"},   {"float64", "f64"},
        {"fp64", "f64"},    {"double", "f64"}, {"bfloat16", "bf16"},
        {"float16", "f16"}, {"fp16", "f16"},   {"half", "f16"},
    };
    if (!strchr(row->kind, '|') || is_choice(row->kind, value)) return value;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(value, names[i][0]) == 0 && is_choice(row->kind, names[i][1]))
            return names[i][1];
    return value;
}

static st_status_t check_value(const st_option_row_t *row, const char *value) {
    int64_t i;
    double f;
    bool b, ok = true;
    uint64_t u;
    const char *expected = row->kind;
    if (strcmp(row->kind, INT) == 0)
        ok = parse_int(value, &i), expected = "a whole number";
    else if (strcmp(row->kind, COUNT) == 0)
        ok = parse_int(value, &i) && i >= 0, expected = "a whole number, 0 or more";
    else if (strcmp(row->kind, FLOAT) == 0)
        ok = parse_float(value, strlen(value), &f), expected = "a number";
    else if (strcmp(row->kind, RATE) == 0)
        ok = parse_float(value, strlen(value), &f) && f >= 0, expected = "a number, 0 or more";
    else if (strcmp(row->kind, BOOL) == 0)
        ok = parse_bool(value, &b), expected = "true or false";
    else if (strcmp(row->kind, FLOATS) == 0)
        parse_floats(value, NULL, 0, &ok), expected = "numbers separated by commas";
    else if (strcmp(row->kind, SIZE) == 0)
        ok = st_size_parse(value, &u), expected = "a size such as 4MiB";
    else if (strcmp(row->kind, STRING) != 0 && strcmp(row->kind, PROCESS) != 0)
        ok = is_choice(row->kind, value);
    return ok ? ST_OK
              : FAIL(ST_INVALID, "option '%s' is '%s', expected %s", row->key, value, expected);
}

/* ---- the process's own ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char *process_value[N_OPTIONS]; /* set by any object, under the mutex */
static st_process_option_t forward;

static bool is_process(int i) {
    return strcmp(rows[i].kind, PROCESS) == 0;
}

/* STATOR_<KEY> */
static void variable_of(int i, char name[64]) {
    size_t used = (size_t)snprintf(name, 64, VARIABLE);
    for (const char *p = rows[i].key; *p && used < 63; p++)
        name[used++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    name[used] = '\0';
}

/* Its value, NULL if unset or empty. */
static const char *environment_of(int i, char name[64]) {
    variable_of(i, name);
    return st_environment(name);
}

static st_status_t process_set(int i, const char *value) {
    char *copy = value[0] ? st_strdup(value) : NULL;
    if (value[0] && !copy) return st_no_memory(strlen(value), "an option");
    pthread_mutex_lock(&mutex);
    st_free(process_value[i]);
    process_value[i] = copy;
    pthread_mutex_unlock(&mutex);
    return ST_OK;
}

st_status_t st_process_option(const char *key, char *out, size_t capacity) {
    if (forward) return forward(key, out, capacity);
    char name[64];
    int i = row_index(key);
    ASSERT(i >= 0 && is_process(i));
    pthread_mutex_lock(&mutex);
    const char *value = process_value[i] ? process_value[i] : environment_of(i, name);
    if (!value) value = rows[i].fallback;
    int n = snprintf(out, capacity, "%s", value);
    pthread_mutex_unlock(&mutex);
    return n >= 0 && (size_t)n < capacity
               ? ST_OK
               : FAIL(ST_DOES_NOT_FIT, "option '%s' has %d bytes, %zu at most are possible", key, n,
                      capacity - 1);
}

void st_process_option_forward(st_process_option_t to) {
    forward = to;
}

/* ---- objects ---- */

static st_status_t set(st_options_t *options, int i, const char *value) {
    value = usual_name(&rows[i], value);
    TRY(check_value(&rows[i], value));
    char *copy = st_strdup(value);
    if (!copy) return st_no_memory(strlen(value), "an option");
    st_free(options->value[i]);
    options->value[i] = copy;
    return ST_OK;
}

/* A variable that is misspelt would do nothing, and say nothing. */
static void warn_of_unknown_variables(void) {
    static const char *const others[] = {"POISON", "PROFILE"}; /* no options: exec/session.c */
    enum { PREFIX = sizeof VARIABLE - 1, N_OTHERS = 2, N_KNOWN = N_OPTIONS + N_OTHERS };
    char names[N_OPTIONS][64], name[64];
    const char *known[N_KNOWN];
    for (int i = 0; i < N_OPTIONS; i++) {
        variable_of(i, names[i]);
        known[i] = names[i] + PREFIX;
    }
    for (int i = 0; i < N_OTHERS; i++) known[N_OPTIONS + i] = others[i];
    for (char **at = environ; at && *at; at++) {
        int i = 0;
        if (strncmp(*at, VARIABLE, PREFIX) != 0) continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*at + PREFIX, "="), *at + PREFIX);
        while (i < N_KNOWN && strcmp(known[i], name) != 0) i++;
        if (i < N_KNOWN) continue;
        const char *nearest = st_nearest(name, N_KNOWN, known);
        st_log(ST_LOG_WARNING,
               "environment variable " VARIABLE "%s is no option and changes nothing%s%s%s", name,
               nearest ? "; did you mean " VARIABLE : "", nearest ? nearest : "",
               nearest ? "?" : "");
    }
}

st_status_t st_options_create(st_options_t **out_options) {
    *out_options = NULL;
    warn_of_unknown_variables();
    st_options_t *options = st_calloc(1, sizeof *options);
    if (!options) return st_no_memory(sizeof *options, "options");
    for (int i = 0; i < N_OPTIONS; i++) {
        char name[64];
        const char *value = environment_of(i, name);
        if (!value) continue;
        st_status_t status = set(options, i, value);
        if (status != ST_OK) {
            st_options_destroy(options);
            return st_error_context(status, "environment variable %s", name);
        }
    }
    *out_options = options;
    return ST_OK;
}

void st_options_destroy(st_options_t *options) {
    if (!options) return;
    for (int i = 0; i < N_OPTIONS; i++) st_free(options->value[i]);
    st_free(options);
}

st_status_t st_options_set(st_options_t *options, const char *key, const char *value) {
    int i = row_index(key);
    if (i < 0) {
        const char *keys[N_OPTIONS];
        for (int k = 0; k < N_OPTIONS; k++) keys[k] = rows[k].key;
        const char *nearest = st_nearest(key, N_OPTIONS, keys);
        return nearest
                   ? FAIL(ST_INVALID, "there is no option '%s'; did you mean '%s'?", key, nearest)
                   : FAIL(ST_INVALID, "there is no option '%s'", key);
    }
    TRY(set(options, i, value));
    return is_process(i) ? process_set(i, value) : ST_OK;
}

bool st_options_given(const st_options_t *options, const char *key) {
    int i = row_index(key);
    ASSERT(i >= 0);
    return options->value[i] != NULL;
}

const char *st_options_string(const st_options_t *options, const char *key) {
    int i = row_index(key);
    ASSERT(i >= 0);
    return options->value[i] ? options->value[i] : rows[i].fallback;
}
int64_t st_options_int(const st_options_t *options, const char *key) {
    int64_t value = 0;
    bool ok = parse_int(st_options_string(options, key), &value);
    ASSERT(ok);
    return value;
}
double st_options_float(const st_options_t *options, const char *key) {
    const char *text = st_options_string(options, key);
    double value = 0;
    bool ok = parse_float(text, strlen(text), &value);
    ASSERT(ok);
    return value;
}
bool st_options_bool(const st_options_t *options, const char *key) {
    bool value = false, ok = parse_bool(st_options_string(options, key), &value);
    ASSERT(ok);
    return value;
}
uint64_t st_options_size(const st_options_t *options, const char *key) {
    uint64_t value = 0;
    bool ok = st_size_parse(st_options_string(options, key), &value);
    ASSERT(ok);
    return value;
}
size_t st_options_floats(const st_options_t *options, const char *key, double *out,
                         size_t capacity) {
    bool ok;
    size_t n = parse_floats(st_options_string(options, key), out, capacity, &ok);
    ASSERT(ok);
    return n;
}

/* ---- process ---- */

int64_t st_processor_count(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

const char *st_environment(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}
