/* Boxes: the runs that two share, against a copy element by element. */
#include "ir/box.h"

#include <stdlib.h>
#include <string.h>

#include "support/scratch.h"

enum { RANK = 3, MOST = 5 * 4 * 6 };
static const int64_t dims[RANK] = {5, 4, 6};

/* Value of an element of the whole tensor. */
static int16_t value_at(const int64_t *at) {
    return (int16_t)(at[0] * 100 + at[1] * 10 + at[2]);
}

static size_t index_in(const ir_box_t *box, const int64_t *at) {
    size_t index = 0;
    for (int d = 0; d < RANK; d++)
        index = index * (size_t)box->extent[d] + (size_t)(at[d] - box->begin[d]);
    return index;
}

static bool is_in(const ir_box_t *box, const int64_t *at) {
    for (int d = 0; d < RANK; d++)
        if (at[d] < box->begin[d] || at[d] >= box->begin[d] + box->extent[d]) return false;
    return true;
}

static void each_element(const ir_box_t *box, void (*visit)(const int64_t *at, void *), void *c) {
    int64_t at[RANK];
    for (at[0] = box->begin[0]; at[0] < box->begin[0] + box->extent[0]; at[0]++)
        for (at[1] = box->begin[1]; at[1] < box->begin[1] + box->extent[1]; at[1]++)
            for (at[2] = box->begin[2]; at[2] < box->begin[2] + box->extent[2]; at[2]++)
                visit(at, c);
}

typedef struct pair {
    const ir_box_t *a, *b;
    int16_t in_a[MOST], in_b[MOST], wanted[MOST];
    size_t n_runs, last;
} pair_t;

static void fill_b(const int64_t *at, void *context) {
    pair_t *p = context;
    p->in_b[index_in(p->b, at)] = value_at(at);
}
static void want_a(const int64_t *at, void *context) {
    pair_t *p = context;
    p->wanted[index_in(p->a, at)] = is_in(p->b, at) ? value_at(at) : -1;
}
static st_status_t copy(void *context, size_t in_a, size_t in_b, size_t bytes) {
    pair_t *p = context;
    assert_true(bytes > 0 && (p->n_runs++ == 0 || in_a >= p->last));
    p->last = in_a + bytes;
    memcpy((char *)p->in_a + in_a, (char *)p->in_b + in_b, bytes);
    return ST_OK;
}

static ir_box_t random_box(unsigned *seed) {
    ir_box_t box = {0};
    for (int d = 0; d < RANK; d++) {
        *seed = *seed * 1664525u + 1013904223u;
        box.begin[d] = (int64_t)(*seed >> 16) % dims[d];
        *seed = *seed * 1664525u + 1013904223u;
        box.extent[d] = (int64_t)(*seed >> 16) % (dims[d] - box.begin[d] + 1);
        if (*seed >> 30 == 3) box.begin[d] = 0, box.extent[d] = dims[d];
    }
    return box;
}

static void runs_are_what_both_boxes_have(void **state) {
    (void)state;
    const ir_type_t type = ir_type_make(IR_F16, RANK, dims);
    unsigned seed = 1;
    for (int i = 0; i < 3000; i++) {
        const ir_box_t a = random_box(&seed), b = random_box(&seed);
        pair_t p = {.a = &a, .b = &b};
        memset(p.in_a, 0xff, sizeof p.in_a);
        memset(p.wanted, 0xff, sizeof p.wanted);
        each_element(&b, fill_b, &p);
        each_element(&a, want_a, &p);
        assert_ok(ir_box_runs(&type, &a, &b, copy, &p));
        assert_memory_equal(p.in_a, p.wanted, sizeof p.in_a);
    }
}

/* Any range of bytes, those that begin and end within elements too. */
static void ranges_of_runs_make_the_same(void **state) {
    (void)state;
    const ir_type_t type = ir_type_make(IR_F16, RANK, dims);
    unsigned seed = 7;
    for (int i = 0; i < 300; i++) {
        const ir_box_t a = random_box(&seed), b = random_box(&seed);
        pair_t whole = {.a = &a, .b = &b}, range = {.a = &a, .b = &b};
        char out[2 * MOST], part[2 * MOST];
        memset(out, 0xff, sizeof out);
        each_element(&b, fill_b, &whole);
        memcpy(range.in_b, whole.in_b, sizeof whole.in_b);
        memset(whole.in_a, 0xff, sizeof whole.in_a);
        assert_ok(ir_box_runs(&type, &a, &b, copy, &whole));
        const size_t bytes = ir_box_bytes(&type, &a), piece = 1 + seed % 37;
        for (size_t at = 0; at < bytes; at += piece) {
            const size_t n = bytes - at < piece ? bytes - at : piece;
            memset(range.in_a, 0xff, sizeof range.in_a);
            range.n_runs = 0;
            assert_ok(ir_box_runs_within(&type, &a, at, n, &b, copy, &range));
            memcpy(part, range.in_a, sizeof part);
            memcpy(out + at, part, n);
        }
        assert_memory_equal(out, whole.in_a, bytes);
    }
}

static void a_scalar_is_one_run(void **state) {
    (void)state;
    const ir_type_t type = ir_type_scalar(IR_F16);
    const ir_box_t box = ir_box_whole(&type);
    pair_t p = {.in_b = {42}};
    assert_ok(ir_box_runs(&type, &box, &box, copy, &p));
    assert_int_equal(p.in_a[0], 42);
    assert_int_equal(p.n_runs, 1);
    p.last = 0;
    assert_ok(ir_box_runs_within(&type, &box, 1, 1, &box, copy, &p));
    assert_int_equal(p.n_runs, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_what_both_boxes_have),
        cmocka_unit_test(ranges_of_runs_make_the_same),
        cmocka_unit_test(a_scalar_is_one_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
