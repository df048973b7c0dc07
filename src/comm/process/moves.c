/* Collectives as messages between two ranks each.
 *
 *   all-reduce       every rank sums one range of all elements: it gets that range of each other
 *                    rank, adds them in rank order, and sends the sum to all (two phases). Up to
 *                    SMALL_BYTES everybody sends all to all and sums by itself.
 *   reduce-scatter   the first of these phases, the ranges being the parts
 *   all-gather, all-to-all, broadcast, send, receive   one message a pair of ranks
 *
 * Each rank sends and takes 2 (n − 1)/n of the bytes in an all-reduce, as a ring does, in two hops
 * instead of 2 (n − 1); the price is that all sums of a range need their n parts at once. A message
 * that is several pieces of the user's memory goes through a buffer of the pool. */
#include <string.h>

#include "base/memory.h"
#include "comm/cut.h"
#include "comm/process/internal.h"
#include "comm/sum.h"

enum { SMALL_BYTES = 4096 };

/* ---- pieces of memory that make up a message ---- */

typedef struct pieces {
    char *begin; /* of the first piece */
    size_t total;
    bool whole;    /* one piece so far */
    char *staging; /* copy to or from here; NULL: only measure */
    bool pack;
} pieces_t;

static void piece(pieces_t *p, char *memory, size_t bytes) {
    if (!bytes) return;
    if (p->staging && p->pack) memcpy(p->staging + p->total, memory, bytes);
    if (p->staging && !p->pack) memcpy(memory, p->staging + p->total, bytes);
    if (!p->total)
        p->begin = memory;
    else if (memory != p->begin + p->total)
        p->whole = false;
    p->total += bytes;
}

static void cut_pieces(pieces_t *p, void *memory, comm_cut_t cut) {
    if (cut.bytes == cut.pitch || cut.outer == 1) {
        if (cut.outer) piece(p, (char *)memory + cut.offset, cut.outer * cut.bytes);
        return;
    }
    for (size_t o = 0; o < cut.outer; o++)
        piece(p, (char *)memory + cut.offset + o * cut.pitch, cut.bytes);
}

/* Elements begin … end of all segments laid end to end. */
static void range_pieces(pieces_t *p, const process_op_t *op, int64_t begin, int64_t end) {
    const comm_request_t *q = &op->request;
    size_t bytes = ir_dtype_bytes(q->dtype);
    int64_t first = 0;
    for (uint32_t s = 0; s < q->n_segments && first < end; first += q->numbers[s++]) {
        int64_t from = begin > first ? begin - first : 0;
        int64_t to = end - first < q->numbers[s] ? end - first : q->numbers[s];
        if (from < to)
            piece(p, (char *)q->data[s] + (size_t)from * bytes, (size_t)(to - from) * bytes);
    }
}

/* What goes to a member, or comes from it, in a phase. */
static void visit(pieces_t *p, const process_op_t *op, int member, bool send, uint8_t phase) {
    const comm_request_t *q = &op->request;
    int size = op->comm->base.size, own = op->comm->base.rank;
    size_t bytes = ir_dtype_bytes(q->dtype);
    uint32_t width = 1 + (uint32_t)size;
    switch (q->kind) {
        case COMM_ALL_REDUCE:
            if (!op->bounds) {
                range_pieces(p, op, 0, INT64_MAX);
            } else {
                int r = (phase == 0) == send ? member : own;
                range_pieces(p, op, op->bounds[r], op->bounds[r + 1]);
            }
            break;
        case COMM_REDUCE_SCATTER: /* received: never unpacked, summed */
            for (uint32_t s = 0; s < q->n_segments; s++)
                cut_pieces(p, q->data[2 * s],
                           comm_cut_part(q->numbers + (size_t)s * width, size, send ? member : own,
                                         bytes));
            break;
        case COMM_ALL_GATHER:
            for (uint32_t s = 0; s < q->n_segments; s++) {
                const int64_t *numbers = q->numbers + (size_t)s * width;
                cut_pieces(p, q->data[2 * s + (send ? 0 : 1)],
                           send ? comm_cut_dense(numbers, own, bytes)
                                : comm_cut_part(numbers, size, member, bytes));
            }
            break;
        case COMM_ALL_TO_ALL:
            cut_pieces(p, q->data[send ? 0 : 1],
                       comm_cut_part(q->numbers + (send ? 0 : width), size, member, bytes));
            break;
        case COMM_BROADCAST:
            for (uint32_t s = 0; s < q->n_segments; s++)
                piece(p, q->data[s], (size_t)q->numbers[1 + s] * bytes);
            break;
        case COMM_SEND:
        case COMM_RECEIVE:
            piece(p, q->data[0], (size_t)q->numbers[1] * bytes);
            break;
        case COMM_NONE:
        case COMM_KIND_END:
            break;
    }
}

