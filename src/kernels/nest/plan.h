/* How a processor with caches and vectors runs a nest: phases, passes, tiles, instructions.
 *
 * A phase ends where a reduction over everything must be known before anything goes on. It has one
 * pass a set of axes; the passes of a phase are independent and cut into chunks that threads take.
 *
 *   pass      parallel loops over items: blocks of the axes that no local reduction is over
 *    item     serial loops over the rest, once a stage: a stage ends where a reduction over the
 *             item (`over`) is complete, so a softmax has three
 *     tile    `rows` x `cols` points: blocks of two axes, the column axis contiguous where the
 *             tensors are; each instruction runs over the tile
 *
 *   values    full [row][col] | by row | by column | one a tile, as the axes that they depend on
 *
 * Reductions over `over` of their pass are local: accumulated over the tiles of an item. All others
 * are partial sums of a chunk, joined in order when the phase ends. Chunks are cut by shapes only,
 * so the bits do not depend on the number of threads. What several stages need is kept in registers
 * if an item is one tile, else it is computed again. */
#ifndef STATOR_KERNELS_NEST_PLAN_H
#define STATOR_KERNELS_NEST_PLAN_H

#include "ir/nest.h"

/* Codes of instructions; below NX_FIRST they are ops of ir_op_t, elementwise. */
typedef enum nx_code {
    NX_FIRST = 1024,
    NX_MUL_ADD,          /* a b + c */
    NX_MUL_SUB,          /* a b - c */
    NX_SUB_MUL,          /* c - a b, sources a, b, c */
    NX_MUL_MUL,          /* a b c */
    NX_DIFF_MUL,         /* (a - b) c */
    NX_DIFF_EXP,         /* e^(a - b) */
    NX_SILU_MUL,         /* silu(a) b */
    NX_ROOT_MUL_ADD,     /* sqrt(a) b + c */
    NX_DIFF_MUL_ADD,     /* (a - b) c + d */
    NX_MUL_MUL_ADD,      /* a b c + d */
    NX_MUL_ADD_MUL,      /* a b + c d */
    NX_MUL_SUB_MUL,      /* a b - c d */
    NX_MUL_ADD_TRIPLE,   /* a b + c d e */
    NX_MUL_SUB_QUOTIENT, /* a b - c d / e */
    NX_DIFF_SUB_MUL,     /* (a - b - c d) e */
    NX_LOAD,             /* dtype and strides of src[0] → register */
    NX_STORE,            /* register → dtype and strides of dst */
    NX_GATHER,           /* src[0]: memory, src[1]: index */
    NX_IOTA,
    NX_RANDOM, /* src[0]: place of the element; its statement has the arguments */
    NX_FILL,   /* dst = identity of the reduction */
    NX_SUM,    /* dst += sums of src[0] … src[n - 1]'s product, along rows and columns that dst
             * lacks */
    NX_PROD,
    NX_MAX,
    NX_MIN,
    NX_FINISH, /* accumulator → value */
} nx_code_t;

typedef enum nx_mode { NX_FULL, NX_ROW, NX_COL, NX_ONE } nx_mode_t;
typedef enum nx_type { NX_REAL, NX_INT, NX_WIDE } nx_type_t; /* f32 or f64 of the pass, i64, f64 */

typedef enum nx_space {
    NX_OPERAND, /* number: tensor */
    NX_RESULT,
    NX_DATA,     /* number: statement with the constant's elements */
    NX_SLOT,     /* number: slot */
    NX_PARTIAL,  /* number: slot; a chunk's part */
    NX_UNIFORM,  /* number: statement */
    NX_REGISTER, /* offset: bytes in the thread's scratch */
    NX_PLACE,    /* no memory: a number offset + strides */
} nx_space_t;

/* What an instruction reads or writes: a tile in memory or in a register. */
typedef struct nx_view {
    nx_space_t space;
    nx_type_t type; /* registers and uniforms */
    nx_mode_t mode; /* registers: the points they have */
    uint32_t number;
    ir_dtype_t dtype; /* memory */
    int64_t offset;   /* elements; bytes of a register */
    int64_t stride[NEST_MAX_AXES];
} nx_view_t;

