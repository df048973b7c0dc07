/* Target descriptions: what a device is, how fast it does what, which kernels it has.
 *
 * A description is a text, one statement a line, # begins a comment. Those of targets/ are built
 * into the library; others are files; targets/README.md tells their writers more. Numbers are ≥ 0;
 * sizes have units (KiB, MiB, GiB).
 *
 *   target h200                     its name
 *   device cuda                     what runs its plans; on "cpu" the kernels are this build's own
 *   cores 132                       cores, multiprocessors
 *   clock_ghz 1.98
 *   memory 139.8GiB                 of one device; 0: not limited
 *   caches 256KiB 60MiB 0           as one core sees them, nearest first
 *   memory_gbps 4000                1e9 bytes a second
 *   launch_us 2.2                   of one kernel
 *   link_us 8                       a collective among ranks: one step …
 *   link_gbps 328                   … and the bytes of one link
 *   host_ranks 8                    those links join so many ranks …
 *   host_link_us 12                 … and slower ones, one a rank, their hosts
 *   host_link_gbps 45
 *   link_overlap 1                  share of a collective that runs beside kernels; none: 1, on
 *                                   "cpu" 0
 *   bandwidth 16MiB 8000            1e9 bytes a second while the operands together have this size;
 *                                   ascending
 *   passes f32 30000                arithmetic of passes over elements, GFLOP/s of the device
 *   products bf16 650000            of products without a nearer rate
 *   threads 2 passes=1.6 products=1.9    speed of a plan of so many threads, of one being 1
 *   rate matmul.nt bf16 m=16384 n=2048 k=2048 gflops=727000   measured; see work.h for the sizes
 *   rate exp f32 bytes=64KiB ns=0.6                           an element
 *   tile exp f32 0.5                inside a nest, nanoseconds an element
 *   edge f32 0.05                   an element that a nest loads or stores, nanoseconds at least
 *   nest_us 1                       of a nest, however small; none: launch_us
 *   nest columns us=12 gbps=3900    "cuda": a launch of that shape in a plan's prediction, and the
 *                                   bytes it moves far from all caches; none: launch_us, the last
 *                                   bandwidth
 *   kernel cudnn.attention          a kernel that exists; what follows says of it:
 *     ops attention                   which ops; "elementwise" stands for all of those
 *     dtypes bf16 f16                 of the elements; none: any
 *     launches 3                      none: 1; of loop nests it is worked out
 *     gflops 2                        what it sustains, where that is far from the op's rates;
 *                                     none: those
 *     epilogues relu add              elementwise ops that it does to its result at no cost
 *
 * Of one op the first kernel listed that can run it is the one. What a kernel can run and what
 * scratch it takes is the kernel's own business (kernels/gpu_rules.h), so that on device "cuda"
 * only kernels that there are may be listed. Errors name file and line. */
#ifndef STATOR_COMPILE_TARGET_H
#define STATOR_COMPILE_TARGET_H

#include "base/arena.h"
#include "compile/work.h"
#include "ir/target.h"
#include "kernels/table.h"

/* 1e9 bytes a second while an op's operands together have this size. Ascending. */
typedef struct target_bandwidth {
    double bytes, gbps;
} target_bandwidth_t;

/* Speed of a plan of `n` threads against one thread. Ascending. */
typedef struct target_threads {
    double n, passes, products;
} target_threads_t;

/* A problem as a point: octaves of the sizes that its rate depends on. */
enum { TARGET_AXES = 6 };
void target_place(work_kind_t kind, const work_dims_t *dims, double out_place[TARGET_AXES]);

/* A measured rate. */
typedef struct target_rate {
    ir_op_t op;
    const char *variant; /* "": any */
    ir_dtype_t dtype;
    double bytes;                      /* passes: of all operands */
    work_dims_t dims;                  /* the others; sizes left out are 1 */
    double ns;                         /* a unit of work_t, one thread */
    double place[TARGET_AXES], log_ns; /* where target_place has the problem */
} target_rate_t;

/* What a launch of a nest takes beside its bytes, and how fast these come. */
typedef struct target_nest {
    double us, gbps;
} target_nest_t;

typedef struct target_kernel {
    const char *name;
    bool ops[IR_OP_END], epilogues[IR_OP_END];
    uint32_t dtypes; /* bit ir_dtype_t; 0: any */
    uint32_t launches;
    double gflops; /* 0: the rates of the op */
} target_kernel_t;

