/* See lanes.h. A strided copy of the runtime's runs on a copy engine, at some 30 GB/s where a
 * kernel reaches the memory's rate. */
#include "comm/nccl/lanes.h"

enum { THREADS = 256, MOST_BLOCKS = 512 };

__global__ void mark(volatile uint32_t *word, uint32_t value) {
    *word = value;
    __threadfence_system();
}

/* A block takes whole pieces of THREADS words, row by row. */
template <typename T>
__global__ void copy(T *to, size_t to_pitch, const T *from, size_t from_pitch, unsigned pieces,
                     size_t words, size_t n) {
    for (size_t piece = blockIdx.x; piece < n; piece += gridDim.x) {
        const size_t row = piece / pieces;
        const size_t i = (piece - row * pieces) * THREADS + threadIdx.x;
        if (i < words) to[row * to_pitch + i] = from[row * from_pitch + i];
    }
}

template <typename T>
static cudaError_t copy_words(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t rows, cudaStream_t stream) {
    const size_t words = width / sizeof(T), pieces = (words + THREADS - 1) / THREADS;
    const size_t n = pieces * rows;
    const unsigned blocks = (unsigned)(n < MOST_BLOCKS ? n : MOST_BLOCKS);
    copy<<<blocks, THREADS, 0, stream>>>((T *)to, to_pitch / sizeof(T), (const T *)from,
                                         from_pitch / sizeof(T), (unsigned)pieces, words, n);
    return cudaPeekAtLastError();
}

cudaError_t lanes_copy(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                       size_t rows, cudaStream_t stream) {
    const size_t all = (size_t)to | (size_t)from | to_pitch | from_pitch | width;
    if (width == 0 || rows == 0) return cudaSuccess;
    if (all % sizeof(int4) == 0)
        return copy_words<int4>(to, to_pitch, from, from_pitch, width, rows, stream);
    if (all % sizeof(int) == 0)
        return copy_words<int>(to, to_pitch, from, from_pitch, width, rows, stream);
    return copy_words<char>(to, to_pitch, from, from_pitch, width, rows, stream);
}

cudaError_t lanes_mark(uint32_t *word, uint32_t value, cudaStream_t stream) {
    mark<<<1, 1, 0, stream>>>(word, value);
    return cudaPeekAtLastError();
}
