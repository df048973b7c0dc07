/* Stator: messages – what is worth knowing though no call fails for it.
 *
 * A program that wants them gives a function; without one nothing is printed. Errors that a call
 * returns are in stator_last_error(); here come, at once and on whatever thread has them: the
 * failure of a rank while others still run (error), a plan made for another processor, a damaged
 * plan in the cache that is made anew (warning), plans that are read from the cache or made,
 * sessions and their memory (info). */
#ifndef STATOR_LOG_H
#define STATOR_LOG_H

#include "stator/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum stator_log_level {
    STATOR_LOG_ERROR = 0,
    STATOR_LOG_WARNING = 1,
    STATOR_LOG_INFO = 2
} stator_log_level_t;

/* `message`: one line of UTF-8 without its end, valid during the call. The function is called on
 * the library's threads too, one call at a time; it must not call the library, and keeps its
 * threads waiting while it runs. */
typedef void (*stator_log_function_t)(void *context, stator_log_level_t level, const char *message);

/* Of the whole process, in place of the one before; NULL: none. Messages up to `level` come.
 * Thread-safe; returns when no call of the earlier function is under way: its context may then go.
 * (Nearest: ncclDebugLogger, torch's c10 log handlers.) */
STATOR_API void stator_log_set(stator_log_function_t function, void *context,
                               stator_log_level_t level);

#ifdef __cplusplus
}
#endif
#endif
