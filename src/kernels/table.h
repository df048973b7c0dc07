/* The kernel table: which implementations exist, which one a problem gets. */
#ifndef STATOR_KERNELS_TABLE_H
#define STATOR_KERNELS_TABLE_H

#include "base/arena.h"
#include "kernels/kernel.h"

/* Implementations of `op` on `device` ("cpu", "cuda"), best first, ended by NULL; an empty list if
 * none. Those of "cuda" are there where its module opens (device/module.h). */
const kern_impl_t *const *kern_list(const char *device, ir_op_t op);
/* By name; NULL if this build has none of that name. */
const kern_impl_t *kern_find(const char *name);
/* An op's implementation by name on a device; NULL if there is none. */
const kern_impl_t *kern_find_on(const char *device, ir_op_t op, const char *name);
/* First that can run the problem. `reference_only` takes the reference. FAILs with ST_UNSUPPORTED
 * and every implementation's reason. */
st_status_t kern_choose(const char *device, const kern_problem_t *problem, bool reference_only,
                        const kern_impl_t **out_impl) ST_WARN_UNUSED;
/* Does the CUDA module's kernel of this name run the problem? Then its scratch, and of a nest its
 * launches (left alone else); if not, *out_reason says why (until the thread's next call). Needs
 * neither GPU nor module. */
bool kern_runs_on_gpu(const char *kernel, const kern_problem_t *problem, size_t *out_workspace,
                      uint32_t *out_launches, const char **out_reason);
/* How the kernel `name` of a device adds up the problem's sums: equal for two only where every sum
 * takes its terms in the same order and groups. Nests tell it from what they plan, any other kernel
 * by its name and the problem's op. Needs no device. */
st_status_t kern_sums_hash(const char *device, const char *name, const kern_problem_t *problem,
                           uint64_t *out_hash) ST_WARN_UNUSED;
/* What a launch of a nest on a GPU moves. Tensors are the node's operands, then its results. */
typedef struct kern_move {
    uint32_t tensor; /* KERN_SCRATCH: parts of sums */
    double bytes;    /* loaded or stored, each element once */
    double
        again_bytes; /* loaded again by the same kernel, which goes through its rows more than once
                      * … */
    double again_reach; /* … and the bytes of the tensor that lie between two such passes */
} kern_move_t;
#define KERN_SCRATCH UINT32_MAX
/* How a kernel goes through its points (emit/schedule.h). */
typedef enum kern_shape {
    KERN_SHAPE_UNIFORM,
    KERN_SHAPE_FLAT,
    KERN_SHAPE_ROWS,
    KERN_SHAPE_ROWS_SUMS, /* rows, and sums over all of them */
    KERN_SHAPE_COLUMNS,
    KERN_SHAPE_COLUMNS_SUMS,
    KERN_SHAPE_LINES,
    KERN_SHAPE_FINISH,
    KERN_SHAPES,
} kern_shape_t;
typedef struct kern_launch {
    kern_shape_t shape;
    uint32_t n_moves;
    const kern_move_t *moves;
} kern_launch_t;
const char *kern_shape_name(kern_shape_t shape); /* "columns.sums"; NULL past the last */
/* The launches of a problem that the kernel "nest" of device "cuda" runs, in order. Needs no
 * device. */
st_status_t kern_nest_launches(const kern_problem_t *problem, st_arena_t *arena, uint32_t *out_n,
                               kern_launch_t **out_launches) ST_WARN_UNUSED;
/* Has the module a kernel of this name for the op? */
bool kern_known_on_gpu(const char *kernel, ir_op_t op);
/* Runs one node on host memory with a one-thread team: constant folding, tests. Allocates scratch.
 */
st_status_t kern_run_once(const kern_problem_t *problem, const void *const *in,
                          void *const *out) ST_WARN_UNUSED;
/* Same for one implementation and a team of n_threads. */
st_status_t kern_run_impl(const kern_impl_t *impl, const kern_problem_t *problem, int n_threads,
                          const void *const *in, void *const *out) ST_WARN_UNUSED;
/* Tests: lists kernels of another processor level ("base", "v3", "v4"). Not while other threads use
 * the table. */
st_status_t kern_set_level(const char *level) ST_WARN_UNUSED;
/* Processor level in use: "v4", "v3" or "base"; names of libraries with versions ("oneDNN 2.6.3"),
 * "" if none. */
const char *kern_cpu_level(void);
const char *kern_libraries(void);

#endif
