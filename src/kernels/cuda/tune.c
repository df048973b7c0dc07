/* Measuring: each way runs once unmeasured and once measured; those within a tenth of the best run
 * in turns, and the least time of each counts. The library's first choice is kept unless another is
 * clearly faster, so that noise does not decide. */
#include "kernels/cuda/tune.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/options.h"
#include "ir/structure.h"
#include "kernels/cuda/cache.h"

enum { ROUNDS = 3, MAX_REPEATS = 20, MAX_FINALISTS = 4 };
static const double NEAR = 1.1, CLEARLY = 1.01, ROUND_US = 400;

/* One a kind of device; a process sees few. */
typedef struct shelf {
    struct shelf *next;
    uint64_t identity;
    record_t *record; /* NULL: there is no folder for it */
} shelf_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static shelf_t *shelves;
static double spent_s;

uint64_t tune_key(const kern_problem_t *problem, size_t workspace_bytes, uint64_t library) {
    uint64_t key = ir_attrs_hash(problem->op, problem->attrs, (uint64_t)workspace_bytes);
    key = st_hash64(problem->in, problem->n_in * sizeof *problem->in, key);
    key = st_hash64(problem->out, problem->n_out * sizeof *problem->out, key);
    return st_hash64(&library, sizeof library, key);
}

/* ---- the record ---- */

static st_status_t identity_of(const dev_stream_t *stream, char *text, size_t capacity) {
    int driver = 0;
    CUDA_TRY(cudaDriverGetVersion(&driver));
    snprintf(text, capacity, "1 %s, %d.%d, %d multiprocessors, driver for %d",
             stream->properties.name, stream->properties.major, stream->properties.minor,
             stream->properties.multiProcessorCount, driver);
    return ST_OK;
}

/* The record of the stream's device, NULL where none is kept. With the mutex held. */
static st_status_t record_of(const dev_stream_t *stream, record_t **out) {
    char identity[512], path[CACHE_PATH_BYTES];
    TRY(identity_of(stream, identity, sizeof identity));
    const uint64_t key = st_hash_string(identity);
    shelf_t *shelf = shelves;
    while (shelf && shelf->identity != key) shelf = shelf->next;
    *out = shelf ? shelf->record : NULL;
    if (shelf) return ST_OK;
    TRY(cache_path(key, "tuning", path));
    shelf = st_calloc(1, sizeof *shelf);
    if (!shelf) return st_no_memory(sizeof *shelf, "a tuning record");
    st_status_t status = path[0] ? record_open(path, identity, &shelf->record) : ST_OK;
    if (status != ST_OK) {
        st_free(shelf);
        return status;
    }
    *shelf = (shelf_t){shelves, key, shelf->record};
    shelves = shelf;
    *out = shelf->record;
    return ST_OK;
}

/* *out_record NULL: nothing is measured or looked up. With the mutex held. */
static st_status_t open_record(dev_stream_t *stream, record_t **out_record, double *out_seconds) {
    char text[64];
    *out_record = NULL;
    TRY(st_process_option("tune", text, sizeof text));
    TRY(record_budget(text, out_seconds));
    return *out_seconds < 0 ? ST_OK : record_of(stream, out_record);
}

st_status_t tune_enabled(dev_stream_t *stream, bool *out_enabled) {
    record_t *record;
    double seconds;
    pthread_mutex_lock(&mutex);
    st_status_t status = open_record(stream, &record, &seconds);
    pthread_mutex_unlock(&mutex);
    *out_enabled = status == ST_OK && record;
    return status;
}

st_status_t tune_find(dev_stream_t *stream, uint64_t key, record_choice_t *out, bool *out_found) {
    record_t *record;
    double seconds;
    *out_found = false;
    pthread_mutex_lock(&mutex);
    st_status_t status = open_record(stream, &record, &seconds);
    const record_entry_t *entry = status == ST_OK && record ? record_find(record, key) : NULL;
    if (entry) *out = entry->choice;
    *out_found = entry != NULL;
    pthread_mutex_unlock(&mutex);
    return status;
}

void tune_took(dev_stream_t *stream, uint64_t key, const record_choice_t *choice) {
    pthread_mutex_lock(&stream->mutex);
    stream->startup.choices = record_hash_add(stream->startup.choices, key, choice);
    pthread_mutex_unlock(&stream->mutex);
}

/* ---- between ranks ---- */

/* One of the two is given: what is on record goes out, or another's comes in. */
static st_status_t share(dev_stream_t *stream, char **out_text, const char *text) {
    record_t *record;
    double seconds;
    pthread_mutex_lock(&mutex);
    st_status_t status = open_record(stream, &record, &seconds);
    if (status == ST_OK && record)
        status = out_text ? record_text(record, out_text) : record_take(record, text);
    pthread_mutex_unlock(&mutex);
    return status;
}

st_status_t dev_cuda_choices_give(dev_stream_t *stream, char **out_text) {
    *out_text = NULL;
    return share(stream, out_text, NULL);
}

st_status_t dev_cuda_choices_take(dev_stream_t *stream, const char *text) {
    return share(stream, NULL, text);
}

/* ---- measuring ---- */

typedef struct clock_pair {
    cudaEvent_t begin, end;
} clock_pair_t;

