/* Sizes and workspace of scatter_add on a GPU (scatter.h). */
#include "kernels/scatter.h"

#include "base/memory.h"

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static size_t take(kern_scatter_t *s, size_t count, size_t width) {
    const size_t at = s->bytes;
    s->bytes = st_size_add(at, st_size_align(st_size_mul(count, width), 256));
    return at;
}

void kern_scatter_plan(int64_t outer, int64_t rows, int64_t inner, int64_t n, size_t sum_bytes,
                       kern_scatter_t *out) {
    kern_scatter_t s = {.outer = outer, .rows = rows, .inner = inner, .n = n};
    int32_t key_bits = 1;
    while ((rows - 1) >> key_bits > 0) key_bits++;
    s.n_passes = (key_bits + KERN_SCATTER_BITS - 1) / KERN_SCATTER_BITS;
    s.bits = (key_bits + s.n_passes - 1) / s.n_passes;
    /* a block has two rounds of its threads or more */
    const int64_t rounds = ceil_div(n, (int64_t)KERN_SCATTER_BLOCKS * KERN_SCATTER_THREADS);
    s.block = (rounds > 2 ? rounds : 2) * KERN_SCATTER_THREADS;
    s.n_blocks = ceil_div(n, s.block);
    s.n_parts = ceil_div(n, KERN_SCATTER_PART);
    for (int i = 0; i < 2; i++) {
        s.keys[i] = take(&s, (size_t)n, sizeof(int32_t));
        s.order[i] = take(&s, (size_t)n, sizeof(int32_t));
    }
    s.counts = take(&s, ((size_t)s.n_passes * (size_t)s.n_blocks) << s.bits, sizeof(int32_t));
    s.starts = take(&s, (size_t)rows + 1, sizeof(int32_t));
    s.pieces = take(
        &s,
        st_size_mul(st_size_mul((size_t)outer, (size_t)s.n_parts), st_size_mul(2, (size_t)inner)),
        sum_bytes);
    *out = s;
}
