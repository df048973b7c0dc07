/* The CUDA kernel of max pooling's gradient by patches, run on the host: compiled by the C++
 * compiler with what of CUDA it uses (cuda_on_host.h). Slopes are small whole numbers, so that sums
 * are exact. No GPU is needed; skipped where there is no C++ compiler. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/host_code.h"
#include "support/scratch.h"

enum { N = 4 }; /* elements of a vector */

/* As struct pool_patch. */
typedef struct patch {
    int c, in[2], out[2], low[2], patches[2];
} patch_t;

typedef void (*pool_t)(const patch_t *w, int taps, int images, float *dx, const float *dy,
                       const int *index);

static const char source[] =
    "#include \"cuda_on_host.h\"\n"
    "#include \"kernels/cuda/pool_patch.cuh\"\n"
    "struct of_f32 {\n"
    "    static float real(float x) { return x; }\n"
    "    static float rounded(float x) { return x; }\n"
    "};\n"
    "struct vector { float v[4]; };\n"
    "struct indices { int v[4]; };\n"
    "struct call {\n"
    "    pool_patch w;\n"
    "    vector *dx;\n"
    "    const vector *dy;\n"
    "    const indices *index;\n"
    "    unsigned total;\n"
    "};\n"
    "void host_kernel(int kernel, const void *params) {\n"
    "    const call &c = *(const call *)params;\n"
    "    if (kernel == 3) max_pool_grad_patch<of_f32, 4, 3, 2>(c.w, c.dx, c.dy, c.index, "
    "c.total);\n"
    "    if (kernel == 2) max_pool_grad_patch<of_f32, 4, 2, 2>(c.w, c.dx, c.dy, c.index, "
    "c.total);\n"
    "}\n"
    "extern \"C\" void pool(const pool_patch *w, int taps, int images, float *dx, const float "
    "*dy,\n"
    "                     const int *index) {\n"
    "    const unsigned total = images * w->patches[0] * w->patches[1] * w->c;\n"
    "    call c = {*w, (vector *)dx, (const vector *)dy, (const indices *)index, total};\n"
    "    host_run(0, taps, (total + 63) / 64, 64, &c);\n"
    "}\n";

/* NULL: there is no compiler. */
static pool_t compile(void) {
    const char *path = scratch("pool.cc");
    spill(path, source, sizeof source - 1);
    void *symbol = host_code(path, "-O1", "pool");
    pool_t pool;
    memcpy(&pool, &symbol, sizeof pool);
    return pool;
}

static uint32_t draw(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* A position that the window of output `o` covers. */
static int covered(int o, int taps, int low, int in, uint32_t *state) {
    const int begin = 2 * o - low > 0 ? 2 * o - low : 0;
    const int end = 2 * o - low + taps < in ? 2 * o - low + taps : in;
    assert_true(begin < end);
    return begin + (int)(draw(state) % (uint32_t)(end - begin));
}

static void check(pool_t pool, int taps, int low, int high, int rows, int columns) {
    enum { IMAGES = 2, CHANNELS = 8 };
    patch_t w = {.c = CHANNELS / N, .in = {rows, columns}, .low = {low, low}};
    uint32_t state = (uint32_t)(rows * 100 + columns);
    for (int d = 0; d < 2; d++) {
        w.out[d] = (w.in[d] + low + high - taps) / 2 + 1;
        w.patches[d] = (low + w.in[d] - 1) / 2 + 1;
    }
    const size_t n_in = (size_t)(IMAGES * rows * columns * CHANNELS),
                 n_out = (size_t)(IMAGES * w.out[0] * w.out[1] * CHANNELS);
    float *dx = malloc(n_in * sizeof *dx), *dy = malloc(n_out * sizeof *dy);
    float *expected = calloc(n_in, sizeof *expected);
    int *index = malloc(n_out * sizeof *index);
    memset(dx, 0xFF, n_in * sizeof *dx);
    for (size_t i = 0; i < n_out; i++) {
        const int image = (int)(i / CHANNELS) / w.out[1] / w.out[0];
        const int y = covered((int)(i / CHANNELS) / w.out[1] % w.out[0], taps, low, rows, &state);
        const int x = covered((int)(i / CHANNELS) % w.out[1], taps, low, columns, &state);
        index[i] = y * columns + x;
        dy[i] = (float)(draw(&state) % 17) - 8;
        expected[((size_t)(image * rows * columns + index[i])) * CHANNELS + i % CHANNELS] += dy[i];
    }
    pool(&w, taps, IMAGES, dx, dy, index);
    for (size_t i = 0; i < n_in; i++)
        if (dx[i] != expected[i])
            fail_msg("%d taps, %d x %d: element %zu is %g, not %g", taps, rows, columns, i,
                     (double)dx[i], (double)expected[i]);
    free(dx);
    free(dy);
    free(expected);
    free(index);
}

static void gradients_are_right(void **state) {
    (void)state;
    pool_t pool = compile();
    if (!pool) {
        print_message("skipped: no C++ compiler\n");
        skip();
    }
    for (int rows = 3; rows < 9; rows++)
        for (int columns = 3; columns < 9; columns++) {
            check(pool, 3, 1, 1, rows, columns);
            check(pool, 3, 0, 0, rows, columns);
            check(pool, 3, 0, 1, rows, columns);
            check(pool, 3, 2, 2, rows, columns);
            check(pool, 2, 0, 0, rows, columns);
            check(pool, 2, 1, 1, rows, columns);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_right)};
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
