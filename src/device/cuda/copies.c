/* Copies between host and device, and waiting for them.
 *
 * To the device large ones go through pinned memory, filled by several threads: the driver's own
 * way through pageable memory is one thread's copy (an image batch of 154 MB takes it longer than
 * the GPU a quarter of the step). What a later step needs goes the same way on a stream of its own:
 *
 *   stream   step n: inputs to their places | begin | kernels …            | join | step n + 1:
 *            inputs …
 *   aside                                         └ feed: host → pinned → device ┘
 *
 * From the device a step brings a handful of numbers. A copy to pageable memory would keep the
 * host's thread in the driver until the step is over, turning; so small ones land in pinned memory
 * and go on from there once the stream has been waited for, asleep. */
#include <string.h>

#include "base/parallel.h"
#include "device/cuda/cuda.h"

enum {
    STAGE_CHUNK = 4 << 20,
    STAGE_CHUNKS = 48,
    STAGE_BYTES = STAGE_CHUNK * STAGE_CHUNKS,
    STAGE_ALIGNMENT = 256,
    LANDING_BYTES = 64 << 10
};
/* A thread that sleeps is woken some 20 us late: a step that is shorter is waited for awake. */
static const double AWAKE_S = 50e-6;

/* ---- to the device ---- */

typedef struct chunks {
    const dev_cuda_stage_t *stage;
    int index;
    char *device, *pinned;
    const char *host;
    size_t n_bytes;
} chunks_t;

static st_status_t copy_chunk(void *context, size_t i) {
    const chunks_t *c = context;
    const size_t at = i * STAGE_CHUNK;
    const size_t n = c->n_bytes - at < STAGE_CHUNK ? c->n_bytes - at : STAGE_CHUNK;
    CUDA_TRY(cudaSetDevice(c->index));
    memcpy(c->pinned + at, c->host + at, n);
    CUDA_TRY(cudaMemcpyAsync(c->device + at, c->pinned + at, n, cudaMemcpyHostToDevice,
                             c->stage->stream));
    return ST_OK;
}

static st_status_t open_stage(dev_cuda_stage_t *stage) {
    if (stage->memory) return ST_OK;
    if (!stage->done) CUDA_TRY(cudaEventCreateWithFlags(&stage->done, cudaEventDisableTiming));
    CUDA_TRY(cudaHostAlloc((void **)&stage->memory, STAGE_BYTES, cudaHostAllocDefault));
    stage->used = 0;
    return ST_OK;
}

/* The pinned memory is filled from its beginning to its end, then again when all copies are
 * done. */
static st_status_t copy_staged(const dev_stream_t *stream, dev_cuda_stage_t *stage, char *device,
                               const char *host, size_t n_bytes) {
    TRY(open_stage(stage));
    for (size_t at = 0; at < n_bytes;) {
        if (stage->used >= STAGE_BYTES) {
            CUDA_TRY(cudaEventSynchronize(stage->done));
            stage->used = 0;
        }
        const size_t room = STAGE_BYTES - stage->used, left = n_bytes - at;
        chunks_t c = {stage,       stream->index,
                      device + at, stage->memory + stage->used,
                      host + at,   left < room ? left : room};
        TRY(st_parallel((c.n_bytes + STAGE_CHUNK - 1) / STAGE_CHUNK, copy_chunk, &c));
        CUDA_TRY(cudaEventRecord(stage->done, stage->stream));
        stage->used += (c.n_bytes + STAGE_ALIGNMENT - 1) / STAGE_ALIGNMENT * STAGE_ALIGNMENT;
        at += c.n_bytes;
    }
    return ST_OK;
}

st_status_t dev_cuda_copy_in(dev_stream_t *stream, void *device, const void *host, size_t n_bytes) {
    CUDA_TRY(cudaSetDevice(stream->index)); /* the caller may serve several */
    if (n_bytes >= 2 * STAGE_CHUNK)
        return copy_staged(stream, &stream->stage, device, host, n_bytes);
    if (n_bytes)
        CUDA_TRY(cudaMemcpyAsync(device, host, n_bytes, cudaMemcpyHostToDevice, stream->stream));
    return ST_OK;
}

