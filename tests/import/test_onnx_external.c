/* External data: it is read from the model's folder and from nowhere else. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "import/onnx_make.h"

static char root[64]; /* <root>/outside.bin, <root>/model/… */

static void write_file(const char *name, const void *data, size_t bytes) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
}

/* Links `to`, an absolute path below the root, under a name in the model's folder. */
static void link_file(const char *to, const char *name, bool hard) {
    char from[256], path[256];
    snprintf(from, sizeof from, "%s/%s", root, to);
    snprintf(path, sizeof path, "%s/model/%s", root, name);
    assert_int_equal(hard ? link(from, path) : symlink(from, path), 0);
}

static int make_folder(void **state) {
    (void)state;
    char path[256];
    strcpy(root, "/tmp/stator_external_XXXXXX");
    if (!mkdtemp(root)) return -1;
    snprintf(path, sizeof path, "%s/model", root);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/model/sub", root);
    mkdir(path, 0700);
    write_file("outside.bin", (float[]){9, 9}, 8);
    write_file("second.bin", (float[]){9, 9}, 8);
    write_file("model/w.bin", (float[]){0, 1, 2, 3}, 16);
    write_file("model/sub/w.bin", (float[]){4, 5}, 8);
    link_file("outside.bin", "link.bin", false);
    link_file("second.bin", "hard.bin", true);
    link_file("model/sub", "linked_sub", false);
    snprintf(path, sizeof path, "%s/model/pipe", root);
    return mkfifo(path, 0600);
}

static int remove_folder(void **state) {
    (void)state;
    static const char *const names[] = {"model/pipe",     "model/linked_sub", "model/hard.bin",
                                        "model/link.bin", "model/sub/w.bin",  "model/w.bin",
                                        "model/m.onnx",   "second.bin",       "outside.bin"};
    char path[256];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", root, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/model/sub", root);
    rmdir(path);
    snprintf(path, sizeof path, "%s/model", root);
    rmdir(path);
    return rmdir(root);
}

/* A model whose only tensor, f32[2], lies at `location`; offset and length may be NULL. */
static void make_model(make_t *m, const char *location, const char *offset, const char *length) {
    const char *pairs[3][2] = {{"location", location}, {"offset", offset}, {"length", length}};
    make_open(m, 17);
    Onnx__TensorProto *t = make_tensor(m, "w", MAKE_F32, 1, (int64_t[]){2}, NULL, 0);
    t->has_data_location = 1;
    t->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    t->external_data = st_arena_array(&m->arena, 3, sizeof *t->external_data);
    for (int i = 0; i < 3; i++) {
        if (!pairs[i][1]) continue;
        Onnx__StringStringEntryProto *entry = st_arena_alloc(&m->arena, sizeof *entry);
        onnx__string_string_entry_proto__init(entry);
        entry->key = (char *)(uintptr_t)pairs[i][0];
        entry->value = (char *)(uintptr_t)pairs[i][1];
        t->external_data[t->n_external_data++] = entry;
    }
    make_output(m, "w");
}

static st_status_t import_at(const char *location, const char *offset, const char *length,
                             import_result_t **out) {
    make_t m;
    size_t bytes;
    char path[256];
    make_model(&m, location, offset, length);
    const void *data = make_pack(&m, &bytes);
    write_file("model/m.onnx", data, bytes);
    make_close(&m);
    snprintf(path, sizeof path, "%s/model/m.onnx", root);
    return import_file(path, NULL, out);
}

static void expect_values(const char *location, const char *offset, const char *length, float a,
                          float b) {
    import_result_t *result;
    if (import_at(location, offset, length, &result) != ST_OK)
        fail_msg("%s: %s", location, st_last_error());
    assert_int_equal(result->tensors.n, 1);
    assert_memory_equal(result->tensors.data[0].data, ((float[]){a, b}), 8);
    import_result_destroy(result);
}

static void expect_refusal(const char *location, const char *offset, const char *length,
                           const char *part) {
    import_result_t *result;
    st_status_t status = import_at(location, offset, length, &result);
    if (status == ST_OK || !strstr(st_last_error(), part) || !strstr(st_last_error(), "'w'"))
        fail_msg("%s: status %d, '%s' lacks '%s'", location, status, st_last_error(), part);
}

static void test_reads_inside(void **state) {
    (void)state;
    expect_values("w.bin", NULL, NULL, 0, 1);
    expect_values("w.bin", "8", "8", 2, 3);
    expect_values("sub/w.bin", "0", NULL, 4, 5);
}

static void test_refuses_outside(void **state) {
    (void)state;
    char absolute[128];
    snprintf(absolute, sizeof absolute, "%s/outside.bin", root);
    expect_refusal(absolute, NULL, NULL, "absolute");
    expect_refusal("../outside.bin", NULL, NULL, "'..'");
    expect_refusal("sub/../../outside.bin", NULL, NULL, "'..'");
    expect_refusal("sub/../w.bin", NULL, NULL, "'..'");
    expect_refusal("./w.bin", NULL, NULL, "'.'");
    expect_refusal("sub//w.bin", NULL, NULL, "empty");
    expect_refusal("link.bin", NULL, NULL, "link");
    expect_refusal("linked_sub/w.bin", NULL, NULL, "link");
    expect_refusal("hard.bin", NULL, NULL, "hard link");
    expect_refusal("pipe", NULL, NULL, "not a file");
    expect_refusal("sub", NULL, NULL, "not a file");
}

static void test_refuses_wrong_extents(void **state) {
    (void)state;
    expect_refusal("missing.bin", NULL, NULL, "missing.bin");
    expect_refusal("", NULL, NULL, "without a location");
    expect_refusal("w.bin", "12", NULL, "8 bytes at 12");
    expect_refusal("w.bin", "9223372036854775807", NULL, "has 16");
    expect_refusal("w.bin", "-4", NULL, "offset '-4'");
    expect_refusal("w.bin", "x", NULL, "offset 'x'");
    expect_refusal("w.bin", "0", "12", "12 bytes");
}

/* Beyond 2 GB: a sparse file, read at its end. */
static void test_reads_far_into_a_file(void **state) {
    (void)state;
    const off_t end = (off_t)2200 << 20;
    char path[256];
    snprintf(path, sizeof path, "%s/model/large.bin", root);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(file >= 0);
    bool sparse = pwrite(file, (float[]){6, 7}, 8, end - 8) == 8;
    close(file);
    if (sparse) expect_values("large.bin", "2306867192", "8", 6, 7);
    unlink(path);
    if (!sparse) print_message("skipped: the folder for temporary files takes no sparse file\n");
}

/* A model in memory has no folder. */
static void test_needs_a_path(void **state) {
    (void)state;
    make_t m;
    import_result_t *result;
    make_model(&m, "w.bin", NULL, NULL);
    assert_int_equal(make_import(&m, NULL, &result), ST_UNSUPPORTED);
    assert_non_null(strstr(st_last_error(), "import it by path"));
    make_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_inside),          cmocka_unit_test(test_refuses_outside),
        cmocka_unit_test(test_refuses_wrong_extents), cmocka_unit_test(test_reads_far_into_a_file),
        cmocka_unit_test(test_needs_a_path),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
