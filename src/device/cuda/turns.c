/* Control flow on a CUDA stream.
 *
 *   launch by launch   the host counts a loop's turns, and waits for a condition before it chooses
 *   being recorded     a loop and a choice are conditional nodes; the bodies are recorded once each
 *
 * A conditional node's body is a graph of its own. It is recorded on the same stream: the graph so
 * far is put aside, with the nodes that the stream stands behind, and taken up again behind the
 * node. So everything that holds the stream goes on working, and loops may nest. */
#include <string.h>

#include "base/memory.h"
#include "device/cuda/cuda.h"
#include "device/cuda/turns.h"

/* A recording that is put aside. */
typedef struct aside {
    cudaGraph_t graph;
    cudaGraphNode_t *behind; /* [n] */
    size_t n;
} aside_t;

static st_status_t is_recorded(dev_stream_t *stream, bool *out_recorded) {
    enum cudaStreamCaptureStatus status;
    CUDA_TRY(cudaStreamIsCapturing(stream->stream, &status));
    *out_recorded = status == cudaStreamCaptureStatusActive;
    return ST_OK;
}

static st_status_t recording(dev_stream_t *stream, cudaGraph_t *out_graph,
                             const cudaGraphNode_t **out_behind, size_t *out_n) {
    enum cudaStreamCaptureStatus status;
    CUDA_TRY(cudaStreamGetCaptureInfo(stream->stream, &status, NULL, out_graph, out_behind, NULL,
                                      out_n));
    return ST_OK;
}

static st_status_t put_aside(dev_stream_t *stream, aside_t *out) {
    const cudaGraphNode_t *behind;
    TRY(recording(stream, &out->graph, &behind, &out->n));
    out->behind = st_calloc(out->n + 1, sizeof *out->behind);
    if (!out->behind) return st_no_memory(out->n * sizeof *out->behind, "a graph of a step");
    if (out->n) memcpy(out->behind, behind, out->n * sizeof *out->behind);
    cudaError_t error = cudaStreamEndCapture(stream->stream, &out->graph);
    if (error == cudaSuccess) return ST_OK;
    st_free(out->behind);
    return dev_cuda_fail(error, "cudaStreamEndCapture");
}

static st_status_t take_up(dev_stream_t *stream, const aside_t *aside) {
    CUDA_TRY(cudaStreamBeginCaptureToGraph(stream->stream, aside->graph, aside->behind, NULL,
                                           aside->n, cudaStreamCaptureModeThreadLocal));
    return ST_OK;
}

/* Records `body` into an empty graph. */
static st_status_t record_body(dev_stream_t *stream, cudaGraph_t graph, dev_branch_t body,
                               void *context, int which) {
    CUDA_TRY(cudaStreamBeginCaptureToGraph(stream->stream, graph, NULL, NULL, 0,
                                           cudaStreamCaptureModeThreadLocal));
    st_status_t status = body(context, which);
    cudaError_t error = cudaStreamEndCapture(stream->stream, &graph);
    return status != ST_OK || error == cudaSuccess ? status
                                                   : dev_cuda_fail(error, "cudaStreamEndCapture");
}

static st_status_t make_handle(dev_stream_t *stream, cudaGraphConditionalHandle *out) {
    cudaGraph_t graph;
    const cudaGraphNode_t *behind;
    size_t n;
    TRY(recording(stream, &graph, &behind, &n));
    CUDA_TRY(
        cudaGraphConditionalHandleCreate(out, graph, 0, 0)); /* a kernel before the node sets it */
    return ST_OK;
}

/* A conditional node behind what is recorded, with its bodies. Whatever fails, the stream goes on
 * recording the same graph, which who began it ends and destroys. */
static st_status_t add_node(dev_stream_t *stream, cudaGraphConditionalHandle handle,
                            enum cudaGraphConditionalNodeType type, int n_bodies, dev_branch_t body,
                            void *context) {
    aside_t aside = {0};
    cudaGraphNode_t node;
    struct cudaGraphNodeParams params = {.type = cudaGraphNodeTypeConditional};
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = (unsigned)n_bodies;
    TRY(put_aside(stream, &aside));
    st_status_t status = ST_OK;
    cudaError_t error = cudaGraphAddNode(&node, aside.graph, aside.behind, NULL, aside.n, &params);
    if (error == cudaSuccess) {
        aside.behind[0] = node; /* there is room for one */
        aside.n = 1;
    } else {
        status = dev_cuda_fail(error, "cudaGraphAddNode");
    }
    for (int i = 0; i < n_bodies && status == ST_OK; i++)
        status = record_body(stream, params.conditional.phGraph_out[i], body, context, i);
    st_status_t taken = take_up(stream, &aside);
    st_free(aside.behind);
    return status == ST_OK ? taken : status;
}

/* ---- loops ---- */

typedef struct loop {
    dev_stream_t *stream;
    const dev_turns_t *turns;
    cudaGraphConditionalHandle handle; /* 0: launch by launch */
    dev_branch_t body;
    void *context;
} loop_t;

static st_status_t run_turn(void *context, int which) {
    const loop_t *loop = context;
    const dev_turns_t *turns = loop->turns;
    TRY(loop->body(loop->context, which));
    CUDA_TRY(turns_next(turns->index, turns->reverse ? -1 : 1, turns->n, loop->handle,
                        loop->stream->stream));
    return ST_OK;
}

st_status_t dev_cuda_repeat(dev_stream_t *stream, const dev_turns_t *turns, dev_branch_t body,
                            void *context) {
    loop_t loop = {stream, turns, 0, body, context};
    bool recorded = false;
    if (turns->n <= 0) return ST_OK;
    TRY(is_recorded(stream, &recorded));
    if (recorded) TRY(make_handle(stream, &loop.handle));
    CUDA_TRY(
        turns_begin(turns->index, turns->reverse ? turns->n - 1 : 0, loop.handle, stream->stream));
    if (recorded) return add_node(stream, loop.handle, cudaGraphCondTypeWhile, 1, run_turn, &loop);
    for (int64_t i = 0; i < turns->n; i++) TRY(run_turn(&loop, 0));
    return ST_OK;
}

st_status_t dev_cuda_choose(dev_stream_t *stream, const unsigned char *condition,
                            dev_branch_t bodies, void *context) {
    cudaGraphConditionalHandle handle;
    unsigned char chosen;
    bool recorded = false;
    TRY(is_recorded(stream, &recorded));
    if (recorded) {
        TRY(make_handle(stream, &handle));
        CUDA_TRY(turns_choose(condition, handle, stream->stream));
        return add_node(stream, handle, cudaGraphCondTypeIf, 2, bodies, context);
    }
    CUDA_TRY(cudaMemcpyAsync(&chosen, condition, 1, cudaMemcpyDeviceToHost, stream->stream));
    CUDA_TRY(cudaStreamSynchronize(stream->stream));
    return bodies(context, chosen ? 0 : 1);
}

st_status_t dev_cuda_copy_turn(dev_stream_t *stream, void *to, size_t to_stride, const void *from,
                               size_t from_stride, size_t n_bytes, const int64_t *index) {
    CUDA_TRY(turns_copy(to, to_stride, from, from_stride, n_bytes, index, stream->stream));
    return ST_OK;
}