/* ---- the pool ---- */

static st_status_t take_buffer(process_op_t *op, size_t bytes, void **out) {
    process_t *process = op->process;
    process_buffer_t *best = NULL, *largest = NULL;
    for (size_t i = 0; i < process->buffers.n; i++) {
        process_buffer_t *b = &process->buffers.data[i];
        if (b->used) continue;
        if (b->bytes >= bytes && (!best || b->bytes < best->bytes)) best = b;
        if (!largest || b->bytes > largest->bytes) largest = b;
    }
    TRY(ST_VEC_RESERVE(&op->staging, op->staging.n + 1));
    if (!best && largest) {
        void *grown = st_realloc(largest->data, bytes);
        if (!grown) return st_no_memory(bytes, "a collective's messages");
        *largest = (process_buffer_t){grown, bytes, false};
        best = largest;
    }
    if (!best) {
        process_buffer_t made = {st_malloc(bytes), bytes, false};
        if (!made.data) return st_no_memory(bytes, "a collective's messages");
        if (ST_VEC_PUSH(&process->buffers, made) != ST_OK) {
            st_free(made.data);
            return st_no_memory(sizeof made, "a collective's messages");
        }
        best = &process->buffers.data[process->buffers.n - 1];
    }
    best->used = true;
    op->staging.data[op->staging.n++] = *out = best->data;
    return ST_OK;
}

void moves_release(process_op_t *op) {
    process_t *process = op->process;
    for (size_t s = 0; s < op->staging.n; s++)
        for (size_t i = 0; i < process->buffers.n; i++)
            if (process->buffers.data[i].data == op->staging.data[s])
                process->buffers.data[i].used = false;
    op->staging.n = 0;
    op->n_moves = 0;
}

/* ---- planning ---- */

static bool is_summed(const process_op_t *op) {
    return op->request.kind == COMM_ALL_REDUCE || op->request.kind == COMM_REDUCE_SCATTER;
}

/* `always`: through the pool even if it is one piece. */
static st_status_t add_move(process_op_t *op, int member, bool send, uint8_t phase, bool always) {
    pieces_t p = {.whole = true};
    visit(&p, op, member, send, phase);
    if (!p.total) return ST_OK;
    process_move_t *move = &op->moves[op->n_moves];
    *move = (process_move_t){.op = op,
                             .member = member,
                             .peer = op->comm->ranks[member],
                             .send = send,
                             .phase = phase,
                             .ready = phase == 0,
                             .bytes = p.total,
                             .data = p.begin,
                             .staged = always || !p.whole};
    if (move->staged) TRY(take_buffer(op, p.total, &move->data));
    if (move->staged && send && phase == 0) {
        pieces_t pack = {.whole = true, .staging = move->data, .pack = true};
        visit(&pack, op, member, send, phase);
    }
    op->n_moves++;
    op->n_left++;
    if (!send && phase == 0 && is_summed(op)) op->n_to_sum++;
    return ST_OK;
}

