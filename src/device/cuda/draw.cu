/* Initial values, drawn where they stay (base/draw_math.h): a thread an element, which makes its
 * four words and two draws for one of them. That is 4 times the arithmetic and still shorter than
 * the writes' latency on the host's side: 1.2e9 elements at some 200 operations are about 10 ms. */
#include "device/cuda/draw.h"

#include "base/draw_math.h"

enum { THREADS = 256, MOST_BLOCKS = 1 << 16 };

__global__ static void fill_box(st_draw_t draw, int64_t count, void *out) {
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step)
        switch (draw.width) {
            case 1: ((uint8_t *)out)[i] = (uint8_t)draw.bits; break;
            case 2: ((uint16_t *)out)[i] = (uint16_t)draw.bits; break;
            case 4: ((uint32_t *)out)[i] = (uint32_t)draw.bits; break;
            default: ((uint64_t *)out)[i] = draw.bits; break;
        }
}

__global__ static void draw_box(st_draw_t draw, int64_t count, void *out) {
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        const int64_t at = draw_index(&draw, i);
        uint32_t words[4];
        double two[2];
        draw_words(draw.seed, (uint64_t)at / 4, draw.stream, words);
        draw_two(draw.kind, draw.scale, at & 2 ? words + 2 : words, two);
        draw_store(draw.format, out, i, at & 1 ? two[1] : two[0]);
    }
}

extern "C" cudaError_t dev_cuda_launch_draw(const st_draw_t *draw, void *out, cudaStream_t stream) {
    int64_t count = 1;
    for (int32_t d = 0; d < draw->rank; d++) count *= draw->extent[d];
    if (count == 0) return cudaSuccess;
    const int64_t wanted = (count + THREADS - 1) / THREADS;
    const unsigned blocks = (unsigned)(wanted < MOST_BLOCKS ? wanted : MOST_BLOCKS);
    if (draw->kind == ST_DRAW_CONSTANT)
        fill_box<<<blocks, THREADS, 0, stream>>>(*draw, count, out);
    else
        draw_box<<<blocks, THREADS, 0, stream>>>(*draw, count, out);
    return cudaGetLastError();
}
