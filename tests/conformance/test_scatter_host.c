/* The CUDA kernels of scatter_add, run on the host: compiled by the C++ compiler with what of CUDA
 * they use (cuda_on_host.h). Updates are small whole numbers, so that sums are exact in any order,
 * and the order itself is looked at. No GPU is needed; skipped where there is no C++ compiler. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/host_code.h"
#include "kernels/scatter.h"
#include "support/scratch.h"

enum { GUARD = 256, GUARD_BYTE = 0xA5 };

typedef void (*scatter_t)(const kern_scatter_t *plan, const float *updates, const int *index,
                          char *workspace, float *out, int vector);

static const char source[] =
    "#include \"cuda_on_host.h\"\n"
    "#include \"kernels/cuda/scatter.cuh\"\n"
    "struct of_f32 {\n"
    "    typedef float type, sum;\n"
    "    static float real(float x) { return x; }\n"
    "    static float rounded(float x) { return x; }\n"
    "};\n"
    "struct keys {\n"
    "    const int *index;\n"
    "    long long operator()(long long i) const { return index[i]; }\n"
    "};\n"
    "struct call {\n"
    "    scatter_args args;\n"
    "    keys key_of;\n"
    "    int pass;\n"
    "};\n"
    "void host_kernel(int kernel, const void *params) {\n"
    "    const call &c = *(const call *)params;\n"
    "    switch (kernel) {\n"
    "        case 0: scatter_count(c.args, c.key_of); break;\n"
    "        case 1: scatter_place(c.args, c.pass); break;\n"
    "        case 2: scatter_bound<of_f32, 1>(c.args); break;\n"
    "        case 3: scatter_add_rows<of_f32, 1>(c.args); break;\n"
    "        case 4: scatter_bound<of_f32, 4>(c.args); break;\n"
    "        case 5: scatter_add_rows<of_f32, 4>(c.args); break;\n"
    "    }\n"
    "}\n"
    "extern \"C\" void scatter(const kern_scatter_t *plan, const float *updates, const int "
    "*index,\n"
    "                        char *workspace, float *out, int vector) {\n"
    "    call c = {{*plan, updates, out, workspace, 1}, {index}, 0};\n"
    "    const long long vectors = plan->inner / vector, rows = plan->outer * plan->rows;\n"
    "    c.args.lanes = vectors < KERN_SCATTER_THREADS ? vectors : KERN_SCATTER_THREADS;\n"
    "    const long long a_block = KERN_SCATTER_THREADS / c.args.lanes;\n"
    "    host_run(0, 0, plan->n_blocks, KERN_SCATTER_THREADS, &c);\n"
    "    for (; c.pass < plan->n_passes; c.pass++)\n"
    "        host_run(0, 1, plan->n_blocks, KERN_SCATTER_THREADS, &c);\n"
    "    const int first = vector == 1 ? 2 : 4;\n"
    "    host_run(0, first, plan->outer * plan->n_parts, 64, &c);\n"
    "    host_run(0, first + 1, (rows + a_block - 1) / a_block, KERN_SCATTER_THREADS, &c);\n"
    "}\n";

/* NULL: there is no compiler. */
static scatter_t compile(void) {
    const char *path = scratch("scatter.cc");
    spill(path, source, sizeof source - 1);
    void *symbol = host_code(path, "-O1", "scatter");
    scatter_t scatter;
    memcpy(&scatter, &symbol, sizeof scatter);
    return scatter;
}

