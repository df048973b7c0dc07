/* The CUDA device: plain allocations, one stream a rank, steps recorded as graphs.
 *
 * Nothing uses the default stream, and no call but synchronize waits for the device. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/number.h"
#include "base/options.h"
#include "device/cuda/cuda.h"
#include "device/cuda/draw.h"
#include "device/cuda/libraries.h"

enum { MIN_DRIVER = 13000 };

struct dev_graph {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
};

st_status_t dev_cuda_fail(cudaError_t error, const char *call) {
    st_status_t status = error == cudaErrorMemoryAllocation ? ST_NO_MEMORY : ST_DEVICE;
    return FAIL(status, "%.*s: %s (%s)", (int)strcspn(call, "("), call, cudaGetErrorString(error),
                cudaGetErrorName(error));
}

/* ---- life ---- */

static st_status_t check_machine(int index) {
    int driver = 0, count = 0;
    cudaError_t error = cudaDriverGetVersion(&driver);
    if (error != cudaSuccess || driver == 0)
        return FAIL(ST_NOT_FOUND,
                    "this machine has no NVIDIA driver: device 'cuda' needs one for "
                    "CUDA 13.0 or later");
    if (driver < MIN_DRIVER)
        return FAIL(ST_UNSUPPORTED, "the NVIDIA driver serves CUDA %d.%d: 13.0 or later is needed",
                    driver / 1000, driver % 1000 / 10);
    error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess && error != cudaErrorNoDevice)
        return dev_cuda_fail(error, "cudaGetDeviceCount");
    if (count == 0) return FAIL(ST_NOT_FOUND, "the NVIDIA driver finds no GPU on this machine");
    if (index >= count)
        return FAIL(ST_NOT_FOUND, "there is no GPU %d: this machine has %d, numbered from 0", index,
                    count);
    return ST_OK;
}

static st_status_t read_determinism(dev_stream_t *stream) {
    char text[16];
    TRY(st_process_option("deterministic", text, sizeof text));
    stream->varies = strcmp(text, "off") == 0;
    if (stream->varies || strcmp(text, "on") == 0) return ST_OK;
    return FAIL(ST_INVALID, "option 'deterministic' is '%s'; on or off is expected", text);
}