enum { NX_SOURCES = 5 };
typedef struct nx_inst {
    uint16_t code;
    uint8_t flag, n_src;
    nx_type_t type;                /* of the operands */
    nx_mode_t mode;                /* points that it runs over */
    uint32_t when;                 /* bit of a loop: only in its first block */
    ir_dtype_t dtype;              /* integers: what the result is wrapped to */
    uint32_t dst, src[NX_SOURCES]; /* views */
    uint32_t stmt;
    void (*run)(void);    /* the device's, by code and type */
    const void *run_data; /* the same for reductions */
} nx_inst_t;

/* flag of IR_OP_CAST */
enum {
    NX_SAME,
    NX_REAL_TO_BOOL,
    NX_REAL_TO_INT,
    NX_INT_TO_REAL,
    NX_INT_TO_BOOL,
    NX_INT_TO_INT,
    NX_TO_BF16, /* rounds */
    NX_TO_F16,
    NX_TO_F32,
};
/* Code, flag, types and dtype of the elementwise statement `stmt` by itself. */
void nx_describe(const nest_t *nest, uint32_t stmt, nx_inst_t *out);

typedef struct nx_loop {
    uint32_t axis;
    int64_t extent, block, n_blocks;
} nx_loop_t;

typedef struct nx_stage {
    uint32_t first, body, finish, end; /* instructions: before, in and after the serial loops */
} nx_stage_t;

typedef struct nx_pass {
    uint32_t domain, mask, over;
    bool f64;
    int32_t col, row; /* axes of the tile; -1: none */
    int64_t rows, cols;
    uint32_t n_loops, n_parallel; /* parallel ones first */
    nx_loop_t loops[NEST_MAX_AXES];
    int64_t items, tiles; /* tiles an item */
    int64_t chunk_items, chunks;
    uint32_t n_stages, n_views, n_insts;
    nx_stage_t *stages;
    nx_view_t *views;
    nx_inst_t *insts;
    uint32_t first_partial, n_partials; /* of plan->partials */
} nx_pass_t;

/* A reduction's result in memory; a single element is f64 or i64. */
typedef struct nx_slot {
    uint32_t stmt;
    int32_t inner; /* axis along which it is contiguous, the columns of its pass; -1: any */
    int64_t elements;
    nx_type_t type; /* NX_REAL: of the pass */
    bool f64;
    size_t offset; /* in the workspace */
} nx_slot_t;

/* Chunks' parts of a slot, to be joined after the phase. */
typedef struct nx_partial {
    uint32_t slot;
    uint16_t code;  /* NX_SUM … */
    nx_type_t type; /* NX_WIDE: sums along the columns */
    size_t offset, chunk_bytes;
} nx_partial_t;

typedef struct nx_phase {
    uint32_t first_pass, n_passes;
    int64_t *first_chunk; /* [n_passes + 1] */
    uint32_t n_uniforms;
    const uint32_t *uniforms; /* statements to compute before it */
} nx_phase_t;

typedef struct nx_plan {
    st_arena_t arena;
    nest_t *nest;
    uint32_t n_phases, n_passes, n_slots, n_partials;
    nx_phase_t *phases;
    nx_pass_t *passes;
    nx_slot_t *slots;
    nx_partial_t *partials;
    uint32_t *slot_of;     /* [n_stmts] NEST_NONE: none */
    uint32_t *uniform_at;  /* [n_stmts] the phase before which it is computed; NEST_NONE: none */
    size_t register_bytes; /* a thread */
    size_t shared_bytes;   /* slots and partials */
} nx_plan_t;

/* Plans a nest and takes it over. */
st_status_t nx_plan_create(nest_t *nest, nx_plan_t **out_plan) ST_WARN_UNUSED;
void nx_plan_destroy(nx_plan_t *plan); /* NULL is fine */
/* How the sums of the plan's nest are added up: equal for two plans only where each sum, in the
 * nests' order, takes its terms in the same order and groups. What else a pass does is no part of
 * it. */
uint64_t nx_sums_hash(const nx_plan_t *plan);

/* The type in which a statement's value is held. */
static inline nx_type_t nx_type_of(const nest_stmt_t *stmt) {
    return ir_dtype_is_integer(stmt->dtype) ? NX_INT : NX_REAL;
}

#endif
