/* Safetensors: what is written reads back, files of other writers load, damage is refused. */
#include "state/safetensors.h"
#include "support/scratch.h"

static const int64_t dims23[] = {2, 3};

/* A small file with several types, an alias and metadata; the order of calls is the caller's. */
static void write_sample(const char *path, bool reversed) {
    static const float w[6] = {1, 2, 3, 4, 5, 6};
    static const uint8_t flags[6] = {1, 0, 1, 1, 0, 1};
    static const int64_t step = 42;
    safetensors_writer_t *writer;
    assert_ok(safetensors_writer_create(&writer));
    for (int i = 0; i < 3; i++) {
        int which = reversed ? 2 - i : i;
        if (which == 0) {
            assert_ok(safetensors_writer_add(writer, "a.flags", SAFETENSORS_BOOL, 2, dims23, flags,
                                             sizeof flags));
            assert_ok(safetensors_writer_add_metadata(writer, "format", "pt"));
        } else if (which == 1) {
            assert_ok(safetensors_writer_add(writer, "w", SAFETENSORS_F32, 2, dims23, w, sizeof w));
            assert_ok(safetensors_writer_alias(writer, "tied.w", "w"));
        } else {
            assert_ok(safetensors_writer_add(writer, "step", SAFETENSORS_I64, 0, NULL, &step, 8));
            assert_ok(safetensors_writer_add_metadata(writer, "quote\"\\\n", "\x01\u00e9"));
        }
    }
    assert_ok(safetensors_writer_commit(writer, path));
    void *encoded;
    size_t n_encoded, n_file;
    assert_ok(safetensors_writer_encode(writer, &encoded, &n_encoded));
    uint8_t *file = slurp(path, &n_file);
    assert_int_equal(n_encoded, n_file);
    assert_memory_equal(encoded, file, n_file);
    free(file);
    st_free(encoded);
    safetensors_writer_destroy(writer);
}

static void round_trip(void **state) {
    (void)state;
    write_sample(scratch("a"), false);
    write_sample(scratch("b"), true);
    size_t bytes_a, bytes_b;
    uint8_t *a = slurp(scratch("a"), &bytes_a), *b = slurp(scratch("b"), &bytes_b);
    assert_int_equal(bytes_a, bytes_b);
    assert_memory_equal(a, b, bytes_a);
    assert_int_equal(a[0] % 8, 0);
    free(a);
    free(b);

    safetensors_t *file;
    assert_ok(safetensors_open(scratch("a"), &file));
    assert_int_equal(safetensors_count(file), 3);
    assert_string_equal(safetensors_at(file, 0)->name, "a.flags");
    assert_string_equal(safetensors_at(file, 1)->name, "step");
    const safetensors_tensor_t *w = safetensors_find(file, "w");
    assert_non_null(w);
    assert_ptr_equal(w, safetensors_find(file, "tied.w"));
    assert_int_equal(w->dtype, SAFETENSORS_F32);
    assert_int_equal(w->rank, 2);
    assert_int_equal(w->dims[1], 3);
    assert_int_equal((uintptr_t)w->data % 8, 0);
    float values[6];
    memcpy(values, w->data, sizeof values);
    assert_true(values[5] == 6.0f);
    assert_int_equal(safetensors_find(file, "step")->rank, 0);
    assert_null(safetensors_find(file, "x"));
    assert_int_equal(safetensors_alias_count(file), 1);
    assert_string_equal(safetensors_alias_name(file, 0), "tied.w");
    assert_ptr_equal(safetensors_alias_tensor(file, 0), w);
    assert_string_equal(safetensors_metadata(file, "format"), "pt");
    assert_string_equal(safetensors_metadata(file, "quote\"\\\n"), "\x01\u00e9");
    assert_null(safetensors_metadata(file, "none"));
    safetensors_close(file);
}