static st_status_t fill_stream(dev_stream_t *stream) {
    TRY(read_determinism(stream));
    CUDA_TRY(cudaSetDevice(stream->index));
    CUDA_TRY(cudaGetDeviceProperties(&stream->properties, stream->index));
    if (stream->properties.major < 8)
        return FAIL(ST_UNSUPPORTED,
                    "GPU %d (%s) is of compute capability %d.%d: 8.0 or later is "
                    "needed",
                    stream->index, stream->properties.name, stream->properties.major,
                    stream->properties.minor);
    CUDA_TRY(cudaStreamCreateWithFlags(&stream->stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaHostAlloc((void **)&stream->fault, sizeof *stream->fault, cudaHostAllocMapped));
    memset(stream->fault, 0, sizeof *stream->fault);
    CUDA_TRY(cudaHostGetDevicePointer((void **)&stream->device_fault, stream->fault, 0));
    return dev_cuda_copies_open(stream);
}

static void cuda_close(dev_stream_t *stream) {
    if (!stream) return;
    dev_cuda_libraries_release(stream);
    if (stream->fault) cudaFreeHost(stream->fault);
    dev_cuda_copies_close(stream);
    for (uint32_t i = 0; i < stream->n_marks; i++) cudaEventDestroy(stream->marks[i]);
    st_free(stream->marks);
    if (stream->stream) cudaStreamDestroy(stream->stream);
    pthread_mutex_destroy(&stream->mutex);
    st_free(stream);
}

static st_status_t cuda_open(int index, int n_threads, dev_stream_t **out_stream) {
    (void)n_threads;
    *out_stream = NULL;
    TRY(check_machine(index));
    dev_stream_t *stream = st_calloc(1, sizeof *stream);
    if (!stream) return st_no_memory(sizeof *stream, "a stream");
    stream->index = index;
    if (pthread_mutex_init(&stream->mutex, NULL) != 0) {
        st_free(stream);
        return FAIL(ST_NO_MEMORY, "a stream's lock");
    }
    st_status_t status = fill_stream(stream);
    if (status != ST_OK) {
        cuda_close(stream);
        return status;
    }
    *out_stream = stream;
    return ST_OK;
}

/* ---- what the start takes ---- */

double dev_cuda_seconds(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

void dev_cuda_spent(dev_stream_t *stream, double *field, double begin) {
    pthread_mutex_lock(&stream->mutex);
    *field += dev_cuda_seconds() - begin;
    pthread_mutex_unlock(&stream->mutex);
}

static void cuda_startup(dev_stream_t *stream, dev_startup_t *out) {
    pthread_mutex_lock(&stream->mutex);
    *out = stream->startup;
    pthread_mutex_unlock(&stream->mutex);
}

/* ---- memory ---- */

static st_status_t cuda_memory(dev_stream_t *stream, size_t *out_free, size_t *out_total) {
    CUDA_TRY(cudaSetDevice(stream->index));
    CUDA_TRY(cudaMemGetInfo(out_free, out_total));
    return ST_OK;
}

static st_status_t cuda_alloc(dev_stream_t *stream, size_t n_bytes, void **out_memory) {
    *out_memory = NULL;
    if (n_bytes == 0) return ST_OK;
    size_t unused = 0, total = 0;
    TRY(cuda_memory(stream, &unused, &total));
    cudaError_t error = cudaMalloc(out_memory, n_bytes);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        char text[3][ST_NUMBER_BYTES];
        return FAIL(ST_DOES_NOT_FIT, "GPU %d (%s) has %s free of %s, %s are needed at once",
                    stream->index, stream->properties.name, st_size_text(unused, text[0]),
                    st_size_text(total, text[1]), st_size_text(n_bytes, text[2]));
    }
    if (error != cudaSuccess) return dev_cuda_fail(error, "cudaMalloc");
    error = cudaMemsetAsync(*out_memory, 0, n_bytes, stream->stream);
    if (error == cudaSuccess) return ST_OK;
    cudaFree(*out_memory);
    *out_memory = NULL;
    return dev_cuda_fail(error, "cudaMemsetAsync");
}

static void cuda_free(dev_stream_t *stream, void *memory) {
    (void)stream;
    if (memory) cudaFree(memory);
}

static st_status_t cuda_host_alloc(dev_stream_t *stream, size_t n_bytes, void **out_memory) {
    (void)stream;
    *out_memory = NULL;
    if (n_bytes) CUDA_TRY(cudaHostAlloc(out_memory, n_bytes, cudaHostAllocDefault));
    return ST_OK;
}

static void cuda_host_free(dev_stream_t *stream, void *memory) {
    (void)stream;
    if (memory) cudaFreeHost(memory);
}

static st_status_t cuda_copy(dev_stream_t *stream, void *to, const void *from, size_t n_bytes) {
    if (n_bytes) CUDA_TRY(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDefault, stream->stream));
    return ST_OK;
}

static st_status_t cuda_draw(dev_stream_t *stream, void *memory, const struct st_draw *draw) {
    CUDA_TRY(cudaSetDevice(stream->index));
    CUDA_TRY(dev_cuda_launch_draw(draw, memory, stream->stream));
    return ST_OK;
}

static bool cuda_take_fault(dev_stream_t *stream, dev_fault_t *out_fault) {
    if (!stream->fault->set) return false;
    *out_fault = stream->fault->fault;
    memset(stream->fault, 0, sizeof *stream->fault);
    return true;
}

static dev_team_t *cuda_team(dev_stream_t *stream) {
    (void)stream;
    return NULL;
}

/* ---- graphs ---- */

static void cuda_graph_destroy(dev_graph_t *graph) {
    if (!graph) return;
    if (graph->exec) cudaGraphExecDestroy(graph->exec);
    if (graph->graph) cudaGraphDestroy(graph->graph);
    st_free(graph);
}

static st_status_t record(dev_stream_t *stream, st_status_t (*body)(void *context), void *context,
                          dev_graph_t *graph) {
    CUDA_TRY(cudaStreamBeginCapture(stream->stream, cudaStreamCaptureModeThreadLocal));
    st_status_t status = body(context);
    cudaError_t error = cudaStreamEndCapture(stream->stream, &graph->graph);
    if (status != ST_OK) return status;
    if (error != cudaSuccess) return dev_cuda_fail(error, "cudaStreamEndCapture");
    CUDA_TRY(cudaGraphInstantiate(&graph->exec, graph->graph, 0));
    CUDA_TRY(cudaGraphUpload(graph->exec, stream->stream));
    return ST_OK;
}

