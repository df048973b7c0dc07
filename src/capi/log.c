/* Messages: the public receiver behind the internal one. */
#include "base/log.h"

#include <pthread.h>

#include "capi/capi.h"

/* Both are read by `hand_over` only, which st_log calls under its lock; st_log_set waits for
 * that. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static stator_log_function_t function;

static void hand_over(void *context, st_log_level_t level, const char *message) {
    function(context, (stator_log_level_t)level, message);
}

void stator_log_set(stator_log_function_t to, void *context, stator_log_level_t level) {
    pthread_mutex_lock(&mutex);
    st_log_set(NULL, NULL, ST_LOG_ERROR); /* no call is under way after this */
    function = to;
    if (to) st_log_set(hand_over, context, (st_log_level_t)level);
    pthread_mutex_unlock(&mutex);
}
