#include "kernels/product.h"

#include <string.h>

/* Enough blocks for a few threads, none so small that packing its operands costs more than the
 * product: at least 96 rows by 64 columns where the matrix has them. Leading dims that b lacks are
 * rows: one large product instead of many small ones. */
enum { MIN_ROWS = 96, MIN_COLUMNS = 64, LARGE = 1024, WANTED_BLOCKS = 8, BLOCK_ALIGN = 16 };

static int64_t block_extent(int64_t size, int64_t blocks) {
    int64_t extent = (size + blocks - 1) / blocks;
    extent = (extent + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    return extent < size ? extent : size;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

/* As many blocks as wanted if the limits allow, and among those the squarest: a block packs rows of
 * a and columns of b, so their sum is what a product pays besides its arithmetic. */
static void choose_blocks(const kern_product_t *p, int64_t *out_rows, int64_t *out_columns) {
    int64_t wanted = clamp(WANTED_BLOCKS / p->batches, 1, WANTED_BLOCKS);
    /* Rows 4096 bytes apart fall into the same cache sets: a library that reads operands in place
     * wants blocks large enough that it packs them instead (measured: 33 against 70 GFLOP/s). */
    bool aliased = p->n % 1024 == 0 && p->k % 1024 == 0;
    int64_t min_rows = aliased ? LARGE : MIN_ROWS, min_columns = aliased ? LARGE : MIN_COLUMNS;
    int64_t best_blocks = 0, best_sum = 0;
    for (int64_t r = 1; r <= wanted; r++) {
        int64_t rows = clamp(p->m / min_rows, 1, r);
        int64_t columns = clamp(p->n / min_columns, 1, (wanted + rows - 1) / rows);
        int64_t blocks = rows * columns < wanted ? rows * columns : wanted;
        int64_t sum = p->m / rows + p->n / columns;
        if (blocks < best_blocks || (blocks == best_blocks && sum >= best_sum)) continue;
        best_blocks = blocks;
        best_sum = sum;
        *out_rows = rows;
        *out_columns = columns;
    }
}

kern_product_t kern_product_of(const kern_problem_t *problem) {
    const ir_type_t *a = &problem->in[0], *b = &problem->in[1], *out = &problem->out[0];
    kern_product_t p = {.transpose_a = kern_int(problem, "transpose_a") != 0,
                        .transpose_b = kern_int(problem, "transpose_b") != 0,
                        .m = out->dims[out->rank - 2],
                        .n = out->dims[out->rank - 1]};
    p.k = a->dims[a->rank - (p.transpose_a ? 2 : 1)];
    p.a_row = p.transpose_a ? 1 : p.k;
    p.a_col = p.transpose_a ? p.m : 1;
    p.b_row = p.transpose_b ? 1 : p.n;
    p.b_col = p.transpose_b ? p.k : 1;
    ir_type_t batch = *out, batch_a = *a, batch_b = *b;
    batch.rank -= 2, batch_a.rank -= 2, batch_b.rank -= 2;
    p.batch_rank = batch.rank;
    p.batches = ir_type_elements(&batch);
    for (int32_t d = 0; d < batch.rank; d++) p.batch_dims[d] = batch.dims[d];
    kern_broadcast_strides(&batch_a, &batch, p.a_batch);
    kern_broadcast_strides(&batch_b, &batch, p.b_batch);
    if (!p.transpose_a && ir_type_elements(&batch_b) == 1 && ir_dims_equal(&batch_a, &batch)) {
        p.m *= p.batches;
        p.batches = 1;
        p.batch_rank = 0;
    }
    if (p.m == 0 || p.n == 0 || p.batches == 0) {
        p.block_rows = p.block_columns = 1;
        return p;
    }
    int64_t rows = 1, columns = 1;
    choose_blocks(&p, &rows, &columns);
    p.block_rows = block_extent(p.m, rows);
    p.block_columns = block_extent(p.n, columns);
    p.row_blocks = (p.m + p.block_rows - 1) / p.block_rows;
    p.column_blocks = (p.n + p.block_columns - 1) / p.block_columns;
    p.tasks = p.batches * p.row_blocks * p.column_blocks;
    return p;
}

kern_block_t kern_product_block(const kern_product_t *p, int64_t task) {
    int64_t column = task % p->column_blocks * p->block_columns;
    task /= p->column_blocks;
    int64_t row = task % p->row_blocks * p->block_rows, batch = task / p->row_blocks;
    int64_t at_a = 0, at_b = 0, rest = batch;
    for (int32_t d = p->batch_rank - 1; d >= 0; d--) {
        at_a += rest % p->batch_dims[d] * p->a_batch[d];
        at_b += rest % p->batch_dims[d] * p->b_batch[d];
        rest /= p->batch_dims[d];
    }
    return (kern_block_t){
        .a = at_a * p->m * p->k + row * p->a_row,
        .b = at_b * p->k * p->n + column * p->b_col,
        .c = (batch * p->m + row) * p->n + column,
        .rows = p->m - row < p->block_rows ? p->m - row : p->block_rows,
        .columns = p->n - column < p->block_columns ? p->n - column : p->block_columns};
}

bool kern_product_begin(const kern_call_t *call, const kern_product_t *p,
                        const kern_block_t *block) {
    if (call->problem->n_in < 3) return false;
    const size_t width = ir_dtype_bytes(call->problem->out[0].dtype);
    const char *from = call->in[2];
    char *to = call->out[0];
    for (int64_t i = 0; i < block->rows && from != to; i++) {
        const size_t at = (size_t)(block->c + i * p->n) * width;
        memcpy(to + at, from + at, (size_t)block->columns * width);
    }
    return true;
}
