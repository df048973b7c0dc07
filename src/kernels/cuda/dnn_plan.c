/* Plans of cuDNN graphs: which engine, shared among equal nodes, kept on disk, run.
 *
 * A plan knows tensors by number only, so that each node brings its own addresses. Building one
 * takes up to a second where the library makes code at run time: several threads build those of
 * different keys, each with a handle of its own, with which the plan runs, too. A plan that took
 * long is written to the cache as the library's own text, which holds that code and loads in
 * milliseconds. Without a handle the library plans for no device in particular, and then finds no
 * engine or none that runs. */
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "kernels/cuda/cache.h"
#include "kernels/cuda/dnn_graph.h"
#include "kernels/cuda/tune.h"

enum { MAX_CONFIGS = 64, MAX_NOTES = 32, N_MODES = 2, MADE_BY_TUNING = 1 };
static const cudnnBackendHeurMode_t modes[N_MODES] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
/* What takes longer to build than this is worth a file. */
static const double SLOW_S = 0.02;

typedef struct dnn_shared {
    struct dnn_shared *next;
    const dev_cuda_dnn_t *f;
    dnn_wish_t wish;
    record_choice_t choice; /* zeros: the library's first */
    bool ready, tuned;      /* not ready: its thread is still building it */
    cudnnHandle_t handle;   /* that it was made with */
    cudnnBackendDescriptor_t plan;
    ST_VEC(cudnnBackendDescriptor_t) all; /* what it was made of */
} shared_t;

bool dnn_varies(const dnn_t *dnn) {
    return dnn->stream && dnn->stream->varies;
}

dnn_wish_t dnn_wish(const dnn_t *dnn, const kern_problem_t *problem, bool exact,
                    size_t workspace_bytes) {
    uint64_t library = dnn->f->cudnnGetVersion();
    const bool varies = dnn_varies(dnn); /* other choices, which go by another key */
    return (dnn_wish_t){tune_key(problem, workspace_bytes, varies ? ~library : library), exact,
                        workspace_bytes, varies};
}

/* ---- engines ---- */

static bool note_among(const int32_t *notes, int64_t n, int32_t note) {
    for (int64_t i = 0; i < n; i++)
        if (notes[i] == note) return true;
    return false;
}

/* The configuration's engine; NULL if it does not tell. */
static cudnnBackendDescriptor_t engine_of(dnn_t *dnn, cudnnBackendDescriptor_t config) {
    cudnnBackendDescriptor_t engine = dnn_make(dnn, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "an engine");
    int64_t n = 0;
    if (!engine || dnn->f->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                                    &engine) != CUDNN_STATUS_SUCCESS)
        return NULL;
    return engine;
}

/* Same bits every run unless others are wished for, and f32 kept. *out_compiled: its code is made
 * at run time. */
static bool notes_allow(dnn_t *dnn, cudnnBackendDescriptor_t config, const dnn_wish_t *wish,
                        bool *out_compiled) {
    cudnnBackendDescriptor_t engine = engine_of(dnn, config);
    int32_t notes[MAX_NOTES];
    int64_t n = 0;
    *out_compiled = false;
    _Static_assert(sizeof(cudnnBackendNumericalNote_t) == sizeof notes[0] &&
                       sizeof(cudnnBackendBehaviorNote_t) == sizeof notes[0],
                   "notes are read as numbers");
    if (!engine || dnn->f->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                                    CUDNN_TYPE_BEHAVIOR_NOTE, MAX_NOTES, &n,
                                                    notes) != CUDNN_STATUS_SUCCESS)
        return false;
    *out_compiled = note_among(notes, n, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
    if (dnn->f->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                         CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES, &n,
                                         notes) != CUDNN_STATUS_SUCCESS)
        return false;
    return (wish->varies || !note_among(notes, n, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) &&
           (!wish->exact || (!note_among(notes, n, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
                             !note_among(notes, n, CUDNN_NUMERICAL_NOTE_TENSOR_CORE)));
}

static bool fits(const dnn_t *dnn, cudnnBackendDescriptor_t plan, size_t workspace_bytes) {
    int64_t needed = 0, n = 0;
    return dnn->f->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                            CUDNN_TYPE_INT64, 1, &n,
                                            &needed) == CUDNN_STATUS_SUCCESS &&
           needed >= 0 && (size_t)needed <= workspace_bytes;
}