/* What was staged aside before has been taken by the stream: the pinned memory begins anew. */
st_status_t dev_cuda_aside_begin(dev_stream_t *stream) {
    if (stream->aside.memory) stream->aside.used = STAGE_BYTES;
    CUDA_TRY(cudaEventRecord(stream->taken, stream->stream));
    CUDA_TRY(cudaStreamWaitEvent(stream->aside.stream, stream->taken, 0));
    return ST_OK;
}

st_status_t dev_cuda_aside_copy(dev_stream_t *stream, void *device, const void *host,
                                size_t n_bytes) {
    CUDA_TRY(cudaSetDevice(stream->index));
    return copy_staged(stream, &stream->aside, device, host, n_bytes);
}

st_status_t dev_cuda_aside_join(dev_stream_t *stream) {
    CUDA_TRY(cudaEventRecord(stream->joined, stream->aside.stream));
    CUDA_TRY(cudaStreamWaitEvent(stream->stream, stream->joined, 0));
    return ST_OK;
}

/* ---- from the device ---- */

st_status_t dev_cuda_copy_out(dev_stream_t *stream, void *host, const void *device,
                              size_t n_bytes) {
    const size_t at = stream->landed;
    if (!n_bytes) return ST_OK;
    if (n_bytes > LANDING_BYTES || stream->n_landings == DEV_CUDA_LANDINGS ||
        at + n_bytes > LANDING_BYTES) {
        TRY(dev_cuda_synchronize(stream)); /* asleep, which the copy itself would not do */
        if (n_bytes <= LANDING_BYTES) return dev_cuda_copy_out(stream, host, device, n_bytes);
        CUDA_TRY(cudaMemcpyAsync(host, device, n_bytes, cudaMemcpyDeviceToHost, stream->stream));
        return ST_OK;
    }
    CUDA_TRY(cudaMemcpyAsync(stream->landing + at, device, n_bytes, cudaMemcpyDeviceToHost,
                             stream->stream));
    stream->landings[stream->n_landings++] = (dev_cuda_landing_t){host, at, n_bytes};
    stream->landed = at + (n_bytes + 15) / 16 * 16;
    return ST_OK;
}

static st_status_t wait_for_stream(dev_stream_t *stream) {
    CUDA_TRY(cudaEventRecord(stream->idle, stream->stream));
    const double begin = dev_cuda_seconds();
    cudaError_t error = cudaEventQuery(stream->idle);
    while (error == cudaErrorNotReady && dev_cuda_seconds() - begin < AWAKE_S)
        error = cudaEventQuery(stream->idle);
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        error = cudaEventSynchronize(stream->idle);
    }
    return error == cudaSuccess ? ST_OK : dev_cuda_fail(error, "waiting for the stream");
}

st_status_t dev_cuda_synchronize(dev_stream_t *stream) {
    st_status_t status = wait_for_stream(stream);
    for (uint32_t i = 0; status == ST_OK && i < stream->n_landings; i++)
        memcpy(stream->landings[i].host, stream->landing + stream->landings[i].at,
               stream->landings[i].n_bytes);
    stream->n_landings = 0;
    stream->landed = 0;
    return status;
}

/* ---- life ---- */

st_status_t dev_cuda_copies_open(dev_stream_t *stream) {
    const unsigned untimed = cudaEventDisableTiming;
    stream->stage.stream = stream->stream;
    CUDA_TRY(cudaStreamCreateWithFlags(&stream->aside.stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaEventCreateWithFlags(&stream->taken, untimed));
    CUDA_TRY(cudaEventCreateWithFlags(&stream->joined, untimed));
    CUDA_TRY(cudaEventCreateWithFlags(&stream->idle, untimed | cudaEventBlockingSync));
    CUDA_TRY(cudaHostAlloc((void **)&stream->landing, LANDING_BYTES, cudaHostAllocDefault));
    return ST_OK;
}

void dev_cuda_copies_close(dev_stream_t *stream) {
    cudaEvent_t events[] = {stream->stage.done, stream->aside.done, stream->taken, stream->joined,
                            stream->idle};
    if (stream->aside.stream) cudaStreamSynchronize(stream->aside.stream);
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        if (events[i]) cudaEventDestroy(events[i]);
    if (stream->stage.memory) cudaFreeHost(stream->stage.memory);
    if (stream->aside.memory) cudaFreeHost(stream->aside.memory);
    if (stream->landing) cudaFreeHost(stream->landing);
    if (stream->aside.stream) cudaStreamDestroy(stream->aside.stream);
}