static st_status_t reserve_op(process_op_t *op) {
    uint32_t size = (uint32_t)op->comm->base.size, need = 4 * size;
    if (need <= op->cap_moves) return ST_OK;
    process_move_t *moves = st_realloc(op->moves, need * sizeof *moves);
    if (moves) op->moves = moves;
    bool *seen = st_realloc(op->seen, size);
    if (seen) op->seen = seen;
    int64_t *bounds = st_realloc(op->bounds_room, (size + 1) * sizeof *bounds);
    if (bounds) op->bounds_room = bounds;
    const void **ins = st_realloc((void *)op->ins, size * sizeof *ins);
    if (ins) op->ins = ins;
    if (!moves || !seen || !bounds || !ins)
        return st_no_memory(need * sizeof *moves, "a collective");
    op->cap_moves = need;
    return ST_OK;
}

/* Ranges of all elements for the ranks to sum; none for a small sum. They begin on cache lines. */
static void set_bounds(process_op_t *op) {
    enum { ALIGN = 64 };
    const comm_request_t *q = &op->request;
    int64_t total = 0, size = op->comm->base.size;
    for (uint32_t s = 0; s < q->n_segments; s++) total += q->numbers[s];
    op->bounds = NULL;
    if ((size_t)total * ir_dtype_bytes(q->dtype) <= SMALL_BYTES) return;
    op->bounds = op->bounds_room;
    int64_t part = (total / size + ALIGN) / ALIGN * ALIGN;
    for (int64_t r = 0; r <= size; r++) op->bounds[r] = r * part < total ? r * part : total;
    op->bounds[size] = total;
}

/* The own part of what goes from all to all. */
static void copy_own(const process_op_t *op) {
    const comm_request_t *q = &op->request;
    int size = op->comm->base.size, own = op->comm->base.rank;
    size_t bytes = ir_dtype_bytes(q->dtype);
    for (uint32_t s = 0; s < q->n_segments; s++) {
        const int64_t *numbers = q->numbers + (size_t)s * (1 + (size_t)size);
        comm_cut_t from = comm_cut_dense(numbers, own, bytes);
        comm_cut_t to = comm_cut_part(numbers, size, own, bytes);
        if (q->kind == COMM_ALL_TO_ALL) {
            from = to;
            to = comm_cut_part(numbers + 1 + size, size, own, bytes);
        }
        comm_cut_copy(q->data[2 * s], &from, q->data[2 * s + 1], &to);
    }
}

/* A small sum writes where its messages are read from: they go out of one copy. */
static st_status_t plan_small_sum(process_op_t *op) {
    int size = op->comm->base.size;
    for (int i = 1; i < size; i++) {
        int member = (op->comm->base.rank + i) % size;
        uint32_t before = op->n_moves;
        TRY(add_move(op, member, true, 0, before == 0));
        if (op->n_moves > before && before) { /* of the first's copy */
            op->moves[before].data = op->moves[0].data;
            op->moves[before].staged = false;
        }
    }
    for (int i = 1; i < size; i++)
        TRY(add_move(op, (op->comm->base.rank + i) % size, false, 0, true));
    return ST_OK;
}

st_status_t moves_plan(process_op_t *op) {
    comm_kind_t kind = op->request.kind;
    int size = op->comm->base.size, own = op->comm->base.rank;
    op->n_moves = op->n_left = op->n_to_sum = 0;
    op->summed = op->told = false;
    TRY(reserve_op(op));
    memset(op->seen, 0, (size_t)size);
    if (kind == COMM_SEND || kind == COMM_RECEIVE)
        return add_move(op, (int)op->request.numbers[0], kind == COMM_SEND, 0, false);
    if (kind == COMM_ALL_GATHER || kind == COMM_ALL_TO_ALL) copy_own(op);
    op->bounds = NULL;
    if (kind == COMM_ALL_REDUCE) set_bounds(op);
    if (kind == COMM_ALL_REDUCE && !op->bounds) return plan_small_sum(op);
    for (int i = 1; i < size; i++) { /* each rank begins with another one */
        int member = (own + i) % size;
        bool root = kind == COMM_BROADCAST && op->request.numbers[0] == own;
        bool from_root = kind == COMM_BROADCAST && op->request.numbers[0] == member;
        if (kind != COMM_BROADCAST || root) TRY(add_move(op, member, true, 0, false));
        if (kind != COMM_BROADCAST || from_root) TRY(add_move(op, member, false, 0, is_summed(op)));
        if (kind != COMM_ALL_REDUCE) continue;
        TRY(add_move(op, member, true, 1, false));
        TRY(add_move(op, member, false, 1, false));
    }
    return ST_OK;
}