/* A plan of the configuration that the caller destroys; NULL: it is none, or needs too much. */
static cudnnBackendDescriptor_t plan_of(dnn_t *dnn, cudnnBackendDescriptor_t config,
                                        size_t workspace_bytes) {
    cudnnBackendDescriptor_t plan = NULL;
    const dev_cuda_dnn_t *f = dnn->f;
    if (f->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) !=
        CUDNN_STATUS_SUCCESS)
        return NULL;
    cudnnStatus_t error = CUDNN_STATUS_SUCCESS;
    if (dnn->handle)
        error = f->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                            CUDNN_TYPE_HANDLE, 1, &dnn->handle);
    if (error == CUDNN_STATUS_SUCCESS && dnn->device)
        error = f->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dnn->device);
    if (error == CUDNN_STATUS_SUCCESS)
        error = f->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (error == CUDNN_STATUS_SUCCESS) error = f->cudnnBackendFinalize(plan);
    if (error == CUDNN_STATUS_SUCCESS && fits(dnn, plan, workspace_bytes)) return plan;
    f->cudnnBackendDestroyDescriptor(plan);
    return NULL;
}

static cudnnBackendDescriptor_t make_graph(dnn_t *dnn) {
    static const char what[] = "the graph";
    cudnnBackendDescriptor_t graph = dnn_make(dnn, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, what);
    dnn_set(dnn, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            (int64_t)dnn->operations.n, dnn->operations.data, what);
    if (dnn->handle)
        dnn_set(dnn, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &dnn->handle,
                what);
    dnn_finalize(dnn, graph, what);
    return graph;
}

/* What the library proposes, best guess first; *out_n of at most MAX_CONFIGS. */
static st_status_t list_configs(dnn_t *dnn, cudnnBackendDescriptor_t graph,
                                cudnnBackendHeurMode_t mode,
                                cudnnBackendDescriptor_t configs[MAX_CONFIGS], int64_t *out_n) {
    static const char what[] = "its list of engines";
    cudnnBackendDescriptor_t list = dnn_make(dnn, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, what);
    dnn_set(dnn, list, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
            &graph, what);
    dnn_set(dnn, list, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode, what);
    if (dnn->device)
        dnn_set(dnn, list, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                &dnn->device, what);
    dnn_finalize(dnn, list, what);
    for (int i = 0; i < MAX_CONFIGS; i++)
        configs[i] = dnn_make(dnn, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, what);
    *out_n = 0;
    if (dnn->failed != ST_OK) return dnn->failed;
    cudnnStatus_t error = dnn->f->cudnnBackendGetAttribute(list, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                           CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                           MAX_CONFIGS, out_n, configs);
    if (error != CUDNN_STATUS_SUCCESS) return dnn_fail(dnn, error, what);
    if (*out_n > MAX_CONFIGS) *out_n = MAX_CONFIGS;
    return ST_OK;
}

typedef struct way {
    record_choice_t choice;
    cudnnBackendDescriptor_t plan;
} way_t;

static record_choice_t choice_at(int mode, int64_t place) {
    return (record_choice_t){{MADE_BY_TUNING, (uint8_t)mode, (uint8_t)place}};
}

static st_status_t no_engine(const dnn_wish_t *wish) {
    return FAIL(ST_UNSUPPORTED,
                "cuDNN has no engine for this within %zu bytes of workspace that "
                "gives the same bits every run%s",
                wish->workspace_bytes, wish->exact ? " and keeps f32" : "");
}

/* Plans in the library's order, until there are `capacity`. `wanted`: only that one. From the
 * second on none whose code would be made at run time. */