static void every_dtype(void **state) {
    (void)state;
    safetensors_writer_t *writer;
    assert_ok(safetensors_writer_create(&writer));
    uint8_t data[3 * 8];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 37);
    const int64_t dims[] = {3};
    for (int i = 0; i < SAFETENSORS_N_DTYPES; i++) {
        safetensors_dtype_t dtype = (safetensors_dtype_t)i;
        assert_ok(safetensors_writer_add(writer, safetensors_dtype_text(dtype), dtype, 1, dims,
                                         data, 3 * safetensors_dtype_bytes(dtype)));
    }
    assert_ok(safetensors_writer_commit(writer, scratch("all")));
    safetensors_writer_destroy(writer);
    safetensors_t *file;
    assert_ok(safetensors_open(scratch("all"), &file));
    assert_int_equal(safetensors_count(file), 15);
    for (int i = 0; i < SAFETENSORS_N_DTYPES; i++) {
        safetensors_dtype_t dtype = (safetensors_dtype_t)i;
        const safetensors_tensor_t *tensor = safetensors_find(file, safetensors_dtype_text(dtype));
        assert_non_null(tensor);
        assert_int_equal(tensor->dtype, dtype);
        assert_memory_equal(tensor->data, data, tensor->bytes);
        assert_int_equal((uintptr_t)tensor->data % safetensors_dtype_bytes(dtype), 0);
        ir_dtype_t ir = safetensors_to_ir(dtype);
        if (ir != IR_DTYPE_NONE) {
            assert_int_equal(safetensors_from_ir(ir), dtype);
            assert_int_equal(ir_dtype_bytes(ir), safetensors_dtype_bytes(dtype));
        }
    }
    safetensors_close(file);
    for (int64_t wire = 1; ir_dtype_valid(wire); wire++) {
        assert_int_not_equal(safetensors_from_ir((ir_dtype_t)wire), SAFETENSORS_N_DTYPES);
    }
    assert_int_equal(safetensors_from_ir(IR_DTYPE_NONE), SAFETENSORS_N_DTYPES);
}

static void writer_refuses(void **state) {
    (void)state;
    float w[6] = {0};
    const int64_t negative[] = {-1, -6}, huge[] = {INT64_MAX, INT64_MAX};
    safetensors_writer_t *writer;
    assert_ok(safetensors_writer_create(&writer));
    assert_fails(safetensors_writer_add(writer, "", SAFETENSORS_F32, 2, dims23, w, 24), ST_INVALID,
                 "cannot be the name");
    assert_fails(safetensors_writer_add(writer, "w", SAFETENSORS_F32, 2, dims23, w, 20), ST_INVALID,
                 "20 bytes");
    assert_fails(safetensors_writer_add(writer, "w", SAFETENSORS_F32, 2, negative, w, 24),
                 ST_INVALID, "do not match");
    assert_fails(safetensors_writer_add(writer, "w", SAFETENSORS_F32, 2, huge, w, 24), ST_INVALID,
                 "do not match");
    assert_fails(safetensors_writer_add(writer, "w", SAFETENSORS_N_DTYPES, 2, dims23, w, 24),
                 ST_INVALID, "cannot be stored");
    assert_fails(safetensors_writer_add(writer, "\xff", SAFETENSORS_F32, 2, dims23, w, 24),
                 ST_INVALID, "UTF-8");
    assert_fails(safetensors_writer_add_metadata(writer, "stator.xxh64.w", "0"), ST_INVALID,
                 "reserved");
    assert_ok(safetensors_writer_add(writer, "w", SAFETENSORS_F32, 2, dims23, w, 24));
    assert_ok(safetensors_writer_alias(writer, "v", "u"));
    assert_fails(safetensors_writer_commit(writer, scratch("refused")), ST_INVALID, "alias 'v'");
    assert_ok(safetensors_writer_add(writer, "u", SAFETENSORS_F32, 2, dims23, w, 24));
    assert_ok(safetensors_writer_commit(writer, scratch("accepted")));
    assert_ok(safetensors_writer_add(writer, "u", SAFETENSORS_F32, 2, dims23, w, 24));
    assert_fails(safetensors_writer_commit(writer, scratch("refused")), ST_INVALID, "name 'u'");
    assert_false(exists(scratch("refused")));
    safetensors_writer_destroy(writer);
}

/* The file of a header text and `data_bytes` zero bytes, opened from memory. */
static st_status_t open_text(const char *header, size_t data_bytes, safetensors_t **out) {
    size_t n = strlen(header);
    uint8_t *bytes = calloc(1, 8 + n + data_bytes); /* exact size, so that ASan sees overreads */
    bytes[0] = (uint8_t)n;
    bytes[1] = (uint8_t)(n >> 8);
    memcpy(bytes + 8, header, n);
    st_status_t status = safetensors_open_memory(bytes, 8 + n + data_bytes, out);
    if (status == ST_OK) {
        safetensors_close(*out);
        *out = (safetensors_t *)1;
    }
    free(bytes);
    return status;
}

