/* Collectives as calls of NCCL.
 *
 * The library gathers and scatters dense parts of equal size. Two things are made of that:
 *
 *   parts of different sizes   one broadcast, or one reduce, a rank, in one group
 *   blocks of an outer dim     the whole lies in the stage rank after rank; strided copies bring
 *                              each rank's pieces there before the call, or from there after it
 *
 *     out    | block 0: r0 r1 r2 | block 1: r0 r1 r2 |
 *     stage  | r0: block 0, block 1 | r1: … | r2: … |
 *
 * All segments of a collective are one group, which the library launches as one kernel where it
 * can. */
#include "comm/nccl/internal.h"
#include "comm/nccl/lanes.h"

typedef struct cut {
    int64_t outer, block; /* elements of a block */
    const int64_t *parts;
    size_t element;
    int size;
} cut_t;

static cut_t cut_of(const comm_t *comm, const comm_request_t *request, const int64_t *numbers) {
    cut_t cut = {.outer = numbers[0],
                 .parts = numbers + 1,
                 .element = ir_dtype_bytes(request->dtype),
                 .size = comm->size};
    for (int r = 0; r < comm->size; r++) cut.block += cut.parts[r];
    return cut;
}

static bool is_even(const cut_t *cut) {
    for (int r = 1; r < cut->size; r++)
        if (cut->parts[r] != cut->parts[0]) return false;
    return true;
}

/* Between blocks and stage. */
static st_status_t copy_pieces(const cut_t *cut, char *blocks, char *stage, bool to_stage,
                               cudaStream_t stream) {
    const size_t pitch = (size_t)cut->block * cut->element;
    for (int r = 0; r < cut->size; r++) {
        const size_t width = (size_t)cut->parts[r] * cut->element, rows = (size_t)cut->outer;
        CUDA_TRY(to_stage ? lanes_copy(stage, width, blocks, pitch, width, rows, stream)
                          : lanes_copy(blocks, pitch, stage, width, width, rows, stream));
        blocks += width;
        stage += width * (size_t)cut->outer;
    }
    return ST_OK;
}

static st_status_t need_stage(const void *stage) {
    return stage ? ST_OK : FAIL(ST_INTERNAL, "a collective whose parts lie apart has no stage");
}

static ncclDataType_t type_of(ir_dtype_t dtype, bool *out_known) {
    static const struct {
        ir_dtype_t dtype;
        ncclDataType_t type;
    } types[] = {{IR_F32, ncclFloat32},   {IR_F64, ncclFloat64}, {IR_F16, ncclFloat16},
                 {IR_BF16, ncclBfloat16}, {IR_I32, ncclInt32},   {IR_I64, ncclInt64}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].dtype != dtype) continue;
        *out_known = true;
        return types[i].type;
    }
    *out_known = false;
    return ncclUint8;
}

/* ---- inside a group ---- */

static st_status_t gather(nccl_comm_t *comm, const cut_t *cut, const void *in, char *out) {
    const nccl_rank_t *rank = comm->rank;
    cudaStream_t stream = rank->lanes[0].stream;
    if (is_even(cut)) {
        const size_t bytes = (size_t)(cut->parts[0] * cut->outer) * cut->element;
        if (bytes) NCCL_TRY(rank, ncclAllGather(in, out, bytes, ncclUint8, comm->comm, stream));
        return ST_OK;
    }
    for (int r = 0; r < cut->size; r++) {
        const size_t bytes = (size_t)(cut->parts[r] * cut->outer) * cut->element;
        if (bytes) NCCL_TRY(rank, ncclBroadcast(in, out, bytes, ncclUint8, r, comm->comm, stream));
        out += bytes;
    }
    return ST_OK;
}

static st_status_t scatter(nccl_comm_t *comm, const cut_t *cut, ncclDataType_t type, const char *in,
                           void *out) {
    const nccl_rank_t *rank = comm->rank;
    cudaStream_t stream = rank->lanes[0].stream;
    if (is_even(cut)) {
        const size_t n = (size_t)(cut->parts[0] * cut->outer);
        if (n) NCCL_TRY(rank, ncclReduceScatter(in, out, n, type, ncclSum, comm->comm, stream));
        return ST_OK;
    }
    for (int r = 0; r < cut->size; r++) {
        const size_t n = (size_t)(cut->parts[r] * cut->outer);
        if (n) NCCL_TRY(rank, ncclReduce(in, out, n, type, ncclSum, r, comm->comm, stream));
        in += n * cut->element;
    }
    return ST_OK;
}

