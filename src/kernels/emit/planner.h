/* What the files that work out a schedule share: levels.c finds what depends on what, rows.c and
 * schedule.c make the kernels. */
#ifndef STATOR_KERNELS_EMIT_PLANNER_H
#define STATOR_KERNELS_EMIT_PLANNER_H

#include "base/memory.h"
#include "kernels/emit/schedule.h"

/* Numbers of blocks are multiples of the multiprocessors of an H100 or H200, fewer of which other
 * devices have: more blocks than those do no harm. */
enum {
    MULTIPROCESSORS = 132,
    /* Two blocks each: below this many rows, a row a block would leave multiprocessors idle, unless
     * the rows are so short that a launch costs more than they do. */
    FEW_ROWS = 2 * MULTIPROCESSORS,
    SHORT_ROW = 1 << 12, /* 512 threads take it in one go of 8 elements each */
    ROW_LIMIT = 1 << 18, /* 512 elements a thread of one block; longer ones are split over blocks */
    WARP_ROW = 1 << 10,  /* 32 elements a lane, which fit its registers: no barrier in the block */
    MAX_GROUP = 512,     /* threads a row */
    FINISH_ROWS =
        32, /* threads a point where there are many parts: their latency is all the time */
    ROWS_A_THREAD = 8, /* at least, of a sum over rows that several blocks share */
    COLUMN_GROUPS = 4 * MULTIPROCESSORS, /* blocks with column sums: each writes a part of all */
    MAX_RESIDENT =
        4, /* blocks of EMIT_BLOCK threads that a multiprocessor is given: they hide memory's
            * latency */
    WANTED_BLOCKS = MAX_RESIDENT * MULTIPROCESSORS,
    REGISTERS = 65536,            /* of a multiprocessor */
    OWN_REGISTERS = 20,           /* a thread's, besides its values: addresses and counters */
    MAX_COLUMN_SUMS = 128,        /* a thread's, in registers: half of the 255 that it can have */
    MAX_CONSTANT_BYTES = 1 << 16, /* written into the source as text */
    ALIGNMENT = 256,              /* of a device's allocations */
};

typedef struct emit_planner {
    emit_schedule_t *s;
    const nest_t *nest;
    uint32_t *spread; /* [stmts] axes of what depends on it */
    uint32_t *cols;   /* [domains] axes within a row; 0: no rows */
    uint32_t *all;  /* [domains] with cols: the axes of what has rows, a row's and the rows' own */
    bool *needed;   /* [stmts] slice at hand */
    uint32_t level; /* that kernels are planned for */
    bool *loads;    /* [stmts] scratch */
    bool *complete; /* [stmts] reductions whose results there are */
    uint32_t capacity;
} emit_planner_t;

static inline const nest_stmt_t *emit_plan_stmt(const emit_planner_t *p, nest_value_t v) {
    return &p->nest->stmts[v];
}

static inline int32_t emit_last_axis(uint32_t mask) {
    int32_t axis = -1;
    for (int32_t i = 0; i < NEST_MAX_AXES; i++)
        if (mask >> i & 1) axis = i;
    return axis;
}

static inline int64_t emit_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* ---- levels (levels.c) ---- */

/* Bytes of the workspace; returns their place. */
uint64_t emit_plan_take(emit_schedule_t *s, uint64_t bytes);
/* Fill spread[], cols[] and all[]. */
void emit_plan_spread(emit_planner_t *p);
void emit_plan_cols(emit_planner_t *p);
/* Reductions that go together; which end a level, and the level of every statement. */
void emit_plan_pairs(emit_planner_t *p);
void emit_plan_find_levels(emit_planner_t *p);
/* Which row results are left in the workspace; levels and uniform values are known. */
void emit_plan_leave(emit_planner_t *p);
/* Level whose kernels can have the value. */
uint8_t emit_plan_available(const emit_schedule_t *s, nest_value_t v);
/* Is the value a result of kernels before those at hand? */
bool emit_plan_is_result(const emit_planner_t *p, nest_value_t v);
size_t emit_plan_sum_bytes(const emit_planner_t *p, nest_value_t v);

/* The slice at hand, needed[]: what a value is computed from, down to loads, uniform operations and
 * results. */
void emit_plan_clear(emit_planner_t *p);
void emit_plan_mark(emit_planner_t *p, nest_value_t v);
void emit_plan_mark_reduce(emit_planner_t *p, nest_value_t v);
bool emit_plan_has_rows(const emit_planner_t *p);
/* Is `v` computed from `from`? */
bool emit_plan_depends(const emit_planner_t *p, nest_value_t v, nest_value_t from);

/* ---- kernels (schedule.c) ---- */

st_status_t emit_plan_kernel(emit_planner_t *p, emit_shape_t shape, uint32_t domain, uint32_t level,
                             emit_kernel_t **out) ST_WARN_UNUSED;
st_status_t emit_plan_store(emit_kernel_t *k, uint32_t store) ST_WARN_UNUSED;
st_status_t emit_plan_reduce(emit_planner_t *p, emit_kernel_t *k, nest_value_t v,
                             int64_t n_partials) ST_WARN_UNUSED;
/* The slice of a kernel's sinks. */
void emit_plan_mark_sinks(emit_planner_t *p, const emit_kernel_t *k);
/* Elements a thread takes: 16 bytes of the narrowest tensor, where the extent allows. */
void emit_plan_vector(emit_planner_t *p, emit_kernel_t *k);

/* One ROWS kernel for all that needs a domain's row reductions at a level (rows.c). */
st_status_t emit_plan_rows(emit_planner_t *p, uint32_t domain, uint32_t level, bool *taken_store,
                           bool *taken_reduce) ST_WARN_UNUSED;

#endif