static uint32_t draw(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

typedef enum pattern {
    EQUAL_LAST,
    EQUAL_FIRST,
    DISTINCT,
    FALLING,
    UNIFORM,
    SKEWED,
    N_PATTERNS
} pattern_t;

static int index_of(pattern_t pattern, int64_t i, int64_t n, int64_t rows, uint32_t *state) {
    switch (pattern) {
        case EQUAL_LAST:
            return (int)rows - 1;
        case EQUAL_FIRST:
            return 0;
        case DISTINCT:
            return (int)(i * 7919 % rows); /* as far as there are rows */
        case FALLING:
            return (int)((n - 1 - i) % rows);
        case UNIFORM:
            return (int)(draw(state) % rows);
        default:
            return (int)(draw(state) % (1 + draw(state) % (1 + draw(state) % rows)));
    }
}

/* Memory between guard zones, all NaN. */
static char *zone(size_t bytes) {
    char *block = malloc(bytes + 2 * GUARD);
    assert_non_null(block);
    memset(block, GUARD_BYTE, bytes + 2 * GUARD);
    memset(block + GUARD, 0xFF, bytes);
    return block + GUARD;
}

static void zone_free(char *data, size_t bytes) {
    for (size_t i = 0; i < GUARD; i++)
        if ((unsigned char)data[-1 - (ptrdiff_t)i] != GUARD_BYTE ||
            (unsigned char)data[bytes + i] != GUARD_BYTE)
            fail_msg("wrote outside results or scratch");
    free(data - GUARD);
}

/* The sorted positions are those of a stable sort: row by row, each in rising order. */
static void check_order(const kern_scatter_t *plan, const char *workspace, const int *index) {
    const int *keys = (const int *)(const void *)(workspace + plan->keys[plan->n_passes % 2]);
    const int *order = (const int *)(const void *)(workspace + plan->order[plan->n_passes % 2]);
    for (int64_t i = 0; i < plan->n; i++) {
        assert_in_range(order[i], 0, plan->n - 1);
        assert_int_equal(keys[i], index[order[i]]);
        if (i && (keys[i - 1] > keys[i] || (keys[i - 1] == keys[i] && order[i - 1] >= order[i])))
            fail_msg("position %lld of %lld: (%d, %d) after (%d, %d)", (long long)i,
                     (long long)plan->n, keys[i], order[i], keys[i - 1], order[i - 1]);
    }
}

static void check(scatter_t scatter, pattern_t pattern, int64_t outer, int64_t rows, int64_t inner,
                  int64_t n) {
    uint32_t state = (uint32_t)(rows * 31 + n);
    kern_scatter_t plan;
    kern_scatter_plan(outer, rows, inner, n, sizeof(float), &plan);
    const size_t out_bytes = (size_t)(outer * rows * inner) * sizeof(float);
    int *index = malloc((size_t)n * sizeof *index);
    float *updates = malloc((size_t)(outer * n * inner) * sizeof *updates);
    float *expected = calloc((size_t)(outer * rows * inner), sizeof *expected);
    char *workspace = zone(plan.bytes), *out = zone(out_bytes);
    for (int64_t i = 0; i < n; i++) index[i] = index_of(pattern, i, n, rows, &state);
    for (int64_t i = 0; i < outer * n * inner; i++) updates[i] = (float)(draw(&state) % 17) - 8;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < inner; k++)
                expected[(o * rows + index[i]) * inner + k] += updates[(o * n + i) * inner + k];
    scatter(&plan, updates, index, workspace, (float *)(void *)out, inner % 4 ? 1 : 4);
    check_order(&plan, workspace, index);
    for (int64_t i = 0; i < outer * rows * inner; i++)
        if (((float *)(void *)out)[i] != expected[i])
            fail_msg("pattern %d, %lld x %lld x %lld, %lld indices: row %lld is %g, not %g",
                     pattern, (long long)outer, (long long)rows, (long long)inner, (long long)n,
                     (long long)(i / inner), (double)((float *)(void *)out)[i],
                     (double)expected[i]);
    zone_free(workspace, plan.bytes);
    zone_free(out, out_bytes);
    free(index);
    free(updates);
    free(expected);
}

static void sums_are_right(void **state) {
    (void)state;
    static const int64_t shapes[][4] = {/* outer, rows, inner, indices */
                                        {1, 1, 4, 1},        {1, 5, 3, 3},       {1, 5, 4, 63},
                                        {3, 7, 2, 64},       {1, 512, 4, 65},    {1, 513, 1, 129},
                                        {2, 100, 8, 700},    {1, 33, 12, 2000},  {1, 3000, 4, 5000},
                                        {1, 300000, 1, 300}, {1, 70000, 2, 1025}};
    scatter_t scatter = compile();
    if (!scatter) {
        print_message("skipped: no C++ compiler\n");
        skip();
    }
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (pattern_t pattern = 0; pattern < N_PATTERNS; pattern++)
            check(scatter, pattern, shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3]);
}

/* The workspace does not depend on the indices, and no part of it overlaps another. */
static void the_workspace_is_planned(void **state) {
    (void)state;
    kern_scatter_t plan;
    kern_scatter_plan(1, 32000, 768, 32768, 4, &plan);
    assert_int_equal(plan.n_passes, 2);
    assert_int_equal(plan.bits, 8);
    assert_int_equal(plan.n_blocks, 64);
    assert_int_equal(plan.n_parts, 512);
    const size_t ends[] = {plan.order[0], plan.keys[1], plan.order[1], plan.counts};
    for (size_t i = 0; i < 4; i++) assert_int_equal(ends[i], (i + 1) * 4 * 32768);
    assert_int_equal(plan.starts - plan.counts, 2 * 64 * 256 * 4);
    assert_true(plan.pieces - plan.starts >= 32001 * 4);
    assert_int_equal(plan.bytes - plan.pieces, 512 * 2 * 768 * 4);
    kern_scatter_plan(1, 1 << 20, (int64_t)1 << 40, INT32_MAX, 8, &plan);
    assert_true(plan.bytes == ST_SIZE_TOO_LARGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_right),
                                       cmocka_unit_test(the_workspace_is_planned)};
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