#define T(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

static void foreign_headers_load(void **state) {
    (void)state;
    safetensors_t *file;
    static const struct {
        const char *header;
        size_t data_bytes;
    } cases[] = {
        {"{}", 0},
        {"{ } \n  ", 0},
        {"{" T("b", "U8", "4", "4,8") "," T("a", "F32", "", "0,4") "}", 8},
        {"{" T("b", "U8", "3", "0,3") "," T("a", "F32", "1", "3,7") "}", 7}, /* unaligned */
        {"{" T("b", "U8", "3", "0,3") "," T("e", "F32", "0,5", "3,3") "," T("a", "U8", "1",
                                                                            "3,4") "}",
         4},
        {"{\"__metadata__\":{}," T("a", "U8", "1", "0,1") "}", 1},
        {"{\"a\":{\"data_offsets\":[0,1],\"shape\":[1],\"dtype\":\"U8\"}}", 1},
        {"{" T("\\u00e9\\n", "U8", "1,1,1,1,1,1,1,1", "0,1") "}", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_ok(open_text(cases[i].header, cases[i].data_bytes, &file));
    }
}

static void malformed_headers_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *message;
    } cases[] = {
        {"", 0, "0 bytes"},
        {"[]", 0, "not an object"},
        {"{} x", 0, "malformed JSON"},
        {"{", 0, "unexpected end"},
        {"{}", 1, "1 bytes follow"},
        {"{" T("a", "F33", "1", "0,4") "}", 4, "tensor 'a': unknown dtype 'F33'"},
        {"{" T("a", "F32", "1", "0,8") "}", 8, "tensor 'a': shape and dtype need 4 bytes"},
        {"{" T("a", "F32", "1", "4,0") "}", 4, "tensor 'a': data_offsets"},
        {"{" T("a", "F32", "1", "4,8") "}", 4, "tensor 'a': data_offsets"},
        {"{" T("a", "F32", "1", "4,8") "}", 8, "tensor 'a': 4 unused bytes"},
        {"{" T("a", "U8", "2", "0,2") "," T("b", "U8", "2", "1,3") "}", 3,
         "'b' overlaps tensor 'a'"},
        {"{" T("a", "U8", "1", "0,1") "," T("b", "U8", "1", "0,1") "}", 1, "overlaps"},
        {"{" T("a", "U8", "1", "0,1") "," T("b", "U8", "1", "2,3") "}", 3, "unused"},
        {"{" T("a", "U8", "1", "0,1") "," T("a", "U8", "1", "1,2") "}", 2, "twice"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
         "twice"},
        {"{" T("a", "U8", "1.0", "0,1") "}", 1, "not an integer"},
        {"{" T("a", "U8", "1e0", "0,1") "}", 1, "not an integer"},
        {"{" T("a", "U8", "-1", "0,1") "}", 1, "negative"},
        {"{" T("a", "U8", "\"1\"", "0,1") "}", 1, "not an integer"},
        {"{" T("a", "U8", "1", "0,1,1") "}", 1, "3 items"},
        {"{" T("a", "U8", "1", "0") "}", 1, "data_offsets"},
        {"{" T("a", "U8", "0,99999999999999999999", "0,0") "}", 0, "too large"},
        {"{" T("a", "F64", "4611686018427387904,4", "0,0") "}", 0, "overflows"},
        {"{" T("a", "U8", "1,1,1,1,1,1,1,1,1", "0,1") "}", 1, "9 items"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "tensor 'a'"},
        {"{\"a\":[1]}", 1, "tensor 'a'"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1,
         "tensor 'a'"},
        {"{\"__metadata__\":{\"k\":1}}", 0, "'k' is not a string"},
        {"{\"__metadata__\":3}", 0, "not an object"},
        {"{\"__metadata__\":{\"k\":{\"x\":{\"y\":1}}}}", 0, "nested"},
        {"{" T("a\\u0000b", "U8", "1", "0,1") "}", 1, "malformed JSON string"},
        {"{" T("a\x01", "U8", "1", "0,1") "}", 1, "malformed JSON string"},
        {"{" T("a\xff", "U8", "1", "0,1") "}", 1, "malformed JSON"},
        {"{/* c */}", 0, "stray byte"},
        {"{'a':1}", 0, "stray byte"},
        {"{\"a\":NaN}", 0, "tensor 'a'"},
        {"{\"__metadata__\":{\"stator.xxh64\":\"0000000000000000\",\"a\":\"b\"}}", 0, "damaged"},
        {"{\"__metadata__\":{\"stator.xxh64\":\"0\"}}", 0, "hexadecimal"},
        {"{\"__metadata__\":{\"stator.xxh64.a\":\"0000000000000000\"}}", 0, "lacks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        safetensors_t *file;
        assert_fails(open_text(cases[i].header, cases[i].data_bytes, &file), ST_PARSE,
                     cases[i].message);
        assert_null(file);
    }
    char *deep = calloc(1, 50001);
    memset(deep, '[', 50000);
    memcpy(deep, "{\"a\":", 5);
    safetensors_t *file;
    assert_fails(open_text(deep, 0, &file), ST_PARSE, "nested");
    memset(deep, ',', 50000);
    memcpy(deep, "{\"a\":[1", 7);
    assert_fails(open_text(deep, 0, &file), ST_PARSE, "more than");
    free(deep);
}

