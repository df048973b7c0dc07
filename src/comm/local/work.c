/* Chunks of collectives: whoever takes one does it for all ranks it concerns. */
#include "comm/cut.h"
#include "comm/local/internal.h"
#include "comm/sum.h"

int64_t local_chunk_count(const local_slot_t *slot, int size) {
    if (slot->kind == COMM_ALL_REDUCE) /* the sum over one rank is there already */
        return size > 1 ? (slot->total + LOCAL_CHUNK_ELEMENTS - 1) / LOCAL_CHUNK_ELEMENTS : 0;
    if (slot->kind == COMM_BROADCAST && size == 1) return 0;
    return slot->n_segments ? size : 0; /* a chunk a rank that receives */
}

/* A range of elements of all segments laid end to end. */
static void all_reduce(local_t *local, const local_slot_t *slot, int64_t chunk) {
    int64_t begin = chunk * LOCAL_CHUNK_ELEMENTS, end = begin + LOCAL_CHUNK_ELEMENTS, first = 0;
    int size = local->base.size;
    if (end > slot->total) end = slot->total;
    for (uint32_t s = 0; s < slot->n_segments && first < end; first += slot->numbers[s++]) {
        int64_t from = begin > first ? begin - first : 0;
        int64_t to = end - first < slot->numbers[s] ? end - first : slot->numbers[s];
        if (from >= to) continue;
        for (int r = 0; r < size; r++) local->buffers[r] = slot->parts[r].data[s];
        comm_sum(slot->dtype, size, (const void *const *)local->buffers, from, size, local->buffers,
                 from, to - from);
    }
}

static void reduce_scatter(local_t *local, const local_slot_t *slot, int to, uint32_t s) {
    int size = local->base.size;
    const int64_t *numbers = slot->numbers + (size_t)s * (1 + (size_t)size);
    int64_t part = numbers[1 + to], pitch = 0, offset = 0;
    for (int r = 0; r < size; r++) {
        local->buffers[r] = slot->parts[r].data[2 * s];
        pitch += numbers[1 + r];
        if (r < to) offset += numbers[1 + r];
    }
    for (int64_t o = 0; part && o < numbers[0]; o++)
        comm_sum(slot->dtype, size, (const void *const *)local->buffers, o * pitch + offset, 1,
                 &slot->parts[to].data[2 * s + 1], o * part, part);
}

static void all_gather(const local_t *local, const local_slot_t *slot, int to, uint32_t s) {
    int size = local->base.size;
    size_t bytes = ir_dtype_bytes(slot->dtype);
    const int64_t *numbers = slot->numbers + (size_t)s * (1 + (size_t)size);
    for (int r = 0; r < size; r++) {
        comm_cut_t in = comm_cut_dense(numbers, r, bytes);
        comm_cut_t out = comm_cut_part(numbers, size, r, bytes);
        comm_cut_copy(slot->parts[r].data[2 * s], &in, slot->parts[to].data[2 * s + 1], &out);
    }
}

static void all_to_all(const local_t *local, const local_slot_t *slot, int to) {
    int size = local->base.size;
    size_t bytes = ir_dtype_bytes(slot->dtype);
    for (int r = 0; r < size; r++) {
        comm_cut_t in = comm_cut_part(slot->parts[r].numbers, size, to, bytes);
        comm_cut_t out = comm_cut_part(slot->parts[to].numbers + 1 + size, size, r, bytes);
        comm_cut_copy(slot->parts[r].data[0], &in, slot->parts[to].data[1], &out);
    }
}

static void broadcast(const local_slot_t *slot, int to, uint32_t s) {
    int root = (int)slot->numbers[0];
    comm_cut_t all = {1, (size_t)slot->numbers[1 + s] * ir_dtype_bytes(slot->dtype), 0, 0};
    if (to != root) comm_cut_copy(slot->parts[root].data[s], &all, slot->parts[to].data[s], &all);
}

void local_chunk(local_t *local, const local_slot_t *slot, int64_t chunk) {
    int to = (int)chunk;
    if (slot->kind == COMM_ALL_REDUCE) {
        all_reduce(local, slot, chunk);
        return;
    }
    for (uint32_t s = 0; s < slot->n_segments; s++) {
        if (slot->kind == COMM_REDUCE_SCATTER) reduce_scatter(local, slot, to, s);
        if (slot->kind == COMM_ALL_GATHER) all_gather(local, slot, to, s);
        if (slot->kind == COMM_ALL_TO_ALL) all_to_all(local, slot, to);
        if (slot->kind == COMM_BROADCAST) broadcast(slot, to, s);
    }
}