static st_status_t exchange(nccl_comm_t *comm, const cut_t *from, const char *in, const cut_t *to,
                            char *out) {
    const nccl_rank_t *rank = comm->rank;
    cudaStream_t stream = rank->lanes[0].stream;
    for (int r = 0; r < from->size; r++) {
        const size_t sent = (size_t)(from->parts[r] * from->outer) * from->element;
        const size_t got = (size_t)(to->parts[r] * to->outer) * to->element;
        if (sent) NCCL_TRY(rank, ncclSend(in, sent, ncclUint8, r, comm->comm, stream));
        if (got) NCCL_TRY(rank, ncclRecv(out, got, ncclUint8, r, comm->comm, stream));
        in += sent;
        out += got;
    }
    return ST_OK;
}

/* ---- collectives ---- */

static st_status_t grouped(nccl_comm_t *comm, const comm_request_t *q, ncclDataType_t type) {
    const nccl_rank_t *rank = comm->rank;
    cudaStream_t stream = rank->lanes[0].stream;
    const size_t width = 1 + (size_t)comm->base.size, element = ir_dtype_bytes(q->dtype);
    for (uint32_t s = 0; s < q->n_segments; s++) {
        if (q->kind == COMM_ALL_REDUCE && q->numbers[s])
            NCCL_TRY(rank, ncclAllReduce(q->data[s], q->data[s], (size_t)q->numbers[s], type,
                                         ncclSum, comm->comm, stream));
        if (q->kind == COMM_BROADCAST && q->numbers[1 + s])
            NCCL_TRY(rank,
                     ncclBroadcast(q->data[s], q->data[s], (size_t)q->numbers[1 + s] * element,
                                   ncclUint8, (int)q->numbers[0], comm->comm, stream));
        if (q->kind != COMM_ALL_GATHER && q->kind != COMM_REDUCE_SCATTER) continue;
        const cut_t cut = cut_of(&comm->base, q, q->numbers + s * width);
        void *in = q->data[2 * s], *out = q->data[2 * s + 1],
             *stage = q->data[2 * q->n_segments + s];
        const bool apart = cut.outer != 1;
        TRY(q->kind == COMM_ALL_GATHER ? gather(comm, &cut, in, apart ? stage : out)
                                       : scatter(comm, &cut, type, apart ? stage : in, out));
    }
    return ST_OK;
}

static st_status_t call_group(nccl_comm_t *comm, const comm_request_t *q, ncclDataType_t type) {
    const nccl_rank_t *rank = comm->rank;
    NCCL_TRY(rank, ncclGroupStart());
    st_status_t status = grouped(comm, q, type);
    ncclResult_t error = rank->nccl->ncclGroupEnd();
    TRY(status);
    return error == ncclSuccess ? ST_OK : nccl_fail(rank, error, "ncclGroupEnd(");
}

/* Pieces of every segment whose blocks lie apart. */
static st_status_t stage_segments(nccl_comm_t *comm, const comm_request_t *q, bool to_stage) {
    const size_t width = 1 + (size_t)comm->base.size;
    for (uint32_t s = 0; s < q->n_segments; s++) {
        const cut_t cut = cut_of(&comm->base, q, q->numbers + s * width);
        char *stage = q->data[2 * q->n_segments + s];
        if (cut.outer == 1 || cut.outer * cut.block == 0) continue;
        TRY(need_stage(stage));
        TRY(copy_pieces(&cut, q->data[2 * s + (to_stage ? 0 : 1)], stage, to_stage,
                        comm->rank->lanes[0].stream));
    }
    return ST_OK;
}