static void every_truncation_and_bit_flip_is_refused(void **state) {
    (void)state;
    const char *path = scratch("whole");
    write_sample(path, false);
    size_t bytes;
    uint8_t *whole = slurp(path, &bytes);
    safetensors_t *file;
    for (size_t n = 0; n < bytes; n++) {
        uint8_t *part = malloc(n > 0 ? n : 1);
        memcpy(part, whole, n);
        assert_int_equal(safetensors_open_memory(part, n, &file), ST_PARSE);
        free(part);
    }
    uint8_t *copy = malloc(bytes);
    memcpy(copy, whole, bytes);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
        st_status_t status = safetensors_open_memory(copy, bytes, &file);
        if (status != ST_PARSE) fail_msg("bit %zu: %s", bit, st_status_name(status));
        copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    copy[bytes - 1] ^= 1; /* the last byte belongs to the flags */
    spill(path, copy, bytes);
    assert_fails(safetensors_open(path, &file), ST_PARSE, "tensor 'a.flags'");
    assert_non_null(strstr(st_last_error(), path));
    free(copy);
    free(whole);
}

static void random_garbage_is_refused(void **state) {
    (void)state;
    uint32_t random = 12345;
    uint8_t buffer[64];
    for (int round = 0; round < 20000; round++) {
        for (size_t i = 0; i < sizeof buffer; i++) {
            random = random * 1664525u + 1013904223u;
            buffer[i] = (uint8_t)(random >> 24);
        }
        memset(buffer, 0, 8);
        buffer[0] = (uint8_t)(round % 57);
        buffer[8] = '{';
        safetensors_t *file;
        assert_int_not_equal(safetensors_open_memory(buffer, sizeof buffer, &file), ST_OK);
    }
}

static void allocation_failures_are_reported(void **state) {
    (void)state;
    const char *path = scratch("allocation");
    write_sample(path, false);
    for (int64_t i = 0;; i++) {
        safetensors_t *file;
        st_memory_fail_after(i, false);
        st_status_t status = safetensors_open(path, &file);
        st_memory_fail_after(-1, false);
        if (status == ST_OK) {
            safetensors_close(file);
            assert_true(i > 3);
            break;
        }
        assert_int_equal(status, ST_NO_MEMORY);
        assert_null(file);
    }
}

static void shared_cases_load(void **state) {
    (void)state;
    const char *path = shared_file("cases/llama_tiny_tied/weights.safetensors");
    if (path == NULL) skip();
    safetensors_t *file;
    assert_ok(safetensors_open(path, &file));
    const safetensors_tensor_t *embedding =
        safetensors_find(file, "model.hf.model.embed_tokens.weight");
    assert_non_null(embedding);
    assert_ptr_equal(embedding, safetensors_find(file, "model.hf.lm_head.weight"));
    assert_int_equal(safetensors_alias_count(file), 1);
    assert_int_equal(embedding->dims[0], 256);
    safetensors_close(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(every_dtype),
        cmocka_unit_test(writer_refuses),
        cmocka_unit_test(foreign_headers_load),
        cmocka_unit_test(malformed_headers_are_refused),
        cmocka_unit_test(every_truncation_and_bit_flip_is_refused),
        cmocka_unit_test(random_garbage_is_refused),
        cmocka_unit_test(allocation_failures_are_reported),
        cmocka_unit_test(shared_cases_load),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
