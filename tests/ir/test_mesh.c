/* Meshes: text, ranks and coordinates, parts of tensors. */
#include "ir/mesh.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static ir_mesh_t mesh_of(const char *text) {
    ir_mesh_t mesh;
    assert_int_equal(ir_mesh_parse(text, &mesh), ST_OK);
    return mesh;
}

static void text_is_read_and_written(void **state) {
    (void)state;
    static const char *const texts[] = {"data=1", "tensor=3", "data=2,tensor=2", "tensor=8,data=4"};
    char buffer[IR_MESH_TEXT_BYTES];
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ir_mesh_t mesh = mesh_of(texts[i]);
        assert_string_equal(ir_mesh_text(&mesh, buffer, sizeof buffer), texts[i]);
    }
    ir_mesh_t a = mesh_of("data=6"), b = ir_mesh_of_ranks(6), c = mesh_of("tensor=6");
    assert_true(ir_mesh_equal(&a, &b));
    assert_false(ir_mesh_equal(&a, &c));
}

static void refused(const char *text, st_status_t status, const char *part) {
    ir_mesh_t mesh;
    assert_int_equal(ir_mesh_parse(text, &mesh), status);
    if (!strstr(st_last_error(), part)) fail_msg("'%s' says: %s", text, st_last_error());
}

static void bad_text_is_refused_with_what_is_wrong(void **state) {
    (void)state;
    refused("", ST_INVALID, "NAME=SIZE");
    refused("data", ST_INVALID, "NAME=SIZE");
    refused("data=", ST_INVALID, "NAME=SIZE");
    refused("data=2,", ST_INVALID, "NAME=SIZE");
    refused("data=0", ST_INVALID, "'data' has the size '0'");
    refused("data=2x", ST_INVALID, "'2x'");
    refused("data=-3", ST_INVALID, "'-3'");
    refused("data=2,data=2", ST_INVALID, "twice");
    refused("tensro=2", ST_UNSUPPORTED, "'tensor'");
    refused("a_name_that_is_longer_than_any=2", ST_UNSUPPORTED, "a_name_that_is_longer");
    refused("data=65536,tensor=2", ST_INVALID, "131072 ranks");
}

static void ranks_are_row_major(void **state) {
    (void)state;
    ir_mesh_t mesh = mesh_of("data=2,tensor=3");
    assert_int_equal(ir_mesh_ranks(&mesh), 6);
    for (uint32_t d = 0; d < 2; d++)
        for (uint32_t t = 0; t < 3; t++) {
            uint32_t rank = 3 * d + t;
            assert_int_equal(ir_mesh_coordinate(&mesh, rank, 0), d);
            assert_int_equal(ir_mesh_coordinate(&mesh, rank, 1), t);
            assert_int_equal(ir_mesh_peer(&mesh, rank, 0, 1 - d), 3 * (1 - d) + t);
            assert_int_equal(ir_mesh_peer(&mesh, rank, 1, 2), 3 * d + 2);
        }
    uint32_t order[IR_MAX_AXES];
    ir_mesh_order(&mesh, order);
    assert_int_equal(order[0], 1); /* tensor before data */
    assert_int_equal(order[1], 0);
}

/* Each element is held once for each rank that may hold it, and once by first holders. */
static void parts_cover_the_tensor(void **state) {
    (void)state;
    static const struct {
        const char *mesh;
        ir_placement_t placements[2];
        int copies;
    } rows[] = {
        {"data=2,tensor=3", {{IR_SPLIT, 0, IR_GRANULES_EACH}, {IR_SPLIT, 1, 4}}, 1},
        {"data=2,tensor=3", {{IR_SPLIT, 0, IR_GRANULES_EACH}, {IR_SPLIT, 0, IR_GRANULES_EACH}}, 1},
        {"data=5,tensor=3", {{IR_SPLIT, 0, IR_GRANULES_EACH}, {IR_REPLICATE, 0, 0}}, 3},
        {"tensor=11,data=2", {{IR_SPLIT, 1, 8}, {IR_REPLICATE, 0, 0}}, 2},
    };
    const ir_type_t type = ir_type_make(IR_F32, 2, (int64_t[]){7, 8});
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ir_mesh_t mesh = mesh_of(rows[i].mesh);
        int held[7][8] = {{0}}, first[7][8] = {{0}};
        assert_int_equal(ir_mesh_check_placements(&mesh, rows[i].placements, &type), ST_OK);
        for (uint32_t r = 0; r < ir_mesh_ranks(&mesh); r++) {
            ir_box_t box;
            ir_mesh_box(&mesh, rows[i].placements, &type, r, &box);
            bool is_first = ir_mesh_is_first_holder(&mesh, rows[i].placements, r);
            for (int64_t a = 0; a < box.extent[0]; a++)
                for (int64_t b = 0; b < box.extent[1]; b++) {
                    held[box.begin[0] + a][box.begin[1] + b]++;
                    first[box.begin[0] + a][box.begin[1] + b] += is_first;
                }
        }
        for (int a = 0; a < 7; a++)
            for (int b = 0; b < 8; b++) {
                assert_int_equal(held[a][b], rows[i].copies);
                assert_int_equal(first[a][b], 1);
            }
    }
}

static void impossible_placements_are_refused(void **state) {
    (void)state;
    static const ir_placement_t rows[][2] = {
        {{IR_PARTIAL, 0, 0}, {IR_REPLICATE, 0, 0}},
        {{IR_SPLIT, 2, 1}, {IR_REPLICATE, 0, 0}},
        {{IR_SPLIT, -1, 1}, {IR_REPLICATE, 0, 0}},
        {{IR_SPLIT, 1, 3}, {IR_REPLICATE, 0, 0}},
        /* granules of what another axis has split already */
        {{IR_SPLIT, 1, 4}, {IR_SPLIT, 1, IR_GRANULES_EACH}},
    };
    const ir_type_t type = ir_type_make(IR_F32, 2, (int64_t[]){7, 8});
    ir_mesh_t mesh = mesh_of("data=2,tensor=2");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(ir_mesh_check_placements(&mesh, rows[i], &type), ST_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_read_and_written),
        cmocka_unit_test(bad_text_is_refused_with_what_is_wrong),
        cmocka_unit_test(ranks_are_row_major),
        cmocka_unit_test(parts_cover_the_tensor),
        cmocka_unit_test(impossible_placements_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
