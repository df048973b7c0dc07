/* How a GPU runs a nest: a list of kernels, worked out from shapes alone, so that a plan made
 * without a device knows the workspace and what every sum's tree is.
 *
 * A reduction whose result is wanted again along the axes it removed (softmax, norms) is done
 * inside a row: `cols` are its axes, `rows` the others, and one warp or block has a row at a time.
 * What later levels want of a row's results is left in the workspace. Any other reduction ends a
 * level: its result goes to the workspace, and what depends on it is a later kernel.
 *
 *   level 0   rows     y = x * rsqrt(mean(x^2) + eps) * w; and for dw, sums over each block's rows
 *   level 0   finish   dw = the blocks' sums added in order
 *   level 1   …
 *
 *   FLAT     a point a thread, several where vectors fit
 *   ROWS     row reductions and whatever shares their rows; column sums kept in registers; also
 *            stores of all points of long rows that share arithmetic
 *   COLUMNS  reductions over outer axes: lanes along the inner axis, warps and blocks along the
 *            rest; also stores of all points that share operands along the inner axes
 *   LINES    reductions over the innermost axis: a block a piece of a line
 *   FINISH   partial results of ROWS, COLUMNS and LINES, added in order, and what is stored of them
 *
 * The FLAT kernels of a level are one launch, and its LINES, and its FINISH of equal blocks:
 * gradients whose squares are summed, and parameters that are updated, are many, most of them
 * small.
 *
 * A sum and the squares around its mean are one reduction of COLUMNS and LINES, whose partial
 * results are means and centred squares, joined by Chan's formula in the order of the parts.
 *   UNIFORM  values without axes, one thread */
#ifndef STATOR_KERNELS_EMIT_SCHEDULE_H
#define STATOR_KERNELS_EMIT_SCHEDULE_H

#include "ir/nest.h"

typedef enum emit_shape {
    EMIT_UNIFORM = 1,
    EMIT_FLAT,
    EMIT_ROWS,
    EMIT_COLUMNS,
    EMIT_LINES,
    EMIT_FINISH,
} emit_shape_t;

enum { EMIT_MAX_SINKS = NEST_TOGETHER, EMIT_MAX_PERSISTENT = 96, EMIT_BLOCK = 256 };

/* Where a reduction that ends a level has its partial results and its result, both in the
 * accumulator's type: bytes from the start of the workspace. */
typedef struct emit_grid {
    bool is_grid;
    bool of_row; /* a row reduction whose kernel leaves it for later levels: result, no partial */
    uint64_t partial, result;
    int64_t n_partials;
} emit_grid_t;

typedef struct emit_kernel {
    emit_shape_t shape;
    uint32_t domain, level;
    uint32_t mask;       /* axes iterated over */
    uint32_t rows, cols; /* ROWS; COLUMNS, LINES: kept and other axes; masks of `mask` */
    int32_t vector_axis; /* -1: none */
    uint32_t vector;     /* elements a thread takes at once along it */
    uint32_t group;      /* threads a row (ROWS), along the columns (COLUMNS), a point (FINISH) */
    uint32_t chunks;     /* vectors a thread has of a row; 0: too many to unroll, a loop */
    uint32_t resident;   /* COLUMNS with sums: blocks that a multiprocessor has at once; 0: any */
    bool keep;           /* what a row loads stays in registers */
    int64_t blocks, splits; /* splits: parts of a reduction; ROWS: rows a block */
    bool joined;            /* in the launch of the kernel before, as one with it */
    int64_t reduced, part;  /* FINISH: points that all parts have together, and each but the last */
    uint32_t n_stores, n_reduces;
    uint32_t stores[EMIT_MAX_SINKS];      /* indices of nest->stores */
    nest_value_t reduces[EMIT_MAX_SINKS]; /* grid reductions; UNIFORM: the values */
} emit_kernel_t;

typedef struct emit_schedule {
    st_arena_t arena;
    const nest_t *nest;
    uint32_t n_kernels, n_levels;
    emit_kernel_t *kernels;
    emit_grid_t *grid;  /* [stmts] */
    uint8_t *level;     /* [stmts] */
    uint64_t *uniform;  /* [stmts] offset of the f64 of a uniform value, UINT64_MAX: none */
    nest_value_t *of;   /* [stmts] of a reduction: what its kernel runs over */
    nest_value_t *pair; /* [stmts] the one that a reduction is made together with; NEST_NONE: none.
                           The second of a pair, later in the nest, is the kernel's, the first comes
                           with it */
    uint64_t workspace; /* bytes */
} emit_schedule_t;

st_status_t emit_schedule_create(const nest_t *nest, emit_schedule_t **out_schedule) ST_WARN_UNUSED;
void emit_schedule_destroy(emit_schedule_t *schedule); /* NULL is fine */
/* How the sums of the nest are added up: equal for two schedules only where each sum, in the nests'
 * order, takes its terms in the same order and groups. */
uint64_t emit_sums_hash(const emit_schedule_t *schedule);

/* Is the result there when kernels of `level` run? */
static inline bool emit_is_result(const emit_schedule_t *schedule, uint32_t level, uint32_t v) {
    return schedule->grid[v].is_grid || (schedule->grid[v].of_row && level > schedule->level[v]);
}

/* How many kernels are joined to kernel `first`. */
static inline uint32_t emit_n_joined(const emit_schedule_t *schedule, uint32_t first) {
    uint32_t n = 0;
    while (first + 1 + n < schedule->n_kernels && schedule->kernels[first + 1 + n].joined) n++;
    return n;
}
/* Blocks of the launch of kernel `first`, which is not joined to another: its own and theirs. */
static inline int64_t emit_launch_blocks(const emit_schedule_t *schedule, uint32_t first) {
    int64_t blocks = 0;
    for (uint32_t i = 0; i <= emit_n_joined(schedule, first); i++)
        blocks += schedule->kernels[first + i].blocks;
    return blocks;
}
/* Launches that the kernels take. */
static inline uint32_t emit_n_launches(const emit_schedule_t *schedule) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < schedule->n_kernels; i++) n += !schedule->kernels[i].joined;
    return n;
}

/* Is the reduction made by the one that it is paired with? */
static inline bool emit_comes_along(const emit_schedule_t *schedule, nest_value_t v) {
    return schedule->pair[v] != NEST_NONE && schedule->pair[v] > v;
}

/* FINISH: does a block have a single point? */
static inline bool emit_finish_whole(const emit_kernel_t *kernel) {
    return kernel->group == EMIT_BLOCK;
}

/* Threads of a block. */
uint32_t emit_threads(const emit_kernel_t *kernel);
/* Does the kernel move `access` as vectors along its vector axis? */
bool emit_access_vector(const emit_kernel_t *kernel, const nest_access_t *access);

#endif
