/* The CPU device: lookup, memory, copies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/team.h"
#include "device/device.h"

static void unknown_device_names_the_known(void **state) {
    (void)state;
    const dev_device_t *device = NULL;
    assert_int_equal(dev_find("tpu", &device), ST_NOT_FOUND);
    assert_non_null(strstr(st_last_error(), "cpu"));
    assert_null(device);
}

static void memory_is_aligned_and_zeroed(void **state) {
    (void)state;
    const dev_device_t *device = NULL;
    dev_stream_t *stream = NULL;
    assert_int_equal(dev_find("cpu", &device), ST_OK);
    assert_int_equal(device->open(1, 1, &stream), ST_NOT_FOUND);
    assert_int_equal(device->open(0, 2, &stream), ST_OK);
    assert_int_equal(dev_team_size(device->team(stream)), 2);
    void *none = &none;
    assert_int_equal(device->alloc(stream, 0, &none), ST_OK);
    assert_null(none);
    for (size_t bytes = 1; bytes < 5000; bytes = bytes * 3 + 1) {
        void *memory = NULL;
        assert_int_equal(device->alloc(stream, bytes, &memory), ST_OK);
        assert_int_equal((uintptr_t)memory % 256, 0);
        for (size_t i = 0; i < bytes; i++) assert_int_equal(((uint8_t *)memory)[i], 0);
        (device->free)(stream, memory);
    }
    device->close(stream);
    device->close(NULL);
}

static void copies_move_bytes(void **state) {
    (void)state;
    const dev_device_t *device = NULL;
    dev_stream_t *stream = NULL;
    void *a = NULL, *b = NULL;
    char back[16];
    assert_int_equal(dev_find("cpu", &device), ST_OK);
    assert_int_equal(device->open(0, 1, &stream), ST_OK);
    assert_int_equal(device->alloc(stream, 16, &a), ST_OK);
    assert_int_equal(device->alloc(stream, 16, &b), ST_OK);
    assert_int_equal(device->copy_in(stream, a, "fifteen letters", 16), ST_OK);
    assert_int_equal(device->copy(stream, b, a, 16), ST_OK);
    assert_int_equal(device->copy_out(stream, back, b, 16), ST_OK);
    assert_int_equal(device->synchronize(stream), ST_OK);
    assert_string_equal(back, "fifteen letters");
    (device->free)(stream, a);
    (device->free)(stream, b);
    device->close(stream);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_device_names_the_known),
        cmocka_unit_test(memory_is_aligned_and_zeroed),
        cmocka_unit_test(copies_move_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
