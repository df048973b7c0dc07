/* Initial values drawn by the GPU have the bits of those that the host draws: every kind and
 * format, whole and in boxes. Skipped without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/draw.h"
#include "device/device.h"

enum { ROWS = 1031, COLUMNS = 517 };

static const struct {
    int32_t kind, format;
    uint32_t width;
} cases[] = {{ST_DRAW_NORMAL, ST_DRAW_F64, 8},   {ST_DRAW_NORMAL, ST_DRAW_F32, 4},
             {ST_DRAW_NORMAL, ST_DRAW_F16, 2},   {ST_DRAW_NORMAL, ST_DRAW_BF16, 2},
             {ST_DRAW_UNIFORM, ST_DRAW_F64, 8},  {ST_DRAW_UNIFORM, ST_DRAW_F32, 4},
             {ST_DRAW_CONSTANT, ST_DRAW_F64, 1}, {ST_DRAW_CONSTANT, ST_DRAW_F64, 2},
             {ST_DRAW_CONSTANT, ST_DRAW_F64, 4}, {ST_DRAW_CONSTANT, ST_DRAW_F64, 8}};
static const int64_t boxes[][4] = {
    {0, 0, ROWS, COLUMNS}, {13, 0, 500, COLUMNS}, {0, 11, ROWS, 300}, {7, 5, 3, 2}};

static void compare(const dev_device_t *device, dev_stream_t *stream, const st_draw_t *draw) {
    const size_t bytes = (size_t)st_draw_count(draw) * draw->width;
    uint8_t *host = malloc(bytes), *back = malloc(bytes);
    void *memory = NULL;
    assert_true(host && back);
    assert_int_equal(device->alloc(stream, bytes, &memory), ST_OK);
    assert_int_equal(st_draw_box(draw, host), ST_OK);
    assert_int_equal(device->draw(stream, memory, draw), ST_OK);
    assert_int_equal(device->copy_out(stream, back, memory, bytes), ST_OK);
    assert_int_equal(device->synchronize(stream), ST_OK);
    for (size_t i = 0; i < bytes; i++)
        if (host[i] != back[i])
            fail_msg("kind %d, format %d, box at %lld, %lld: byte %zu of element %zu differs",
                     draw->kind, draw->format, (long long)draw->begin[0], (long long)draw->begin[1],
                     i % draw->width, i / draw->width);
    (device->free)(stream, memory);
    free(host);
    free(back);
}

static void bits_are_those_of_the_host(void **state) {
    (void)state;
    const dev_device_t *device;
    dev_stream_t *stream;
    if (dev_find("cuda", &device) != ST_OK || device->open(0, 1, &stream) != ST_OK) {
        print_message("skipped: %s\n", st_last_error());
        skip();
    }
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (size_t b = 0; b < sizeof boxes / sizeof boxes[0]; b++) {
            st_draw_t draw = {.kind = cases[c].kind,
                              .format = cases[c].format,
                              .width = cases[c].width,
                              .bits = 0x3ff123456789abcdu,
                              .scale = 0.02,
                              .seed = 0x123456789abcdefu,
                              .stream = 99,
                              .rank = 2,
                              .dims = {ROWS, COLUMNS}};
            memcpy(draw.begin, boxes[b], 2 * sizeof(int64_t));
            memcpy(draw.extent, boxes[b] + 2, 2 * sizeof(int64_t));
            compare(device, stream, &draw);
        }
    device->close(stream);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits_are_those_of_the_host)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
