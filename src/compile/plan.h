/* The plan: everything the runtime needs, nothing else. Immutable once made; protobuf on disk,
 * readable as text.
 *
 *   plan ─┬ header: options, hash and copy of the source graph, so that another rank count
 *         │    can be planned
 *         ├ mesh, and inputs, outputs, states: the global view that callers see
 *         ├ programs[]: one for each distinct rank program
 *         │    graph          local shapes, nodes in execution order
 *         │    places[value]  region, offset, bytes
 *         │    steps[node]    kernel, workspace
 *         └ program_of[rank]
 *
 * Regions of a rank:
 *   state  parameters, buffers, moments: lives as long as the session; shareable between plans
 *   work   inputs, constants, activations, gradients, kernel scratch, outputs
 *   comm   buffers of collectives
 *   feeds  inputs of the next step, one after the other, copied while a step runs; option
 *          feed-ahead */
#ifndef STATOR_COMPILE_PLAN_H
#define STATOR_COMPILE_PLAN_H

#include "ir/mesh.h"

enum { PLAN_VERSION = 1, PLAN_ALIGNMENT = 64 };

typedef enum plan_region {
    PLAN_NOWHERE = 0, /* value that needs no memory: never read, or zero bytes */
    PLAN_STATE,
    PLAN_WORK,
    PLAN_COMM,
    PLAN_FEEDS, /* no value lies there: inputs are copied to their places from it */
    PLAN_REGION_END
} plan_region_t;

typedef struct plan_place {
    plan_region_t region;
    uint64_t offset, bytes;
    uint32_t storage; /* values of one storage share memory on purpose (views, in place, updates) */
} plan_place_t;

typedef enum plan_step_kind {
    PLAN_STEP_NOTHING = 0, /* sources, views, updates done in place */
    PLAN_STEP_KERNEL,
    PLAN_STEP_COPY,  /* update whose value was computed elsewhere: input 1 → input 0 */
    PLAN_STEP_START, /* collective */
    PLAN_STEP_WAIT,
    PLAN_STEP_REGION, /* control flow: runs the step's bodies (plan_body.h) */
} plan_step_kind_t;

typedef struct plan_step {
    plan_step_kind_t kind;
    const char *kernel; /* name in the kernel table; NULL unless PLAN_STEP_KERNEL */
    plan_place_t workspace;
    uint32_t ticket; /* collectives: index within the step, equal on all ranks */
    uint32_t n_bodies;
    struct plan_program *bodies; /* their work region lies in `workspace` */
} plan_step_t;

typedef struct plan_program {
    ir_graph_t *graph;    /* local shapes; array order is execution order */
    plan_place_t *places; /* [graph->values.n] */
    plan_step_t *steps;   /* [graph->nodes.n] */
    uint64_t region_bytes[PLAN_REGION_END];
    uint64_t live_bound_bytes; /* largest sum of live bytes of `work` at any step */
} plan_program_t;

/* What runs a second time for the backward pass, in the program of the rank that needs most
 * memory. */
typedef struct plan_recompute {
    uint32_t n_nodes, n_products; /* products, convolutions and the like are counted twice */
    uint64_t freed_bytes;         /* of values that are no more kept for it */
    double flop, bytes_moved;     /* of these nodes, each a kernel of its own */
    double extra_us;              /* predicted; less than 0: it saves time */
} plan_recompute_t;

/* An input, output or state as the caller sees it. */
typedef struct plan_port {
    const char *name;
    ir_type_t type;             /* global */
    ir_placement_t *placements; /* [axes of the mesh]; granules may be IR_GRANULES_EACH */
} plan_port_t;

typedef struct plan_option {
    const char *key, *value;
} plan_option_t;

/* What else the placements could have been, and which were chosen: of one axis (sharding.h), or of
 * a whole mesh, whose text `axis` then is (contest.h). */