typedef struct target {
    st_arena_t arena;
    const char *text; /* the description, and whether it is a built-in one */
    size_t text_bytes;
    bool builtin;
    ir_machine_t machine;
    bool reference_kernels; /* the choice is among the reference kernels only */
    uint32_t n_bandwidths, n_threads, n_rates, n_kernels;
    target_bandwidth_t *bandwidths;
    target_threads_t *threads;
    target_rate_t *rates;                    /* by op, dtype, bytes */
    uint32_t first_rate[IR_OP_END + 1];      /* of an op */
    double pass_gflops[IR_DTYPE_END];        /* passes over elements; 0: as f32 */
    double product_gflops[IR_DTYPE_END];     /* products; 0: as f32 */
    double tile_ns[IR_OP_END][IR_DTYPE_END]; /* 0: by pass_gflops */
    double edge_ns[IR_DTYPE_END], nest_us;
    target_nest_t nests[KERN_SHAPES];
    target_kernel_t *kernels;
} target_t;

/* By the name of a built-in description ("cpu", "h200"), or the path of a file (one that has a
 * slash or ends in ".target"). NOT_FOUND lists the built-in names; PARSE names file and line. Freed
 * with target_destroy. */
st_status_t target_open(const char *name, target_t **out_target) ST_WARN_UNUSED;
/* From text; `path` is for messages. */
st_status_t target_parse(const char *path, const char *text, size_t bytes,
                         target_t **out_target) ST_WARN_UNUSED;
void target_destroy(target_t *target); /* NULL is fine */
/* For a plan of the ranks of `mesh` with so many threads each. */
void target_bind(target_t *target, const ir_mesh_t *mesh, uint32_t n_threads);
/* Fills in what passes see: machine, cost and can_run; `target` becomes the context and outlives
 * it. */
void target_fill(target_t *target, ir_target_t *out);

/* Descriptions that are built in (made from targets/ by the build). Ended by a NULL name. */
typedef struct target_builtin {
    const char *name;
    const unsigned char *text;
    size_t bytes;
} target_builtin_t;
extern const target_builtin_t target_builtins[];

/* ---- cost (cost.c) ---- */
/* Bytes that a `fused` node of this body reads again, where a cache does not hold them between one
 * pass and the next (stages.c). Out of memory: 0. */
double target_bytes_again(const target_t *target, const ir_graph_t *body);
/* Kernel of a node, with its scratch (ST_SIZE_TOO_LARGE: overflows) and launches. NULL: none can
 * run it, *out_reason says why (until the thread's next call). */
const char *target_choose(const target_t *target, const ir_op_ctx_t *ctx,
                          const ir_type_t *out_types, size_t *out_workspace, uint32_t *out_launches,
                          const char **out_reason);
/* Why the kernels that the description lists before the node's own do not run it: "" where its own
 * is the first, and on processors. */
void target_refusals(const target_t *target, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                     char *out, size_t capacity);
/* ir_target_t.cost; the second with the bytes that lie between the last use of the operands and now
 * given, where the first takes the operands' own. */
void target_cost(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types, ir_cost_t *out);
void target_cost_at(const target_t *target, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                    double distance_bytes, ir_cost_t *out);
/* ir_target_t.cost without a target: operations and bytes, no time. */
void target_work_only(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                      ir_cost_t *out);
/* Bandwidth while `bytes` lie between uses, 1e9 bytes a second. */
double target_bandwidth_at(const target_t *target, double bytes);
/* Of a node whose *cost target_cost_at has told: where a GPU runs it as a nest, its time is told
 * anew from the launches that this takes and what each of them moves (launches.c). For plans that
 * are made: what is fused with what is judged by the cost. Leaves other nodes as they are. */
st_status_t target_count_launches(const target_t *target, const ir_op_ctx_t *ctx,
                                  const ir_type_t *out_types, double distance_bytes,
                                  ir_cost_t *cost) ST_WARN_UNUSED;
/* Copying, `bytes` read and written together; `distance_bytes` as above. */
double target_copy_us(const target_t *target, double bytes, double distance_bytes);
st_status_t target_sums(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                        uint64_t *out_hash) ST_WARN_UNUSED;
bool target_can_run(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                    const char **out_reason);
/* Products' rate that nothing exceeds, GFLOP/s: the largest listed for the dtype. For
 * utilization. */
double target_peak_gflops(const target_t *target, ir_dtype_t dtype);
double target_peak_gbps(const target_t *target); /* memory's, far from all caches */

#endif