static st_status_t open_clock(clock_pair_t *clock) {
    CUDA_TRY(cudaEventCreate(&clock->begin));
    CUDA_TRY(cudaEventCreate(&clock->end));
    return ST_OK;
}
static void close_clock(clock_pair_t *clock) {
    if (clock->begin) cudaEventDestroy(clock->begin);
    if (clock->end) cudaEventDestroy(clock->end);
}

/* Microseconds of one of `repeats` runs. */
static st_status_t time_way(dev_stream_t *stream, const tune_job_t *job, const clock_pair_t *clock,
                            uint32_t way, int repeats, double *out_us) {
    float ms = 0;
    CUDA_TRY(cudaEventRecord(clock->begin, stream->stream));
    for (int i = 0; i < repeats; i++) TRY(job->run(job->context, way));
    CUDA_TRY(cudaEventRecord(clock->end, stream->stream));
    CUDA_TRY(cudaEventSynchronize(clock->end));
    CUDA_TRY(cudaEventElapsedTime(&ms, clock->begin, clock->end));
    *out_us = ms * 1e3 / repeats;
    return ST_OK;
}

static uint32_t least(const double *us, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t w = 1; w < n; w++)
        if (us[w] < us[best]) best = w;
    return best;
}

/* us[w] of every way, INFINITY of those that fail. */
static void first_look(dev_stream_t *stream, const tune_job_t *job, const clock_pair_t *clock,
                       double *us) {
    for (uint32_t w = 0; w < job->n_ways; w++) {
        double unmeasured;
        us[w] = INFINITY;
        if (time_way(stream, job, clock, w, 1, &unmeasured) != ST_OK ||
            time_way(stream, job, clock, w, 1, &us[w]) != ST_OK) {
            us[w] = INFINITY;
            st_clear_error();
        }
    }
}

/* Times the ways near the best again; those that are not get INFINITY. */
static st_status_t final_rounds(dev_stream_t *stream, const tune_job_t *job,
                                const clock_pair_t *clock, double *us) {
    const double best = us[least(us, job->n_ways)];
    const int repeats = (int)fmax(1, fmin(MAX_REPEATS, ROUND_US / fmax(best, 1)));
    uint32_t n = 0;
    for (uint32_t w = 0; w < job->n_ways; w++) {
        bool stays = us[w] <= NEAR * best && n < MAX_FINALISTS;
        if (!stays && w > 0) us[w] = INFINITY; /* the first is the one to beat */
        n += stays;
    }
    for (int round = 0; round < ROUNDS; round++)
        for (uint32_t w = 0; w < job->n_ways; w++) {
            double again;
            if (isinf(us[w])) continue;
            TRY(time_way(stream, job, clock, w, repeats, &again));
            if (round == 0 || again < us[w]) us[w] = again;
        }
    return ST_OK;
}

static st_status_t measure(dev_stream_t *stream, const tune_job_t *job, record_entry_t *out,
                           uint32_t *out_way) {
    double us[TUNE_MAX_WAYS];
    clock_pair_t clock = {0};
    TRY(job->noise->fill(job->noise->context));
    st_status_t status = open_clock(&clock);
    if (status == ST_OK) {
        first_look(stream, job, &clock, us);
        if (isinf(us[least(us, job->n_ways)]))
            status = job->run(job->context, 0); /* for its message */
        else
            status = final_rounds(stream, job, &clock, us);
    }
    close_clock(&clock);
    TRY(status);
    uint32_t best = least(us, job->n_ways);
    if (us[0] <= CLEARLY * us[best]) best = 0;
    *out_way = best;
    out->n_ways = job->n_ways;
    out->us = us[best];
    out->first_us = us[0];
    return ST_OK;
}

static st_status_t choose(dev_stream_t *stream, const tune_job_t *job, uint32_t *out_way,
                          bool *out_measured) {
    record_t *record;
    double seconds;
    TRY(open_record(stream, &record, &seconds));
    if (!record) return ST_OK;
    const record_entry_t *known = record_find(record, job->key);
    for (uint32_t w = 0; known && w < job->n_ways; w++)
        if (memcmp(&job->ways[w], &known->choice, sizeof known->choice) == 0) *out_way = w;
    if (known) return ST_OK;
    record_entry_t entry = {.key = job->key};
    double begin = dev_cuda_seconds();
    if (job->n_ways > 1 && spent_s < seconds) {
        TRY(measure(stream, job, &entry, out_way));
        *out_measured = true;
    }
    spent_s += dev_cuda_seconds() - begin;
    dev_cuda_spent(stream, &stream->startup.tune_s, begin);
    entry.choice = job->ways[*out_way];
    if (record_add(record, &entry) == ST_OK) return ST_OK;
    st_clear_error(); /* what is not kept would not hold in the next run */
    *out_way = 0;
    return ST_OK;
}

st_status_t tune_choose(dev_stream_t *stream, const tune_job_t *job, uint32_t *out_way) {
    bool measured = false;
    *out_way = 0;
    pthread_mutex_lock(&mutex);
    st_status_t status = choose(stream, job, out_way, &measured);
    pthread_mutex_unlock(&mutex);
    TRY(status);
    pthread_mutex_lock(&stream->mutex);
    stream->startup.n_measured += measured;
    pthread_mutex_unlock(&stream->mutex);
    tune_took(stream, job->key, &job->ways[*out_way]);
    return ST_OK;
}
