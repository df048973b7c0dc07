/* Thread team: a pool for parallel loops whose chunks do not depend on the number of threads.
 *
 *   caller   | post job, epoch + 1 | own run of chunks | wait until n_left = 0 |
 *   worker   … spin, then sleep …  | its run of chunks | n_left - 1            | … spin, then sleep
 *            …
 *
 * A loop of a training step is often some ten microseconds long and the next one follows at once,
 * so both sides spin a little before they sleep on a condition variable. Where more team threads
 * are in use than there are processors (many ranks on a small machine) spinning only takes time
 * from the thread that is waited for: then everyone sleeps at once. In use is a team from enter to
 * leave, which a session calls around a step: a second session that waits, say for an evaluation
 * now and then, costs the first one nothing.
 *
 * Memory order: the job's fields are written before the release store of `epoch` and read after an
 * acquire load of it; results are written before the release decrement of `n_left`. The epoch
 * changes under the mutex, so a worker that decided to sleep cannot miss it. */
#include "device/cpu/team.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

enum { SPINS = 4000, MAX_THREADS = 4096 };

typedef struct worker {
    dev_team_t *team;
    int index;
    pthread_t thread;
} worker_t;

struct dev_team {
    int n_threads;
    int n_started; /* workers alive */
    worker_t *workers;
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    atomic_ulong epoch; /* loops posted */
    atomic_int n_left;  /* workers that have not finished the loop */
    atomic_bool stop;
    bool caller_sleeps; /* under mutex */
    /* the loop */
    int64_t n, grain;
    dev_team_body_t body;
    void *arg;
};

/* Threads of all teams of the process that are in use, callers included. */
static atomic_int threads_in_use;

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

int dev_team_spins(void) {
    static atomic_int processors;
    int n = atomic_load_explicit(&processors, memory_order_relaxed);
    if (n == 0) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        n = online > 0 ? (int)online : 1;
        atomic_store_explicit(&processors, n, memory_order_relaxed);
    }
    return atomic_load_explicit(&threads_in_use, memory_order_relaxed) <= n ? SPINS : 0;
}

/* Contiguous run of chunks of one thread: which thread runs a chunk may change with the size of the
 * team, what a chunk is may not. */
static void run_chunks(const dev_team_t *team, int thread) {
    int64_t n = team->n, grain = team->grain;
    int64_t chunks = n / grain + (n % grain != 0);
    /* chunks · thread may pass 2^63 for absurd n; divide first */
    int64_t each = chunks / team->n_threads, extra = chunks % team->n_threads;
    int64_t first = each * thread + (thread < extra ? thread : extra);
    int64_t last = first + each + (thread < extra);
    for (int64_t c = first; c < last; c++) {
        int64_t begin = c * grain;
        int64_t end = n - begin < grain ? n : begin + grain;
        team->body(team->arg, begin, end, thread);
    }
}

/* Waits for an epoch other than `seen` and returns it. */
static unsigned long wait_for_work(dev_team_t *team, unsigned long seen) {
    for (int i = dev_team_spins(); i > 0; i--) {
        unsigned long epoch = atomic_load_explicit(&team->epoch, memory_order_acquire);
        if (epoch != seen) return epoch;
        relax();
    }
    pthread_mutex_lock(&team->mutex);
    unsigned long epoch;
    while ((epoch = atomic_load_explicit(&team->epoch, memory_order_acquire)) == seen)
        pthread_cond_wait(&team->work, &team->mutex);
    pthread_mutex_unlock(&team->mutex);
    return epoch;
}

static void *worker_main(void *arg) {
    worker_t *worker = arg;
    dev_team_t *team = worker->team;
    unsigned long seen = 0;
    for (;;) {
        seen = wait_for_work(team, seen);
        if (atomic_load_explicit(&team->stop, memory_order_acquire)) return NULL;
        run_chunks(team, worker->index);
        if (atomic_fetch_sub_explicit(&team->n_left, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&team->mutex);
            if (team->caller_sleeps) pthread_cond_signal(&team->done);
            pthread_mutex_unlock(&team->mutex);
        }
    }
}

