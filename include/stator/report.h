/* Stator: reports – what a plan holds and will do, before anything runs.
 *
 * A report tells one rank of a plan: its memory by kind and by tensor, its kernels, the operations
 * and bytes of a step, and how long the target's description says that a step takes. It needs no
 * device and owns all that it gives out: the plan may go first. Reading it is thread-safe.
 * (Nearest: the memory statistics of torch.cuda and XLA's buffer assignment, told before the
 * run.) */
#ifndef STATOR_REPORT_H
#define STATOR_REPORT_H

#include "stator/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stator_report stator_report_t;

/* INVALID: there is no such rank. PARSE: the description that a plan from a file was made for is
 * damaged. NOT_FOUND: this build has no target of the plan's target's name. */
STATOR_API stator_status_t stator_report_create(const stator_plan_t *plan, uint32_t rank,
                                                stator_report_t **out_report) STATOR_WARN_UNUSED;
STATOR_API void stator_report_destroy(stator_report_t *report); /* NULL is fine */

typedef struct stator_report_totals {
    const char *target; /* its name */
    /* memory, in bytes */
    uint64_t state_bytes, work_bytes, comm_bytes; /* the regions, as a session allocates them */
    uint64_t feeds_bytes;                         /* the inputs of one step more */
    uint64_t total_bytes;                         /* their sum */
    uint64_t
        live_bound_bytes; /* most that is alive at one time in `work`: what no packing goes below */
    uint64_t capacity_bytes; /* memory of the target; 0: not known */
    uint32_t peak_step;      /* the step at which that is; the lists of tensors tell that moment */
    /* a step of training or inference */
    uint64_t n_kernels, n_collectives;
    double flop; /* executed: every op, a multiply-add is two; recomputed ones count again */
    double product_flop; /* of these, in products, convolutions and attention */
    double model_flop;  /* this rank's share of the products of the model's own graph: none twice */
    double bytes_moved; /* to and from memory, every operand of every kernel once */
    double bytes_layout_copied; /* of these by transposes and copies, which compute nothing */
    double bytes_recomputed; /* size of the values that the backward pass computes again instead of
                              * finding them kept; for the rank that needs most memory */
    double flop_recomputed;  /* operations that this takes */
    uint64_t n_recomputed, n_recomputed_products; /* ops computed again; of these, products and the
                                                   * like */
    double us_recomputed; /* how much longer the step takes for it, predicted; < 0: it saves time */
    /* time of this rank's step, in microseconds: kernels one after the other, collectives beside
     * them where the target can, with all ranks simulated. step = forward + backward + optimizer +
     * exposed */
    double step_us;
    double forward_us, backward_us, optimizer_us; /* kernels */
    double exposed_us; /* kernels stand still for collectives, or for other ranks' part in them */
    double peers_us;   /* the part of `exposed` in which another rank had not come yet */
    double link_us;    /* sum of the collectives' transfers, hidden or not */
    double model_utilization;    /* model_flop in this time against the target's best products */
    double hardware_utilization; /* the same of `flop` */
    double compile_us;           /* 0 for a loaded plan */
} stator_report_totals_t;
STATOR_API stator_report_totals_t stator_report_totals(const stator_report_t *report);

/* Rows of the lists below: 0 past the end. Texts live as long as the report. */

/* Memory by kind. `region`: "state", "work", "comm"; `kind`: "parameters", "buffers", "moments";
 * "inputs", "constants", "activations" (made forward, read backward), "gradients", "outputs",
 * "workspace", "temporaries", "gaps" (what packing leaves unused at the peak); "collectives". The
 * rows of a region sum up to it, alignment included; but where the plan shares another's state
 * (`state_of`), what only that one has belongs to no row. */
typedef struct stator_report_memory {
    const char *region, *kind;
    uint64_t bytes;
} stator_report_memory_t;
STATOR_API int stator_report_memory_at(const stator_report_t *report, size_t index,
                                       stator_report_memory_t *out_row);

