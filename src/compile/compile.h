/* Compiling: a training, evaluation or inference graph in, a plan out. */
#ifndef STATOR_COMPILE_COMPILE_H
#define STATOR_COMPILE_COMPILE_H

#include "compile/plan.h"
#include "shard/forms.h"
#include "shard/pipe_order.h"

/* Which activations are computed again for the backward pass. */
typedef enum compile_recompute {
    COMPILE_RECOMPUTE_AUTO =
        0,                   /* what costs no time; on devices whose memory is known: up to 2 % of
                                 * the step */
    COMPILE_RECOMPUTE_OFF,   /* none, unless there is a limit of memory */
    COMPILE_RECOMPUTE_FUSED, /* all that loop nests take in: all but products and the like */
    COMPILE_RECOMPUTE_FULL,  /* products too: what is left are the values between layers */
} compile_recompute_t;

/* What may be left to the compiler. */
typedef enum compile_switch {
    COMPILE_AUTO = 0,
    COMPILE_ON,
    COMPILE_OFF,
} compile_switch_t;

typedef struct compile_options {
    const char *target; /* description to plan for, by name or file; NULL: "cpu" */
    const char *device; /* what will run the plan: the target's ("cpu", "cuda"), or "null", which
                             * computes nothing; NULL: the target's */
    ir_mesh_t mesh;     /* n = 0: a data axis of n_ranks */
    uint32_t n_ranks;   /* ≥ 1; that of the mesh if there is one */
    shard_context_t context_attention; /* of a context axis */
    shard_schedule_t schedule;         /* of a pipe axis */
    uint32_t stages_per_rank;          /* of a pipe axis, ≥ 1 */
    const char *pins;                  /* placements asked for (shard/pins.h); NULL: none */
    shard_form_t form; /* how the data axis holds states; not with state_of, whose plan has one */
    bool
        auto_sharding; /* placements are searched for instead (sharding.h); the plan tells what else
                         * there was */
    const char *searched_axis; /* with auto_sharding: the one axis that is searched, others do what
                                * their names say; NULL: all are */
    uint32_t n_threads;        /* a rank, ≥ 1 */
    ir_dtype_t dtype;          /* IR_DTYPE_NONE: as the graph says; IR_F64: every float is float64;
                         * IR_BF16, IR_F16: computes in it where the policy says so */
    bool reference_kernels;    /* reference implementations only */
    bool evaluation;           /* norms and dropout in evaluation mode; updates dropped */
    uint64_t bucket_bytes; /* of a merged collective at most; 0: searched for (schedule/hide.h) */
    compile_recompute_t recompute;
    compile_switch_t feed_ahead; /* room for the inputs of one step more; AUTO: where the device's
                                  * memory is not the host's */
    uint64_t memory_limit;       /* of all regions of a rank; more is recomputed until they fit.
                             * 0: the memory of the target's machine, where it is known */
    uint32_t only_items; /* plan for the first items of the batch alone, on one rank: says how much
                             * memory they would take, and cannot be run; 0: all */
    bool no_advice;  /* a plan that does not fit says no more than that: no search for what would */
    bool no_fusion;  /* each node by itself */
    bool explain;    /* the plan tells what was fused, and why not more */
    bool primitives; /* composites as their definitions, each node by itself: what fusion is
                             * measured against */
    /* Weights are kept in the type that is computed in, too. AUTO: on GPUs, where that takes little
     * of the memory. A plan of evaluation has none. */
    compile_switch_t shadows;
    bool wide_gradients;    /* with bf16 or f16: ranks sum gradients in float32 */
    bool no_layout;         /* transposes stay where they are */
    const plan_t *state_of; /* lay the state out as in this plan: sessions then share it */
    uint64_t timeout_ms;    /* bound of every wait for peers; 0: 60 s */
    const char *plan_cache; /* folder of plans to look in first (cache.h); NULL: none. Plans with
                             * `state_of` are not kept */
    const char *dump; /* pass name, "all", or NULL: print the graph after that pass to stderr */
} compile_options_t;

/* 0-filled options mean: cpu, one rank, one thread. The graph is not changed. */
st_status_t compile_plan(const ir_graph_t *graph, const compile_options_t *options,
                         plan_t **out_plan) ST_WARN_UNUSED;

/* Time of each pass of the last compile_plan on this thread, for `stator compile --json` and tests.
 */
typedef struct compile_timing {
    const char *pass;
    double us;
} compile_timing_t;
size_t compile_timings(const compile_timing_t **out_timings);

#endif
