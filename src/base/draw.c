/* Four elements of the whole tensor share one call of Philox, whose counter is (element / 4,
 * stream). What lies together in the box and in the tensor is drawn in one go. Compiled with
 * -ffp-contract=off. */
#include "base/draw.h"

#include "base/parallel.h"

enum { TOGETHER = 1 << 18 }; /* elements a turn */

static void fill(const st_draw_t *draw, int64_t count, void *out) {
    for (int64_t i = 0; i < count; i++) /* little-endian: the low bytes */
        memcpy((uint8_t *)out + (size_t)i * draw->width, &draw->bits, draw->width);
}

void st_draw_range(const st_draw_t *draw, int64_t first, int64_t count, void *out) {
    const int64_t end = first + count;
    if (draw->kind == ST_DRAW_CONSTANT) {
        fill(draw, count, out);
        return;
    }
    for (int64_t i = first; i < end;) {
        uint32_t words[4];
        double values[4];
        draw_words(draw->seed, (uint64_t)i / 4, draw->stream, words);
        draw_two(draw->kind, draw->scale, words, values);
        draw_two(draw->kind, draw->scale, words + 2, values + 2);
        const int64_t stop = i / 4 * 4 + 4;
        for (; i < stop && i < end; i++) draw_store(draw->format, out, i - first, values[i % 4]);
    }
}

int64_t st_draw_count(const st_draw_t *draw) {
    int64_t n = 1;
    for (int32_t d = 0; d < draw->rank; d++) n *= draw->extent[d];
    return n;
}

/* Elements of the box that lie together in the tensor: all behind the last dim that is cut. */
static int64_t run_length(const st_draw_t *draw) {
    int32_t d = draw->rank - 1;
    int64_t run = 1;
    for (; d >= 0 && draw->extent[d] == draw->dims[d]; d--) run *= draw->dims[d];
    return d < 0 ? run : run * draw->extent[d];
}

typedef struct drawing {
    const st_draw_t *draw;
    int64_t count, run;
    uint8_t *out;
} drawing_t;

static st_status_t draw_part(void *context, size_t part) {
    const drawing_t *d = context;
    int64_t i = (int64_t)part * TOGETHER;
    const int64_t end = d->count - i < TOGETHER ? d->count : i + TOGETHER;
    while (i < end) {
        const int64_t left = d->run - i % d->run, n = end - i < left ? end - i : left;
        st_draw_range(d->draw, draw_index(d->draw, i), n, d->out + (size_t)i * d->draw->width);
        i += n;
    }
    return ST_OK;
}

st_status_t st_draw_box(const st_draw_t *draw, void *out) {
    drawing_t d = {draw, st_draw_count(draw), run_length(draw), out};
    return st_parallel((size_t)((d.count + TOGETHER - 1) / TOGETHER), draw_part, &d);
}
