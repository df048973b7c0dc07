/* What a plan holds and will do, in figures: memory by kind, kernels, operations, bytes, time. */
#ifndef STATOR_COMPILE_REPORT_H
#define STATOR_COMPILE_REPORT_H

#include "compile/plan.h"
#include "compile/target.h"

typedef enum report_kind {
    REPORT_PARAMETERS = 0, /* state */
    REPORT_BUFFERS,
    REPORT_MOMENTS,     /* of the optimizer, and averages of the weights */
    REPORT_INPUTS,      /* work, at its fullest moment: what is fed */
    REPORT_CONSTANTS,   /* … stands in the graph */
    REPORT_ACTIVATIONS, /* … made forward, read backward */
    REPORT_GRADIENTS,   /* … made backward, read by the optimizer */
    REPORT_OUTPUTS,     /* … kept to the end because it is fetched */
    REPORT_WORKSPACE,   /* … kernels' scratch */
    REPORT_TEMPORARIES, /* … the rest of what is alive */
    REPORT_GAPS,        /* … and what packing leaves unused */
    REPORT_COMM,        /* buffers of collectives */
    REPORT_FEEDS,       /* inputs of the next step */
    REPORT_KINDS
} report_kind_t;
const char *report_kind_text(report_kind_t kind);
plan_region_t report_kind_region(report_kind_t kind);

/* A piece of memory that is alive at the fullest moment. */
typedef struct report_tensor {
    const char
        *what; /* the node that made it: its name, or its op and number; of scratch space also
                         ": " and the kernel, or "bodies" */
    ir_type_t type;
    report_kind_t kind;
    uint64_t bytes;
    uint32_t from, to; /* steps, inclusive */
} report_tensor_t;

typedef struct report_kernel {
    const char *name;
    uint64_t n_calls;
    double us, flop, bytes;
    double memory_us;     /* the part of it that goes to bytes rather than arithmetic or launches */
    const char *refusals; /* of the first call: why better kernels do not run it; "" */
} report_kernel_t;

typedef struct report {
    st_arena_t arena; /* holds what the rest points to */
    const char *target;
    uint64_t region_bytes[PLAN_REGION_END];
    uint64_t total_bytes, live_bound_bytes, capacity_bytes; /* capacity 0: not known */
    uint64_t kind_bytes[REPORT_KINDS];
    uint32_t peak_step; /* the fullest moment */
    uint32_t n_tensors, n_kernels;
    report_tensor_t *tensors; /* largest first */
    report_kernel_t *kernels; /* most time first */
    uint64_t n_launches, n_collectives;
    double us; /* the step: forward, backward and optimizer, each its kernels alone, and exposed */
    double us_forward, us_backward, us_optimizer, us_exposed;
    double us_link, us_peers; /* simulate.h */
    double flop;              /* executed by this rank: all ops, recomputed ones again */
    double product_flop;      /* of these in products, convolutions and attention */
    double model_flop;  /* products of the model's own graph, this rank's share: nothing twice */
    double peak_gflops; /* of products in the type that most of them are in */
    double bytes_moved, bytes_layout_copied;
} report_t;

/* Of the program that `rank` runs. */
st_status_t report_make(const plan_t *plan, const target_t *target, uint32_t rank,
                        report_t **out_report) ST_WARN_UNUSED;
/* The same without time: memory only, of one program, whose plan need not be finished. */
st_status_t report_memory(const plan_t *plan, const target_t *target, uint32_t program,
                          report_t **out_report) ST_WARN_UNUSED;
void report_destroy(report_t *report); /* NULL is fine */

#endif