static st_status_t cuda_capture(dev_stream_t *stream, st_status_t (*body)(void *context),
                                void *context, dev_graph_t **out_graph) {
    *out_graph = NULL;
    dev_graph_t *graph = st_calloc(1, sizeof *graph);
    if (!graph) return st_no_memory(sizeof *graph, "a graph of a step");
    st_status_t status = record(stream, body, context, graph);
    if (status != ST_OK) {
        cuda_graph_destroy(graph);
        return status;
    }
    *out_graph = graph;
    return ST_OK;
}

static st_status_t cuda_replay(dev_stream_t *stream, dev_graph_t *graph) {
    CUDA_TRY(cudaGraphLaunch(graph->exec, stream->stream));
    return ST_OK;
}

/* ---- marks ---- */

static st_status_t cuda_mark_reserve(dev_stream_t *stream, uint32_t n) {
    if (n <= stream->n_marks) return ST_OK;
    cudaEvent_t *marks = st_realloc(stream->marks, n * sizeof *marks);
    if (!marks) return st_no_memory(n * sizeof *marks, "marks");
    stream->marks = marks;
    for (; stream->n_marks < n; stream->n_marks++)
        CUDA_TRY(cudaEventCreateWithFlags(&marks[stream->n_marks], cudaEventDefault));
    return ST_OK;
}

/* While a graph is recorded the mark becomes a node of it, which records the event each time. */
static st_status_t cuda_mark(dev_stream_t *stream, uint32_t index) {
    enum cudaStreamCaptureStatus status;
    CUDA_TRY(cudaStreamIsCapturing(stream->stream, &status));
    unsigned flags =
        status == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal;
    CUDA_TRY(cudaEventRecordWithFlags(stream->marks[index], stream->stream, flags));
    return ST_OK;
}

static st_status_t cuda_mark_read(dev_stream_t *stream, uint32_t n, double *out_us) {
    for (uint32_t i = 0; i < n; i++) {
        float ms = 0;
        if (i) CUDA_TRY(cudaEventElapsedTime(&ms, stream->marks[0], stream->marks[i]));
        out_us[i] = ms * 1e3;
    }
    return ST_OK;
}

/* ---- among others ---- */

static st_status_t cuda_count(int *out_n) {
    *out_n = 0;
    TRY(check_machine(0));
    CUDA_TRY(cudaGetDeviceCount(out_n));
    return ST_OK;
}

static st_status_t cuda_identity(dev_stream_t *stream, char *text, size_t capacity) {
    const unsigned char *id = (const unsigned char *)stream->properties.uuid.bytes;
    size_t used = (size_t)snprintf(text, capacity, "a GPU (%s, ", stream->properties.name);
    for (size_t i = 0; i < sizeof stream->properties.uuid.bytes && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%02x", id[i]);
    if (used < capacity) snprintf(text + used, capacity - used, ")");
    return ST_OK;
}

const dev_device_t dev_cuda = {
    .name = "cuda",
    .computes = true,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .copy_in = dev_cuda_copy_in,
    .copy_out = dev_cuda_copy_out,
    .copy = cuda_copy,
    .draw = cuda_draw,
    .synchronize = dev_cuda_synchronize,
    .aside_begin = dev_cuda_aside_begin,
    .aside_copy = dev_cuda_aside_copy,
    .aside_join = dev_cuda_aside_join,
    .team = cuda_team,
    .capture = cuda_capture,
    .replay = cuda_replay,
    .graph_destroy = cuda_graph_destroy,
    .repeat = dev_cuda_repeat,
    .choose = dev_cuda_choose,
    .copy_turn = dev_cuda_copy_turn,
    .take_fault = cuda_take_fault,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .mark_reserve = cuda_mark_reserve,
    .mark = cuda_mark,
    .mark_read = cuda_mark_read,
    .memory = cuda_memory,
    .startup = cuda_startup,
    .count = cuda_count,
    .identity = cuda_identity,
    .collectives = dev_cuda_collectives,
    .choices_give = dev_cuda_choices_give,
    .choices_take = dev_cuda_choices_take,
};