/* What is alive at the peak, largest first, 64 rows at most. The tensor's name is that of the node
 * that made it, or its op and number; it lives from step `from` to step `to`. */
typedef struct stator_report_tensor {
    stator_tensor_t tensor; /* data NULL; bytes: of the memory, which several values may share */
    const char *kind;
    uint32_t from, to;
} stator_report_tensor_t;
STATOR_API int stator_report_tensor_at(const stator_report_t *report, size_t index,
                                       stator_report_tensor_t *out_row);

/* Kernels by name, most time first. */
typedef struct stator_report_kernel {
    const char *name;
    uint64_t n_calls;
    double us, flop, bytes;
    double memory_us; /* the part of the time in calls that memory, not arithmetic, limits */
    const char *
        refusals; /* "" or, of a kernel of last resort, why better ones do not run its first call */
} stator_report_kernel_t;
STATOR_API int stator_report_kernel_at(const stator_report_t *report, size_t index,
                                       stator_report_kernel_t *out_row);

/* Nodes that were fused into one kernel, and what that is estimated to save. There are rows only of
 * a plan that was compiled with option `explain`, which takes longer. */
typedef struct stator_report_fused {
    const char *name, *ops; /* the node's; what it is made of: "add rms_norm mul" */
    uint32_t n_nodes, launches_apart;
    double us, us_apart; /* as one; its nodes by themselves */
    uint64_t bytes_saved;
} stator_report_fused_t;
STATOR_API int stator_report_fused_at(const stator_report_t *report, size_t index,
                                      stator_report_fused_t *out_row);

/* Where one node's values go to another that it was not fused with, and why. The times are 0 unless
 * they are the reason. */
typedef struct stator_report_boundary {
    const char *from, *to;
    const char *why, *reason; /* "no-nest", "cycle", "cost", …; a sentence */
    uint64_t bytes;
    double us_apart, us_together;
} stator_report_boundary_t;
STATOR_API int stator_report_boundary_at(const stator_report_t *report, size_t index,
                                         stator_report_boundary_t *out_row);

/* What the placements could have been, and which were chosen: along each axis of the mesh the
 * uniform plans and the best free choice ("auto"); then of whole meshes, uniform plans and what was
 * searched for. There are rows only of a plan that was compiled with option shard=auto. Times and
 * memory are of one rank, simulated before fusion, recomputation and writing in place, alike for
 * all rows of an axis, roughly for meshes: to be held against each other, not against the plan.
 * Every uniform plan of the mesh is compiled as well, and the fastest plan is taken. */
typedef struct stator_report_alternative {
    const char *axis, *name; /* "data", or a mesh, "data=2,tensor=2"; "dp", "zero3", …, "auto" */
    int chosen;              /* 1: the plan has these */
    int fits;                /* 1: within the limit of memory, as estimated here */
    double step_us;          /* 0: it was compiled only. Of it, communication that nothing hides: */
    double exposed_us;
    uint64_t state_bytes, live_bytes; /* states; the most that is alive beside them */
    const char *
        reason; /* why there is no such plan: nothing was searched for (then this is the axis's only
                  * row), it cannot be lowered, or does not fit; else "" */
    double compiled_us; /* a step of the plan that was compiled with it, by which it was chosen; 0:
                      * none was */
} stator_report_alternative_t;
STATOR_API int stator_report_alternative_at(const stator_report_t *report, size_t index,
                                            stator_report_alternative_t *out_row);

/* Passes of the compiler in their order, and the time that each took. None for a loaded plan. */
typedef struct stator_report_pass {
    const char *name;
    double us;
} stator_report_pass_t;
STATOR_API int stator_report_pass_at(const stator_report_t *report, size_t index,
                                     stator_report_pass_t *out_row);

#ifdef __cplusplus
}
#endif
#endif