static st_status_t list_ways(dnn_t *dnn, const dnn_wish_t *wish, const record_choice_t *wanted,
                             uint32_t capacity, way_t *out, uint32_t *out_n) {
    cudnnBackendDescriptor_t configs[MAX_CONFIGS], graph = make_graph(dnn);
    *out_n = 0;
    if (dnn->failed != ST_OK) return dnn->failed;
    for (int m = 0; m < N_MODES && *out_n < capacity; m++) {
        int64_t n;
        if (m && *out_n) break; /* the fallback's are slow */
        TRY(list_configs(dnn, graph, modes[m], configs, &n));
        for (int64_t i = 0; i < n && *out_n < capacity; i++) {
            record_choice_t choice = choice_at(m, i);
            bool compiled;
            if (wanted && memcmp(wanted, &choice, sizeof choice) != 0) continue;
            if (!notes_allow(dnn, configs[i], wish, &compiled)) continue;
            if (compiled && *out_n) continue;
            cudnnBackendDescriptor_t plan = plan_of(dnn, configs[i], wish->workspace_bytes);
            if (plan) out[(*out_n)++] = (way_t){choice, plan};
        }
    }
    if (*out_n) return ST_OK;
    if (wanted)
        return FAIL(ST_UNSUPPORTED,
                    "the tuning record's engine is no more among cuDNN's: remove the .tuning file "
                    "from the folder of option cache, or use --tune off");
    return no_engine(wish);
}

/* ---- on disk ---- */

static uint64_t file_key(const dnn_t *dnn, const shared_t *shared) {
    const struct cudaDeviceProp *device = &dnn->stream->properties;
    uint64_t key = st_hash64(&shared->choice, sizeof shared->choice, shared->wish.key);
    key = st_hash64(&device->multiProcessorCount, sizeof device->multiProcessorCount, key);
    return st_hash64(device->name, strlen(device->name), key);
}

/* NULL: there is no file, or the library does not take it. */
static cudnnBackendDescriptor_t load(const dnn_t *dnn, const shared_t *shared) {
    char path[CACHE_PATH_BYTES];
    const uint64_t key = file_key(dnn, shared);
    cache_data_t text;
    cudnnBackendDescriptor_t plan = NULL;
    const dev_cuda_dnn_t *f = dnn->f;
    if (cache_path(key, "cudnn", path) != ST_OK || !cache_read(path, key, &text)) return NULL;
    cudnnStatus_t error =
        f->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
    if (error == CUDNN_STATUS_SUCCESS)
        error = f->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                            CUDNN_TYPE_HANDLE, 1, &dnn->handle);
    if (error == CUDNN_STATUS_SUCCESS)
        error = f->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                            CUDNN_TYPE_CHAR, (int64_t)text.bytes, text.data);
    if (error == CUDNN_STATUS_SUCCESS) error = f->cudnnBackendFinalize(plan);
    st_free(text.data);
    if (error == CUDNN_STATUS_SUCCESS && fits(dnn, plan, shared->wish.workspace_bytes)) return plan;
    if (plan) f->cudnnBackendDestroyDescriptor(plan);
    return NULL;
}

static void keep(const dnn_t *dnn, const shared_t *shared) {
    char path[CACHE_PATH_BYTES];
    const uint64_t key = file_key(dnn, shared);
    int64_t n = 0, unused = 0;
    if (cache_path(key, "cudnn", path) != ST_OK || !path[0] ||
        dnn->f->cudnnBackendGetAttribute(shared->plan,
                                         CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                         CUDNN_TYPE_CHAR, 0, &n, NULL) != CUDNN_STATUS_SUCCESS ||
        n <= 0)
        return;
    cache_data_t text = {st_malloc((size_t)n), (size_t)n};
    if (text.data && dnn->f->cudnnBackendGetAttribute(
                         shared->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                         CUDNN_TYPE_CHAR, n, &unused, text.data) == CUDNN_STATUS_SUCCESS)
        cache_write(path, key, &text);
    st_free(text.data);
}