static st_status_t move_all_to_all(nccl_comm_t *comm, const comm_request_t *q) {
    const nccl_rank_t *rank = comm->rank;
    cudaStream_t stream = rank->lanes[0].stream;
    const cut_t from = cut_of(&comm->base, q, q->numbers);
    const cut_t to = cut_of(&comm->base, q, q->numbers + 1 + comm->base.size);
    char *in = q->data[0], *out = q->data[1];
    if (from.outer * from.block + to.outer * to.block == 0) return ST_OK;
    if (from.outer != 1) {
        TRY(need_stage(q->data[2]));
        TRY(copy_pieces(&from, in, q->data[2], true, stream));
        in = q->data[2];
    }
    if (to.outer != 1) {
        TRY(need_stage(q->data[3]));
        out = q->data[3];
    }
    NCCL_TRY(rank, ncclGroupStart());
    st_status_t status = exchange(comm, &from, in, &to, out);
    ncclResult_t error = rank->nccl->ncclGroupEnd();
    TRY(status);
    if (error != ncclSuccess) return nccl_fail(rank, error, "ncclGroupEnd(");
    return to.outer == 1 ? ST_OK : copy_pieces(&to, q->data[1], out, false, stream);
}

static st_status_t move_pair(nccl_comm_t *comm, const comm_request_t *q) {
    const nccl_rank_t *rank = comm->rank;
    const bool sends = q->kind == COMM_SEND;
    const int peer = (int)q->numbers[0], there = peer > comm->base.rank;
    const nccl_pair_t *pair = &comm->pairs[sends ? peer : comm->base.size + peer];
    const size_t bytes = (size_t)q->numbers[1] * ir_dtype_bytes(q->dtype);
    cudaStream_t stream = pair->lane->stream;
    if (bytes && sends)
        NCCL_TRY(rank, ncclSend(q->data[0], bytes, ncclUint8, there, pair->comm, stream));
    if (bytes && !sends)
        NCCL_TRY(rank, ncclRecv(q->data[0], bytes, ncclUint8, there, pair->comm, stream));
    return ST_OK;
}

/* A group of one: what is gathered, scattered or exchanged goes to its own place. */
static st_status_t move_alone(nccl_comm_t *comm, const comm_request_t *q) {
    cudaStream_t stream = comm->rank->lanes[0].stream;
    const bool cuts = q->kind == COMM_ALL_GATHER || q->kind == COMM_REDUCE_SCATTER;
    if (!cuts && q->kind != COMM_ALL_TO_ALL) return ST_OK;
    for (uint32_t s = 0; s < q->n_segments; s++) {
        const cut_t cut = cut_of(&comm->base, q, q->numbers + 2 * s);
        const size_t bytes = (size_t)(cut.outer * cut.block) * cut.element;
        if (bytes && q->data[2 * s] != q->data[2 * s + 1])
            CUDA_TRY(cudaMemcpyAsync(q->data[2 * s + 1], q->data[2 * s], bytes,
                                     cudaMemcpyDeviceToDevice, stream));
    }
    return ST_OK;
}

st_status_t nccl_move(nccl_comm_t *comm, const comm_request_t *request) {
    bool known;
    const ncclDataType_t type = type_of(request->dtype, &known);
    if (!known && (request->kind == COMM_ALL_REDUCE || request->kind == COMM_REDUCE_SCATTER))
        return FAIL(ST_UNSUPPORTED, "NCCL sums no %s", ir_dtype_text(request->dtype));
    if (comm->base.size == 1) return move_alone(comm, request);
    switch (request->kind) {
        case COMM_SEND:
        case COMM_RECEIVE:
            return move_pair(comm, request);
        case COMM_ALL_TO_ALL:
            return move_all_to_all(comm, request);
        case COMM_REDUCE_SCATTER:
            TRY(stage_segments(comm, request, true));
            return call_group(comm, request, type);
        case COMM_ALL_GATHER:
            TRY(call_group(comm, request, type));
            return stage_segments(comm, request, false);
        case COMM_ALL_REDUCE:
        case COMM_BROADCAST:
            return call_group(comm, request, type);
        case COMM_NONE:
        case COMM_KIND_END:
            break;
    }
    return FAIL(ST_INTERNAL, "a collective of kind %d", (int)request->kind);
}