void moves_unpack(const process_move_t *move) {
    if (!move->staged || (move->phase == 0 && is_summed(move->op))) return;
    pieces_t unpack = {.whole = true, .staging = move->data};
    visit(&unpack, move->op, move->member, false, move->phase);
}

/* ---- sums ---- */

typedef struct addition {
    process_op_t *op;
    size_t at; /* bytes of the others' messages that are summed */
} addition_t;

/* Adds the next n elements: the own ones lie at `own`, the others' in their messages. */
static void add(addition_t *a, const void **ins, const void *own, void *out, int64_t n) {
    const process_op_t *op = a->op;
    int size = op->comm->base.size;
    if (!n) return;
    ins[op->comm->base.rank] = own;
    for (uint32_t m = 0; m < op->n_moves; m++) {
        const process_move_t *move = &op->moves[m];
        if (!move->send && move->phase == 0) ins[move->member] = (char *)move->data + a->at;
    }
    comm_sum(op->request.dtype, size, ins, 0, 1, &out, 0, n);
    a->at += (size_t)n * ir_dtype_bytes(op->request.dtype);
}

static void sum_range(addition_t *a, const void **ins, int64_t begin, int64_t end) {
    const comm_request_t *q = &a->op->request;
    size_t bytes = ir_dtype_bytes(q->dtype);
    int64_t first = 0;
    for (uint32_t s = 0; s < q->n_segments && first < end; first += q->numbers[s++]) {
        int64_t from = begin > first ? begin - first : 0;
        int64_t to = end - first < q->numbers[s] ? end - first : q->numbers[s];
        char *at = (char *)q->data[s] + (size_t)from * bytes;
        if (from < to) add(a, ins, at, at, to - from);
    }
}

static void sum_parts(addition_t *a, const void **ins) {
    const comm_request_t *q = &a->op->request;
    int size = a->op->comm->base.size, own = a->op->comm->base.rank;
    size_t bytes = ir_dtype_bytes(q->dtype);
    for (uint32_t s = 0; s < q->n_segments; s++) {
        const int64_t *numbers = q->numbers + (size_t)s * (1 + (size_t)size);
        comm_cut_t cut = comm_cut_part(numbers, size, own, bytes);
        for (size_t o = 0; o < cut.outer; o++)
            add(a, ins, (char *)q->data[2 * s] + cut.offset + o * cut.pitch,
                (char *)q->data[2 * s + 1] + o * cut.bytes, numbers[1 + own]);
    }
}

void moves_sum(process_op_t *op) {
    int own = op->comm->base.rank;
    addition_t a = {.op = op};
    op->summed = true;
    if (!is_summed(op)) return;
    if (op->request.kind == COMM_REDUCE_SCATTER)
        sum_parts(&a, op->ins);
    else
        sum_range(&a, op->ins, op->bounds ? op->bounds[own] : 0,
                  op->bounds ? op->bounds[own + 1] : INT64_MAX);
    for (uint32_t m = 0; m < op->n_moves; m++) {
        process_move_t *move = &op->moves[m];
        if (!move->send || move->phase == 0) continue;
        if (move->staged) {
            pieces_t pack = {.whole = true, .staging = move->data, .pack = true};
            visit(&pack, op, move->member, true, 1);
        }
        move->ready = true;
    }
}
