/* How scatter_add is done on a GPU, from shapes alone: the same for planning and for the kernels
 * (cuda/scatter.cuh), and free of CUDA.
 *
 *   count   keys[i] = index[i], checked; how often each block of positions has each lowest digit
 *   place   a pass of a stable radix sort: positions by (digit, position); one launch a digit
 *   bound   where each row's run begins; sums of the pieces of runs that several parts have
 *   add     each row: the sum of its run, or of its pieces; zero where there is no index
 *
 *   workspace  keys, order | keys, order | counts [passes][blocks][digits] | starts [rows + 1] |
 *              pieces [outer][parts][2][inner]: what a part has of a run that came in, and that
 *              goes on */
#ifndef STATOR_KERNELS_SCATTER_H
#define STATOR_KERNELS_SCATTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KERN_SCATTER_THREADS = 256,
    KERN_SCATTER_BITS = 9, /* of a digit, at most: a block counts 2^9 of them in each of 8 warps */
    KERN_SCATTER_BLOCKS = 128, /* that sort, at most: each reads what all have counted */
    KERN_SCATTER_PART = 64,    /* positions that are added up one by one */
};

typedef struct kern_scatter {
    int64_t outer, rows, inner; /* of the output */
    int64_t n;                  /* indices */
    int32_t n_passes, bits;     /* of a digit */
    int64_t n_blocks, block;    /* that sort; positions of each, a multiple of the threads */
    int64_t n_parts;
    size_t keys[2], order[2], counts, starts, pieces; /* bytes from the workspace's start */
    size_t bytes;                                     /* ST_SIZE_TOO_LARGE: overflows */
} kern_scatter_t;

/* Sums are `sum_bytes` wide. n and rows are below 2^31. */
void kern_scatter_plan(int64_t outer, int64_t rows, int64_t inner, int64_t n, size_t sum_bytes,
                       kern_scatter_t *out);

#ifdef __cplusplus
}
#endif

#endif
