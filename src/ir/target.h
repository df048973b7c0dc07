/* What passes may ask of the device that the plan is for: what there is, what a node costs, whether
 * it can run at all. The compile step fills this in from a target description and the kernel table;
 * passes know no kernels. */
#ifndef STATOR_IR_TARGET_H
#define STATOR_IR_TARGET_H

#include "ir/mesh.h"

enum { IR_CACHES = 3 };

/* The device as data. Rates are what well-made programs sustain, not what the maker prints. */
typedef struct ir_machine {
    const char *name;   /* "cpu", "h200" */
    const char *device; /* what runs plans for it: "cpu", "cuda" */
    uint32_t n_cores;   /* cores, multiprocessors */
    uint32_t n_threads; /* of the plan that is being made, a rank; 1 on devices without threads */
    uint32_t n_ranks;   /* of the plan */
    ir_mesh_t mesh;     /* of these ranks */
    double clock_ghz;   /* of a core */
    uint64_t memory_bytes;           /* that one rank may plan with; 0: not known */
    uint64_t cache_bytes[IR_CACHES]; /* nearest first, as one core sees them; 0: there is none */
    double memory_gbps;              /* 1e9 bytes a second, read and written, far from all caches */
    double launch_us;                /* of one kernel, however small */
    double link_us;                  /* a collective among ranks: time of a step of the ring … */
    double link_gbps;                /* … and bytes a second over one link */
    uint32_t host_ranks;             /* ranks of one host, which those links join; 0: all */
    double host_link_us, host_link_gbps; /* the same of a rank's link between hosts */
    double link_overlap; /* share of a collective that runs beside kernels, 0 to 1 */
} ir_machine_t;

/* What running a node once takes. */
typedef struct ir_cost {
    double us;                        /* launches included */
    double compute_us;                /* of arithmetic alone; 0 where that was not told apart */
    double flop;                      /* as executed; a multiply-add is two */
    double product_flop;              /* the part in products, convolutions and attention */
    double bytes_read, bytes_written; /* to and from memory: every operand once */
    uint32_t launches;
    size_t workspace;   /* bytes; ST_SIZE_TOO_LARGE: they overflow */
    const char *kernel; /* what would run: "cpu.matmul.onednn", "cublaslt.matmul"; NULL: nothing,
                         * the node is a view or a source */
    const char *limit;  /* what the time goes to: "compute", "memory", "launch", "link" */
    st_status_t status; /* NO_MEMORY: a body could not be read, and no number here counts */
} ir_cost_t;

typedef struct ir_target {
    const char *name; /* "cpu" */
    void *context;    /* given to the functions */
    /* Computes a pure node on the host, for constant folding: in[j] and out[k] are dense row-major
     * elements of ctx->in[j] and out_types[k], aligned to 16 bytes. ST_UNSUPPORTED: the target has
     * no host implementation, and the node stays; other failures are errors of the graph (an index
     * out of range) or of the machine. NULL: nothing folds. */
    st_status_t (*evaluate)(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                            const void *const *in, void *const *out);
    const ir_machine_t *machine; /* NULL: not known; so it is where tests make a bare target */
    /* Fills in *out, whose status says whether that was possible: a node that nothing on the device
     * can run is costed by its bytes and operations, with kernel NULL. Pure: equal nodes cost the
     * same. A `fused` node costs what its body does in one launch with its edges moved once. NULL
     * where `machine` is. */
    void (*cost)(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types, ir_cost_t *out);
    /* Whether a kernel of the device runs the node; if not, *out_reason says why (a static text, or
     * one that lives until the thread's next call). Views and sources need none: true. */
    bool (*can_run)(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                    const char **out_reason);
    /* How the node's sums are added up on the device: equal for two nodes only where every sum
     * takes its terms in the same order and groups, so that its bits are the same. NULL: not
     * known. */
    st_status_t (*sums)(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                        uint64_t *out_hash);
} ir_target_t;

/* The call for a node of a graph. Needs `cost`. NO_MEMORY only. */
st_status_t ir_target_cost(const ir_target_t *target, const ir_graph_t *graph, ir_node_t node,
                           ir_cost_t *out) ST_WARN_UNUSED;

#endif
