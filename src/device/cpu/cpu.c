/* The CPU as a device: memory is the heap, a stream is a thread team, and every operation is
 * complete when its call returns. */
#include <inttypes.h>
#include <string.h>

#include "base/draw.h"
#include "base/memory.h"
#include "device/cpu/team.h"
#include "device/device.h"

enum { CPU_ALIGNMENT = 256 };

struct dev_stream {
    dev_team_t *team;
};

static st_status_t cpu_open(int index, int n_threads, dev_stream_t **out_stream) {
    *out_stream = NULL;
    if (index != 0)
        return FAIL(ST_NOT_FOUND, "there is no CPU device %d: a host has one, 0", index);
    dev_stream_t *stream = st_calloc(1, sizeof *stream);
    if (!stream) return st_no_memory(sizeof *stream, "a stream");
    st_status_t status = dev_team_create(n_threads, &stream->team);
    if (status != ST_OK) {
        st_free(stream);
        return status;
    }
    *out_stream = stream;
    return ST_OK;
}

static void cpu_close(dev_stream_t *stream) {
    if (!stream) return;
    dev_team_destroy(stream->team);
    st_free(stream);
}

static st_status_t cpu_alloc(dev_stream_t *stream, size_t n_bytes, void **out_memory) {
    (void)stream;
    *out_memory = NULL;
    if (n_bytes == 0) return ST_OK;
    void *memory = st_aligned_alloc(CPU_ALIGNMENT, n_bytes);
    if (!memory) return st_no_memory(n_bytes, "device memory");
    memset(memory, 0, n_bytes);
    *out_memory = memory;
    return ST_OK;
}

static void cpu_free(dev_stream_t *stream, void *memory) {
    (void)stream;
    st_free(memory);
}

static st_status_t cpu_copy(dev_stream_t *stream, void *to, const void *from, size_t n_bytes) {
    (void)stream;
    if (n_bytes) memmove(to, from, n_bytes);
    return ST_OK;
}

static st_status_t cpu_draw(dev_stream_t *stream, void *memory, const struct st_draw *draw) {
    (void)stream;
    return st_draw_box(draw, memory);
}

static st_status_t cpu_synchronize(dev_stream_t *stream) {
    (void)stream;
    return ST_OK;
}

static st_status_t cpu_repeat(dev_stream_t *stream, const dev_turns_t *turns, dev_branch_t body,
                              void *context) {
    (void)stream;
    for (int64_t i = 0; i < turns->n; i++) {
        *turns->index = turns->reverse ? turns->n - 1 - i : i;
        st_status_t status = body(context, 0);
        if (status != ST_OK) return st_error_context(status, "turn %" PRId64, *turns->index);
    }
    return ST_OK;
}

static st_status_t cpu_choose(dev_stream_t *stream, const unsigned char *condition,
                              dev_branch_t bodies, void *context) {
    (void)stream;
    return bodies(context, *condition ? 0 : 1);
}

static st_status_t cpu_copy_turn(dev_stream_t *stream, void *to, size_t to_stride, const void *from,
                                 size_t from_stride, size_t n_bytes, const int64_t *index) {
    const size_t i = (size_t)*index;
    return cpu_copy(stream, (char *)to + i * to_stride, (const char *)from + i * from_stride,
                    n_bytes);
}

static dev_team_t *cpu_team(dev_stream_t *stream) {
    return stream->team;
}

extern const dev_device_t dev_cpu;
const dev_device_t dev_cpu = {
    .name = "cpu",
    .computes = true,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy_in = cpu_copy,
    .copy_out = cpu_copy,
    .copy = cpu_copy,
    .draw = cpu_draw,
    .synchronize = cpu_synchronize,
    .team = cpu_team,
    .repeat = cpu_repeat,
    .choose = cpu_choose,
    .copy_turn = cpu_copy_turn,
};