/* ---- shared plans ---- */

static void drop_shared(shared_t *shared) {
    if (shared->plan) shared->f->cudnnBackendDestroyDescriptor(shared->plan);
    for (size_t i = shared->all.n; i-- > 0;)
        shared->f->cudnnBackendDestroyDescriptor(shared->all.data[i]);
    ST_VEC_FREE(&shared->all);
    st_free(shared);
}

static void release_plans(dev_stream_t *stream) {
    shared_t *next;
    for (shared_t *shared = stream->plans; shared; shared = next) {
        next = shared->next;
        drop_shared(shared);
    }
    stream->plans = NULL;
}

/* Moves what the graph has made so far to the plan, which needs it as long as it lives. */
static st_status_t give_descriptors(dnn_t *dnn, shared_t *shared) {
    for (size_t i = 0; i < dnn->all.n; i++) {
        st_status_t status = ST_VEC_PUSH(&shared->all, dnn->all.data[i]);
        if (status == ST_OK) continue;
        memmove(dnn->all.data, dnn->all.data + i, (dnn->all.n - i) * sizeof *dnn->all.data);
        dnn->all.n -= i;
        return status;
    }
    dnn->all.n = 0;
    return ST_OK;
}

/* The stream's entry of a key; *out_mine: it is new, and the caller builds it. */
static st_status_t claim(dev_stream_t *stream, const dev_cuda_dnn_t *f, const dnn_wish_t *wish,
                         shared_t **out, bool *out_mine) {
    *out_mine = false;
    pthread_mutex_lock(&stream->mutex);
    shared_t *shared = stream->plans;
    while (shared && shared->wish.key != wish->key) shared = shared->next;
    if (!shared && (shared = st_calloc(1, sizeof *shared)) != NULL) {
        *shared = (shared_t){.next = stream->plans, .f = f, .wish = *wish};
        stream->plans = shared;
        stream->release_plans = release_plans;
        *out_mine = true;
    }
    pthread_mutex_unlock(&stream->mutex);
    *out = shared;
    return shared ? ST_OK : st_no_memory(sizeof *shared, "a cuDNN plan");
}

static st_status_t build(dnn_t *dnn, shared_t *shared, bool recorded) {
    double begin = dev_cuda_seconds();
    way_t way;
    uint32_t n;
    shared->handle = dnn->handle;
    if ((shared->plan = load(dnn, shared)) != NULL) return ST_OK;
    TRY(list_ways(dnn, &shared->wish, recorded ? &shared->choice : NULL, 1, &way, &n));
    shared->plan = way.plan;
    if (dev_cuda_seconds() - begin > SLOW_S) keep(dnn, shared);
    return give_descriptors(dnn, shared);
}

/* Loads or builds what is not there. */
static st_status_t make_ready(dnn_t *dnn, shared_t *shared) {
    bool recorded;
    double begin = dev_cuda_seconds();
    TRY(tune_find(dnn->stream, shared->wish.key, &shared->choice, &recorded));
    st_status_t status = build(dnn, shared, recorded);
    shared->ready = status == ST_OK;
    dev_cuda_spent(dnn->stream, &dnn->stream->startup.plans_s, begin);
    return status;
}

static st_status_t make_pack(dnn_t *dnn, void *workspace) {
    static const char what[] = "its arguments";
    size_t n = 0;
    int64_t *ids = st_arena_array(&dnn->arena, dnn->tensors.n, sizeof *ids);
    const void **addresses = st_arena_array(&dnn->arena, dnn->tensors.n, sizeof *addresses);
    if (!ids || !addresses) return st_no_memory(dnn->tensors.n * sizeof *ids, "a cuDNN graph");
    for (size_t i = 0; i < dnn->tensors.n; i++) {
        if (!dnn->tensors.data[i].address) continue;
        ids[n] = dnn->tensors.data[i].id;
        addresses[n++] = dnn->tensors.data[i].address;
    }
    dnn->pack = dnn_make(dnn, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, what);
    dnn_set(dnn, dnn->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, (int64_t)n, ids,
            what);
    dnn_set(dnn, dnn->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, (int64_t)n,
            addresses, what);
    dnn_set(dnn, dnn->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace,
            what);
    dnn_finalize(dnn, dnn->pack, what);
    return dnn->failed;
}

