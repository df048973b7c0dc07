/* The device that computes nothing: plans of any size and any number of ranks are bound and stepped
 * on it, and take the time that their target's description predicts.
 *
 * Its memory is a range of addresses that no one reads or writes: copies to and among it do
 * nothing, copies from it give zeros. So 1,024 ranks of 140 GB cost nothing but their tables. */
#include <string.h>

#include "base/memory.h"
#include "device/device.h"

/* Not NULL, aligned as device memory is, and in no mapped page. */
static char *const nowhere = (char *)(uintptr_t)256;

static st_status_t open_stream(int index, int n_threads, dev_stream_t **out_stream) {
    (void)index;
    (void)n_threads;
    *out_stream = st_calloc(1, 1); /* an address of its own */
    return *out_stream ? ST_OK : st_no_memory(1, "a stream");
}
static void close_stream(dev_stream_t *stream) {
    st_free(stream);
}
static st_status_t reserve(dev_stream_t *stream, size_t n_bytes, void **out_memory) {
    (void)stream;
    *out_memory = n_bytes ? nowhere : NULL;
    return ST_OK;
}
static void release(dev_stream_t *stream, void *memory) {
    (void)stream;
    (void)memory;
}
static st_status_t copy_to(dev_stream_t *stream, void *to, const void *from, size_t n_bytes) {
    (void)stream;
    (void)to;
    (void)from;
    (void)n_bytes;
    return ST_OK;
}
static st_status_t copy_out(dev_stream_t *stream, void *host, const void *device, size_t n_bytes) {
    (void)stream;
    (void)device;
    memset(host, 0, n_bytes);
    return ST_OK;
}
static st_status_t draw_nothing(dev_stream_t *stream, void *memory, const struct st_draw *draw) {
    (void)stream;
    (void)memory;
    (void)draw;
    return ST_OK;
}
static st_status_t synchronize(dev_stream_t *stream) {
    (void)stream;
    return ST_OK;
}
static dev_team_t *team(dev_stream_t *stream) {
    (void)stream;
    return NULL;
}

const dev_device_t dev_null = {
    .name = "null",
    .computes = false,
    .open = open_stream,
    .close = close_stream,
    .alloc = reserve,
    .free = release,
    .copy_in = copy_to,
    .copy_out = copy_out,
    .copy = copy_to,
    .draw = draw_nothing,
    .synchronize = synchronize,
    .team = team,
};