typedef struct plan_alternative {
    const char *axis, *name;
    bool chosen, fits;
    double step_us, exposed_us;
    double compiled_us; /* of the plan that was compiled with it, simulated; 0: none was */
    uint64_t state_bytes, live_bytes;
    const char *
        reason; /* why there is nothing of it: nothing was searched for, or it cannot be lowered, or
                         * does not fit; NULL: there is */
} plan_alternative_t;

typedef struct plan {
    st_arena_t arena;
    uint64_t graph_hash; /* of the encoded source graph */
    ir_graph_t *source;
    ir_mesh_t mesh;              /* of n_ranks ranks */
    uint32_t n_ranks, n_threads; /* threads a rank; sizes of workspaces depend on it */
    uint64_t timeout_ms;         /* bound of every wait for peers; 0: 60 s */
    bool shares_state; /* state lies as another plan has it, with gaps: only a session of that plan
                          has the memory */
    const char *device;
    uint32_t n_options, n_inputs, n_outputs, n_states, n_programs;
    plan_option_t *options;
    uint32_t n_alternatives; /* of a search for placements; not in files */
    const struct plan_alternative *alternatives;
    struct fuse_report *fusion; /* fusion/fuse.h; NULL unless compile_options_t.explain */
    plan_port_t *inputs, *outputs, *states;
    ir_graph_t *ports; /* where programs have different ones, their inputs and states together */
    plan_program_t *programs;
    uint32_t *program_of; /* [n_ranks] */
    plan_recompute_t recompute;
} plan_t;

void plan_destroy(plan_t *plan); /* NULL is fine */
/* A graph with the nodes of all inputs and states, and their aliases; its types are those of some
 * rank. */
const ir_graph_t *plan_ports(const plan_t *plan);
/* Makes plan->ports where it is needed: the programs and ports are there. */
st_status_t plan_make_ports(plan_t *plan) ST_WARN_UNUSED;
/* The state `name`, an alias counts; NULL: there is none. */
const plan_port_t *plan_state(const plan_t *plan, const char *name);
/* Memory layout of state by name in program `p`: its place, or NULL. */
const plan_place_t *plan_state_place(const plan_program_t *program, const char *name);

/* Bytes of the feeds region that holds all inputs of the program: in the order of its nodes, each
 * aligned. */
uint64_t plan_feeds_bytes(const plan_program_t *program);
/* Whether the ranks have that region; on a rank whose parts of all inputs are empty it is, too. */
bool plan_feeds_ahead(const plan_t *plan);

/* What the plan remembers of an option, NULL: nothing. */
const char *plan_option(const plan_t *plan, const char *key);
/* Name of the target that the plan is for; plans of before there were any are for "cpu". */
const char *plan_target(const plan_t *plan);

/* Hash of all that decides a plan (cache.h); from the header alone. */
uint64_t plan_key(const plan_t *plan);
/* The same for another build of the program, and another text of the built-in target. */
uint64_t plan_key_for(const plan_t *plan, const char *build, const void *target_text,
                      size_t target_bytes);

/* Bytes of a file (".plan"): versioned, checksummed. */
st_status_t plan_encode(const plan_t *plan, uint8_t **out_data, size_t *out_bytes) ST_WARN_UNUSED;
st_status_t plan_decode(const void *data, size_t bytes, plan_t **out_plan) ST_WARN_UNUSED;
/* Text view; the caller frees *out_text with st_free. */
st_status_t plan_print(const plan_t *plan, char **out_text) ST_WARN_UNUSED;
/* Proves, from the plan alone: places inside their regions and aligned, no two live values of
 * different storages overlap, inputs written before read, states updated after their last reader,
 * shadows with their weights, all ranks of a stage have the same collectives in order, kind and
 * mesh axis, in dtype and size among the ranks that take part together, sends meet receives of
 * their type, and all come to an end. Independent of the planner. */
st_status_t plan_check(const plan_t *plan) ST_WARN_UNUSED;

#endif
