/* Turns are handed out one by one under a mutex: they take milliseconds, so that costs nothing and
 * evens out unequal ones. A thread that cannot be had is done without. */
#include "base/parallel.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { MAX_EXTRA = 15 };

typedef struct loop {
    pthread_mutex_t mutex;
    size_t n, next;
    st_status_t (*each)(void *context, size_t i);
    void *context;
    st_status_t status;
    char message[1024];
} loop_t;

static void *take_turns(void *argument) {
    loop_t *loop = argument;
    for (;;) {
        pthread_mutex_lock(&loop->mutex);
        const size_t i = loop->status == ST_OK ? loop->next++ : loop->n;
        pthread_mutex_unlock(&loop->mutex);
        if (i >= loop->n) return NULL;
        st_status_t status = loop->each(loop->context, i);
        if (status == ST_OK) continue;
        pthread_mutex_lock(&loop->mutex);
        if (loop->status == ST_OK) {
            loop->status = status;
            snprintf(loop->message, sizeof loop->message, "%s", st_last_error());
        }
        pthread_mutex_unlock(&loop->mutex);
    }
}

st_status_t st_parallel(size_t n, st_status_t (*each)(void *context, size_t i), void *context) {
    loop_t loop = {.mutex = PTHREAD_MUTEX_INITIALIZER, .n = n, .each = each, .context = context};
    pthread_t threads[MAX_EXTRA];
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    long n_threads = 0;
    while (n_threads < MAX_EXTRA && n_threads + 1 < processors && (size_t)n_threads + 1 < n &&
           pthread_create(&threads[n_threads], NULL, take_turns, &loop) == 0)
        n_threads++;
    take_turns(&loop);
    for (long t = 0; t < n_threads; t++) pthread_join(threads[t], NULL);
    pthread_mutex_destroy(&loop.mutex);
    return loop.status == ST_OK ? ST_OK : st_error_adopt(loop.status, loop.message);
}
