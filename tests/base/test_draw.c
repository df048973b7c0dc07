/* Drawn values: series against the C library, boxes against the whole, bits that no machine may
 * change. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/draw.h"
#include "base/hash.h"

/* All words near the ends and the middle of the range, at each power of two, and many between. */
static uint32_t word_at(uint32_t i) {
    uint32_t words[4];
    if (i < 64) return i;
    if (i < 128) return 0u - (i - 63);
    if (i < 128 + 96) return (1u << (i - 128) / 3) + (i - 128) % 3 - 1;
    if (i < 224 + 64) return 0x80000000u + (i - 224) - 32;
    st_philox(1, i, 2, words);
    return words[0];
}
enum { N_WORDS = 1 << 18 };

static void logarithms_are_within_two_units(void **state) {
    (void)state;
    for (uint32_t i = 0; i < N_WORDS; i++) {
        const uint32_t word = word_at(i);
        /* log1p where the number is near 1: its distance from 1 is exact */
        const double below = (double)(0xffffffffu - word) * 0x1p-32;
        const double expected = below < 0.5 ? log1p(-below) : log(((double)word + 1) * 0x1p-32);
        const double got = draw_log(word);
        if (!(fabs(got - expected) <= 4.5e-16 * fabs(expected)))
            fail_msg("word %u: %.17g, expected %.17g", word, got, expected);
    }
}

static void turns_are_within_1e_16(void **state) {
    (void)state;
    const long double whole = 6.283185307179586476925286766559L;
    for (uint32_t i = 0; i < N_WORDS; i++) {
        const uint32_t word = word_at(i);
        const long double angle = whole * ((long double)word * 0x1p-32L);
        double c, s;
        draw_turn(word, &c, &s);
        if (!(fabsl((long double)c - cosl(angle)) <= 2.3e-16L) ||
            !(fabsl((long double)s - sinl(angle)) <= 2.3e-16L))
            fail_msg("word %u: %.17g %.17g", word, c, s);
    }
    double c, s;
    draw_turn(1u << 30, &c, &s);
    assert_true(c == 0 && s == 1);
    draw_turn(3u << 30, &c, &s);
    assert_true(c == 0 && s == -1);
}

static st_draw_t make(int32_t kind, int32_t format, uint32_t width) {
    return (st_draw_t){.kind = kind,
                       .format = format,
                       .width = width,
                       .bits = 0x1122334455667788u,
                       .scale = 0.75,
                       .seed = 42,
                       .stream = 7,
                       .rank = 3,
                       .dims = {5, 7, 9},
                       .extent = {5, 7, 9}};
}

/* The values are part of what the library promises: a run of a seed begins with them on any
 * processor, compiler and device. The number is the hash of 315 float64 draws, computed once on
 * x86-64 with gcc 12. */
static void bits_are_those_of_every_machine(void **state) {
    (void)state;
    double values[315];
    st_draw_t draw = make(ST_DRAW_NORMAL, ST_DRAW_F64, 8);
    st_draw_range(&draw, 0, 315, values);
    assert_int_equal(st_hash64(values, sizeof values, 0), 0x26c4a2814beac975u);
    draw.kind = ST_DRAW_UNIFORM;
    st_draw_range(&draw, 0, 315, values);
    assert_int_equal(st_hash64(values, sizeof values, 0), 0x93131a975a9c57e9u);
}

static void boxes_are_parts_of_the_whole(void **state) {
    (void)state;
    static const struct {
        int32_t kind, format;
        uint32_t width;
    } cases[] = {{ST_DRAW_NORMAL, ST_DRAW_F32, 4},
                 {ST_DRAW_UNIFORM, ST_DRAW_BF16, 2},
                 {ST_DRAW_NORMAL, ST_DRAW_F16, 2},
                 {ST_DRAW_NORMAL, ST_DRAW_F64, 8},
                 {ST_DRAW_CONSTANT, ST_DRAW_F64, 1}};
    static const int64_t boxes[][6] = {{0, 0, 0, 5, 7, 9}, {1, 0, 0, 3, 7, 9}, {0, 2, 0, 5, 4, 9},
                                       {0, 0, 3, 5, 7, 5}, {2, 3, 4, 2, 3, 4}, {4, 6, 8, 1, 1, 1},
                                       {0, 0, 0, 0, 7, 9}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        uint8_t whole[315 * 8], part[315 * 8];
        st_draw_t draw = make(cases[c].kind, cases[c].format, cases[c].width);
        const size_t width = draw.width;
        st_draw_range(&draw, 0, 315, whole);
        for (size_t b = 0; b < sizeof boxes / sizeof boxes[0]; b++) {
            const int64_t *box = boxes[b], *extent = box + 3;
            memcpy(draw.begin, box, 3 * sizeof *box);
            memcpy(draw.extent, extent, 3 * sizeof *box);
            memset(part, 0xee, sizeof part);
            assert_int_equal(st_draw_box(&draw, part), ST_OK);
            int64_t i = 0;
            for (int64_t x = 0; x < extent[0]; x++)
                for (int64_t y = 0; y < extent[1]; y++)
                    for (int64_t z = 0; z < extent[2]; z++, i++) {
                        const int64_t at = ((box[0] + x) * 7 + box[1] + y) * 9 + box[2] + z;
                        assert_memory_equal(part + (size_t)i * width, whole + (size_t)at * width,
                                            width);
                    }
            if (i < 315)
                assert_int_equal(part[(size_t)i * width], 0xee); /* nothing behind the box */
        }
    }
}

/* Larger than one thread's turn, and not a multiple of it. */
static void threads_change_nothing(void **state) {
    (void)state;
    enum { ROWS = 1031, COLUMNS = 1027 };
    st_draw_t draw = make(ST_DRAW_NORMAL, ST_DRAW_F32, 4);
    draw.rank = 2;
    draw.dims[0] = ROWS, draw.dims[1] = COLUMNS;
    draw.extent[0] = ROWS, draw.extent[1] = COLUMNS;
    float *all = malloc(sizeof(float) * ROWS * COLUMNS),
          *one = malloc(sizeof(float) * ROWS * COLUMNS);
    assert_true(all && one);
    assert_int_equal(st_draw_box(&draw, all), ST_OK);
    st_draw_range(&draw, 0, (int64_t)ROWS * COLUMNS, one);
    assert_memory_equal(all, one, sizeof(float) * ROWS * COLUMNS);
    free(all);
    free(one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logarithms_are_within_two_units),
        cmocka_unit_test(turns_are_within_1e_16),
        cmocka_unit_test(bits_are_those_of_every_machine),
        cmocka_unit_test(boxes_are_parts_of_the_whole),
        cmocka_unit_test(threads_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