/* For a device that is not here: an engine that supports the graph there within the workspace,
 * whose code may be one that only a driver could load. */
static st_status_t find_engine(dnn_t *dnn, const dnn_wish_t *wish) {
    cudnnBackendDescriptor_t configs[MAX_CONFIGS], graph = make_graph(dnn);
    if (dnn->failed != ST_OK) return dnn->failed;
    for (int m = 0; m < N_MODES; m++) {
        int64_t n, needed = 0, unused;
        TRY(list_configs(dnn, graph, modes[m], configs, &n));
        for (int64_t i = 0; i < n; i++) {
            bool compiled;
            if (notes_allow(dnn, configs[i], wish, &compiled) &&
                dnn->f->cudnnBackendGetAttribute(configs[i], CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE,
                                                 CUDNN_TYPE_INT64, 1, &unused,
                                                 &needed) == CUDNN_STATUS_SUCCESS &&
                needed >= 0 && (size_t)needed <= wish->workspace_bytes)
                return ST_OK;
        }
    }
    return no_engine(wish);
}

st_status_t dnn_plan(dnn_t *dnn, const dnn_wish_t *wish, void *workspace) {
    bool mine;
    if (dnn->failed != ST_OK) return dnn->failed;
    if (dnn->device) return find_engine(dnn, wish);
    TRY(claim(dnn->stream, dnn->f, wish, &dnn->shared, &mine));
    if (dnn->bound ? !dnn->shared->ready : mine) TRY(make_ready(dnn, dnn->shared));
    return dnn->bound ? make_pack(dnn, workspace) : ST_OK;
}

st_status_t dnn_launch(const dnn_t *dnn) {
    const shared_t *shared = dnn->shared;
    cudnnStatus_t error = dnn->f->cudnnBackendExecute(shared->handle, shared->plan, dnn->pack);
    return error == CUDNN_STATUS_SUCCESS ? ST_OK : dnn_fail(dnn, error, "a launch");
}

/* ---- tuning ---- */

typedef struct tuning {
    const dnn_t *dnn;
    way_t ways[TUNE_MAX_WAYS];
    uint32_t n;
} tuning_t;

static st_status_t run_way(void *context, uint32_t way) {
    const tuning_t *t = context;
    const dnn_t *dnn = t->dnn;
    cudnnStatus_t error = dnn->f->cudnnBackendExecute(dnn->handle, t->ways[way].plan, dnn->pack);
    return error == CUDNN_STATUS_SUCCESS ? ST_OK : dnn_fail(dnn, error, "a launch");
}

/* Puts the chosen plan in the place of the one that was built. */
static st_status_t take_way(dnn_t *dnn, tuning_t *t, uint32_t chosen) {
    shared_t *shared = dnn->shared;
    dnn->f->cudnnBackendDestroyDescriptor(shared->plan);
    shared->plan = t->ways[chosen].plan;
    shared->handle = dnn->handle;
    shared->choice = t->ways[chosen].choice;
    for (uint32_t w = 0; w < t->n; w++)
        if (w != chosen) dnn->f->cudnnBackendDestroyDescriptor(t->ways[w].plan);
    return give_descriptors(dnn, shared);
}

