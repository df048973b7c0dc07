/* Rows of the tile interpreter: what an instruction does along contiguous elements. */
#ifndef STATOR_KERNELS_CPU_FUSED_H
#define STATOR_KERNELS_CPU_FUSED_H

#include "kernels/cpu/cpu.h"
#include "kernels/nest/plan.h"

/* n elements; sources have stride 0 or 1, the result 1. Sums along a row add to one element. */
typedef void (*tile_row_t)(void *d, const void *a, int64_t sa, const void *b, int64_t sb,
                           const void *c, int64_t sc, int64_t n);
/* The same of more than three sources; bit k of mask: source k goes along, else it is one value. */
typedef void (*many_row_t)(void *d, const void *a, const void *b, const void *c, const void *x,
                           const void *z, unsigned mask, int64_t n);
typedef void (*load_row_t)(void *d, const void *from, int64_t stride, int64_t n);
typedef void (*store_row_t)(void *d, int64_t stride, const void *from, int64_t sa, int64_t n);

/* Processor levels have their own. */
#define cpu_tile_op KERN_SYMBOL(kern_cpu_tile_op)
#define cpu_tile_joined KERN_SYMBOL(kern_cpu_tile_joined)
#define cpu_tile_many KERN_SYMBOL(kern_cpu_tile_many)
#define cpu_tile_reduction KERN_SYMBOL(kern_cpu_tile_reduction)
#define cpu_tile_load KERN_SYMBOL(kern_cpu_tile_load)
#define cpu_tile_store KERN_SYMBOL(kern_cpu_tile_store)
#define cpu_tile_finish KERN_SYMBOL(kern_cpu_tile_finish)

/* Row of an elementwise instruction by code, flag and type; f64: reals are double. NULL: none. */
tile_row_t cpu_tile_op(uint16_t code, uint8_t flag, nx_type_t type, bool f64);

/* The same of one that stands for several, of three sources at most. */
tile_row_t cpu_tile_joined(uint16_t code, bool f64);
/* Row of an instruction from NX_DIFF_MUL_ADD on, before NX_LOAD. */
many_row_t cpu_tile_many(uint16_t code, bool f64);

/* Rows of a reduction over the product of n_src sources. */
typedef struct tile_reduction {
    tile_row_t along;     /* *d op= all elements */
    tile_row_t down;      /* d[i] op= element i */
    tile_row_t down_fast; /* the same in the type of the sources, from 0; NULL: none */
    tile_row_t widen;     /* d[i] op= what down_fast gave */
} tile_reduction_t;
const tile_reduction_t *cpu_tile_reduction(uint16_t code, uint32_t n_src, nx_type_t type, bool f64);
/* Memory ↔ registers; NULL: none for the dtype. */
load_row_t cpu_tile_load(ir_dtype_t dtype, nx_type_t type, bool f64);
store_row_t cpu_tile_store(ir_dtype_t dtype, nx_type_t type, bool f64);
/* Double accumulators → reals. */
tile_row_t cpu_tile_finish(bool f64);

/* ---- a launch ---- */

/* A view on the tile at hand. */
typedef struct fused_here {
    char *p;
    int64_t rs, cs; /* elements */
    int64_t size;
    int64_t at; /* NX_PLACE: the number */
} fused_here_t;

/* What an instruction of a strip reads or writes; in bytes, but `along` in elements. */
typedef struct fused_operand {
    uint32_t view;
    int64_t along, between, advance; /* along a row, between rows, a column further */
} fused_operand_t;

/* An instruction made ready; operand 0 is the result. */
typedef struct fused_step {
    void (*row)(void);
    uint32_t kind, n, mask;
    fused_operand_t operands[1 + NX_SOURCES];
} fused_step_t;

/* Steps of a pass; where[i] != 0: those from i to there run together, a few columns at a time. */
typedef struct fused_strips {
    int64_t columns;
    fused_step_t *steps;
    uint32_t *where;
    bool *dense; /* [i]: all rows are one */
} fused_strips_t;

#define cpu_fused_strips KERN_SYMBOL(kern_cpu_fused_strips)
/* Finds the strips of a pass whose instructions have their rows. */
st_status_t cpu_fused_strips(const nx_pass_t *pass, const nest_domain_t *domain, st_arena_t *arena,
                             fused_strips_t *out);
#define cpu_fused_run_strip KERN_SYMBOL(kern_cpu_fused_run_strip)
/* Runs steps [first, strips->where[first]) over a tile. */
void cpu_fused_run_strip(const fused_strips_t *strips, const nx_pass_t *pass,
                         const fused_here_t *here, uint32_t first, int64_t rows, int64_t cols);

/* A uniform value in all its types. */
typedef struct fused_uniform {
    double d;
    int64_t i;
    float f;
} fused_uniform_t;

/* First index out of range that a thread met; where in the phase, so that the first is reported. */
typedef struct fused_error {
    int64_t chunk; /* INT64_MAX: none */
    int64_t index, position;
    uint32_t stmt;
} fused_error_t;

typedef struct fused_job {
    const kern_call_t *call;
    const nx_plan_t *plan;
    const fused_strips_t *strips; /* [n_passes] */
    const nx_phase_t *phase;
    fused_uniform_t *uniforms;             /* [n_stmts] */
    char *shared;                          /* slots and partial sums */
    char *threads;                         /* scratch of each */
    size_t thread_bytes, temporary, views; /* registers come first, then a row of sums, views */
    fused_error_t *errors;                 /* [threads] */
} fused_job_t;

/* Where a load or gather reads from. */
static inline const char *fused_memory(const fused_job_t *job, const nest_access_t *access) {
    return access->tensor == NEST_NONE ? access->data : job->call->in[access->tensor];
}
/* Index of an access within its dim, negative ones from the end; -1: out of range. */
static inline int64_t fused_index(const nest_access_t *access, int64_t index) {
    if (index < -access->index_extent || index >= access->index_extent) return -1;
    return index < 0 ? index + access->index_extent : index;
}

#define cpu_fused_chunk KERN_SYMBOL(kern_cpu_fused_chunk)
/* Runs chunk `chunk` of `pass`; `place` is its number in the phase. */
void cpu_fused_chunk(const fused_job_t *job, const nx_pass_t *pass, int64_t chunk, int64_t place,
                     int thread);
/* Sets the elements [begin, end) of accumulators to the identity of reduction `code`. */
#define cpu_fused_fill KERN_SYMBOL(kern_cpu_fused_fill)
void cpu_fused_fill(void *data, uint16_t code, nx_type_t type, bool f64, int64_t n);

#endif
