/* The device without memory: any size, zeros out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "device/device.h"

static void gives_addresses_and_zeros(void **state) {
    (void)state;
    const dev_device_t *device;
    dev_stream_t *stream;
    void *memory, *none;
    char out[16];
    assert_int_equal(dev_find("null", &device), ST_OK);
    assert_false(device->computes);
    assert_int_equal(device->open(0, 1, &stream), ST_OK);
    uint64_t before = st_memory_allocations();
    assert_int_equal(device->alloc(stream, (size_t)1 << 46, &memory), ST_OK);
    assert_int_equal(device->alloc(stream, 0, &none), ST_OK);
    assert_true(memory && (uintptr_t)memory % 256 == 0 && !none);
    assert_int_equal(device->copy_in(stream, memory, out, (size_t)1 << 46), ST_OK);
    assert_int_equal(device->copy(stream, memory, memory, (size_t)1 << 46), ST_OK);
    memset(out, 1, sizeof out);
    assert_int_equal(device->copy_out(stream, out, memory, sizeof out), ST_OK);
    for (size_t i = 0; i < sizeof out; i++) assert_int_equal(out[i], 0);
    assert_int_equal(device->synchronize(stream), ST_OK);
    assert_int_equal(st_memory_allocations(), before);
    (device->free)(stream, memory);
    device->close(stream);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gives_addresses_and_zeros)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
