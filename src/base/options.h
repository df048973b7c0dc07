/* Option objects: string keys, one table (options.def). The only place that reads the
 * environment. */
#ifndef STATOR_BASE_OPTIONS_H
#define STATOR_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct st_options st_options_t;

typedef struct st_option_row {
    const char *key;
    const char
        *kind; /* "STRING", "INT", "COUNT", "FLOAT", "RATE", "BOOL", "FLOATS", "SIZE", "PROCESS", or
                * "a|b|c" */
    const char *fallback;
    const char *commands;
    const char *help;
} st_option_row_t;

/* The table; ends with a row whose key is NULL. */
const st_option_row_t *st_option_rows(void);

/* Defaults, overridden by STATOR_<KEY> of the environment (a bad value there is an error that names
 * it; a variable of such a name that is no option is a warning with the nearest one). */
st_status_t st_options_create(st_options_t **out_options) ST_WARN_UNUSED;
void st_options_destroy(st_options_t *options);
/* Checks the value against the option's kind; of a choice, "float32" and the like are taken for
 * "f32". Unknown keys FAIL with the nearest known one. */
st_status_t st_options_set(st_options_t *options, const char *key,
                           const char *value) ST_WARN_UNUSED;
/* True if set by the caller or the environment. */
bool st_options_given(const st_options_t *options, const char *key);

/* The key exists and has the kind (ASSERT). Strings live until the next set of that key. */
const char *st_options_string(const st_options_t *options, const char *key); /* any kind */
int64_t st_options_int(const st_options_t *options, const char *key);
double st_options_float(const st_options_t *options, const char *key);
bool st_options_bool(const st_options_t *options, const char *key);
uint64_t st_options_size(const st_options_t *options, const char *key);
/* Number of values in a list; writes at most `capacity`. */
size_t st_options_floats(const st_options_t *options, const char *key, double *out,
                         size_t capacity);

/* ---- options of the process: rows of kind PROCESS ---- */
/* What any option object set last if not "", else the environment's value, else the default, into
 * `out`; DOES_NOT_FIT if it is longer. Any thread. The key is of that kind (ASSERT). */
st_status_t st_process_option(const char *key, char *out, size_t capacity) ST_WARN_UNUSED;
/* A module with its own copy of this file asks its host's instead. Set once, before any other
 * call. */
typedef st_status_t (*st_process_option_t)(const char *key, char *out, size_t capacity);
void st_process_option_forward(st_process_option_t to);

/* Processors this process may run on, at least 1. */
int64_t st_processor_count(void);
/* Value of the environment variable, NULL if unset or empty. */
const char *st_environment(const char *name);

#endif