static st_status_t measure(dnn_t *dnn, const kern_noise_t *noise) {
    shared_t *shared = dnn->shared;
    tuning_t t = {.dnn = dnn};
    record_choice_t choices[TUNE_MAX_WAYS];
    uint32_t chosen;
    TRY(list_ways(dnn, &shared->wish, NULL, TUNE_MAX_WAYS, t.ways, &t.n));
    for (uint32_t w = 0; w < t.n; w++) choices[w] = t.ways[w].choice;
    const tune_job_t job = {shared->wish.key, t.n, choices, run_way, &t, noise};
    st_status_t status = tune_choose(dnn->stream, &job, &chosen);
    st_status_t taken = take_way(dnn, &t, status == ST_OK ? chosen : 0);
    return status == ST_OK ? taken : status;
}

st_status_t dnn_tune(dnn_t *dnn, const kern_noise_t *noise) {
    shared_t *shared = dnn->shared;
    record_choice_t choice;
    bool enabled, recorded;
    TRY(tune_enabled(dnn->stream, &enabled));
    if (!enabled || shared->tuned) return ST_OK;
    shared->tuned = true;
    TRY(tune_find(dnn->stream, shared->wish.key, &choice, &recorded));
    if (!recorded || memcmp(&choice, &shared->choice, sizeof choice) != 0)
        return measure(dnn, noise);
    tune_took(dnn->stream, shared->wish.key, &choice);
    return ST_OK;
}

/* ---- for kernels ---- */

st_status_t dnn_bind(kern_call_t *call, dnn_build_t build) {
    dnn_t *dnn;
    TRY(dnn_create(call->stream, &dnn));
    st_status_t status = build(call, dnn);
    if (status == ST_OK)
        call->prepared = dnn;
    else
        dnn_destroy(dnn);
    return status;
}

enum { MAX_OPERANDS = 8 };

/* Adds the operations of a call of which only that its operands are there is known. */
static st_status_t build_unbound(const kern_problem_t *problem, dev_stream_t *stream,
                                 size_t workspace_bytes, dnn_build_t build, dnn_t *dnn) {
    static const char somewhere[1]; /* never read: an address stands for "in memory" */
    const void *in[MAX_OPERANDS];
    void *out[MAX_OPERANDS];
    for (int i = 0; i < MAX_OPERANDS; i++) {
        in[i] = somewhere;
        out[i] = (void *)(uintptr_t)somewhere;
    }
    ASSERT(problem->n_in <= MAX_OPERANDS && problem->n_out <= MAX_OPERANDS);
    const kern_call_t call = {.problem = problem,
                              .in = in,
                              .out = out,
                              .workspace = (void *)(uintptr_t)somewhere,
                              .workspace_bytes = workspace_bytes,
                              .stream = stream};
    st_status_t status = build(&call, dnn);
    dnn_destroy(dnn);
    return status;
}

st_status_t dnn_warm(const kern_problem_t *problem, dev_stream_t *stream, size_t workspace_bytes,
                     dnn_build_t build) {
    const dev_cuda_dnn_t *f;
    /* an entry without a plan: which thread sees to the problem */
    const dnn_wish_t first = {.key = tune_key(problem, workspace_bytes, 0)};
    cudnnHandle_t handle;
    shared_t *unused;
    dnn_t *dnn;
    bool mine;
    TRY(dev_cuda_dnn(&f));
    TRY(claim(stream, f, &first, &unused, &mine));
    if (!mine) return ST_OK;
    dev_cuda_dnn_ahead(stream);
    TRY(dev_cuda_dnn_take(stream, &handle));
    if (!handle) return ST_OK; /* bind builds it */
    st_status_t status = dnn_create_unbound(stream, handle, &dnn);
    if (status == ST_OK) status = build_unbound(problem, stream, workspace_bytes, build, dnn);
    dev_cuda_dnn_give(stream, handle);
    return status;
}

st_status_t dnn_check(const kern_problem_t *problem, const char *device, size_t workspace_bytes,
                      dnn_build_t build) {
    dnn_t *dnn;
    TRY(dnn_create_described(device, &dnn));
    return build_unbound(problem, NULL, workspace_bytes, build, dnn);
}

void dnn_release(void *prepared) {
    dnn_destroy(prepared);
}
