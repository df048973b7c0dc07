/* IDX files: plain and compressed, Fashion-MNIST itself, damage. */
#include "state/images.h"

#include <zlib.h>

#include "support/scratch.h"

static const char *const fashion = "/usr/share/datasets/fashion-mnist";

static const uint8_t image_file[] = {0, 0, 8, 3, 0, 0, 0, 2, 0,   0,   0,   2,   0,   0,
                                     0, 3, 0, 1, 2, 3, 4, 5, 250, 251, 252, 253, 254, 255};
static const uint8_t label_file[] = {0, 0, 8, 1, 0, 0, 0, 2, 9, 4};

static size_t compress_bytes(const uint8_t *data, size_t bytes, uint8_t *out, size_t capacity) {
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY),
                     Z_OK);
    stream.next_in = (Bytef *)(uintptr_t)data;
    stream.avail_in = (uInt)bytes;
    stream.next_out = out;
    stream.avail_out = (uInt)capacity;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    size_t n = stream.total_out;
    deflateEnd(&stream);
    return n;
}

static void reads_plain_and_compressed(void **state) {
    (void)state;
    uint8_t packed[200];
    size_t n = compress_bytes(image_file, sizeof image_file, packed, sizeof packed);
    spill(scratch("images"), image_file, sizeof image_file);
    spill(scratch("images.gz"), packed, n);
    spill(scratch("labels"), label_file, sizeof label_file);
    for (int i = 0; i < 2; i++) {
        images_t images;
        assert_ok(
            images_open(scratch(i == 0 ? "images" : "images.gz"), scratch("labels"), 10, &images));
        assert_true(images.n == 2 && images.height == 2 && images.width == 3);
        const int64_t samples[] = {1, 0};
        float x[12];
        int64_t y[2];
        assert_ok(images_fill(&images, samples, 2, 0.5, 0.25, x, IR_I64, y));
        assert_true(y[0] == 4 && y[1] == 9);
        /* One rounding to f32 of values below 4: 2^-23 apart at most. */
        assert_true(x[5] == 2.0f);
        assert_true(x[6] == -2.0f);
        assert_float_equal(x[7], (float)((1 / 255.0 - 0.5) / 0.25), 2.4e-7f);
        int32_t y32[2];
        assert_ok(images_fill(&images, samples, 2, 0, 1, x, IR_I32, y32));
        assert_int_equal(y32[1], 9);
        const int64_t outside = 2;
        assert_fails(images_fill(&images, &outside, 1, 0, 1, x, IR_I64, y), ST_INVALID, "sample 2");
        assert_fails(images_fill(&images, samples, 1, 0, 0, x, IR_I64, y), ST_INVALID, "deviation");
        assert_fails(images_fill(&images, samples, 1, 0, 1, x, IR_F32, y), ST_INVALID, "f32");
        images_close(&images);
    }
    images_t images;
    assert_fails(images_open(scratch("images"), scratch("labels"), 9, &images), ST_PARSE,
                 "label 0 is 9");
    assert_fails(images_open(scratch("labels"), scratch("labels"), 10, &images), ST_PARSE,
                 "holds labels, expected images");
    assert_fails(images_open(scratch("images"), scratch("none"), 10, &images), ST_NOT_FOUND,
                 "none");
}

static void damage_is_refused(void **state) {
    (void)state;
    uint8_t packed[200];
    size_t n = compress_bytes(image_file, sizeof image_file, packed, sizeof packed);
    idx_t idx;
    for (size_t i = 0; i < sizeof image_file; i++) {
        uint8_t *part = malloc(i + 1);
        memcpy(part, image_file, i);
        assert_int_equal(idx_parse(part, i, "part", &idx), ST_PARSE);
        free(part);
    }
    for (size_t i = 0; i < n; i++) assert_int_equal(idx_parse(packed, i, "part", &idx), ST_PARSE);
    /* Past the ten bytes of gzip's header, its checksum catches every flip that changes anything:
     * deflate's last byte may have padding. */
    for (size_t bit = 80; bit < 8 * n; bit++) {
        packed[bit / 8] ^= (uint8_t)(1u << bit % 8);
        st_status_t status = idx_parse(packed, n, "flipped", &idx);
        if (status == ST_OK)
            assert_memory_equal(idx.data, image_file + 16, 12);
        else
            assert_int_equal(status, ST_PARSE);
        idx_free(&idx);
        packed[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    packed[n] = 0;
    assert_fails(idx_parse(packed, n + 1, "longer", &idx), ST_PARSE, "more follows");
    uint8_t longer[sizeof image_file + 1] = {0};
    memcpy(longer, image_file, sizeof image_file);
    assert_fails(idx_parse(longer, sizeof longer, "longer", &idx), ST_PARSE, "1 bytes follow");
    longer[4] = longer[8] = longer[12] = 0xff;
    assert_fails(idx_parse(longer, sizeof longer, "huge", &idx), ST_PARSE, "overflows");
    longer[12] = 0;
    longer[8] = 0;
    assert_fails(idx_parse(longer, sizeof longer, "huge", &idx), ST_PARSE, "claims");
    n = compress_bytes(longer, sizeof longer, packed, sizeof packed);
    assert_fails(idx_parse(packed, n, "huge", &idx), ST_PARSE, "claims");
}

static void fashion_mnist(void **state) {
    (void)state;
    char image_path[200], label_path[200];
    snprintf(image_path, sizeof image_path, "%s/t10k-images-idx3-ubyte.gz", fashion);
    snprintf(label_path, sizeof label_path, "%s/t10k-labels-idx1-ubyte.gz", fashion);
    if (!exists(image_path)) {
        print_message("skipped: '%s' is not there (package dataset-fashion-mnist)\n", image_path);
        skip();
    }
    images_t images;
    assert_ok(images_open(image_path, label_path, 10, &images));
    assert_true(images.n == 10000 && images.height == 28 && images.width == 28);
    int64_t counts[10] = {0};
    for (int64_t i = 0; i < images.n; i++) counts[images.labels[i]]++;
    for (int i = 0; i < 10; i++) assert_int_equal(counts[i], 1000);
    double sum = 0;
    for (int64_t i = 0; i < images.n * 784; i++) sum += images.pixels[i];
    /* The test images' mean brightness, 0.2868, is that published with the data's statistics. */
    assert_float_equal((float)(sum / (10000.0 * 784 * 255)), 0.2868f, 5e-4f);
    images_close(&images);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_plain_and_compressed),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(fashion_mnist),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
