/* A matmul as blocks of the output, cut by shape only: what one thread computes at a time. */
#ifndef STATOR_KERNELS_PRODUCT_H
#define STATOR_KERNELS_PRODUCT_H

#include "kernels/problem.h"

typedef struct kern_product {
    int64_t m, n, k;
    int64_t a_row, a_col, b_row, b_col; /* strides of op(a), op(b) in elements */
    bool transpose_a, transpose_b;
    int32_t batch_rank;
    int64_t batches, batch_dims[IR_MAX_RANK];
    int64_t a_batch[IR_MAX_RANK], b_batch[IR_MAX_RANK]; /* strides in matrices, 0: broadcast */
    int64_t block_rows, block_columns, row_blocks, column_blocks;
    int64_t tasks;
} kern_product_t;

/* Offsets in elements of one block. */
typedef struct kern_block {
    int64_t a, b, c, rows, columns;
} kern_block_t;

kern_product_t kern_product_of(const kern_problem_t *problem);
kern_block_t kern_product_block(const kern_product_t *product, int64_t task);
/* A matmul's third operand into the block of its result, where it is not there already: what is
 * then accumulated. False: there is none. */
bool kern_product_begin(const kern_call_t *call, const kern_product_t *product,
                        const kern_block_t *block);

#endif