static void post(dev_team_t *team) {
    pthread_mutex_lock(&team->mutex);
    atomic_fetch_add_explicit(&team->epoch, 1, memory_order_release);
    pthread_cond_broadcast(&team->work);
    pthread_mutex_unlock(&team->mutex);
}

static void wait_for_workers(dev_team_t *team) {
    for (int i = dev_team_spins(); i > 0; i--) {
        if (atomic_load_explicit(&team->n_left, memory_order_acquire) == 0) return;
        relax();
    }
    pthread_mutex_lock(&team->mutex);
    team->caller_sleeps = true;
    while (atomic_load_explicit(&team->n_left, memory_order_acquire) != 0)
        pthread_cond_wait(&team->done, &team->mutex);
    team->caller_sleeps = false;
    pthread_mutex_unlock(&team->mutex);
}

st_status_t dev_team_create(int n_threads, dev_team_t **out_team) {
    *out_team = NULL;
    if (n_threads < 1 || n_threads > MAX_THREADS)
        return FAIL(ST_INVALID, "a team of %d threads: 1 … %d are possible", n_threads,
                    MAX_THREADS);
    dev_team_t *team = st_calloc(1, sizeof *team);
    if (!team) return st_no_memory(sizeof *team, "a thread team");
    team->n_threads = n_threads;
    size_t bytes = (size_t)(n_threads - 1) * sizeof(worker_t);
    team->workers = st_malloc(bytes);
    if (!team->workers) {
        st_free(team);
        return st_no_memory(bytes, "the threads of a team");
    }
    pthread_mutex_init(&team->mutex, NULL);
    pthread_cond_init(&team->work, NULL);
    pthread_cond_init(&team->done, NULL);
    for (int i = 1; i < n_threads; i++) {
        worker_t *worker = &team->workers[i - 1];
        *worker = (worker_t){.team = team, .index = i};
        int error = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (error) {
            dev_team_destroy(team);
            return FAIL(ST_NO_MEMORY, "thread %d of %d could not be started: %s; use fewer threads",
                        i, n_threads, strerror(error));
        }
        team->n_started++;
    }
    *out_team = team;
    return ST_OK;
}

void dev_team_destroy(dev_team_t *team) {
    if (!team) return;
    atomic_store_explicit(&team->stop, true, memory_order_release);
    post(team);
    for (int i = 0; i < team->n_started; i++) pthread_join(team->workers[i].thread, NULL);
    pthread_cond_destroy(&team->done);
    pthread_cond_destroy(&team->work);
    pthread_mutex_destroy(&team->mutex);
    st_free(team->workers);
    st_free(team);
}

int dev_team_size(const dev_team_t *team) {
    return team->n_threads;
}

void dev_team_enter(const dev_team_t *team) {
    atomic_fetch_add_explicit(&threads_in_use, team->n_threads, memory_order_relaxed);
}

void dev_team_leave(const dev_team_t *team) {
    atomic_fetch_sub_explicit(&threads_in_use, team->n_threads, memory_order_relaxed);
}

void dev_team_for(dev_team_t *team, int64_t n, int64_t grain, dev_team_body_t body, void *arg) {
    ASSERT(grain >= 1);
    if (n <= 0) return;
    if (n <= grain || !team || team->n_threads == 1) {
        for (int64_t begin = 0; begin < n;) {
            int64_t end = n - begin < grain ? n : begin + grain;
            body(arg, begin, end, 0);
            begin = end;
        }
        return;
    }
    team->n = n;
    team->grain = grain;
    team->body = body;
    team->arg = arg;
    atomic_store_explicit(&team->n_left, team->n_threads - 1, memory_order_relaxed);
    post(team);
    run_chunks(team, 0);
    wait_for_workers(team);
}
