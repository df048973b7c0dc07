/* What is worth knowing though no call fails for it. Without a receiver nothing is printed or
 * kept. */
#ifndef STATOR_BASE_LOG_H
#define STATOR_BASE_LOG_H

#include "base/status.h"

typedef enum st_log_level { ST_LOG_ERROR = 0, ST_LOG_WARNING, ST_LOG_INFO } st_log_level_t;
/* `message` is one line without its end and lives during the call. */
typedef void (*st_log_receiver_t)(void *context, st_log_level_t level, const char *message);

/* For the whole process; NULL: none. Returns when no call of the one before is under way, so that
 * its context may then go; not from within a receiver. Messages above `most` are not made. */
void st_log_set(st_log_receiver_t receiver, void *context, st_log_level_t most);
/* From any thread; receivers are called one at a time, on the thread that has the message. Longer
 * ones than 1 KiB are cut. The thread's error record is not touched. */
void st_log(st_log_level_t level, const char *format, ...) ST_PRINTF(2, 3);

#endif
