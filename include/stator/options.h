/* Stator: options – string keys and values, one table for the C API, the command line and the
 * environment (STATOR_<KEY>). stator_option_at lists them all with kinds, defaults and help.
 *
 * An object is for one thread at a time, several objects for several threads; the functions that
 * take one as `const` only read it. Nothing here blocks. (Nearest: MPI_Info, cublasLt's descriptors
 * with attributes.) */
#ifndef STATOR_OPTIONS_H
#define STATOR_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "stator/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stator_options stator_options_t;

/* Defaults, overridden by the environment. INVALID: a variable's value that is not of its key's
 * kind, which the text names; NO_MEMORY. A variable STATOR_… that is no option is a warning
 * (stator_log_set). */
STATOR_API stator_status_t stator_options_create(stator_options_t **out_options) STATOR_WARN_UNUSED;
STATOR_API void stator_options_destroy(stator_options_t *options); /* NULL is fine */
/* INVALID: unknown key (the message names the nearest), or a value not of the key's kind. Keys of
 * kind PROCESS hold for the whole process, whichever object they are set in. */
STATOR_API stator_status_t stator_options_set(stator_options_t *options, const char *key,
                                              const char *value) STATOR_WARN_UNUSED;
/* Value as text, the default if never set; NULL for an unknown key. Valid until the key is set
 * again. */
STATOR_API const char *stator_options_get(const stator_options_t *options, const char *key);
/* The same as numbers; 0 for unknown keys and non-numbers. BOOL gives 0 or 1, SIZE gives bytes. */
STATOR_API int64_t stator_options_get_int(const stator_options_t *options, const char *key);
STATOR_API double stator_options_get_float(const stator_options_t *options, const char *key);
/* 1 if the key was set by a call or the environment. */
STATOR_API int stator_options_given(const stator_options_t *options, const char *key);

typedef struct stator_option_info {
    const char *key, *kind, *fallback, *help;
    const char *commands; /* letters of the commands that take it */
} stator_option_info_t;
/* Row `index` of the table; 0 past its end. Thread-safe. */
STATOR_API int stator_option_at(size_t index, stator_option_info_t *out_info);

#ifdef __cplusplus
}
#endif
#endif
