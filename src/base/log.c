/* The receiver of messages (log.h): one lock, held during the call. */
#include "base/log.h"

#include <pthread.h>
#include <stdio.h>

enum { MESSAGE_BYTES = 1024 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static st_log_receiver_t receiver;
static void *receiver_context;
static st_log_level_t most_level;

void st_log_set(st_log_receiver_t to, void *context, st_log_level_t most) {
    pthread_mutex_lock(&mutex);
    receiver = to;
    receiver_context = context;
    most_level = most;
    pthread_mutex_unlock(&mutex);
}

void st_log(st_log_level_t level, const char *format, ...) {
    char message[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    for (char *at = message; *at; at++)
        if (*at == '\n') *at = ' ';
    pthread_mutex_lock(&mutex);
    if (receiver && level <= most_level) receiver(receiver_context, level, message);
    pthread_mutex_unlock(&mutex);
}
